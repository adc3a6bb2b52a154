"""Columns: many values of one leaf at once, in one pass of NumPy instead of one call per row.

Each function does its work if every value has exactly the dtype and shape of its row, else returns
False or None; the caller then takes the values one by one, casts them, or raises for one of them.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecspaces.layout.nodes import SEQUENCES, Record

_SMALL = 65536
"""Bytes of a batch of vectors up to which joining their bytes is faster than `np.concatenate`."""


def write(values: list[Any], out: NDArray[Any]) -> bool:
    """Write values of the very dtype and shape of the rows of `out` in one pass.

    Returns False, and writes nothing, if one of them is anything else.
    """
    n, dtype = len(values), out.dtype
    if out.ndim == 1:  # scalars
        if list(map(type, values)).count(dtype.type) != n:
            return False
        out[:] = values
        return True
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


def split(node: Record, values: list[Any]) -> list[list[Any]] | None:
    """Return one list per member of many values of a record; None if one is no such record."""
    try:
        if list(map(len, values)).count(len(node.keys)) != len(values):
            return None
        if node.container is tuple and not all(isinstance(value, SEQUENCES) for value in values):
            return None
        return [list(map(itemgetter(key), values)) for key in node.keys]
    except (IndexError, KeyError, TypeError):
        return None
