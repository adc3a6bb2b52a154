"""Conversion of spaces between Gymnasium and vecspaces."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from vecspaces import spaces as our_spaces
from vecspaces.adapters.gymnasium.carried import CarriedSpace
from vecspaces.adapters.gymnasium.errors import CustomSpaceError
from vecspaces.spaces.nesting import map_members

if TYPE_CHECKING:
    from collections.abc import Callable

    from vecspaces.spaces import Space


def from_gymnasium(space: gymnasium.Space[Any]) -> Space[Any]:
    """Convert a Gymnasium space, the state of its generator included.

    Args:
        space: Any of Gymnasium's ten spaces, nested to any depth.

    Returns:
        A space of vecspaces that is independent of `space` and whose samples go on as those of
        `space` would have.

    Raises:
        CustomSpaceError: `space`, or one inside it, is not exactly one of the ten: a subclass may
            have changed what a value is, and that would be lost.

    Example:
        >>> import gymnasium
        >>> theirs = gymnasium.spaces.Dict(x=gymnasium.spaces.Discrete(100), seed=1)
        >>> from_gymnasium(theirs).sample() == theirs.sample()
        True
    """
    conversion = _Conversion(gymnasium.spaces, our_spaces, "vecspaces.Space")
    ours: Space[Any] = conversion.of(space, "space")
    return ours


def from_environment(space: gymnasium.Space[Any]) -> Space[Any]:
    """Convert any space of an environment, as Gymnasium's own vector envs take it.

    What `from_gymnasium` refuses is converted too: a subclass of one of the ten as its parent, and
    any other space to a `CarriedSpace`.
    """
    conversion = _Conversion(gymnasium.spaces, our_spaces, "vecspaces.Space", lenient=True)
    ours: Space[Any] = conversion.of(space, "space")
    return ours


def to_gymnasium(space: Space[Any]) -> gymnasium.Space[Any]:
    """Convert a space to Gymnasium's, the state of its generator included.

    Args:
        space: Any of the ten spaces of vecspaces, nested to any depth.

    Returns:
        A Gymnasium space that is independent of `space` and whose samples go on as those of `space`
        would have.

    Raises:
        CustomSpaceError: `space`, or one inside it, is not exactly one of the ten, and did not come
            from Gymnasium either.

    Example:
        >>> from vecspaces.spaces import Box
        >>> to_gymnasium(Box(-1.0, 1.0, (2,)))
        Box(-1.0, 1.0, (2,), float32)
    """
    conversion = _Conversion(our_spaces, gymnasium.spaces, "gymnasium.Space")
    theirs: gymnasium.Space[Any] = conversion.of(space, "space")
    return theirs


def translator(space: Space[Any]) -> Callable[[Any], Any] | None:
    """Return what converts values and batches to Gymnasium's; None where they are the same there.

    Only graphs differ: each library has a named tuple of its own.
    """
    return (
        functools.partial(_with_graphs, gymnasium.spaces.GraphInstance)
        if _has_graphs(space)
        else None
    )


def native_translator(space: Space[Any]) -> Callable[[Any], Any] | None:
    """Return what converts values and batches from Gymnasium's; None where they are the same."""
    return functools.partial(_with_graphs, our_spaces.GraphInstance) if _has_graphs(space) else None


def _has_graphs(space: Space[Any]) -> bool:
    """Whether values of a space may hold graphs."""
    if isinstance(space, our_spaces.Dict):
        return any(map(_has_graphs, space.spaces.values()))
    if isinstance(space, (our_spaces.Tuple, our_spaces.OneOf)):
        return any(map(_has_graphs, space.spaces))
    if isinstance(space, our_spaces.Sequence):
        return _has_graphs(space.feature_space)
    return isinstance(space, our_spaces.Graph)


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


@functools.cache
def _kinds_of(source: Any) -> dict[type, str]:
    """Return the names of the ten kinds of spaces of a library."""
    return {getattr(source, kind): kind for kind in _KINDS}


class _Conversion:
    """One walk over a space; both libraries name classes, arguments and attributes alike.

    Args:
        source: The module of the spaces that come in.
        target: The module of the spaces that go out.
        base: The name of the base class of the spaces that go out, for messages.
        lenient: Whether subclasses come in as their parents, and all other spaces whole.
    """

    def __init__(self, source: Any, target: Any, base: str, lenient: bool = False) -> None:
        self._kinds = _kinds_of(source)
        self._target = target
        self._base = base
        self._lenient = lenient
        # A space, or a generator, that sits in two places is still one afterwards.
        self._spaces: dict[int, Any] = {}
        self._generators: dict[int, Any] = {}

    def of(self, space: Any, path: str) -> Any:
        """Convert the space found at `path`."""
        if id(space) in self._spaces:
            return self._spaces[id(space)]
        kind = self._kind(space)
        if kind is None and isinstance(space, CarriedSpace):
            return self._keep(space, copy.deepcopy(space.space, self._generators))
        if kind is None and self._lenient and isinstance(space, gymnasium.Space):
            return self._keep(space, CarriedSpace(copy.deepcopy(space, self._generators)))
        if kind is None:
            found = type(space)
            raise CustomSpaceError(
                f"{path}: expected one of {', '.join(_KINDS)}, found {space!r} of type "
                f"{found.__module__}.{found.__qualname__}; use one of these, or derive the class "
                f"from {self._base}"
            )
        converted = _copy_box(space) if kind == "Box" and self._target is our_spaces else None
        if converted is None:
            arguments = map_members(getattr(our_spaces, kind)._arguments(space), path, self.of)
            for name, default in _KINDS[kind].items():
                if arguments[name] == default:
                    del arguments[name]
            converted = getattr(self._target, kind)(**arguments)
            if kind == "Box":
                # Samples depend on missing bounds, which `low` and `high` of integers do not show.
                converted.bounded_below = space.bounded_below.copy()
                converted.bounded_above = space.bounded_above.copy()
        converted._np_random = copy.deepcopy(space._np_random, self._generators)
        return self._keep(space, converted)

    def _kind(self, space: Any) -> str | None:
        """Name the one of the ten that a space is; None for any other."""
        ancestors = type(space).__mro__ if self._lenient else (type(space),)
        return next((self._kinds[found] for found in ancestors if found in self._kinds), None)

    def _keep(self, space: Any, converted: Any) -> Any:
        """Remember what became of a space."""
        self._spaces[id(space)] = converted
        return converted


def _copy_box(space: Any) -> Any:
    """Return a Box of Gymnasium as ours, without all checks; None if its bounds were changed since.

    Thousands of environments with bounds of their own have a Box each.
    """
    low, high, dtype = space.low, space.high, np.dtype(space.dtype)
    if not (low.dtype == high.dtype == dtype and low.shape == high.shape == space.shape):
        return None
    if not (low <= high).all():
        return None
    bounds = [low, high, space.bounded_below, space.bounded_above]
    for place, bound in enumerate(bounds):
        bounds[place] = bound.astype(bound.dtype.str)  # by its name: a pickle brings a twin
        bounds[place].flags.writeable = False
    return our_spaces.Box.of_bounds(*bounds)


# The kinds, and the arguments that Gymnasium before 1.2 and before 1.4 does not have.
_KINDS: dict[str, dict[str, Any]] = {
    "Box": {},
    "Discrete": {"dtype": np.dtype(np.int64)},
    "MultiBinary": {},
    "MultiDiscrete": {},
    "Text": {},
    "Dict": {"sort_keys": True},
    "Tuple": {},
    "Sequence": {},
    "Graph": {},
    "OneOf": {},
}
