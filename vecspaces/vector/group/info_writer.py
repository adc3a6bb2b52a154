"""Writing of declared infos: the keys of the `info_space` in the infos of environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vecspaces.layout import Mismatch
from vecspaces.vector.exchange.info_space import InfoKey, InfoRows
from vecspaces.vector.exchange.infos import Columns, InfosByRow, split


class InfoWriter:
    """Writes consecutive rows of one slot, `low` to `high`; returns what is not declared."""

    def __init__(self, infos: InfoRows, low: int, high: int) -> None:
        self._rows = range(low, high)
        self._names = {key.name for key in infos.keys}
        # For each key: the function that writes all rows, and the bytes of the mask, which a
        # memoryview stores in half the time of an array.
        self._keys = [
            (key, key.name, key.rows.writer(low, high), key.mask[low:high].view(np.uint8).data)
            for key in infos.keys
        ]
        self._everything = b"\1" * (high - low)

    def write(
        self, infos: Mapping[int, dict[str, Any]], rows: Sequence[int] | None = None
    ) -> InfosByRow:
        """Write the infos of all rows, or of `rows`; those that are not among `infos` are empty.

        Keys that are not declared are returned, by row.
        """
        dicts = list(infos.values())
        if rows is None and len(dicts) == len(self._rows):
            declared = self._write_all(infos, dicts)
        else:
            some = self._rows if rows is None else rows
            declared = sum([self._write_some(key, infos, some) for key, *_ in self._keys])
        if declared == sum(map(len, dicts)):
            return InfosByRow()
        rest = {
            row: {name: info[name] for name in info if name not in self._names}
            for row, info in infos.items()
        }
        return InfosByRow((row, info) for row, info in rest.items() if info)

    def _write_all(
        self, infos: Mapping[int, dict[str, Any]], dicts: Sequence[dict[str, Any]]
    ) -> int:
        """Write the infos of all rows; return how many values they have of declared keys."""
        declared, everything = 0, self._everything
        single = dicts[0] if len(dicts) == 1 else None
        for key, name, write, mask in self._keys:
            try:
                values = [info[name] for info in dicts] if single is None else [single[name]]
            except KeyError:
                declared += self._write_some(key, infos, self._rows)
                continue
            try:
                write(values)
            except Mismatch as error:
                raise _named(error, key) from error.__cause__
            # A write would invalidate the cache line, which has rows of other workers too.
            if mask.tobytes() != everything:
                mask[:] = everything
            declared += len(values)
        return declared

    def _write_some(
        self, key: InfoKey, infos: Mapping[int, dict[str, Any]], rows: Sequence[int]
    ) -> int:
        """Write one key of `rows`, which some may lack; return how many have it."""
        reporting = [row for row in rows if key.name in infos.get(row, ())]
        _clear(key, rows)
        try:
            for row in reporting:
                key.rows.write(row, infos[row][key.name])
        except Mismatch as error:
            raise _named(error, key) from error.__cause__
        key.mask[reporting] = True
        return len(reporting)

    def write_columns(self, columns: Columns, rows: Sequence[int]) -> Columns:
        """Write the infos of a vector env, of some rows; return what is not declared."""
        declared = {name: columns[name] for name in columns if name in self._names}
        self.write(split([declared], rows), None if len(rows) == len(self._rows) else rows)
        return {name: columns[name] for name in columns if name not in declared}


def _clear(key: InfoKey, rows: Sequence[int]) -> None:
    """Note that rows do not have a key."""
    numbers = list(rows)
    key.array[numbers] = 0
    key.mask[numbers] = False


def _named(error: Mismatch, key: InfoKey) -> Mismatch:
    """Name the key whose value does not fit."""
    return error.called("info").placed((key.name,))
