"""Columns: many values of one leaf at once, in one pass of NumPy instead of one call per row.

Each function does its work if every value has exactly the dtype and shape of its row, else returns
False or None; the caller then takes the values one by one, casts them, or raises for one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecspaces.layout.nodes import SEQUENCES, Record

_SMALL = 65536
"""Bytes of a batch of vectors up to which joining their bytes is faster than `np.concatenate`."""


def writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    """Return the function that writes values of the very dtype and shape of the rows of `out`.

    Called with one value per row, it writes them in one pass; it returns False, and writes nothing,
    if one of them is anything else.
    """
    if out.ndim == 1:
        return _scalar_writer(out)
    if not out.flags.c_contiguous or not out.size:
        return lambda values: False
    return _vector_writer(out) if out.ndim == 2 and out.nbytes <= _SMALL else _array_writer(out)


def _scalar_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    scalar, n = out.dtype.type, len(out)

    def write(values: list[Any]) -> bool:
        if list(map(type, values)).count(scalar) != n:
            return False
        out[:] = values
        return True

    return write


def _vector_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    dtype, shape, ndarray = out.dtype, out.shape[1:], np.ndarray
    place = out.reshape(-1).view(np.uint8).data

    def write(values: list[Any]) -> bool:
        try:
            for value in values:
                if value.__class__ is not ndarray or value.shape != shape:
                    return False
                # A dtype out of a pickle is another object than NumPy's own.
                if value.dtype is not dtype and value.dtype != dtype:
                    return False
            place[:] = b"".join(values)
        except (BufferError, ValueError):
            return False  # strided arrays, or a dtype that has no buffer
        return True

    return write


def _array_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    n, first, joined = len(out), out.shape[1], out.reshape(-1, *out.shape[2:])

    def write(values: list[Any]) -> bool:
        try:
            if list(map(len, values)).count(first) != n:
                return False
            # NumPy compares the dtypes, the number of axes, and all axes but the first.
            np.concatenate(values, out=joined, casting="no")
        except (TypeError, ValueError):
            return False  # lists, or another dtype or shape
        return True

    return write


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
