"""Equivalence: which spaces have values of one nesting, and may therefore share a batch."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from vecspaces.checks import show_value
from vecspaces.spaces.box import Box
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.graph import Graph
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.one_of import OneOf
from vecspaces.spaces.sequence import Sequence
from vecspaces.spaces.space import Space
from vecspaces.spaces.text import Text
from vecspaces.spaces.tuple import Tuple


@singledispatch
def is_space_dtype_shape_equiv(space_1: Space[Any], space_2: Space[Any]) -> bool:
    """Whether the values of two spaces have the same nesting, shapes and dtypes.

    Bounds may differ: environments whose spaces are equivalent share one batch.

    Raises:
        NotImplementedError: `space_1` is of a third party that registered nothing.
        TypeError: An argument is no Space.

    Example:
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
        "is_space_dtype_shape_equiv.register teaches it"
    )


@is_space_dtype_shape_equiv.register(Box)
@is_space_dtype_shape_equiv.register(Discrete)
@is_space_dtype_shape_equiv.register(MultiDiscrete)
@is_space_dtype_shape_equiv.register(MultiBinary)
def _(space_1: Space[Any], space_2: Space[Any]) -> bool:
    return (
        type(space_1) is type(space_2)
        and space_1.shape == space_2.shape
        and space_1.dtype == space_2.dtype
    )


@is_space_dtype_shape_equiv.register(Text)
def _(space_1: Text, space_2: Space[Any]) -> bool:
    return (
        isinstance(space_2, Text)
        and space_1.max_length == space_2.max_length
        and space_1.character_set == space_2.character_set
    )


@is_space_dtype_shape_equiv.register(Dict)
def _(space_1: Dict, space_2: Space[Any]) -> bool:
    return (
        isinstance(space_2, Dict)
        and space_1.keys() == space_2.keys()
        and all(is_space_dtype_shape_equiv(space_1[key], space_2[key]) for key in space_1)
    )


@is_space_dtype_shape_equiv.register(Tuple)
@is_space_dtype_shape_equiv.register(OneOf)
def _(space_1: Tuple | OneOf, space_2: Space[Any]) -> bool:
    return (
        isinstance(space_2, Tuple if isinstance(space_1, Tuple) else OneOf)
        and len(space_1) == len(space_2)
        and all(map(is_space_dtype_shape_equiv, space_1.spaces, space_2.spaces))
    )


@is_space_dtype_shape_equiv.register(Graph)
def _(space_1: Graph, space_2: Space[Any]) -> bool:
    if not isinstance(space_2, Graph):
        return False
    edges_1, edges_2 = space_1.edge_space, space_2.edge_space
    if edges_1 is None or edges_2 is None:
        same_edges = edges_1 is edges_2
    else:
        same_edges = is_space_dtype_shape_equiv(edges_1, edges_2)
    return same_edges and is_space_dtype_shape_equiv(space_1.node_space, space_2.node_space)


@is_space_dtype_shape_equiv.register(Sequence)
def _(space_1: Sequence, space_2: Space[Any]) -> bool:
    return (
        isinstance(space_2, Sequence)
        and space_1.stack is space_2.stack
        and is_space_dtype_shape_equiv(space_1.feature_space, space_2.feature_space)
    )
