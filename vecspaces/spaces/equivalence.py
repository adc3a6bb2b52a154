"""Comparison of spaces: the first difference as text, and which spaces can share a batch."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from vecspaces.checks import show_keys, show_value
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.graph import Graph
from vecspaces.spaces.nesting import Composite
from vecspaces.spaces.sequence import Sequence
from vecspaces.spaces.space import Space
from vecspaces.spaces.standard import BOUNDS, MEMBERS, StandardSpace, find_difference
from vecspaces.spaces.text import Text


@singledispatch
def is_space_dtype_shape_equiv(space_1: Space[Any], space_2: Space[Any]) -> bool:
    """Return whether the values of two spaces have the same nesting, shapes and dtypes.

    Bounds may differ: environments whose spaces are equivalent can share one batch.

    Raises:
        NotImplementedError: `space_1` is of a class that is not registered.
        TypeError: `space_1` is not a Space.

    Example:
        >>> from vecspaces.spaces import Box, Discrete
        >>> is_space_dtype_shape_equiv(Box(0, 1, (2,)), Box(-5, 5, (2,)))
        True
        >>> is_space_dtype_shape_equiv(Discrete(3), Box(-5, 5, (2,)))
        False
    """
    for name, space in (("space_1", space_1), ("space_2", space_2)):
        if not isinstance(space, Space):
            raise TypeError(f"{name}: expected a Space, found {show_value(space)}")
    raise NotImplementedError(
        f"space_1: is_space_dtype_shape_equiv does not know {show_value(space_1)}; "
        "add it with is_space_dtype_shape_equiv.register"
    )


@is_space_dtype_shape_equiv.register(StandardSpace)
def _(space_1: StandardSpace[Any], space_2: Space[Any]) -> bool:
    if not isinstance(space_2, space_1._kind):
        return False
    if space_1.shape is not None:
        alike = space_1.shape == space_2.shape and space_1.dtype == space_2.dtype
        return alike and type(space_1) is type(space_2)
    if isinstance(space_1, Text) and isinstance(space_2, Text):
        alike = space_1.max_length == space_2.max_length
        return alike and space_1.character_set == space_2.character_set
    assert isinstance(space_1, Composite) and isinstance(space_2, Composite)
    members, others = space_1._members(), space_2._members()
    return (
        getattr(space_1, "stack", None) is getattr(space_2, "stack", None)  # of a Sequence
        and members.keys() == others.keys()
        and all(is_space_dtype_shape_equiv(members[key], others[key]) for key in members)
    )


def is_same(space: Space[Any], other: Space[Any]) -> bool:
    """Return whether two spaces are equal, by their own `==` or by their attributes."""
    if space is other or bool(space == other):
        return True
    try:
        return is_twin(space, other)
    except RecursionError:  # an attribute leads back to the space
        return False


def is_twin(value: Any, other: Any) -> bool:
    """Return whether two spaces of any library are equal bit for bit, except their generators."""
    return _gather(value, []) == _gather(other, [])


def _gather(value: Any, parts: list[Any]) -> list[Any]:
    """Add all attributes of a space, and those of the spaces inside it, to one list."""
    kind = type(value)
    if kind is np.ndarray:
        parts += value.dtype, value.shape
        if value.dtype.hasobject or value.dtype.char in "gG":  # bytes of padding differ
            parts += value.ravel().tolist()
        else:
            parts.append(value.tobytes())
    elif kind is dict:
        parts += kind, len(value)
        for key, item in value.items():
            parts.append(key)
            _gather(item, parts)
    elif kind is tuple or kind is list:
        parts += kind, len(value)
        for item in value:
            _gather(item, parts)
    elif "_np_random" in (attributes := getattr(value, "__dict__", {})):
        parts += kind, len(attributes)
        for name in sorted(attributes):  # which may have been set in another order
            if name != "_np_random":
                parts.append(name)
                _gather(attributes[name], parts)
    else:
        parts += kind, value
    return parts


def difference(a: Space[Any], b: Space[Any], *, bounds: bool = True) -> str | None:
    """Return the path to the first difference between two spaces, and what differs.

    Args:
        a: The expected space.
        b: The actual space.
        bounds: Whether bounds are compared; False: only nesting, shapes and dtypes.

    Returns:
        None if they are equal; otherwise the path, the part that differs, and its two values.

    Raises:
        TypeError: An argument is not a Space.

    Example:
        >>> from vecspaces.spaces import Box
        >>> a = Dict(camera=Box(0, 255, (8, 8), "uint8"), speed=Box(0, 1))
        >>> difference(a, Dict(camera=Box(0, 255, (8, 8)), speed=Box(0, 1)))
        "['camera']: dtype uint8, found float32"
        >>> difference(a, Dict(camera=a["camera"], speed=Box(0, 2)))
        "['speed']: high[0] 1.0, found 2.0"
    """
    for name, space in (("a", a), ("b", b)):
        if not isinstance(space, Space):
            raise TypeError(f"{name}: expected a Space, found {show_value(space)}")
    return _difference(a, b, "", bounds)


def _difference(a: Space[Any], b: Space[Any], where: str, bounds: bool) -> str | None:
    if is_same(a, b) or not (bounds or _has_other_values(a, b)):
        return None
    place = f"{where}: " if where else ""
    if not isinstance(a, StandardSpace) or not isinstance(b, a._kind):
        names = type(a).__name__, type(b).__name__
        shown = (repr(a), repr(b)) if names[0] == names[1] else names
        return f"{place}{shown[0]}, found {shown[1]}"
    parts = b._parts()
    for name, part in a._parts().items():
        field = a._fields.get(name)
        if field in MEMBERS or (field in BOUNDS and not bounds):
            continue
        other = parts[name]
        index = find_difference(name, part, other)
        if index is not None:
            entry = "".join(f"[{i}]" for i in index)
            shown = (part[index], other[index]) if isinstance(part, np.ndarray) else (part, other)
            return f"{place}{name}{entry} {shown[0]}, found {shown[1]}"
    if isinstance(a, Composite) and isinstance(b, Composite):
        members, others = a._members(), b._members()
        if members.keys() != others.keys():
            if isinstance(a, Graph) and isinstance(b, Graph):
                return f"{place}edge_space {a.edge_space}, found {b.edge_space}"
            if isinstance(a, Dict):
                return f"{place}{show_keys(members)}, found {show_keys(others)}"
            return f"{place}{len(members)} members, found {len(others)}"
        for key, member in members.items():
            step = f".{key}" if isinstance(a, (Sequence, Graph)) else f"[{key!r}]"
            message = _difference(member, others[key], f"{where}{step}", bounds)
            if message is not None:
                return message
    return f"{place}{a!r}, found {b!r}"


def _has_other_values(a: Space[Any], b: Space[Any]) -> bool:
    """Return whether nesting, shapes or dtypes differ; unregistered classes are different."""
    try:
        return not is_space_dtype_shape_equiv(a, b)
    except NotImplementedError:
        return True
