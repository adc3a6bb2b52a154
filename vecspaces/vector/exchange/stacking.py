"""Arrays of values that several environments report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.layout.columns import FLOATS
from vecspaces.vector.exchange.snapshots import IMMUTABLE, snapshot

# NumPy makes one array of these; it rounds only integers that no dtype can represent together.
NUMBERS = FLOATS | {int, bool, np.int64, np.int32}
NUMERIC = frozenset("biufc")
DICT, ARRAY = frozenset((dict,)), {np.ndarray}
_PLAIN = (int, float, bool)
_INTEGERS = (int, np.integer, np.bool_)


def stack(values: Sequence[Any]) -> npt.NDArray[Any] | None:
    """Make one array of values, of objects if necessary; None: all are dicts."""
    types = set(map(type, values))
    if types == ARRAY and values[0].dtype.kind in NUMERIC:
        try:
            stacked = np.array(values)
        except ValueError:  # of several shapes
            return objects(values)
        if stacked.dtype is values[0].dtype:  # as it is at nearly every step
            return stacked
    elif types == DICT:
        return None
    elif types <= NUMBERS:
        return _stack_numbers(values, types)
    elif types <= IMMUTABLE:
        return np.array(values, object)
    kind, *others = set(map(_kind, values))
    if others or kind is None:
        return objects(values)
    if kind == "dict":
        return None
    if kind == "number":
        return _stack_numbers(values, types)
    return _stack_arrays(values)


def _kind(value: Any) -> Any:
    """Return the kind of values that may become one array: numbers, dicts, arrays of one shape."""
    kind = type(value)
    if kind in _PLAIN:
        return "number"
    if issubclass(kind, np.number):  # NumPy also counts timedelta64
        return "number" if value.dtype.kind in NUMERIC else ((), value.dtype)
    if issubclass(kind, dict):
        return "dict"
    # Masked entries of a masked array have no value.
    if issubclass(kind, np.ndarray) and not hasattr(kind, "mask"):
        code = value.dtype.kind
        if value.shape == () and code in NUMERIC:
            return "number"
        return value.shape, "number" if code in NUMERIC else code if code in "US" else value.dtype
    return None


def _stack_numbers(values: Sequence[Any], types: set[type]) -> npt.NDArray[Any]:
    """Make one array of numbers, of objects if integers would be rounded."""
    scalars = values
    if not types <= NUMBERS:
        scalars = [value[()] if isinstance(value, np.ndarray) else value for value in values]
        types = set(map(type, scalars))
    stacked = np.array(scalars)
    # NumPy makes objects of integers beyond 64 bits, but rounds integers of two ranges.
    is_rounded = stacked.dtype.kind == "f" and all(issubclass(kind, _INTEGERS) for kind in types)
    return objects(values) if is_rounded or stacked.dtype.kind == "O" else stacked


def _stack_arrays(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Make one array of arrays of one shape, of objects if integers would be rounded."""
    dtypes = {value.dtype for value in values}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        if dtype.kind == "O":
            values = [snapshot(value) for value in values]
        return np.stack(list(map(np.asarray, values)), dtype=dtype)
    codes = {dtype.kind for dtype in dtypes}
    if codes <= set("biu") and np.result_type(*dtypes).kind not in "biu":
        return objects(values)
    return np.stack(list(map(np.asarray, values)))


def are_alike(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether arrays have one dtype and one shape."""
    dtype, shape, count = arrays[0].dtype, arrays[0].shape, len(arrays)
    # This takes a third of the time of `all`.
    return [array.dtype for array in arrays].count(dtype) == count and [
        array.shape for array in arrays
    ].count(shape) == count


def objects(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Make a 1-d array of any objects; those that environments may reuse are copied."""
    array = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        array[position] = value if value.__class__ in IMMUTABLE else snapshot(value)
    return array
