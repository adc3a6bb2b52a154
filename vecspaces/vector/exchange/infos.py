"""Infos: how they are gathered in groups, sent, and merged into arrays by the caller.

A group reports infos by row, with each environment's own values. If these are the same numbers in
all rows, a worker process writes them into cells (`tables.py`). Other messages to the caller
contain the infos of a few rows unchanged. For more rows, infos are *gathered* by key, and a column
of numbers, or of arrays of one dtype and shape, is sent as one array, from which the original
values can be restored. The caller merges the values of all environments that step together, so
dtypes cannot depend on how these are divided among workers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vecspaces.layout.columns import FLOATS
from vecspaces.vector.exchange.snapshots import IMMUTABLE, are_immutable, snapshot
from vecspaces.vector.exchange.stacking import (
    ARRAY,
    DICT,
    NUMBERS,
    NUMERIC,
    are_alike,
    objects,
    stack,
)
from vecspaces.vector.exchange.tables import Table, join, merge_table

_PLAIN = (int, float, bool)
_are_numbers = NUMBERS.issuperset
# Up to this number of rows, infos are sent unchanged.
_FEW = 4
_are_dicts = DICT.issuperset
# The codes of `array` and NumPy for Python numbers.
_CODES = {float: ("d", "f8"), int: ("q", "i8"), bool: ("b", "?")}
# The former types of a column's entries: arrays, NumPy scalars, Python numbers. Members of an Enum
# would pickle slowly.
_ARRAYS, _SCALARS, _PYTHON = range(3)
_PACKED = 3  # of what `_pack_all` packed


@dataclass(slots=True)
class Column:
    """The values that the environments of some rows reported under one key.

    `values` has one entry per row: it is a list, an array (`form` is then the former type of the
    entries), or, if all values are dicts, columns.
    """

    rows: Sequence[int]
    values: list[Any] | npt.NDArray[Any] | Columns
    form: int = _ARRAYS

    def __reduce__(self) -> tuple[Any, ...]:
        """Send numbers as bytes, which pickle in a tenth of an array's time."""
        rows, values, form = self.rows, self.values, self.form
        if isinstance(values, list):
            return _unpack, (rows, *_pack(values))
        if values.__class__ is np.ndarray and _is_numeric(values):
            return _unpack, (rows, values.tobytes(), form, values.dtype.char, values.shape[1:])
        return _unpack, (rows, values, form, None, ())


Columns = dict[str, Column]


class InfosByRow(dict[int, dict[str, Any]]):
    """The infos of single environments by their rows, each a plain dict.

    They are unpickled as columns, unless they are few, since sorting them by key takes longer.
    """

    def __copy__(self) -> InfosByRow:
        return InfosByRow(self)

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            first = next(iter(self.values()), {})
            if len(self) > 1 and (len(self) > _FEW or _holds_arrays(first)):
                return _unpack_all, (_pack_all(list(self), list(self.values())),)
        except RecursionError:  # of a dict that contains itself, which the caller reports
            pass
        return InfosByRow, (dict(self),)


Part: TypeAlias = Columns | InfosByRow | Table


def as_columns(part: Part) -> Columns:
    """Return columns, after gathering if necessary."""
    if isinstance(part, Table):
        return {
            name: Column(part.rows, values, _PYTHON if is_python else _SCALARS)
            for name, values, is_python in part.columns()
        }
    return gather(part) if isinstance(part, InfosByRow) else part


def gather(infos: Mapping[int, Mapping[str, Any]]) -> Columns:
    """Sort infos of single environments, given by row as plain dicts, by key."""
    columns = _by_key(list(infos), list(infos.values()))
    return {key: Column(rows, values) for key, (rows, values) in columns.items()}


def _by_key(
    rows: Sequence[int], dicts: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Sequence[int], list[Any]]]:
    """Sort infos by key; return the rows that report each key, and their values."""
    keys = dicts[0] if dicts else ()
    # The usual case: all infos have the same keys.
    if sum(map(len, dicts)) == len(keys) * len(dicts):
        try:
            return {key: (rows, [info[key] for info in dicts]) for key in keys}
        except KeyError:
            pass  # the same number of keys, but other keys
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for row, info in zip(rows, dicts, strict=True):
        for key, value in info.items():
            if key not in columns:
                columns[key] = [], []
            reporting, values = columns[key]
            reporting.append(row)
            values.append(value)
    return {**columns}


def split(parts: Iterable[Part], rows: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return the info of each of some rows, as its environment returned it."""
    infos: dict[int, dict[str, Any]] = {row: {} for row in rows}
    for part in parts:
        if isinstance(part, InfosByRow):
            for row in infos.keys() & part.keys():
                infos[row].update(part[row])
            continue
        for key, column in as_columns(part).items():
            for row, value in zip(column.rows, values_of(column), strict=True):
                if row in infos:
                    infos[row][key] = value
    return infos


def at_places(part: Part, places: Mapping[int, int]) -> Part:
    """Return the infos of the rows that have a place, by their places."""
    if isinstance(part, InfosByRow):
        return InfosByRow((place, part[row]) for row, place in places.items() if row in part)
    columns: Columns = {}
    rows: Sequence[int] | None = None
    for key, column in as_columns(part).items():
        if column.rows is not rows:  # a message has the same rows for most keys
            rows = column.rows
            numbers = [places[row] for row in rows if row in places]
            if len(numbers) < len(rows):
                chosen = [position for position, row in enumerate(rows) if row in places]
        values: Any = column.values
        if isinstance(values, dict):
            values = at_places(values, places)
        elif len(numbers) < len(rows):
            is_array = isinstance(values, np.ndarray)
            values = values[chosen] if is_array else [values[position] for position in chosen]
        if numbers:
            columns[key] = Column(numbers, values, column.form)
    return columns


def values_of(column: Column) -> list[Any]:
    """Return the value of each row of a column, as its environment returned it."""
    values = column.values
    if isinstance(values, list):
        return values
    if isinstance(values, dict):
        return list(split([values], column.rows).values())
    if column.form == _PYTHON:
        return list(values.tolist())
    if column.form == _SCALARS or (values.dtype == object and values.ndim == 1):
        return list(values)
    return [values[place, ...] for place in range(len(values))]


# ------------------------------------------------------------------ messages to the caller


def _holds_arrays(info: dict[str, Any]) -> bool:
    """Whether values of an info are arrays, which pickle slowly."""
    return any(
        value.__class__ is np.ndarray or (value.__class__ is dict and _holds_arrays(value))
        for value in info.values()
    )


def _pack_all(
    rows: Sequence[int], infos: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Any, ...]]:
    """Pack infos by key, also the dicts in them if all rows report the same keys."""
    packed: dict[str, tuple[Any, ...]] = {}
    for key, (reporting, values) in _by_key(rows, infos).items():
        part = _pack(values)
        if len(values) > 1 and values[0].__class__ is dict and set(map(type, values)) == DICT:
            nested = _pack_all(reporting, values)
            if all(len(column[0]) == len(values) for column in nested.values()):
                part = nested, _PACKED, None, ()
        packed[key] = reporting, *part
    return packed


def _unpack_all(packed: Mapping[str, tuple[Any, ...]]) -> Columns:
    """Restore the columns that `_pack_all` packed."""
    return {key: _unpack(*column) for key, column in packed.items()}


def _is_numeric(array: npt.NDArray[Any]) -> bool:
    """Whether the bytes of an array, and its dtype's character, restore it."""
    return array.dtype.kind in NUMERIC and array.dtype.isnative


def _pack(values: list[Any]) -> tuple[Any, ...]:
    """Pack values of one type, if unpacking restores them exactly.

    Return the values or their bytes, the form of the entries, and for bytes their dtype and shape.
    """
    types = set(map(type, values))
    if len(types) == 1 and len(values) > 1:
        (kind,) = types
        first = values[0]
        if kind in _CODES:
            code, name = _CODES[kind]
            try:
                return array(code, values).tobytes(), _PYTHON, name, ()
            except OverflowError:
                pass  # an integer of more than 64 bits
        elif kind is np.ndarray:
            if _is_numeric(first) and are_alike(values):
                try:
                    data = b"".join(values)
                except (BufferError, TypeError, ValueError):  # strided, or without a buffer
                    data = np.stack(values).tobytes()
                return data, _ARRAYS, first.dtype.char, first.shape
        elif issubclass(kind, np.number) and first.dtype.type is kind and first.dtype.kind != "m":
            return np.array(values, first.dtype).tobytes(), _SCALARS, first.dtype.char, ()
    return values, _ARRAYS, None, ()


def _unpack(
    rows: Sequence[int], values: Any, form: int, dtype: str | None, shape: tuple[int, ...]
) -> Column:
    """Restore a column that was pickled on a machine of the same kind."""
    if form == _PACKED:
        return Column(rows, _unpack_all(values))
    if dtype is not None:
        values = np.frombuffer(values, dtype)
        if shape:
            values = values.reshape(len(rows), *shape)
    return Column(rows, values, form)


# ------------------------------------------------------------------ merging


def merge(parts: Sequence[Part], num_envs: int) -> dict[str, Any]:
    """Merge columns over disjoint rows into infos for users.

    For each key, these have an array of shape `(num_envs, ...)`, zero or None where no environment
    reported it, and under `_key` a mask, even if environments report a key of that name. If all
    values are dicts, they are merged into a dict of the same form. Numbers are promoted as by
    `numpy.result_type`, where Gymnasium 1.4.0 takes the dtype of the first value and truncates the
    others. Arrays of one shape are stacked. Anything else, such as integers without a common
    integer dtype, becomes an array of objects with copies of the values.
    """
    if not parts:
        return {}
    part = parts[0] if len(parts) == 1 else None
    if part.__class__ is not InfosByRow:
        table = join(parts)
        if table is not None and len(table.rows) == num_envs:
            return merge_table(table, _everyone(num_envs)[1])
        part = part or _join(parts)
    if isinstance(part, InfosByRow):
        return _merge_dicts(list(part), list(part.values()), num_envs)
    columns, is_joined = {}, len(parts) > 1
    for key, column in as_columns(part).items():
        values: Any = values_of(column) if key == "final_obs" else column.values
        # Joined arrays are copies already; those of one message are read-only.
        is_shared = values.__class__ is np.ndarray and not is_joined
        columns[key] = column.rows, values.copy() if is_shared else values
    return _merge_columns(columns, num_envs)


def _merge_dicts(
    rows: list[int], dicts: Sequence[Mapping[str, Any]], num_envs: int
) -> dict[str, Any]:
    """Merge the infos of some rows."""
    if not dicts:
        return {}
    mask, index = _mask_of(rows, num_envs)
    infos = _merge_alike(rows, dicts, mask, index)
    return _merge_columns(_by_key(rows, dicts), num_envs) if infos is None else infos


def _merge_alike(
    rows: list[int], dicts: Sequence[Mapping[str, Any]], mask: npt.NDArray[np.bool_], index: Any
) -> dict[str, Any] | None:
    """Merge the infos of some rows in one pass; None: they differ in their keys."""
    infos: dict[str, Any] = {}
    first, is_single = dicts[0], len(dicts) == 1
    if not is_single and sum(map(len, dicts)) != len(first) * len(dicts):
        return None
    try:
        for key, value in first.items():
            kind = value.__class__
            values = [value] if is_single else [info[key] for info in dicts]
            if kind in NUMBERS and (is_single or _are_numbers(map(type, values))):
                merged: Any = np.array(values)
                # `stack` finds rounded integers.
                if kind not in FLOATS and merged.dtype.kind in "fO":
                    merged = stack(values)
            elif kind is dict and (is_single or _are_dicts(map(type, values))):
                # Most infos of last steps are empty.
                merged = _merge_alike(rows, values, mask, index) if any(values) else {}
                if merged is None:
                    merged = _merge_columns(_by_key(rows, values), len(mask))
            elif kind in IMMUTABLE and are_immutable(map(type, values)):
                merged = np.array(values, object)
            else:
                merged = _merge_values(key, values, rows, len(mask))
            if index is not None and merged.__class__ is not dict:
                merged = _spread(merged, index, len(mask))
            infos[key], infos[f"_{key}"] = merged, mask.copy()
    except KeyError:
        return None  # the same number of keys, but other keys
    # No environment uses the name of a mask, or that of last observations.
    return infos if len(infos) == 2 * len(first) and "final_obs" not in first else None


def _merge_columns(
    columns: Mapping[str, tuple[Sequence[int], Any]], num_envs: int
) -> dict[str, Any]:
    """Merge the values of each key, which some rows report."""
    infos: dict[str, Any] = {}
    masks = {f"_{key}" for key in columns}
    reporting: Sequence[int] | None = None
    for key, (rows, values) in columns.items():
        if key in masks:  # an environment uses the name of a mask
            continue
        if rows is not reporting and rows != reporting:
            reporting, (mask, index) = rows, _mask_of(rows, num_envs)
        merged = _merge_values(key, values, rows, num_envs)
        if index is not None and merged.__class__ is not dict:
            merged = _spread(merged, index, num_envs)
        infos[key], infos[f"_{key}"] = merged, mask.copy()
    return infos


def _spread(merged: npt.NDArray[Any], index: Any, num_envs: int) -> npt.NDArray[Any]:
    """Return an array of all rows, with the values of those of `index`."""
    make = np.empty if merged.dtype == object else np.zeros
    full = make((num_envs, *merged.shape[1:]), merged.dtype)
    full[index] = merged
    return full


def _merge_values(key: str, values: Any, rows: Sequence[int], num_envs: int) -> Any:
    """Merge the values of one key: a list, an array of the caller's, or columns of dicts."""
    if key == "final_obs":
        return objects(values)
    if values.__class__ is np.ndarray:
        return values
    if values.__class__ is dict:
        return merge([values], num_envs)
    merged = stack(values)
    if merged is not None:
        return merged
    # A subclass of dict may look up other items than it shows.
    dicts = [value if value.__class__ is dict else dict(value.items()) for value in values]
    return _merge_dicts([*rows], dicts, num_envs)


def by_first_row(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Sort merged infos by the first row that reports each key, as infos of all rows are sorted."""
    keys = sorted(list(infos)[::2], key=lambda key: infos[f"_{key}"].argmax())
    return {name: infos[name] for key in keys for name in (key, f"_{key}")}


@lru_cache(maxsize=16)
def _everyone(num_envs: int) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """Return all rows, and the mask of keys that all report; both are only read."""
    return list(range(num_envs)), np.ones(num_envs, np.bool_)


def _mask_of(rows: Sequence[int], num_envs: int) -> tuple[npt.NDArray[np.bool_], Any]:
    """Return the mask of some rows, which is only read, and their index; None: all rows."""
    everyone, mask = _everyone(num_envs)
    index = None
    if rows != everyone and [*rows] != everyone:
        index = slice(rows[0], rows[0] + 1) if len(rows) == 1 else np.array(rows, np.intp)
        mask = np.zeros(num_envs, np.bool_)
        mask[index] = True
    return mask, index


def _join(parts: Sequence[Part]) -> Part:
    """Join infos of disjoint rows."""
    by_row = [part for part in parts if isinstance(part, InfosByRow)]
    if len(by_row) == len(parts):
        together = InfosByRow()
        for infos in by_row:
            together.update(infos)
        return together
    by_key: dict[str, list[Column]] = {}
    for part in parts:
        for key, column in as_columns(part).items():
            by_key.setdefault(key, []).append(column)
    joined: Columns = {}
    reporting: list[Sequence[int]] = []
    rows: list[int] = []
    for key, columns in by_key.items():
        if [column.rows for column in columns] != reporting:
            reporting = [column.rows for column in columns]
            rows = [row for some in reporting for row in some]
        pieces: list[Any] = [column.values for column in columns]
        kinds = set(map(type, pieces))
        values: Any
        if kinds == DICT:
            values = _join(pieces)
        elif (
            kinds == ARRAY
            and len({column.form for column in columns}) == 1
            and _are_alike_rows(pieces)
        ):
            values = np.concatenate(pieces, dtype=pieces[0].dtype)
        else:
            values = [value for column in columns for value in values_of(column)]
        joined[key] = Column(rows, values, columns[0].form)
    return joined


def find_endless(infos: Mapping[int, Mapping[str, Any]]) -> tuple[int, str] | None:
    """Find the first row, and its key, whose value is nested too deeply to be merged."""
    for row, info in infos.items():
        for key, value in info.items():
            try:
                merge([gather({0: {key: value}})], 1)
            except RecursionError:
                return row, key
    return None


def _are_alike_rows(arrays: list[npt.NDArray[Any]]) -> bool:
    """Whether arrays have one dtype, and rows of one shape."""
    dtype, shape = arrays[0].dtype, arrays[0].shape[1:]
    for other in arrays[1:]:  # noqa: SIM110 (half the time of `all`)
        if other.dtype != dtype or other.shape[1:] != shape:
            return False
    return True


def columns_of(
    infos: Mapping[str, Any],
    num_envs: int,
    low: int = 0,
    reporting: npt.NDArray[np.intp] | None = None,
    apart: bool = False,
) -> Columns:
    """Convert merged infos of a vector env to columns over its rows, from `low` on.

    A key without a mask counts as reported by `reporting`, and in a nested dict by the rows that
    reported the dict. The columns contain copies. Values other than numbers become arrays of shape
    (), so that merging keeps the dtype; with `apart` they become scalars and objects.
    """
    reporting = np.arange(num_envs) if reporting is None else reporting
    columns: Columns = {}
    masks = {f"_{key}" for key in infos}
    for key, value in infos.items():
        if key in masks:
            continue
        mask = infos.get(f"_{key}")
        numbers = reporting if mask is None else np.flatnonzero(mask)
        rows = (numbers + low).tolist()
        if isinstance(value, dict):
            columns[key] = Column(rows, columns_of(value, num_envs, low, numbers, apart))
            continue
        form = _ARRAYS
        if isinstance(value, np.ndarray) and value.shape[:1] == (num_envs,):
            values = value[numbers]
            if values.dtype == object or values.__class__ is not np.ndarray:
                values = snapshot(values)
            elif values.ndim == 1 and (apart or values.dtype.kind in NUMERIC):
                form = _PYTHON if values.dtype in _PLAIN else _SCALARS
        else:
            is_per_env = isinstance(value, (list, tuple)) and len(value) == num_envs
            values = objects([value[row] if is_per_env else value for row in numbers])
        columns[key] = Column(rows, list(values) if apart and form == _ARRAYS else values, form)
    return columns


def merge_infos(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge one dict per environment into the infos of a vector env: undo `infos_as_list`.

    Args:
        infos: The info of each environment.

    Returns:
        For each key an array with one entry per environment, or a dict of such arrays, and under
        `_key` a mask of the environments that reported it.

    Example:
        >>> merge_infos([{"lives": 3}, {}])
        {'lives': array([3, 0]), '_lives': array([ True, False])}
    """
    return merge([gather(dict(enumerate(infos)))], len(infos))


def infos_as_list(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Split the infos of a vector env into one dict per environment.

    Args:
        infos: What `reset` or `step` returned.
        num_envs: The number of environments.

    Returns:
        For each environment, the keys that it reported; nested dicts stay nested.

    Example:
        >>> import numpy as np
        >>> infos_as_list({"lives": np.array([3, 0]), "_lives": np.array([True, False])}, 2)
        [{'lives': 3}, {}]
    """
    columns = columns_of(infos, num_envs, apart=True)
    return list(split([columns], range(num_envs)).values())
