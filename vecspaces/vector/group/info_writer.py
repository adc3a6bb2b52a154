"""Writing of declared infos: the keys of the `info_space` in the infos of environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from vecspaces.checks import show_keys, show_path, show_value
from vecspaces.errors import InvalidInfoError
from vecspaces.layout import Mismatch
from vecspaces.spaces import Space
from vecspaces.vector.exchange.info_space import BoundKey, InfoRows
from vecspaces.vector.exchange.infos import Column, Columns, InfosByRow
from vecspaces.vector.group.form import InvalidResult
from vecspaces.vector.utils import batch_space

_DICT = {dict}
_NOTHING: dict[str, Any] = {}


class _Key:
    """One key, and the functions that read and write its values of all rows."""

    def __init__(self, bound: BoundKey, low: int, high: int) -> None:
        key = bound.key
        self.name, self.number, self.parent, self.end = key.name, key.number, key.parent, key.end
        self.rows, self.array = bound.rows, bound.array
        # Its path in the info of the environment.
        self.path = key.path[1:] if key.path[0] == "final_info" else key.path
        self.take = itemgetter(key.name)
        self.write_all = None if bound.rows is None else bound.rows.writer(low, high)

    def write(self, rows: Sequence[int], values: list[Any], is_whole: bool) -> None:
        """Write the values of rows; `is_whole`: they are all rows of the writer."""
        assert self.rows is not None and self.write_all is not None
        try:
            if is_whole:
                self.write_all(values)
            else:
                write = self.rows.write
                for row, value in zip(rows, values, strict=True):
                    write(row, value)
        except Mismatch as error:
            raise self.mismatch(error) from error.__cause__

    def write_column(self, column: Column) -> None:
        """Write the values of the rows of a column."""
        assert self.rows is not None
        values = column.values
        if isinstance(values, dict):
            raise self.mismatch(Mismatch(str(self.rows.layout.space), "dicts"))
        if self.array is None or isinstance(values, list) or values.dtype == object:
            self.write(column.rows, list(values), is_whole=False)
            return
        try:
            self.rows.write_batch(values, at=np.array(column.rows))
        except Mismatch as error:
            row = None if error.row is None else int(column.rows[error.row])
            raise self.mismatch(error, row) from error.__cause__

    def mismatch(self, error: Mismatch, row: int | None = None) -> Mismatch:
        """Add the path, in the info, of a value that does not fit."""
        return error.called("info").at(self.path, row)


class _ValidatedKey(_Key):
    """Checks that the written values are in the space, bounds included (`validate=True`)."""

    def __init__(self, bound: BoundKey, low: int, high: int) -> None:
        super().__init__(bound, low, high)
        self._batch: Space[Any] | None = None
        if bound.array is not None and bound.rows is not None:
            self._batch = batch_space(bound.rows.layout.space, high - low)
            self._written = bound.array[low:high]

    def write(self, rows: Sequence[int], values: list[Any], is_whole: bool) -> None:
        """Write, and check."""
        super().write(rows, values, is_whole)
        if not is_whole or self._batch is None or not self._batch.contains(self._written):
            self._check(rows)

    def write_column(self, column: Column) -> None:
        """Write, and check."""
        super().write_column(column)
        self._check(column.rows)

    def _check(self, rows: Sequence[int]) -> None:
        """Check each row as it is read: in the types of vecspaces."""
        assert self.rows is not None
        for row in rows:
            name = f"info{show_path(self.path)}"
            found = self.rows.layout.space.explain(self.rows.item(row), name=name)
            if found is not None:
                text = (
                    f" returned an invalid info: {found}: make it return what its info_space "
                    "holds, or leave the key out"
                )
                raise InvalidResult(InvalidInfoError, text, row, found)


class _Held:
    """The values of a Dict, and the rows that have it."""

    __slots__ = ("declared", "infos", "rows")

    def __init__(self, rows: Sequence[int], infos: list[dict[str, Any]]) -> None:
        self.rows, self.infos = rows, infos
        self.declared = 0  # the number of values in them that belong to declared keys


class InfoWriter:
    """Writes consecutive rows of one slot, `low` to `high`; returns what is not declared.

    `validate`: whether values must be in their spaces, bounds included.
    """

    def __init__(self, infos: InfoRows, low: int, high: int, validate: bool = False) -> None:
        kind = _ValidatedKey if validate else _Key
        self._presence = infos.presence
        self._keys = [kind(bound, low, high) for bound in infos.keys]
        self._rows = range(low, high)
        width = len(self._keys)
        # A memoryview stores a few bytes in half the time of an array.
        self._own = infos.presence.reshape(-1).view(np.uint8).data[low * width : high * width]
        self._everything = bytes([1]) * (width * (high - low))
        # The functions that write all values of each key, or one value; if no key is a Dict or
        # validated.
        self._columns = [(key.name, key.write_all) for key in self._keys if key.write_all]
        self._cells = [(key.name, key.rows.write) for key in self._keys if key.rows]
        self._is_flat = len(self._columns) == width and not validate
        # The names of the keys in each Dict, and in the whole infos (-1), and the Dicts among them.
        self._names: dict[int, dict[str, None]] = {-1: {}}
        self._dicts: dict[int, list[_Key]] = {-1: []}
        for key in self._keys:
            self._names[key.parent][key.name] = None
            if key.write_all is None:
                self._dicts[key.parent].append(key)
                self._names[key.number], self._dicts[key.number] = {}, []

    def write(
        self, infos: Mapping[int, dict[str, Any]], rows: Sequence[int] | None = None
    ) -> InfosByRow:
        """Write the infos of all rows, or of `rows`; those that are not among `infos` are empty.

        Keys that are not declared are returned, by row.
        """
        if rows is None:
            if self._is_flat and len(infos) == len(self._rows) and self._write_flat(infos):
                return InfosByRow()
            rows = self._rows
            self._own[:] = self._everything
        else:
            self._presence[list(rows)] = True
        return self._write(-1, rows, [infos.get(row, _NOTHING) for row in rows])

    def _write_flat(self, infos: Mapping[int, dict[str, Any]]) -> bool:
        """Write infos of all rows if each has exactly the declared keys, the usual case.

        Otherwise `_write` writes all again, and finds other keys and values that do not fit.
        """
        given = list(infos.values())
        if sum(map(len, given)) != len(self._own):
            return False
        try:
            if len(given) == 1:
                info, row = given[0], self._rows.start
                for name, write in self._cells:
                    write(row, info[name])
            else:
                for name, write_all in self._columns:
                    write_all([info[name] for info in given])
        except (KeyError, Mismatch):
            return False
        self._own[:] = self._everything
        return True

    def _below(self, root: int) -> list[_Key]:
        """Return the keys in a Dict, at any depth; all keys for -1."""
        return self._keys if root < 0 else self._keys[root + 1 : self._keys[root].end]

    def _write(self, root: int, rows: Sequence[int], infos: list[dict[str, Any]]) -> InfosByRow:
        """Write the keys in a Dict; `presence` has all keys, and loses those that are missing."""
        held = {root: _Held(rows, infos)}  # by Dict, which precedes its keys
        for key in self._below(root):
            holder = held[key.parent]
            at, holders = holder.rows, holder.infos
            try:
                values = list(map(key.take, holders))
            except KeyError:
                name = key.name
                has = [name in info for info in holders]
                self._clear(key, [row for row, is_given in zip(at, has) if not is_given])  # noqa: B905
                at = [row for row, is_given in zip(at, has) if is_given]  # noqa: B905
                values = [info[name] for info, is_given in zip(holders, has) if is_given]  # noqa: B905
            holder.declared += len(values)
            if key.write_all is not None:
                key.write(at, values, at is self._rows)
                continue
            if set(map(type, values)) - _DICT:
                values = self._as_dicts(key, at, values)
            held[key.number] = _Held(at, values)
        return self._undeclared(root, held)

    def _undeclared(self, root: int, held: dict[int, _Held]) -> InfosByRow:
        """Return the undeclared keys of the Dicts in `held`, by the rows of the first."""
        rests: dict[int, InfosByRow] = {}
        for number, holder in reversed(held.items()):  # the Dicts in a Dict come before it
            nested = [
                (key.name, rests[key.number]) for key in self._dicts[number] if key.number in rests
            ]
            if not nested and sum(map(len, holder.infos)) == holder.declared:
                continue
            names, rest = self._names[number], InfosByRow()
            for row, info in zip(holder.rows, holder.infos, strict=True):
                own = {name: info[name] for name in info if name not in names}
                own.update((name, given[row]) for name, given in nested if row in given)
                if own:
                    rest[row] = own
            if rest:
                rests[number] = rest
        return rests.get(root, InfosByRow())

    def _clear(self, key: _Key, rows: Sequence[int]) -> None:
        """Mark this key, and those in it, as missing in rows."""
        at = slice(rows.start, rows.stop) if isinstance(rows, range) else list(rows)
        self._presence[at, key.number : key.end] = False
        for other in self._keys[key.number : key.end]:
            if other.rows is not None:
                other.rows.clear(at)

    def write_columns(self, columns: Columns, rows: Sequence[int]) -> Columns:
        """Write the infos of a vector env, of some rows; return what is not declared."""
        # For each Dict that some rows have: its undeclared columns, and its rows.
        held = {-1: (dict(columns), rows)}
        for key in self._keys:
            if key.parent not in held:
                continue
            rest, within = held[key.parent]
            column = rest.pop(key.name, None)
            if column is None or len(column.rows) < len(within):
                self._clear(key, within)
            if column is None:
                continue
            at = column.rows
            self._presence[at, key.number] = True
            if key.write_all is not None:
                key.write_column(column)
            elif isinstance(column.values, dict):
                held[key.number] = dict(column.values), at
            else:
                self._presence[at, key.number + 1 : key.end] = True
                dicts = self._as_dicts(key, at, column.values)
                left = self._write(key.number, at, dicts)
                if left:
                    rest[key.name] = Column(list(left), list(left.values()))
        for number, (rest, at) in reversed(held.items()):
            if rest and number >= 0:
                key = self._keys[number]
                held[key.parent][0][key.name] = Column(at, rest)
        return held[-1][0]

    def _as_dicts(self, key: _Key, rows: Sequence[int], values: Any) -> list[dict[str, Any]]:
        """Return the values of a Dict as plain dicts with the keys that they show."""
        for row, value in zip(rows, values, strict=True):
            if not isinstance(value, Mapping):
                expected = f"a dict, with keys among {show_keys(self._names[key.number])}"
                raise key.mismatch(Mismatch(expected, show_value(value), row=row))
        return list(map(dict, values))
