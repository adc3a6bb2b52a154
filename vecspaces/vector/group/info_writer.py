"""Writing of declared infos: the keys of the `info_space` in the infos of environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vecspaces.checks import RAISED, show_keys, show_path, show_value
from vecspaces.errors import InvalidInfoError
from vecspaces.layout import Mismatch
from vecspaces.memory import Arena
from vecspaces.spaces import Space
from vecspaces.vector.exchange.info_space import BoundKey, InfoLayout, InfoRows
from vecspaces.vector.exchange.infos import (
    Column,
    Columns,
    InfosByRow,
    columns_of,
    gather,
    split,
    to_plain,
)
from vecspaces.vector.group.form import InvalidResult, as_info, failed
from vecspaces.vector.utils import batch_space


class _Key:
    """One key, and the functions that write its values of all rows."""

    def __init__(self, bound: BoundKey, low: int, high: int) -> None:
        key = bound.key
        self.name, self.number, self.parent, self.end = key.name, key.number, key.parent, key.end
        self.rows, self.array = bound.rows, bound.array
        # Its path in the info of the environment.
        self.path = key.path[1:] if key.path[0] == "final_info" else key.path
        self.all_rows = list(range(low, high))
        self.write_all = None if bound.rows is None else bound.rows.writer(low, high)

    def write(self, rows: Sequence[int], values: Any) -> None:
        """Write the values of rows: a list, or an array of an entry per row."""
        assert self.rows is not None and self.write_all is not None
        is_batch = False
        try:
            if isinstance(values, dict):
                raise Mismatch(str(self.rows.layout.space), "dicts")
            is_batch = not (isinstance(values, list) or self.array is None or values.dtype == "O")
            if is_batch:
                self.rows.write_batch(values, at=np.array(rows))
            elif rows == self.all_rows:
                self.write_all(list(values))
            else:
                for row, value in zip(rows, values, strict=True):
                    self.rows.write(row, value)
        except Mismatch as error:
            # In a batch, rows are numbered from 0.
            number = error.row if is_batch else None
            at = None if number is None else int(rows[number])
            raise self.mismatch(error, at) from error.__cause__

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

    def write(self, rows: Sequence[int], values: Any) -> None:
        """Write, and check each row as it is read: in the types of vecspaces."""
        super().write(rows, values)
        assert self.rows is not None
        if self._batch and self._batch.contains(self._written):
            return
        for row in rows:
            name = f"info{show_path(self.path)}"
            found = self.rows.layout.space.explain(self.rows.item(row), name=name)
            if found is not None:
                text = (
                    f" returned an invalid info: {found}: make it return what its info_space "
                    "holds, or leave the key out"
                )
                raise InvalidResult(InvalidInfoError, text, row, found)


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
        # For steps in which every row has exactly the declared keys: those outside of Dicts, Dicts
        # and those in them, and how many of them each Dict and the whole infos (-1) have.
        self._flat = [
            (key.name, key.write_all) for key in self._keys if key.parent < 0 and key.write_all
        ]
        self._nested = [key for key in self._keys if key.parent >= 0 or key.write_all is None]
        self._counts = Counter(key.parent for key in self._keys)
        # Those of all rows; none if values are validated.
        self._count = -1 if validate else self._counts[-1] * (high - low)

    def write(
        self, infos: Mapping[int, dict[str, Any]], rows: Sequence[int] | None = None
    ) -> InfosByRow:
        """Write the infos of all rows, or of `rows`; those that are not among `infos` are empty.

        Keys that are not declared are returned, by row.
        """
        if rows is None:
            rows = self._rows
            if len(infos) == len(rows) and self._write_usual(list(infos.values())):
                return InfosByRow()
        rest = self.write_columns(gather(infos), rows)
        by_row = split([rest], infos) if rest else {}
        return InfosByRow({row: info for row, info in by_row.items() if info})

    def _write_usual(self, infos: list[dict[str, Any]]) -> bool:
        """Write infos of all rows if each has exactly the declared keys, the usual case.

        Otherwise `write_columns` writes all again, and finds other keys and values that do not fit.
        """
        if _count(infos) != self._count:
            return False
        try:
            for name, write_all in self._flat:
                write_all([info[name] for info in infos])
            held = {-1: infos}
            for key in self._nested:
                values = [info[key.name] for info in held[key.parent]]
                if key.write_all is not None:
                    key.write_all(values)
                elif (
                    _are_dicts(values) and _count(values) == len(values) * self._counts[key.number]
                ):
                    held[key.number] = values
                else:
                    return False
        except (KeyError, Mismatch):
            return False
        self._own[:] = self._everything
        return True

    def write_columns(self, columns: Columns, rows: Sequence[int]) -> Columns:
        """Write infos that were gathered by key, of some rows; return what is not declared."""
        if rows is self._rows:
            self._own[:] = self._everything
        else:
            self._presence[list(rows)] = True
        # For each Dict that some rows have: its undeclared columns, and its rows.
        held = {-1: (dict(columns), rows)}
        for key in self._keys:
            if key.parent not in held:
                continue
            rest, within = held[key.parent]
            column = rest.pop(key.name, None)
            if column is None:
                self._clear(key, within)
                continue
            at, values = column.rows, column.values
            if len(at) < len(within):
                self._clear(key, list(set(within).difference(at)))
            if key.write_all is not None:
                key.write(at, values)
                continue
            if not isinstance(values, dict):
                values = gather(dict(zip(at, self._as_dicts(key, at, values), strict=True)))
            held[key.number] = dict(values), at
        for number, (rest, at) in reversed(held.items()):
            if rest and number >= 0:
                key = self._keys[number]
                held[key.parent][0][key.name] = Column(at, rest)
        return held[-1][0]

    def _clear(self, key: _Key, rows: Sequence[int]) -> None:
        """Mark this key, and those in it, as missing in rows."""
        at = slice(rows.start, rows.stop) if isinstance(rows, range) else list(rows)
        self._presence[at, key.number : key.end] = False
        for other in self._keys[key.number : key.end]:
            if other.rows is not None:
                other.rows.clear(at)

    def _as_dicts(self, key: _Key, rows: Sequence[int], values: Any) -> list[dict[str, Any]]:
        """Return the values of a Dict as plain dicts with the keys that they show."""
        if _are_dicts(values):
            return values  # type: ignore[no-any-return]  # the usual case
        for row, value in zip(rows, values, strict=True):
            if not isinstance(value, Mapping):
                names = [other.name for other in self._keys if other.parent == key.number]
                expected = f"a dict, with keys among {show_keys(names)}"
                raise key.mismatch(Mismatch(expected, show_value(value), row=row))
        return list(map(dict, values))


def _count(infos: list[dict[str, Any]]) -> int:
    """Return how many keys infos have, all together."""
    return sum(map(len, infos))


def _are_dicts(values: Any) -> bool:
    """Whether all values are plain dicts; others may show keys that they do not have."""
    return set(map(type, values)) <= {dict}


class StepInfos:
    """The declared infos of all steps of a chunk of `rows`, each of up to `length` steps."""

    def __init__(self, layout: InfoLayout, rows: range, length: int, validate: bool) -> None:
        own = layout.of_rows(len(rows) * length)
        (self._steps,) = own.bind(Arena(own.end))
        self._writer = InfoWriter(self._steps, 0, own.n, validate)
        self._length, self._rows = length, rows

    def write(self, row: int, step: int, info: Any) -> None:
        """Keep the info of a step of a row."""
        number = (row - self._rows.start) * self._length + step
        try:
            self._writer.write(InfosByRow({number: as_info(info)}), [number])
        except RAISED as error:
            if isinstance(error, (Mismatch, InvalidResult)):
                error.row = None  # here the number of a step
            raise failed(error, (row,), "step") from None

    def read(self) -> Any:
        """Return what is kept as columns over the steps of all rows, ready to be sent."""
        found: dict[str, Any] = {}
        self._steps.read(found, copy=True)
        first = self._rows.start * self._length
        return to_plain(columns_of(found, len(self._steps.presence), first))
