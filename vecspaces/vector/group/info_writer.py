"""Writing what the info_space holds: the declared keys, out of the infos of environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from vecspaces.checks import show_keys, show_path, show_value
from vecspaces.errors import InvalidInfoError
from vecspaces.layout import Mismatch
from vecspaces.spaces import Space
from vecspaces.vector.exchange.info_space import BoundKey, InfoRows
from vecspaces.vector.exchange.infos import Column, Columns
from vecspaces.vector.group.form import InvalidResult
from vecspaces.vector.utils import batch_space

#: The infos of some rows, by their numbers: what a step or a reset of single environments returned.
Infos = dict[int, dict[str, Any]]

_DICT = {dict}
_NOTHING: dict[str, Any] = {}


class _Key:
    """One key, and what reads and writes its values of all rows."""

    def __init__(self, bound: BoundKey, low: int, high: int, members: list[_Key]) -> None:
        self.bound, self.name, self.number, self.members = bound, bound.name, bound.number, members
        # Where it is in the info that the environment returned.
        self.path = bound.path[1:] if bound.path[0] == "final_info" else bound.path
        self.take: Callable[[Any], Any] = itemgetter(bound.name)
        self.write_all = None if bound.rows is None else bound.rows.writer(low, high)

    def write(self, rows: Sequence[int], values: list[Any], is_whole: bool) -> None:
        """Write the values of rows; `is_whole` says that they are all of the writer's."""
        assert self.bound.rows is not None and self.write_all is not None
        try:
            if is_whole:
                self.write_all(values)
            else:
                write = self.bound.rows.write
                for row, value in zip(rows, values, strict=True):
                    write(row, value)
        except Mismatch as error:
            raise self.mismatch(error) from error.__cause__

    def write_column(self, column: Column) -> None:
        """Write the values of the rows of a column."""
        assert self.bound.rows is not None
        values = column.values
        if isinstance(values, dict):
            raise self.mismatch(Mismatch(str(self.bound.rows.layout.space), "dicts"))
        if self.bound.array is None or isinstance(values, list) or values.dtype == object:
            self.write(column.rows, list(values), is_whole=False)
            return
        try:
            self.bound.rows.write_batch(values, at=np.array(column.rows))
        except Mismatch as error:
            row = None if error.row is None else int(column.rows[error.row])
            raise self.mismatch(error, row) from error.__cause__

    def mismatch(self, error: Mismatch, row: int | None = None) -> Mismatch:
        """Say of a value that does not fit where in the info it is."""
        return error.called("info").at(self.path, row)

    def not_nested(self, value: Any, row: int) -> Mismatch:
        """Make the finding about a value that should be a dict."""
        expected = f"a dict, with keys among {show_keys(key.name for key in self.members)}"
        return self.mismatch(Mismatch(expected, show_value(value), row=row))


class _ValidatedKey(_Key):
    """Checks that what it wrote lies in its space, bounds included (`validate=True`)."""

    def __init__(self, bound: BoundKey, low: int, high: int, members: list[_Key]) -> None:
        super().__init__(bound, low, high, members)
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
        assert self.bound.rows is not None
        space = self.bound.rows.layout.space
        for row in rows:
            found = space.explain(self.bound.rows.item(row), name=f"info{show_path(self.path)}")
            if found is not None:
                text = (
                    f" returned an invalid info: {found}: make it return what its info_space "
                    "holds, or leave the key out"
                )
                raise InvalidResult(InvalidInfoError, text, row, found)


class InfoWriter:
    """Writes consecutive rows of one slot; what is not declared is returned.

    Args:
        infos: The rows.
        low: The first row that it writes.
        high: The row after the last.
        validate: Whether values must lie in their spaces, bounds included.
    """

    def __init__(self, infos: InfoRows, low: int, high: int, validate: bool = False) -> None:
        kind = _ValidatedKey if validate else _Key

        def bind(keys: list[BoundKey]) -> list[_Key]:
            return [kind(key, low, high, bind(key.members)) for key in keys]

        self._presence = infos.presence
        self._keys = bind(infos.keys)
        self._rows = range(low, high)
        width = infos.layout.width
        # A memoryview stores few bytes in half the time that an array takes.
        self._own = infos.presence.reshape(-1).view(np.uint8).data[low * width : high * width]
        self._everything = bytes([1]) * (width * (high - low))
        # Where no key is a Dict, and none is validated: what writes the values of each, and one.
        self._columns = [(key.name, key.write_all) for key in self._keys if key.write_all]
        self._cells = [(key.name, key.bound.rows.write) for key in self._keys if key.bound.rows]
        self._is_flat = len(self._columns) == len(self._keys) and not validate

    def write(self, infos: Infos, rows: Sequence[int] | None = None) -> Infos:
        """Write the infos of all rows, or of `rows`; those that are not among `infos` are empty.

        Returns:
            What is not declared, of the rows where there is something.
        """
        if rows is None:
            if self._is_flat and len(infos) == len(self._rows) and self._write_flat(infos):
                return {}
            at: Sequence[int] = self._rows
            self._own[:] = self._everything
        else:
            at = rows
            self._presence[list(at)] = True
        given = [infos.get(row, _NOTHING) for row in at]
        return self._write(self._keys, at, given, rows is None)

    def _write_flat(self, infos: Infos) -> bool:
        """Write infos of all rows if each has all keys and no other, as at nearly every step.

        What else there is, and what does not fit, is found by `_write`, which writes all again.
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

    def _write(
        self, keys: list[_Key], rows: Sequence[int], infos: list[dict[str, Any]], is_whole: bool
    ) -> Infos:
        found = 0
        nested: dict[int, dict[str, Any]] = {}
        for key in keys:
            try:
                at, values = rows, list(map(key.take, infos))
            except KeyError:
                name = key.name
                given = [(row, info[name]) for row, info in zip(rows, infos) if name in info]  # noqa: B905
                self._clear(key, rows)
                at, values = [row for row, _ in given], [value for _, value in given]
                self._presence[at, key.number] = True
            found += len(values)
            if key.write_all is not None:
                key.write(at, values, is_whole and at is rows)
                continue
            if set(map(type, values)) - _DICT:
                values = [_as_dict(key, row, value) for row, value in zip(at, values, strict=True)]
            if at is not rows:
                self._mark(key, at)
            below = self._write(key.members, at, values, is_whole and at is rows)
            for row, rest in below.items():
                nested.setdefault(row, {})[key.name] = rest
        if not nested and sum(map(len, infos)) == found:
            return {}
        names = {key.name for key in keys}
        rests = (
            (
                row,
                {**{name: info[name] for name in info if name not in names}, **nested.get(row, {})},
            )
            for row, info in zip(rows, infos, strict=True)
        )
        return {row: rest for row, rest in rests if rest}

    def _clear(self, key: _Key, rows: Any) -> None:
        """Let rows have neither this key nor those below it."""
        at = slice(rows.start, rows.stop) if isinstance(rows, range) else list(rows)
        self._presence[at, key.number] = False
        if key.bound.rows is not None:
            key.bound.rows.clear(at)
        for member in key.members:
            self._clear(member, rows)

    def _mark(self, key: _Key, rows: Sequence[int]) -> None:
        """Let rows have all that is below a key, until what they lack is cleared."""
        for member in key.members:
            self._presence[list(rows), member.number] = True
            self._mark(member, rows)

    def write_columns(self, columns: Columns, rows: Sequence[int]) -> Columns:
        """Write the infos of a vector env, of some rows; return what is not declared."""
        return self._write_columns(self._keys, columns, rows)

    def _write_columns(self, keys: list[_Key], columns: Columns, rows: Sequence[int]) -> Columns:
        rest = dict(columns)
        for key in keys:
            column = rest.pop(key.name, None)
            if column is None or len(column.rows) < len(rows):
                self._clear(key, rows)
            if column is None:
                continue
            self._presence[column.rows, key.number] = True
            if key.write_all is not None:
                key.write_column(column)
                continue
            at = column.rows
            if isinstance(column.values, dict):
                below = self._write_columns(key.members, column.values, at)
                if below:
                    rest[key.name] = Column(column.rows, below)
                continue
            pairs = zip(at, column.values, strict=True)
            self._mark(key, at)
            left = self._write(
                key.members, at, [_as_dict(key, row, value) for row, value in pairs], False
            )
            if left:
                rest[key.name] = Column(list(left), list(left.values()))
        return rest


def _as_dict(key: _Key, row: int, value: Any) -> dict[str, Any]:
    """Return a nested info as a dict that has no more keys than it shows."""
    if not isinstance(value, Mapping):
        raise key.not_nested(value, row)
    return dict(value)
