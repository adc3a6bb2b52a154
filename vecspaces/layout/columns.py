"""Many values at once: what costs one pass of NumPy a leaf, where one by one costs a call a row.

Each function here does its work if every value is just what its place takes, and says False or None
if one is not: then the values are taken one by one, cast, or refused by name.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecspaces.layout.nodes import SEQUENCES, Record

_SMALL = 65536
"""Bytes of a batch of vectors up to which joining their bytes is faster than `np.concatenate`."""


def join(values: list[Any], out: NDArray[Any]) -> bool:
    """Write arrays of the very dtype and shape of the rows of `out` in one pass.

    Args:
        values: As many as `out` has rows.
        out: Shape `(n, first, ...)`.

    Returns:
        Whether they were such arrays; if not, nothing is written.
    """
    n, dtype = len(values), out.dtype
    try:
        if not out.flags.c_contiguous or list(map(len, values)).count(out.shape[1]) != n:
            return False
        if out.ndim > 2 or out.nbytes > _SMALL:
            # NumPy compares the dtypes, the number of axes, and all axes but the first.
            np.concatenate(values, out=out.reshape(-1, *out.shape[2:]), casting="no")
        elif [v.dtype for v in values].count(dtype) == n == [v.ndim for v in values].count(1):
            out.data.cast("B")[:] = b"".join(values)
        else:
            return False
    except (AttributeError, BufferError, TypeError, ValueError):
        return False  # lists, strided arrays, or another dtype or shape
    return True


def fill(values: list[Any], out: NDArray[Any]) -> bool:
    """Write scalars of the very dtype of `out`, an array `(n,)`, in one pass; see `join`."""
    if list(map(type, values)).count(out.dtype.type) != len(values):
        return False
    out[:] = values
    return True


def split(node: Record, values: list[Any]) -> list[list[Any]] | None:
    """Take many values of a record apart.

    Args:
        node: The record.
        values: The values.

    Returns:
        One list for each member; None where a value has not exactly these members.
    """
    try:
        if list(map(len, values)).count(len(node.keys)) != len(values):
            return None
        if node.container is tuple and not all(isinstance(value, SEQUENCES) for value in values):
            return None
        return [list(map(itemgetter(key), values)) for key in node.keys]
    except (IndexError, KeyError, TypeError):
        return None
