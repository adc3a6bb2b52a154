"""Columns: many values of one leaf at once, in one pass of NumPy instead of one call per row.

Each function does its work if every value has exactly the dtype and shape of its row, else returns
False or None; the caller then takes the values one by one, casts them, or raises for one of them.
"""

from __future__ import annotations

import struct
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
    own, pack_all = {out.dtype.type}, _packer(out)

    def write(values: list[Any]) -> bool:
        kinds = set(map(type, values))
        if kinds == own:
            out[:] = values
            return True
        return pack_all is not None and pack_all(values, kinds)

    return write


# What `struct` packs as a cast would convert it, by the codes that NumPy and it share.
_WHOLE = frozenset((bool, int))
_REAL = _WHOLE | {float, np.float64, np.float32}
_PACKED = {
    **dict.fromkeys("bBhHiIlLqQ", _WHOLE),
    **dict.fromkeys("efd", _REAL),
    "?": frozenset((bool, np.bool_)),
}


def _packer(out: NDArray[Any]) -> Callable[[list[Any], set[type]], bool] | None:
    """Return the function that writes Python's numbers, given with the set of their types."""
    code = out.dtype.char
    if code not in _PACKED or not out.dtype.isnative or not out.flags.c_contiguous or not len(out):
        return None
    accepted = _PACKED[code] | {out.dtype.type}
    pack, memory = struct.Struct(f"{len(out)}{code}").pack_into, out.data.cast("B")

    def write(values: list[Any], kinds: set[type]) -> bool:
        if not kinds <= accepted:
            return False
        try:
            # Integers beyond 64 bits are no numbers of NumPy's, and are refused one by one.
            if int in kinds and not (min(values) >= -(2**63) and max(values) < 2**64):
                return False
            pack(memory, 0, *values)
        except (OverflowError, struct.error):
            return False  # one that is out of range
        return True

    return write


def _vector_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    dtype, shape, ndarray = out.dtype, out.shape[1:], np.ndarray
    place = out.reshape(-1).view(np.uint8).data
    cast_all = _array_writer(out)

    def write(values: list[Any]) -> bool:
        try:
            for value in values:
                if value.__class__ is not ndarray or value.shape != shape:
                    return False
                # A dtype out of a pickle is another object than NumPy's own.
                if value.dtype is not dtype and value.dtype != dtype:
                    return cast_all(values)
            place[:] = b"".join(values)
        except (BufferError, TypeError, ValueError):
            return cast_all(values)  # strided arrays, or a dtype that has no buffer
        return True

    return write


def _array_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    n, first, joined = len(out), out.shape[1], out.reshape(-1, *out.shape[2:])

    def write(values: list[Any]) -> bool:
        try:
            if list(map(len, values)).count(first) != n:
                return False
            # NumPy compares the dtypes, the number of axes, and all axes but the first.
            np.concatenate(values, out=joined, casting="safe")
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
