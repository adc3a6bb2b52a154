"""StandardSpace: what the ten spaces are made of, from which equality and differences follow."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from vecspaces.spaces.space import Space, T_cov


class StandardSpace(Space[T_cov]):
    """One of the ten spaces, or a subclass of one: the arguments that make it say all about it."""

    _kind: ClassVar[type[StandardSpace[Any]]]
    """Which of the ten it is: the class that defines `_arguments`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_arguments" in vars(cls):
            cls._kind = cls

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that make an equal space, without seeds, as descriptions order them.

        It reads attributes that Gymnasium's space of that name has too, and may be called with one.
        """
        raise NotImplementedError

    def _parts(self) -> dict[str, Any]:
        """Return what makes two spaces equal, by the names that differences have."""
        return {"shape": self.shape, "dtype": self.dtype, **self._arguments()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self._kind):
            return False
        parts = other._parts()
        return all(
            find_difference(name, part, parts[name]) is None for name, part in self._parts().items()
        )


def find_difference(name: str, one: Any, other: Any) -> tuple[int, ...] | None:
    """Return the index of the first entry in which two parts differ, () if they are no arrays."""
    if not isinstance(one, np.ndarray):
        return None if one is other or one == other else ()
    # Gymnasium's Boxes are equal if their bounds are close.
    close = np.isclose(one, other) if name in ("low", "high") else one == other
    if np.all(close):
        return None
    first: tuple[int, ...] = tuple(np.argwhere(~close)[0].tolist())
    return first
