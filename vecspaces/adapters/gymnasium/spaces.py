"""Conversion of each kind of space between Gymnasium and vecspaces, both ways."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np

from vecspaces import spaces as our_spaces
from vecspaces.adapters.gymnasium.carried import CarriedSpace
from vecspaces.adapters.gymnasium.errors import CustomSpaceError
from vecspaces.spaces.nesting import Composite
from vecspaces.spaces.standard import KINDS, map_members

if TYPE_CHECKING:
    from collections.abc import Callable

    from vecspaces.spaces import Space


def from_gymnasium(space: gymnasium.Space[Any]) -> Space[Any]:
    """Convert a Gymnasium space, the state of its generator included.

    Args:
        space: Any of Gymnasium's ten spaces, nested to any depth. A subclass of one of the ten is
            converted like its parent, and any other space to a `CarriedSpace`.

    Returns:
        A space of vecspaces that is independent of `space` and continues its samples.

    Raises:
        CustomSpaceError: `space` is no space of Gymnasium.

    Example:
        >>> import gymnasium
        >>> theirs = gymnasium.spaces.Dict(x=gymnasium.spaces.Discrete(100), seed=1)
        >>> from_gymnasium(theirs).sample() == theirs.sample()
        True
    """
    ours: Space[Any] = _convert(space, "space", _TO_OURS, _Known({}, {}))
    return ours


def to_gymnasium(space: Space[Any]) -> gymnasium.Space[Any]:
    """Convert a space to Gymnasium's, the state of its generator included.

    Args:
        space: Any of the ten spaces of vecspaces, nested to any depth.

    Returns:
        A Gymnasium space that is independent of `space` and continues its samples.

    Raises:
        CustomSpaceError: `space`, or one inside it, is not exactly one of the ten, and does not
            come from Gymnasium.

    Example:
        >>> from vecspaces.spaces import Box
        >>> to_gymnasium(Box(-1.0, 1.0, (2,)))
        Box(-1.0, 1.0, (2,), float32)
    """
    theirs: gymnasium.Space[Any] = _convert(space, "space", _TO_THEIRS, _Known({}, {}))
    return theirs


def translator(space: Space[Any], *, to_native: bool = False) -> Callable[[Any], Any] | None:
    """Return the function that converts values and batches to, or from, Gymnasium's; None if equal.

    Only graphs differ, for which each library has its own named tuple.
    """
    library: Any = our_spaces if to_native else gymnasium.spaces
    return functools.partial(_with_graphs, library.GraphInstance) if _has_graphs(space) else None


def _has_graphs(space: Space[Any]) -> bool:
    """Whether values of a space may contain graphs."""
    members = space._members().values() if isinstance(space, Composite) else ()
    return isinstance(space, our_spaces.Graph) or any(map(_has_graphs, members))


def _with_graphs(kind: Any, value: Any) -> Any:
    """Replace every graph in a value, of either library, by one of a kind."""
    if isinstance(value, (our_spaces.GraphInstance, gymnasium.spaces.GraphInstance)):
        return kind(*(_with_graphs(kind, part) for part in value))
    if isinstance(value, dict):
        return {key: _with_graphs(kind, item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):  # a value of a Tuple may be a list
        items = (_with_graphs(kind, item) for item in value)
        return list(items) if isinstance(value, list) else tuple(items)
    return value


class _Direction(NamedTuple):
    """The direction of a conversion; names are the same in both libraries."""

    kinds: dict[type, str]  # the names of the ten kinds of spaces that are converted
    target: Any  # the module of the resulting spaces


_TO_OURS = _Direction({getattr(gymnasium.spaces, name): name for name in KINDS}, our_spaces)
_TO_THEIRS = _Direction({kind: name for name, kind in KINDS.items()}, gymnasium.spaces)

# Arguments that Gymnasium's constructors lack before 1.2 and before 1.4.
_NEWER: dict[str, tuple[str, Any]] = {
    "Discrete": ("dtype", np.dtype(np.int64)),
    "Dict": ("sort_keys", True),
}
_OLD_DICT = not hasattr(gymnasium.spaces.Dict(), "sort_keys")


class _Known(NamedTuple):
    """The converted spaces and generators, by id: each is converted once."""

    spaces: dict[int, Any]
    copies: dict[int, Any]


def _convert(space: Any, path: str, direction: _Direction, known: _Known) -> Any:
    """Convert the space at `path`."""
    if id(space) in known.spaces:
        return known.spaces[id(space)]
    kind = direction.kinds.get(type(space))
    is_theirs = isinstance(space, gymnasium.Space)
    if kind is None and is_theirs:
        ancestors = (ancestor for ancestor in type(space).__mro__ if ancestor in direction.kinds)
        kind = next(map(direction.kinds.__getitem__, ancestors), None)
    if kind is not None:
        converted = _make(kind, space, path, direction, known)
        if space._np_random is not None:
            converted._np_random = copy.deepcopy(space._np_random, known.copies)
    elif isinstance(space, CarriedSpace):
        converted = copy.deepcopy(space.space, known.copies)
    elif is_theirs:
        converted = CarriedSpace(copy.deepcopy(space, known.copies))
    else:
        actual = type(space)
        raise CustomSpaceError(
            f"{path}: expected one of {', '.join(KINDS)}, found {space!r} of type "
            f"{actual.__module__}.{actual.__qualname__}; use one of these, or derive the class "
            "from gymnasium.Space"
        )
    known.spaces[id(space)] = converted
    return converted


def _make(kind: str, space: Any, path: str, direction: _Direction, known: _Known) -> Any:
    """Make a space of a kind, not seeded, from the arguments of another space."""
    arguments = KINDS[kind]._arguments_of(space)
    map_members(
        KINDS[kind],
        arguments,
        path,
        lambda member, member_path: _convert(member, member_path, direction, known),
    )
    name, default = _NEWER.get(kind, ("", None))
    is_old = kind == "Dict" and _OLD_DICT  # `map_members` has kept the order of the keys
    if arguments.get(name) == default or (is_old and direction.target is gymnasium.spaces):
        arguments.pop(name, None)
    converted = getattr(direction.target, kind)(**arguments)
    if kind == "Box":
        # Samples depend on missing bounds, which `low` and `high` of integers do not contain.
        converted.bounded_below = space.bounded_below.copy()
        converted.bounded_above = space.bounded_above.copy()
    return converted
