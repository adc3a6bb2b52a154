"""StandardSpace: the fields of the ten kinds of spaces, from which equality is derived.

Equality, differences, descriptions in JSON and the conversion to Gymnasium derive from the fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from vecspaces.spaces.space import Space, T_cov

FieldKind: TypeAlias = Literal[
    "shape", "dtype", "size", "flag", "characters",
    # integers, and arrays of numbers
    "length", "limit", "limits", "low", "high",
    # members: one space, a space or None, several in order, several by key
    "space", "optional space", "spaces", "items",
]  # fmt: skip

MEMBERS = frozenset(("space", "optional space", "spaces", "items"))
#: The fields that may differ between spaces whose values have the same nesting, shapes and dtypes.
BOUNDS = frozenset(("limit", "limits", "low", "high"))


#: The arguments that make an equal space of each kind, in the order of its description.
FIELDS: dict[str, dict[str, FieldKind]] = {
    "Box": {"shape": "shape", "dtype": "dtype", "low": "low", "high": "high"},
    "Discrete": {"n": "limit", "start": "limit", "dtype": "dtype"},
    "MultiBinary": {"n": "size"},
    "MultiDiscrete": {"dtype": "dtype", "nvec": "limits", "start": "limits"},
    "Text": {"min_length": "limit", "max_length": "length", "charset": "characters"},
    "Dict": {"sort_keys": "flag", "spaces": "items"},
    "Tuple": {"spaces": "spaces"},
    "OneOf": {"spaces": "spaces"},
    "Sequence": {"space": "space", "stack": "flag"},
    "Graph": {"edge_space": "optional space", "node_space": "space"},
}
#: The classes of the ten kinds, each entered when it is defined.
KINDS: dict[str, Any] = dict.fromkeys(FIELDS)


class StandardSpace(Space[T_cov]):
    """One of the ten spaces, or a subclass; the fields determine everything except the seeds."""

    _fields: ClassVar[dict[str, FieldKind]]

    _kind: ClassVar[type[StandardSpace[Any]]]
    """Which of the ten it is."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if KINDS.get(cls.__name__, cls) is None:
            cls._fields, cls._kind = FIELDS[cls.__name__], cls
            KINDS[cls.__name__] = cls

    @property
    def is_np_flattenable(self) -> bool:
        """Whether every value can be flattened into a vector of a fixed length."""
        return True

    @classmethod
    def _arguments_of(cls, space: Any) -> dict[str, Any]:
        """Return the arguments of `space`, which is of this class or Gymnasium's of that name."""
        return {name: getattr(space, name) for name in cls._fields}

    def _parts(self) -> dict[str, Any]:
        """Return the parts on which equality depends, by their names in texts of differences."""
        return {"shape": self.shape, "dtype": self.dtype, **self._arguments_of(self)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self._kind):
            return False
        parts = other._parts()
        for name, part in self._parts().items():
            if find_difference(name, part, parts[name]) is not None:
                return False
        return True


def find_difference(name: str, part: Any, other: Any) -> tuple[int, ...] | None:
    """Return the index of the first entry in which two parts differ, () if they are not arrays."""
    if not isinstance(part, np.ndarray):
        return None if part is other or part == other else ()
    # Gymnasium's Boxes are equal if their bounds are close.
    close = np.isclose(part, other) if name in ("low", "high") else part == other
    if np.all(close):
        return None
    first: tuple[int, ...] = tuple(np.argwhere(~close)[0].tolist())
    return first


def map_members(
    kind: type[StandardSpace[Any]],
    arguments: dict[str, Any],
    where: str,
    convert: Callable[[Any, str], Any],
) -> None:
    """Replace each member among the arguments of a space by `convert(member, its path)`.

    The members of a Dict become pairs, which keep their order.
    """
    for name, field in kind._fields.items():
        members = arguments[name]
        if field == "items":
            pairs = [[key, convert(member, f"{where}[{key!r}]")] for key, member in members.items()]
            arguments[name] = pairs
        elif field == "spaces":
            arguments[name] = [convert(member, f"{where}[{i}]") for i, member in enumerate(members)]
        elif field in MEMBERS and members is not None:
            step = "feature_space" if name == "space" else name
            arguments[name] = convert(members, f"{where}.{step}")
