"""Merging the infos of environments into arrays, once, for every backend.

Infos travel as *columns*: for each key the values of some rows, and which rows they are. A worker
merges the infos of its slice, so that a few arrays cross the pipe instead of many dicts; the caller
joins the slices, and `finish` gives the form that users know: for each key an array with one entry
per environment, and under `_key` a mask of the environments that reported it.

Merging is associative: joining slices gives what merging all infos at once gives.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.layout.columns import FLOATS

RowIndices = npt.NDArray[np.intp]

_PLAIN = (int, float, bool)
# Of these and no others, NumPy makes one array as they are, unless all are integers that no dtype
# holds together, which it rounds.
_NUMBERS = FLOATS | {int, bool, np.int64, np.int32}
_INTEGERS = (int, np.integer)
_INT64 = np.iinfo(np.int64)
_NUMERIC = frozenset("biufc")
_OF_MANY_DTYPES = (np.ndarray, np.timedelta64)
_IMMUTABLE = frozenset((int, float, bool, str, bytes, type(None)))

_DICT = {dict}
_FIRST: RowIndices = np.zeros(1, dtype=np.intp)


@dataclass(slots=True)
class Column:
    """The values of one key, one per row of `rows`, in that order; columns where all are dicts."""

    rows: RowIndices
    values: npt.NDArray[Any] | Columns


Columns = dict[str, Column]


def to_plain(columns: Columns) -> list[tuple[Any, ...]]:
    """Take columns apart for the way to the caller: bytes pickle in a tenth of an array's time."""
    plain: list[tuple[Any, ...]] = []
    rows: RowIndices | None = None
    for key, column in columns.items():
        values = column.values
        where = None if column.rows is rows else column.rows.tobytes()
        rows = column.rows
        if isinstance(values, dict):
            plain.append((key, where, to_plain(values)))
        elif values.dtype.kind in _NUMERIC:
            plain.append((key, where, values.tobytes(), values.dtype.str, values.shape))
        else:
            plain.append((key, where, values))
    return plain


def from_plain(plain: list[tuple[Any, ...]]) -> Columns:
    """Put together what `to_plain` took apart, in a process on the same machine."""
    columns: Columns = {}
    rows = np.empty(0, dtype=np.intp)
    for key, where, values, *form in plain:
        if where is not None:
            rows = np.frombuffer(where, np.intp)
        if form:
            values = np.frombuffer(values, form[0]).reshape(form[1])
        elif isinstance(values, list):
            values = from_plain(values)
        columns[key] = Column(rows, values)
    return columns


def merge(infos: Mapping[int, Mapping[str, Any]], apart: bool = False) -> Columns:
    """Merge infos of single environments, given by their rows.

    With `apart`, values of different types or dtypes stay objects, as the rows may be handed out
    one by one: which of them came together depends on the time, and their dtypes must not.

    Numbers of one key are promoted to a dtype that holds them all; Gymnasium 1.4.0 takes the dtype
    of the first value and truncates the others. Arrays of one shape are stacked; anything else
    becomes an array of objects.
    """
    every, same = list(infos), list(infos.values())
    keys = same[0].keys() if same else ()
    # As it is at nearly every step. Of as many keys none is another where each of the first info's
    # is found; a subclass of dict may find what it does not have.
    if len(same) == 1 or (
        sum(map(len, same)) == len(keys) * len(same) and set(map(type, same)) == _DICT
    ):
        at = np.array(every, dtype=np.intp)
        try:
            return {
                key: Column(at, _stack(key, every, [info[key] for info in same], apart))
                for key in keys
            }
        except KeyError:
            pass  # as many keys, but others
    gathered: dict[str, tuple[list[int], list[Any]]] = {}
    for row, info in infos.items():
        for key, value in info.items():
            try:
                rows, values = gathered[key]
            except KeyError:
                gathered[key] = [row], [value]
            else:
                rows.append(row)
                values.append(value)
    return {
        key: Column(np.array(rows, dtype=np.intp), _stack(key, rows, values, apart))
        for key, (rows, values) in gathered.items()
    }


def _stack(
    key: str, rows: list[int], values: list[Any], apart: bool = False
) -> npt.NDArray[Any] | Columns:
    """Make one array, or nested columns, of the values of a key."""
    if key == "final_obs":
        return _objects(values)
    types = set(map(type, values))
    if apart and not _is_one_type(types, values):
        return _objects(values)
    if types <= _NUMBERS:
        array = np.array(values)
        return array if array.dtype.kind != "f" or types & FLOATS else _objects(values)
    if len(types) == 1:
        first = values[0]
        if not isinstance(first, np.ndarray):
            return _stack_kind(_kind(first), rows, values, apart)
        # As it is at nearly every step. NumPy takes an axis more for each array with `np.stack`.
        if np.ndarray in types and first.ndim and first.dtype != object and _are_alike(values):
            return np.concatenate(values).reshape(len(values), *first.shape)
    groups: dict[Any, list[int]] = {}
    for position, value in enumerate(values):
        groups.setdefault(_kind(value), []).append(position)
    if len(groups) == 1:
        return _stack_kind(next(iter(groups)), rows, values, apart)
    # Values of different kinds are objects, each promoted as in a slice that holds its kind alone:
    # results do not depend on the slices.
    items = list(values)
    for kind, positions in groups.items():
        chosen = [rows[position] for position in positions]
        own = [values[position] for position in positions]
        stacked = _stack_kind(kind, chosen, own, apart)
        cells = _cells(Column(np.array(chosen, dtype=np.intp), stacked))
        for position, cell in zip(positions, cells, strict=True):
            items[position] = cell
    return _objects(items)


def _is_one_type(types: set[type], values: list[Any]) -> bool:
    """Whether each value has the dtype by itself that an array of all has."""
    if len(types) != 1:
        return False
    if isinstance(values[0], _OF_MANY_DTYPES):
        return len({value.dtype for value in values}) == 1
    return int not in types or (min(values) >= _INT64.min and max(values) <= _INT64.max)


def together(columns: Columns, vector_envs: Sequence[range] = ()) -> Columns:
    """Merge what `merge(apart=True)` kept apart, into arrays of their own.

    What one of the `vector_envs`, each given by its rows, reported alone stays as it merged it.
    """
    found: Columns = {}
    for key, column in columns.items():
        values = column.values
        if isinstance(values, dict):
            found[key] = Column(column.rows, together(values, vector_envs))
        elif any(set(column.rows.tolist()) <= set(rows) for rows in vector_envs):
            found[key] = Column(column.rows, snapshot(values))
        elif values.dtype == object:
            found[key] = Column(column.rows, _stack(key, column.rows.tolist(), list(values)))
        else:
            found[key] = Column(column.rows, values.copy())
    return found


def _are_alike(arrays: list[npt.NDArray[Any]]) -> bool:
    """Whether arrays have one dtype and one shape."""
    dtype, shape, count = arrays[0].dtype, arrays[0].shape, len(arrays)
    return [array.dtype for array in arrays].count(dtype) == count and [
        array.shape for array in arrays
    ].count(shape) == count


def _kind(value: Any) -> Any:
    """Tell which values may become one array: numbers, dicts, and arrays of one shape."""
    kind = type(value)
    if kind in _PLAIN or issubclass(kind, np.number):
        return "number"
    if issubclass(kind, dict):
        return "dict"
    if issubclass(kind, np.ndarray):
        code = value.dtype.kind
        if value.shape == () and code in _NUMERIC:
            return "number"
        return value.shape, "number" if code in "biufc" else code if code in "US" else value.dtype
    return None


def _stack_kind(
    kind: Any, rows: list[int], values: list[Any], apart: bool = False
) -> npt.NDArray[Any] | Columns:
    """Make one array, or nested columns, of values of one kind."""
    if kind is None:
        return _objects(values)
    if kind == "dict":
        return merge(dict(zip(rows, values, strict=True)), apart)
    if kind != "number":
        return np.stack(values) if _share([value.dtype for value in values]) else _objects(values)
    values = [value[()] if isinstance(value, np.ndarray) else value for value in values]
    array = np.array(values)
    # Integers beyond 64 bits become objects by themselves; of two ranges they would be rounded.
    rounded = array.dtype.kind == "f" and all(isinstance(value, _INTEGERS) for value in values)
    return _objects(values) if rounded else array


def _share(dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether an array of a common dtype holds values of all these dtypes as they are."""
    kinds = {dtype.kind for dtype in dtypes}
    if kinds <= set("biu"):
        return np.result_type(*dtypes).kind in "biu"
    return kinds <= set("biufc") or len(set(dtypes)) == 1 or kinds in ({"U"}, {"S"})


def _objects(values: Iterable[Any]) -> npt.NDArray[Any]:
    """Make a 1-d array of objects, whatever the objects are; what may be reused is copied."""
    items = list(values)
    array = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):
        array[position] = item if item.__class__ in _IMMUTABLE else snapshot(item)
    return array


def snapshot(value: Any) -> Any:
    """Copy an info, or a value of one, with the containers and arrays in it.

    Environments reuse what they return, and what the caller was given must stay as it was. Other
    objects are kept: they may be as large as a simulator.

    Example:
        >>> info = {"path": [np.zeros(2)]}
        >>> kept = snapshot(info)
        >>> info["path"][0] += 1
        >>> kept
        {'path': [array([0., 0.])]}
    """
    return _snapshot(value, {})


def _snapshot(value: Any, known: dict[int, Any]) -> Any:
    """Copy a value; `known` holds what was copied already, by the number of the original."""
    if value.__class__ in _IMMUTABLE:
        return value
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, tuple):
        make = tuple if type(value) is tuple else getattr(value, "_make", None)
        return value if make is None else make([_snapshot(part, known) for part in value])
    if not isinstance(value, (np.ndarray, dict, list, set, bytearray, deque)):
        return value
    # `copy.copy` takes a microsecond to find out how.
    copied: Any = {} if value.__class__ is dict else copy.copy(value)
    known[id(value)] = copied
    if isinstance(value, dict):
        for key, part in value.items():
            copied[key] = _snapshot(part, known)
    elif isinstance(value, (list, deque)):
        for position, part in enumerate(value):
            copied[position] = _snapshot(part, known)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        for position, part in enumerate(value.flat):
            copied.flat[position] = _snapshot(part, known)
    return copied


def join(parts: Sequence[Columns], apart: bool = False) -> Columns:
    """Join columns over disjoint rows; `apart` as in `merge`."""
    if len(parts) == 1:
        return parts[0]
    return {key: _join_columns(key, columns, apart) for key, columns in _gather(parts).items()}


def _gather(parts: Sequence[Columns]) -> dict[str, list[Column]]:
    """Give the columns of each key."""
    found: dict[str, list[Column]] = {}
    for part in parts:
        for key, column in part.items():
            found.setdefault(key, []).append(column)
    return found


def _join_columns(key: str, columns: list[Column], apart: bool = False) -> Column:
    """Join the columns of one key."""
    if len(columns) == 1:
        return columns[0]
    rows = np.concatenate([column.rows for column in columns])
    nested = [column.values for column in columns if isinstance(column.values, dict)]
    if len(nested) == len(columns):
        return Column(rows, join(nested, apart))
    arrays = [column.values for column in columns if isinstance(column.values, np.ndarray)]
    if (
        len(arrays) == len(columns)
        and all(
            array.dtype != object and array.shape[1:] == arrays[0].shape[1:] for array in arrays
        )
        and _share([array.dtype for array in arrays])
        and not (apart and len({array.dtype for array in arrays}) > 1)
    ):
        return Column(rows, np.concatenate(arrays))
    values: list[Any] = []
    for column in columns:
        values.extend(_cells(column))
    if apart:
        return Column(rows, _objects(values))
    order = [int(row) for row in rows]
    return Column(rows, _stack(key, order, values))


def _cells(column: Column) -> list[Any]:
    """Give the value of each row of a column by itself."""
    if isinstance(column.values, dict):
        infos: dict[int, dict[str, Any]] = {row: {} for row in column.rows.tolist()}
        _spread(column.values, infos)
        return list(infos.values())
    if column.values.ndim == 1 and column.values.dtype in _PLAIN:
        return list(column.values.tolist())
    return list(column.values)


def _spread(columns: Columns, infos: dict[int, dict[str, Any]]) -> None:
    """Write each value of the columns into the info of its row."""
    for key, column in columns.items():
        for row, value in zip(column.rows.tolist(), _cells(column), strict=True):
            infos[row][key] = value


def take(columns: Columns, rows: Sequence[int], at: Sequence[int]) -> Columns:
    """Choose some `rows` of columns and renumber them by `at`."""
    places = dict(zip(rows, at, strict=True))
    chosen: Columns = {}
    for key, column in columns.items():
        keep = [position for position, row in enumerate(column.rows) if int(row) in places]
        if not keep:
            continue
        values = (
            take(column.values, rows, at)
            if isinstance(column.values, dict)
            else column.values[keep]
        )
        numbers = [places[int(column.rows[position])] for position in keep]
        chosen[key] = Column(np.array(numbers, dtype=np.intp), values)
    return chosen


def split(parts: Iterable[Columns], rows: Iterable[int]) -> dict[int, Columns]:
    """Return the infos of each of some rows, as columns over the one row 0."""
    found: dict[int, Columns] = {row: {} for row in rows}
    for columns in parts:
        for key, column in columns.items():
            numbers = column.rows.tolist()
            if isinstance(column.values, dict):
                inner = split([column.values], numbers)
                cells: list[Any] = [inner[row] for row in numbers]
            elif column.values.dtype == object:
                # Of another kind than those of other rows, perhaps, but not than itself.
                cells = [_stack(key, [0], [value]) for value in column.values]
            else:
                cells = [column.values[place : place + 1] for place in range(len(numbers))]
            for row, cell in zip(numbers, cells, strict=True):
                if row in found:
                    found[row][key] = Column(_FIRST, cell)
    return found


def shift(columns: Columns, by: int) -> Columns:
    """Add a number to every row, as a slice does when it takes its place in the batch."""
    if by == 0:
        return columns
    return {
        key: Column(
            column.rows + by,
            shift(column.values, by) if isinstance(column.values, dict) else column.values,
        )
        for key, column in columns.items()
    }


def finish(parts: Sequence[Columns], num_envs: int) -> dict[str, Any]:
    """Join columns over disjoint rows, and return infos in the form that users know.

    That is for each key an array of shape `(num_envs, ...)`, zero or None where no environment
    reported it, and under `_key` a bool array, True where it did; a dict of the same form where
    the values are dicts.
    """
    if len(parts) == 1:
        return _finish_one(parts[0], num_envs)
    infos: dict[str, Any] = {}
    # Keys that the same rows report have equal masks. The columns are kept with the mask, so that
    # no other rows get the numbers by which these are known.
    masks: dict[tuple[int, ...], tuple[npt.NDArray[np.bool_], list[Column]]] = {}
    for key, columns in _gather(parts).items():
        if not _is_uniform(columns):
            columns = [_join_columns(key, columns)]
        reporting = tuple([id(column.rows) for column in columns])
        if reporting in masks:
            mask = masks[reporting][0].copy()
        else:
            mask = np.zeros(num_envs, dtype=np.bool_)
            for column in columns:
                mask[column.rows] = True
            masks[reporting] = mask, columns
        values = columns[0].values
        if isinstance(values, dict):
            nested: list[Any] = [column.values for column in columns]
            infos[key] = finish(nested, num_envs)
        else:
            shape = (num_envs, *values.shape[1:])
            full = np.zeros(shape, values.dtype) if values.dtype != object else _nothing(shape)
            for column in columns:
                full[column.rows] = column.values
            infos[key] = full
        infos[f"_{key}"] = mask
    return infos


def _finish_one(columns: Columns, num_envs: int) -> dict[str, Any]:
    """Do what `finish` does of columns that need no joining."""
    infos: dict[str, Any] = {}
    rows: RowIndices | None = None
    reported: npt.NDArray[np.bool_] | None = None
    is_whole = False
    for key, column in columns.items():
        if reported is None or column.rows is not rows:
            rows = column.rows
            is_whole = rows.tolist() == list(range(num_envs))
            reported = np.zeros(num_envs, np.bool_)
            if is_whole:
                reported.fill(True)  # in half the time of an assignment
            else:
                reported[rows] = True
        values = column.values
        if isinstance(values, dict):
            infos[key] = _finish_one(values, num_envs)
        elif is_whole:
            # What came out of a message cannot be written to; what was merged here is not kept.
            infos[key] = values if values.flags.writeable else values.copy()
        else:
            shape = (num_envs, *values.shape[1:])
            full = np.zeros(shape, values.dtype) if values.dtype != object else _nothing(shape)
            full[rows] = values
            infos[key] = full
        infos[f"_{key}"] = reported.copy()
    return infos


def _nothing(shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return an array of None."""
    return np.empty(shape, object)


def _is_uniform(columns: list[Column]) -> bool:
    """Whether the columns of a key can be written into one array, or dict, as they are."""
    first, *others = [column.values for column in columns]
    if isinstance(first, dict):
        return all(isinstance(values, dict) for values in others)
    if others and first.dtype == object:
        return False
    dtype, shape = first.dtype, first.shape[1:]
    for values in others:
        if isinstance(values, dict) or values.dtype != dtype or values.shape[1:] != shape:
            return False
    return True


def columns_of(
    infos: Mapping[str, Any], num_envs: int, reporting: RowIndices | None = None
) -> Columns:
    """Turn infos as a vector env returns them into columns over its rows again.

    A key without a mask counts as reported by the environments `reporting`, or by all.
    """
    if reporting is None:
        reporting = np.arange(num_envs, dtype=np.intp)
    columns: Columns = {}
    masks = {f"_{key}" for key in infos}
    for key, value in infos.items():
        if key in masks:
            continue
        mask = infos.get(f"_{key}")
        rows = reporting if mask is None else np.flatnonzero(mask)
        if isinstance(value, dict):
            columns[key] = Column(rows, columns_of(value, num_envs, rows))
        elif isinstance(value, np.ndarray) and value.shape[:1] == (num_envs,):
            # What is in an array of objects may be reused by its environment.
            values = value[rows] if value.dtype != object else snapshot(value[rows])
            columns[key] = Column(rows, values)
        elif isinstance(value, (list, tuple)) and len(value) == num_envs:
            columns[key] = Column(rows, _objects(value[row] for row in rows))
        else:
            columns[key] = Column(rows, _objects(value for _ in rows))
    return columns


def infos_as_list(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Split the infos of a vector env into one dict per environment.

    Args:
        infos: What `reset` or `step` returned.
        num_envs: The number of environments.

    Returns:
        For each environment the keys that it reported; nested dicts stay nested.

    Example:
        >>> import numpy as np
        >>> infos_as_list({"lives": np.array([3, 0]), "_lives": np.array([True, False])}, 2)
        [{'lives': 3}, {}]
    """
    result: dict[int, dict[str, Any]] = {row: {} for row in range(num_envs)}
    _spread(columns_of(infos, num_envs), result)
    return list(result.values())
