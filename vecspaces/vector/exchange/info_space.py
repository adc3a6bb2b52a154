"""Declared infos (`info_space`): how the values of each key are stored, checked and read.

All keys, those of nested Dicts included, are one flat list in the order of the space. Each key that
is not a Dict has its own layout, so that an environment may omit any key, and one array of bools,
`presence`, states which keys each row has. Other keys of an info are sent as columns (`infos.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import show_path
from vecspaces.interop import native_space
from vecspaces.layout import Layout, Rows
from vecspaces.memory import Arena
from vecspaces.spaces import Box, Dict, Space

Mask = npt.NDArray[np.bool_]

#: The keys that a vector env itself adds to infos.
RESERVED = frozenset(("final_obs", "final_info", "worker_restarted"))


def check_info_space(space: Any) -> Dict[Any] | None:
    """Check an info_space, and return it as a space of vecspaces; None if there is none.

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
    for path, _ in _walk(native):
        key, where = path[-1], f"info_space{show_path(path)}"
        if not isinstance(key, str):
            raise TypeError(f"{where}: the keys of infos must be strings, found {key!r}")
        if key.startswith("_"):
            raise ValueError(
                f"{where}: in merged infos, a key that begins with '_' is the mask of another: "
                "choose another name, or leave it to the infos that are not declared"
            )
        if len(path) == 1 and key in RESERVED:
            raise ValueError(f"{where}: vector envs use this key themselves: choose another name")
    return native


def _walk(
    space: Dict[Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Space[Any]]]:
    """Yield the path and the space of each key, a Dict before the keys in it."""
    for name, member in space.spaces.items():
        yield (*path, name), member
        if isinstance(member, Dict):
            yield from _walk(member, (*path, name))


@dataclass(frozen=True)
class InfoKey:
    """One key of an info_space, of all those that `_walk` yields."""

    path: tuple[str, ...]
    name: str  # the last key of the path
    number: int  # its index in the list of keys, and in the presence of a row
    parent: int  # the number of the Dict that it is in; -1 for the whole info
    end: int  # the number after those of the keys in it; `number + 1` if it is no Dict
    layout: Layout | None  # None for a Dict

    @property
    def is_array(self) -> bool:
        """Whether its values are arrays or numbers, which are one array in merged infos."""
        layout = self.layout
        return layout is not None and layout.fixed and [leaf.path for leaf in layout.leaves] == [()]


@dataclass(frozen=True)
class InfoLayout:
    """The layouts of all keys of an info_space; small and picklable."""

    keys: tuple[InfoKey, ...]
    n: int  # rows
    slots: int
    presence: Layout  # one bool per key
    end: int  # of the last block

    @classmethod
    def compile(
        cls, space: Dict[Any], n: int, *, slots: int, variable_capacity: int, offset: int
    ) -> InfoLayout:
        """Lay out the rows of `n` environments from `offset` on."""
        members = dict(_walk(space))
        paths = list(members)
        leaves = [member for member in members.values() if not isinstance(member, Dict)]
        shares = sum(Layout.compile(leaf, 0).has_variable for leaf in leaves)
        capacity = variable_capacity // max(shares, 1)
        keys = []
        for number, (path, member) in enumerate(members.items()):
            layout = None
            if not isinstance(member, Dict):
                layout = Layout.compile(
                    member, n, slots=slots, variable_capacity=capacity, offset=offset
                )
                offset += layout.size
            parent = paths.index(path[:-1]) if len(path) > 1 else -1
            within = sum(other[: len(path)] == path for other in paths)
            keys.append(InfoKey(path, path[-1], number, parent, number + within, layout))
        flags = Box(0, 1, (len(keys),), np.bool_)
        presence = Layout.compile(flags, n, slots=slots, offset=offset)
        return cls(tuple(keys), n, slots, presence, offset + presence.size)

    def of_rows(self, n: int) -> InfoLayout:
        """Return a layout of n rows only, in which values of variable size are spilled."""
        keys, end = [], 0
        for key in self.keys:
            layout = None if key.layout is None else key.layout.of_rows(n, end)
            end += 0 if layout is None else layout.size
            keys.append(replace(key, layout=layout))
        presence = self.presence.of_rows(n, end)
        return InfoLayout(tuple(keys), n, 1, presence, end + presence.size)

    @property
    def has_variable(self) -> bool:
        """Whether some key has values of variable size."""
        return any(key.layout is not None and key.layout.has_variable for key in self.keys)

    def bind(self, arena: Arena) -> tuple[InfoRows, ...]:
        """Return the views on the rows of each slot."""
        nothing = (None,) * self.slots
        rows = [
            nothing if key.layout is None else key.layout.bind(arena, spill=True)
            for key in self.keys
        ]
        slots = zip(*rows, strict=True) if rows else [()] * self.slots
        return tuple(
            InfoRows(self, own, tuple(map(BoundKey.of, self.keys, each)))
            for own, each in zip(self.presence.bind(arena), slots, strict=True)
        )

    def ring(self, arena: Arena, slots: int) -> dict[str, Any]:
        """Return views of the first slots in time order: all arrays, and their masks."""
        presence = self.presence.ring(arena, slots)
        found: dict[str, Any] = {}
        for key, holder in self.nest(found):
            if key.layout is not None:
                if not key.is_array:
                    continue
                holder[key.name] = key.layout.ring(arena, slots)
            holder[f"_{key.name}"] = presence[:, :, key.number]
        return found

    def nest(
        self, infos: dict[str, Any], given: Sequence[bool] | None = None
    ) -> Iterator[tuple[InfoKey, dict[str, Any]]]:
        """Yield each key, or those that are `given`, with the dict in `infos` for its value.

        The dict for the value of a Dict is made here, unless undeclared keys have made it.
        """
        holders = {-1: infos}
        for key in self.keys:
            if given is None or given[key.number]:
                holder = holders[key.parent]
                if key.layout is None:
                    holders[key.number] = holder.setdefault(key.name, {})
                yield key, holder


class BoundKey(NamedTuple):
    """One key, bound to the rows of a slot."""

    key: InfoKey
    rows: Rows | None  # None for a Dict
    array: npt.NDArray[Any] | None  # of shape `(n, ...)`, if the values are one array

    @classmethod
    def of(cls, key: InfoKey, rows: Rows | None) -> BoundKey:
        """Bind a key."""
        return cls(key, rows, rows.read() if rows is not None and key.is_array else None)


class InfoRows:
    """The declared infos of all rows, in one slot; written by `group.info_writer`.

    `presence` has the shape `(n, keys)`; `parts` are its rows, and the rows of the keys that are
    not Dicts.
    """

    def __init__(self, layout: InfoLayout, presence: Rows, keys: tuple[BoundKey, ...]) -> None:
        self.layout, self.keys = layout, keys
        self.presence: Mask = presence.read()
        self.parts = [presence, *(key.rows for key in keys if key.rows is not None)]
        self._bytes = self.presence.reshape(-1).view(np.uint8).data
        self._everything = bytes([1]) * self.presence.size
        # If all keys are arrays: the functions that copy each of them.
        self._copies = [
            (bound.key.name, f"_{bound.key.name}", bound.array.copy)
            for bound in keys
            if bound.array is not None and bound.key.parent < 0
        ]
        self._is_flat = len(self._copies) == len(keys)

    def read(self, infos: dict[str, Any], copy: bool) -> None:
        """Add the keys of all rows to merged infos; arrays and masks are views without `copy`."""
        masks = self.presence.T
        if copy:
            masks = masks.copy()
        given: list[bool] | None = None
        if self._bytes.tobytes() != self._everything:
            given = np.any(self.presence, axis=0).tolist()
        elif self._is_flat and copy:
            # The usual case.
            for (name, mask_name, make_copy), mask in zip(self._copies, masks):  # noqa: B905
                infos[name], infos[mask_name] = make_copy(), mask
            return
        for key, holder in self.layout.nest(infos, given):
            bound, mask = self.keys[key.number], masks[key.number]
            if bound.array is not None:
                holder[key.name] = bound.array.copy() if copy else bound.array.view()
            elif bound.rows is not None:
                holder[key.name] = objects_of(bound.rows, np.arange(len(mask)), mask)
            holder[f"_{key.name}"] = mask

    def add_to(self, info: dict[str, Any], row: int) -> None:
        """Add the keys that one environment returned to its own info."""
        for key, holder in self.layout.nest(info, self.presence[row].tolist()):
            rows = self.keys[key.number].rows
            if rows is not None:
                holder[key.name] = rows.item(row)

    def gather(
        self, infos: dict[str, Any], rows: npt.NDArray[Any], given: Mask | bool = True
    ) -> None:
        """Add the keys of `rows` to merged infos of these rows; those not `given` have no key."""
        masks: Mask = np.logical_and(self.presence[rows].T, given, order="C")
        for key, holder in self.layout.nest(infos, np.any(masks, axis=1).tolist()):
            bound, mask = self.keys[key.number], masks[key.number]
            if bound.array is not None:
                values = bound.array[rows]
                values[~mask] = 0
                holder[key.name] = values
            elif bound.rows is not None:
                holder[key.name] = objects_of(bound.rows, rows, mask)
            holder[f"_{key.name}"] = mask


def objects_of(rows: Rows, numbers: npt.NDArray[Any], mask: Mask) -> npt.NDArray[Any]:
    """Make an array of the values of rows, with None where the mask is False."""
    values = np.full(len(mask), None, dtype=object)
    for place in np.flatnonzero(mask).tolist():
        values[place] = rows.item(int(numbers[place]))
    return values
