"""Declared infos (`info_space`): each key is stored as an array, and a mask of rows.

Other keys of an info are sent as columns (`infos.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.interop import native_space
from vecspaces.layout import Layout, Rows
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

Mask = npt.NDArray[np.bool_]

#: The keys that a vector env itself adds to infos.
RESERVED = frozenset(("final_obs", "final_info", "worker_restarted"))
#: The spaces of keys, whose values are arrays of one shape and dtype.
KEY_SPACES = (Box, Discrete, MultiBinary, MultiDiscrete)
_FLAG = Box(0, 1, (), np.bool_)


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
    for key, member in native.spaces.items():
        where = f"info_space[{key!r}]"
        if not isinstance(key, str):
            raise TypeError(f"{where}: the keys of infos must be strings, found {key!r}")
        if key.startswith("_"):
            raise ValueError(
                f"{where}: in merged infos, a key that begins with '_' is the mask of another: "
                "choose another name, or leave it to the infos that are not declared"
            )
        if key in RESERVED:
            raise ValueError(f"{where}: vector envs use this key themselves: choose another name")
        if not isinstance(member, KEY_SPACES):
            raise TypeError(
                f"{where}: expected a Box, Discrete, MultiBinary or MultiDiscrete, found {member}: "
                "leave the key out of the info_space, and its values are merged like those of "
                "other keys"
            )
    return native


def compile_infos(space: Dict[Any], n: int, *, slots: int, offset: int) -> dict[str, Layout]:
    """Lay out the rows of `n` environments from `offset` on: keys, and under `_key` their masks."""
    layouts: dict[str, Layout] = {}
    for key, member in space.spaces.items():
        for name, kind in ((key, member), (f"_{key}", _FLAG)):
            layouts[name] = layout = Layout.compile(kind, n, slots=slots, offset=offset)
            offset += layout.size
    return layouts


class InfoKey(NamedTuple):
    """One declared key, bound to the rows of a slot."""

    name: str
    rows: Rows
    mask_name: str
    array: npt.NDArray[Any]  # its values: shape `(n, ...)`
    mask: Mask  # whether each row has it: shape `(n,)`


class InfoRows:
    """The declared infos of all rows, in one slot; written by `group.info_writer`.

    `parts` are the rows of each layout of `compile_infos`.
    """

    def __init__(self, parts: Mapping[str, Rows]) -> None:
        self.parts = list(parts.values())
        self.keys = [
            InfoKey(name, rows, f"_{name}", rows.read(), parts[f"_{name}"].read())
            for name, rows in parts.items()
            if not name.startswith("_")
        ]

    def read(self, infos: dict[str, Any], copy: bool) -> None:
        """Add the keys of all rows to merged infos; arrays and masks are views without `copy`."""
        for name, _, mask_name, array, mask in self.keys:
            if 1 in mask.tobytes():  # in a tenth of the time of `mask.any()`
                infos[name] = array.copy() if copy else array.view()
                infos[mask_name] = mask.copy() if copy else mask.view()

    def gather(
        self, infos: dict[str, Any], rows: npt.NDArray[Any], chosen: Mask | bool = True
    ) -> None:
        """Add the keys of `rows` to merged infos of these rows; only those `chosen` have keys."""
        for name, _, mask_name, array, mask in self.keys:
            reporting = mask[rows] & chosen
            if np.count_nonzero(reporting):
                values = array[rows]
                values[~reporting] = 0
                infos[name], infos[mask_name] = values, reporting
