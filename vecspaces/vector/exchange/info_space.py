"""What an info_space holds: keys of infos that lie in memory beside the observations.

Each key of the Dict has a layout of its own, so that an environment may leave any of them out; one
bool per key and row says which it gave. A key whose value is a Dict has such a bool too, and keys
of its own. What an info holds besides travels as columns (`infos.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import Path, show_path
from vecspaces.interop import native_space
from vecspaces.layout import Layout, Rows
from vecspaces.memory import ALIGNMENT, Arena
from vecspaces.spaces import Dict, Space

Mask = npt.NDArray[np.bool_]

# Keys with which a vector env itself reports something.
_RESERVED = frozenset(("final_obs", "final_info", "worker_restarted"))


def check_info_space(space: Any) -> Dict[Any] | None:
    """Return an info_space as ours, checked; None where there is none.

    Raises:
        TypeError: It is no Dict, or has a key that is no string.
        ValueError: A key is one that vector envs use themselves.

    Example:
        >>> from vecspaces.spaces import MultiBinary
        >>> check_info_space(MultiBinary(3))
        Traceback (most recent call last):
            ...
        TypeError: info_space must be a Dict of the keys of infos, found MultiBinary(3)
    """
    if space is None:
        return None
    try:
        native = native_space(space)
    except TypeError as error:
        raise TypeError(f"info_space must be a Dict of the keys of infos: {error}") from None
    if not isinstance(native, Dict):
        raise TypeError(f"info_space must be a Dict of the keys of infos, found {native}")
    _check_keys(native, ())
    return native


def _check_keys(space: Dict[Any], path: Path) -> None:
    """Refuse keys that would be taken for others in merged infos."""
    for key, member in space.spaces.items():
        where = f"info_space{show_path((*path, key))}"
        if not isinstance(key, str):
            raise TypeError(f"{where}: the keys of infos must be strings, found {key!r}")
        if key.startswith("_"):
            raise ValueError(
                f"{where}: in merged infos, a key that begins with '_' is the mask of another: "
                "choose another name, or leave it to the infos that are not declared"
            )
        if not path and key in _RESERVED:
            raise ValueError(f"{where}: vector envs use this key themselves: choose another name")
        if isinstance(member, Dict):
            _check_keys(member, (*path, key))


@dataclass(frozen=True)
class InfoKey:
    """One key of an info_space.

    Args:
        path: The keys that lead to it.
        number: Its place among all keys, in the order of the space.
        layout: Where its values lie; None for a Dict.
        members: The keys of a Dict.
    """

    path: tuple[str, ...]
    number: int
    layout: Layout | None
    members: tuple[InfoKey, ...]

    @property
    def name(self) -> str:
        """The key itself."""
        return self.path[-1]

    @property
    def is_array(self) -> bool:
        """Whether its values are arrays or numbers, which merged infos hold as one array."""
        layout = self.layout
        return layout is not None and layout.fixed and [leaf.path for leaf in layout.leaves] == [()]

    def walk(self) -> Iterator[InfoKey]:
        """Yield this key and those below it, in the order of their numbers."""
        yield self
        for member in self.members:
            yield from member.walk()


@dataclass(frozen=True)
class InfoLayout:
    """Where everything lies that an info_space holds; small, picklable.

    Args:
        space: The info_space.
        keys: Its keys.
        n: The number of rows.
        slots: The length of the ring.
        presence: The offset of one bool per slot, row and key, in bytes.
        width: The number of keys, those of nested Dicts included.
        end: Where the last block ends.
    """

    space: Dict[Any]
    keys: tuple[InfoKey, ...]
    n: int
    slots: int
    presence: int
    width: int
    end: int

    @classmethod
    def compile(
        cls, space: Dict[Any], n: int, *, slots: int, variable_capacity: int, offset: int
    ) -> InfoLayout:
        """Lay out the rows of `n` environments from `offset` on."""
        spaces = list(_leaves(space))
        shares = sum(Layout.compile(leaf, 0).has_variable for leaf in spaces)
        capacity = variable_capacity // max(shares, 1)
        width, end = 0, offset

        def lay_out(space: Dict[Any], path: tuple[str, ...]) -> tuple[InfoKey, ...]:
            nonlocal width, end
            keys = []
            for name, member in space.spaces.items():
                number, width = width, width + 1
                if isinstance(member, Dict):
                    members = lay_out(member, (*path, name))
                    keys.append(InfoKey((*path, name), number, None, members))
                else:
                    layout = Layout.compile(
                        member, n, slots=slots, variable_capacity=capacity, offset=end
                    )
                    end += layout.size
                    keys.append(InfoKey((*path, name), number, layout, ()))
            return tuple(keys)

        keys = lay_out(space, ())
        presence, bits = end, slots * n * width
        return cls(space, keys, n, slots, presence, width, end + -(-bits // ALIGNMENT) * ALIGNMENT)

    @property
    def has_variable(self) -> bool:
        """Whether a value of variable size is among them."""
        found = [key.layout for top in self.keys for key in top.walk()]
        return any(layout is not None and layout.has_variable for layout in found)

    def bind(self, arena: Arena) -> tuple[InfoRows, ...]:
        """Return the views on the rows of each slot."""
        presence = self._presence(arena)
        rows = {
            key.number: key.layout.bind(arena, spill=True)
            for top in self.keys
            for key in top.walk()
            if key.layout is not None
        }
        return tuple(
            InfoRows(self, presence[slot], {number: each[slot] for number, each in rows.items()})
            for slot in range(self.slots)
        )

    def ring(self, arena: Arena, slots: int) -> dict[str, Any]:
        """Return views of the first slots in time order: all arrays, and their masks."""
        presence = self._presence(arena)[:slots]

        def views(keys: Sequence[InfoKey]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for key in keys:
                if key.layout is None:
                    found[key.name] = views(key.members)
                elif key.is_array:
                    found[key.name] = key.layout.ring(arena, slots)
                else:
                    continue
                found[f"_{key.name}"] = presence[:, :, key.number]
            return found

        return views(self.keys)

    def _presence(self, arena: Arena) -> Mask:
        return arena.view(np.bool_, (self.slots, self.n, self.width), self.presence)


def _leaves(space: Dict[Any]) -> Iterator[Space[Any]]:
    """Yield the spaces of all keys that are no Dicts."""
    for member in space.spaces.values():
        if isinstance(member, Dict):
            yield from _leaves(member)
        else:
            yield member


class BoundKey:
    """One key, bound to the rows of a slot.

    Attributes:
        name: The key.
        mask_name: The key of its mask in merged infos.
        path: The keys that lead to it.
        number: Its place in the presence of a row.
        rows: Its values; None for a Dict.
        array: Its values where they are one array, of shape `(n, ...)`; else None.
        members: The keys of a Dict.
    """

    __slots__ = ("array", "mask_name", "members", "name", "number", "path", "rows")

    def __init__(self, key: InfoKey, rows: dict[int, Rows]) -> None:
        self.path, self.name, self.number = key.path, key.name, key.number
        self.mask_name = f"_{key.name}"
        self.rows = rows.get(key.number)
        self.array: npt.NDArray[Any] | None = None
        if self.rows is not None and key.is_array:
            self.array = self.rows.read()
        self.members = [BoundKey(member, rows) for member in key.members]


class InfoRows:
    """What an info_space holds of all rows, in one slot; written by `group.info_writer`.

    Args:
        layout: Where everything lies.
        presence: Shape `(n, keys)`: which keys each row has.
        rows: The values of each key that is no Dict, by its number.

    Attributes:
        presence: As given.
        keys: The keys.
        leaves: All values, in the order of the space.
    """

    def __init__(self, layout: InfoLayout, presence: Mask, rows: dict[int, Rows]) -> None:
        self.layout, self.presence = layout, presence
        self.leaves = [rows[number] for number in sorted(rows)]
        self.keys = [BoundKey(key, rows) for key in layout.keys]
        self._bytes = presence.reshape(-1).view(np.uint8).data
        self._everything = bytes([1]) * presence.size
        # What copies each key where all are arrays.
        self._copies: list[tuple[str, str, Callable[[], Any]]] | None = [
            (key.name, key.mask_name, key.array.copy) for key in self.keys if key.array is not None
        ]
        if len(self._copies) < len(self.keys):
            self._copies = None

    def read(self, infos: dict[str, Any], copy: bool) -> None:
        """Add the keys of all rows to merged infos; arrays and masks are views without `copy`."""
        masks = self.presence.T
        if copy:
            masks = masks.copy()
        if self._bytes.tobytes() != self._everything:
            given = np.any(self.presence, axis=0).tolist()
            self._read(self.keys, infos, masks, given, copy)
        elif self._copies is None or not copy:
            self._read(self.keys, infos, masks, None, copy)
        else:
            # As it is at nearly every step.
            for (name, mask_name, make_copy), mask in zip(self._copies, masks):  # noqa: B905
                infos[name], infos[mask_name] = make_copy(), mask

    def _read(
        self,
        keys: list[BoundKey],
        infos: dict[str, Any],
        masks: Mask,
        given: list[bool] | None,
        copy: bool,
    ) -> None:
        for key in keys:
            mask = masks[key.number]
            if given is not None and not given[key.number]:
                continue
            if key.array is not None:
                infos[key.name] = key.array.copy() if copy else key.array.view()
            elif key.rows is None:
                self._read(key.members, infos.setdefault(key.name, {}), masks, given, copy)
            else:
                infos[key.name] = _objects(key.rows, np.arange(len(mask)), mask)
            infos[key.mask_name] = mask

    def gather(
        self,
        infos: dict[str, Any],
        rows: npt.NDArray[Any],
        places: npt.NDArray[Any],
        count: int,
    ) -> None:
        """Add the keys of some rows to merged infos of `count` rows, as the rows `places`."""
        presence: Mask = np.zeros((count, self.layout.width), dtype=np.bool_)
        presence[places] = self.presence[rows]
        self._gather(self.keys, infos, rows, places, presence)

    def _gather(
        self,
        keys: list[BoundKey],
        infos: dict[str, Any],
        rows: npt.NDArray[Any],
        places: npt.NDArray[Any],
        presence: Mask,
    ) -> None:
        for key in keys:
            mask = presence[:, key.number].copy()
            if not mask.any():
                continue
            if key.rows is None:
                self._gather(key.members, infos.setdefault(key.name, {}), rows, places, presence)
            elif key.array is None:
                numbers = np.zeros(len(mask), dtype=np.intp)
                numbers[places] = rows
                infos[key.name] = _objects(key.rows, numbers, mask)
            else:
                values = np.zeros((len(mask), *key.array.shape[1:]), key.array.dtype)
                values[places] = key.array[rows]
                infos[key.name] = values
            infos[key.mask_name] = mask

    def copy_rows(self, source: InfoRows, at: Any) -> None:
        """Copy rows of another slot."""
        self.presence[at] = source.presence[at]
        for leaf, other in zip(self.leaves, source.leaves, strict=True):
            leaf.copy_rows(other, at)

    def export(self, low: int, high: int) -> Any:
        """Copy rows `low` to `high` into a few picklable parts."""
        return self.presence[low:high].copy(), [leaf.export(low, high) for leaf in self.leaves]

    def load(self, low: int, high: int, parts: Any) -> None:
        """Write what `export` returned."""
        self.presence[low:high], values = parts
        for leaf, part in zip(self.leaves, values, strict=True):
            leaf.load(low, high, part)


def _objects(rows: Rows, numbers: npt.NDArray[Any], mask: Mask) -> npt.NDArray[Any]:
    """Make an array of the values of rows, None where the mask says that there is none."""
    values = np.full(len(mask), None, dtype=object)
    for place in np.flatnonzero(mask).tolist():
        values[place] = rows.item(int(numbers[place]))
    return values
