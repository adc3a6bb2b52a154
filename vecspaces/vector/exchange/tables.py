"""Tables: infos that are the same numbers in every row, in shared memory.

Most simulators report such infos. With 64 HalfCheetahs in two workers, pickling and merging their
four numbers took 7 % of a step. A worker writes them into cells, and a message names their form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

#: The number of keys for which there are cells.
MOST_KEYS = 16
#: The bytes of a cell.
CELL_BYTES = 8
# The number of forms that are kept; the types of a key may differ at each step.
_MOST_FORMS = 64
# The types of values, and their codes of `struct` and NumPy; the first three are Python's.
_TYPES: tuple[type, ...] = (float, int, bool, np.float64, np.float32, np.int64, np.int32)
_STRUCT, _NUMPY = "dq?dfqi", ("f8", "i8", "?", "f8", "f4", "i8", "i4")
_PYTHON_TYPES = 3


class Form(NamedTuple):
    """The keys of infos, and for each the place of its type in `_TYPES`."""

    names: tuple[str, ...]
    kinds: bytes

    @property
    def plain(self) -> Any:
        """The same values as a plain tuple, which takes less time to pickle."""
        return tuple(self)


class Table(NamedTuple):
    """Infos of some rows, which are read before the next step of these rows.

    Attributes:
        rows: The rows that report them.
        form: Their keys and types.
        arrays: The values of each key, of all rows of the vector env.
    """

    rows: Sequence[int]
    form: Form
    arrays: list[npt.NDArray[Any]]

    def columns(self) -> list[tuple[str, npt.NDArray[Any], bool]]:
        """Return each key, a copy of its values, and whether they had a type of Python."""
        index = np.array(self.rows, np.intp)
        are_python = [kind < _PYTHON_TYPES for kind in self.form.kinds]
        values = [array[index] for array in self.arrays]
        return list(zip(self.form.names, values, are_python, strict=True))


class Cells:
    """The cells of all rows, one column of `num_envs` cells per key."""

    def __init__(self, memory: npt.NDArray[np.uint8], num_envs: int) -> None:
        self._memory, self._num_envs = memory.data, num_envs
        self._arrays: dict[bytes, list[npt.NDArray[Any]]] = {}

    def write(self, rows: Sequence[int], infos: Mapping[int, dict[str, Any]]) -> Form | None:
        """Write the infos of consecutive rows, and return their form; None if they have no form."""
        count, low = len(rows), rows[0] if rows else 0
        if not count or list(infos) != [*range(low, low + count)]:
            return None
        dicts = list(infos.values())
        names, types = tuple(dicts[0]), tuple(map(type, dicts[0].values()))
        if {*map(type, names)} != {str}:  # a key of a subclass may equal one in the cache of forms
            return None
        form = _find_form(names, types)
        values = list(chain.from_iterable(map(dict.values, dicts)))
        if (
            form is None
            or list(chain.from_iterable(dicts)) != [*names] * count
            or list(map(type, values)) != [*types] * count
        ):
            return None
        try:
            for place, pack in enumerate(_packers(form.kinds, count)):
                start = (place * self._num_envs + low) * CELL_BYTES
                pack(self._memory, start, *values[place :: len(names)])
        except struct.error:  # an integer of more than 64 bits
            return None
        return form

    def table(self, rows: Sequence[int], form: Form) -> Table:
        """Return the infos that a worker wrote."""
        arrays = self._arrays.get(form.kinds)
        if arrays is None:
            if len(self._arrays) == _MOST_FORMS:
                del self._arrays[next(iter(self._arrays))]
            memory, num_envs = self._memory, self._num_envs
            arrays = self._arrays[form.kinds] = [
                np.ndarray(
                    num_envs, _NUMPY[kind], memory, place * num_envs * CELL_BYTES, CELL_BYTES
                )
                for place, kind in enumerate(form.kinds)
            ]
        return Table(rows, form, arrays)

    def release(self) -> None:
        """Free the memory, also that of tables that were not read; can be repeated."""
        for arrays in list(self._arrays.values()):
            arrays.clear()


@lru_cache(_MOST_FORMS)
def _find_form(names: tuple[str, ...], types: tuple[type, ...]) -> Form | None:
    """Return the form of infos with such keys and values, or None if they have no form."""
    if len(names) > MOST_KEYS or not set(types).issubset(_TYPES):
        return None
    # Merging does not make an array of numbers of these.
    if "final_obs" in names or not {f"_{name}" for name in names}.isdisjoint(names):
        return None
    return Form(names, bytes(map(_TYPES.index, types)))


@lru_cache(_MOST_FORMS)
def _packers(kinds: bytes, count: int) -> list[Callable[..., None]]:
    """Return, for each key, the function that writes the values of `count` rows into cells."""
    sizes = [struct.calcsize(code) for code in _STRUCT]
    formats = [f"{_STRUCT[kind]}{CELL_BYTES - sizes[kind]}x" for kind in kinds]
    return [struct.Struct("=" + form * count).pack_into for form in formats]


@lru_cache(_MOST_FORMS)
def _masks(names: tuple[str, ...]) -> list[str]:
    """Return the key of the mask of each key."""
    return [f"_{name}" for name in names]


def join(parts: Sequence[Any]) -> Table | None:
    """Return tables of one form as one table; None if a part is another part."""
    rows: list[int] = []
    for part in parts:
        if (
            part.__class__ is not Table
            or part.form != parts[0].form
            or part.arrays is not parts[0].arrays
        ):
            return None
        rows += part.rows
    return Table(rows, parts[0].form, parts[0].arrays) if parts else None


def merge_table(table: Table, mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Merge the infos of all rows; `mask` is that of a key that all rows report."""
    infos: dict[str, Any] = {}
    names = table.form.names
    for name, masked, array in zip(names, _masks(names), table.arrays, strict=True):
        infos[name], infos[masked] = array.copy(), mask.copy()
    return infos


def select(parts: Sequence[Any], rows: Sequence[int], index: Any) -> Table | None:
    """Return the infos of `rows`, at their places, if tables of one form have exactly these rows.

    `index` selects the rows.
    """
    table = join(parts)
    if table is None or len(table.rows) != len(rows) or {*table.rows} != {*rows}:
        return None
    return Table(range(len(rows)), table.form, [array[index].copy() for array in table.arrays])
