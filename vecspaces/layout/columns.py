"""Fast paths: many values of one leaf written in one NumPy call, if all fit without a cast.

Each function requires that every value has exactly the dtype and shape of its row, and otherwise
returns False or None. The caller then writes each value separately, with casts and errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecspaces.checks import RAISED
from vecspaces.layout.nodes import SEQUENCES, Record

_JOINED_BYTES = 65536
"""Up to so many bytes, joining the bytes of vectors is faster than `np.concatenate`."""


def writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    """Return the function that writes one value per row, or returns False if one does not fit."""
    if out.ndim == 1:
        return _scalar_writer(out)
    if not out.flags.c_contiguous or not out.size:
        return lambda values: False
    write_arrays, length = _array_writer(out), out.shape[1]
    write_parts: Callable[[list[Any]], bool] | None = None  # large, and seldom needed

    def write(values: list[Any]) -> bool:
        nonlocal write_parts
        if tuple not in (values[0].__class__, values[-1].__class__):
            return write_arrays(values)
        # Values may be tuples of the parts of an array, which are then written in the same pass.
        write_parts = write_parts or writer(out.reshape(-1, *out.shape[2:]))
        try:
            lengths = list(map(len, values))
            return lengths.count(length) == len(values) and write_parts([*chain(*values)])
        except RAISED:  # a value that cannot be iterated over
            return False

    joins = out.ndim == 2 and out.nbytes <= _JOINED_BYTES
    return _vector_writer(out, write) if joins else write


#: Numbers of these types can be stored as float64 without loss.
FLOATS = frozenset((float, np.float64, np.float32))
# `struct` packs these types as a cast would convert them, and has the same codes as NumPy.
_WHOLE = frozenset((bool, int))
_REAL = _WHOLE | FLOATS
_PACKED: dict[str, frozenset[type]] = {
    **dict.fromkeys("bBhHiIlLqQ", _WHOLE),
    **dict.fromkeys("efd", _REAL),
    "?": frozenset((bool, np.bool_)),
}


def _scalar_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    code, expected = out.dtype.char, {out.dtype.type}
    packs = code in _PACKED and out.dtype.isnative and out.flags.c_contiguous and len(out) > 0
    accepted = _PACKED[code] | expected if packs else frozenset()
    pack = struct.Struct(f"{len(out)}{code}" if packs else "").pack_into
    memory = out.data.cast("B") if packs else bytearray()
    # NumPy has no integers beyond 64 bits: the caller refuses the value. Integers that float64
    # rounds would be rounded twice when they are cast to a narrower float.
    smallest, largest = (-(2**53), 2**53) if code in "ef" else (-(2**63), 2**64)
    # The usual case: Python numbers, which `struct` refuses out of range.
    plain = [float if code in "efd" else bool if code == "?" else int] * len(out)

    def write(values: list[Any]) -> bool:
        if not packs or [value.__class__ for value in values] != plain:
            kinds = set(map(type, values))
            if kinds == expected:
                out[:] = values
                return True
            if not kinds <= accepted:
                return False
            if int in kinds and not (min(values) >= smallest and max(values) < largest):
                return False
        try:
            pack(memory, 0, *values)
        except (OverflowError, struct.error):
            return False  # a number out of range
        return True

    return write


_get_dtype, _get_ndim = attrgetter("dtype"), attrgetter("ndim")


def _vector_writer(
    out: NDArray[Any], otherwise: Callable[[list[Any]], bool]
) -> Callable[[list[Any]], bool]:
    n, dtype, length = len(out), out.dtype, out.shape[1]
    place = out.reshape(-1).view(np.uint8).data
    # A bool is stored like an integer of one byte.
    same = [dtype, np.dtype(bool)] if dtype.char in "bB" else [dtype]

    def write(values: list[Any]) -> bool:
        try:
            first = values[0].dtype
            if (
                first in same
                and list(map(_get_dtype, values)).count(first) == n
                and list(map(_get_ndim, values)).count(1) == n
                and list(map(len, values)).count(length) == n
            ):
                place[:] = b"".join(values)
                return True
        except RAISED:  # lists, strided arrays, a dtype that has no buffer, or foreign objects
            pass
        return otherwise(values)

    return write


def _array_writer(out: NDArray[Any]) -> Callable[[list[Any]], bool]:
    n, first, joined = len(out), out.shape[1], out.reshape(-1, *out.shape[2:])

    def write(values: list[Any]) -> bool:
        try:
            if list(map(len, values)).count(first) != n:
                return False
            # NumPy compares the dtypes, the number of axes, and all axes but the first.
            np.concatenate(values, out=joined, casting="safe")
        except RAISED:  # lists, another dtype or shape, or whatever an __array__ raises
            return False
        return True

    return write


def split_record(node: Record, values: list[Any]) -> list[list[Any]] | None:
    """Return one list of values per member; None if a value is not such a record."""
    try:
        if list(map(len, values)).count(len(node.keys)) != len(values):
            return None
        if node.container is tuple and not all(isinstance(value, SEQUENCES) for value in values):
            return None
        return [list(map(itemgetter(key), values)) for key in node.keys]
    except RAISED:  # not a mapping, one without these keys, or an error of a foreign mapping
        return None
