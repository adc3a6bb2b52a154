"""Checking infos against the info_space that their environment declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vecspaces.checks import show_path
from vecspaces.layout import Mismatch
from vecspaces.memory import Arena
from vecspaces.spaces import Dict
from vecspaces.vector.exchange.info_space import BoundKey, InfoLayout
from vecspaces.vector.group.info_writer import InfoWriter

_CAPACITY = 65536


class DeclaredInfos:
    """Writes infos as a vector env does, and looks at what it wrote.

    Args:
        space: The info_space.
    """

    def __init__(self, space: Dict[Any]) -> None:
        layout = InfoLayout.compile(space, 1, slots=1, variable_capacity=_CAPACITY, offset=0)
        (self._rows,) = layout.bind(Arena(layout.end))
        self._writer = InfoWriter(self._rows, 0, 1)
        self._seen = np.zeros(layout.width, np.bool_)

    def explain(self, info: dict[Any, Any]) -> str | None:
        """Return why an info does not lie in the space; None where it does."""
        try:
            self._writer.write({0: info}, [0])
        except Mismatch as error:
            return str(Mismatch(error.expected, error.found, error.path, name="info"))
        self._seen |= self._rows.presence[0]
        return self._explain(self._rows.keys)

    def _explain(self, keys: list[BoundKey]) -> str | None:
        for key in keys:
            if not self._rows.presence[0, key.number]:
                continue
            if key.rows is None:
                found = self._explain(key.members)
            else:
                name = f"info{show_path(key.path)}"
                found = key.rows.layout.space.explain(key.rows.item(0), name=name)
            if found is not None:
                return found
        return None

    @property
    def missing(self) -> list[str]:
        """The keys that no info had; of a Dict that no info had, no keys below it."""
        return list(self._missing(self._rows.keys))

    def _missing(self, keys: list[BoundKey]) -> Iterator[str]:
        for key in keys:
            if self._seen[key.number]:
                yield from self._missing(key.members)
            else:
                yield f"info{show_path(key.path)}"
