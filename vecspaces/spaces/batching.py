"""The space of batches: of n values of one space, or of one value of each of several spaces."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from copy import deepcopy
from functools import singledispatch
from typing import Any

import numpy as np

from vecspaces.checks import check_count, show_value
from vecspaces.seeding import copy_generator
from vecspaces.spaces.array_space import ArraySpace
from vecspaces.spaces.box import Box
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.nesting import Product
from vecspaces.spaces.space import Space
from vecspaces.spaces.tuple import Tuple


@singledispatch
def batch_space(space: Space[Any], n: int = 1) -> Space[Any]:
    """Return the space of batches of `n` values of `space`.

    For a space of another library that is not registered, it is a Tuple of n copies.

    Args:
        space: The space of one value.
        n: The number of values in a batch.

    Returns:
        A new space, whose generators start as copies of those of `space`.

    Raises:
        TypeError: `space` is not a Space, or `n` is not an integer.
        ValueError: `n` is negative.

    Example:
        >>> batch_space(Dict(position=Box(0, 1, shape=(3,)), color=Discrete(3)), n=5)
        Dict('color': MultiDiscrete([3 3 3 3 3]), 'position': Box(0.0, 1.0, (5, 3), float32))
    """
    raise TypeError(f"space: expected a Space, found {show_value(space)}")


@batch_space.register(ArraySpace)
def _(space: ArraySpace[Any], n: int = 1) -> Box:
    shape = (check_count("n", n, least=0), *space.shape)
    bounds = (np.asarray(bound, space.dtype) for bound in space._bounds())
    low, high = (np.broadcast_to(bound, shape) for bound in bounds)
    return Box.of_bounds(low, high, low > -np.inf, high < np.inf, copy_generator(space.np_random))


@batch_space.register(Discrete)
def _(space: Discrete[Any], n: int = 1) -> Space[Any]:
    n = check_count("n", n, least=0)
    return MultiDiscrete(
        np.full((n,), space.n),
        dtype=space.dtype,
        seed=copy_generator(space.np_random),
        start=np.full((n,), space.start, dtype=space.dtype),
    )


@batch_space.register(Product)
def _(space: Product[Any], n: int = 1) -> Space[Any]:
    members = [batch_space(member, n) for member in space._members().values()]
    batched: Space[Any] = space._with(members, copy_generator(space.np_random))
    return batched


@batch_space.register(Space)
def _(space: Space[Any], n: int = 1) -> Tuple:
    n = check_count("n", n, least=0)
    batched: Tuple = Tuple(
        [deepcopy(space) for _ in range(n)], seed=copy_generator(space.np_random)
    )
    generator = copy_generator(space.np_random)
    batched.seed(generator.integers(0, int(1e8), n).tolist())  # the range that Gymnasium draws from
    return batched


def batch_differing_spaces(spaces: Seq[Space[Any]]) -> Space[Any]:
    """Return the space of batches with one value of each of several spaces.

    Args:
        spaces: At least one space; all of one type, with different bounds.

    Returns:
        A space whose rows have the bounds of the given spaces; a Tuple of copies if their values
        are not arrays, or they are of another library. Its generator starts as a copy of the first
        space's.

    Raises:
        TypeError: The spaces are of different types, or are not spaces.
        ValueError: There are none, or their dtypes, shapes, keys or lengths differ.

    Example:
        >>> batch_differing_spaces([Discrete(3), Discrete(5), Discrete(4), Discrete(8)])
        MultiDiscrete([3 5 4 8])
    """
    return _batch(spaces, "spaces")


def _batch(spaces: Seq[Space[Any]], name: str) -> Space[Any]:
    if len(spaces) == 0:
        raise ValueError(f"{name}: expected at least one space, found none")
    first = spaces[0]
    for i, space in enumerate(spaces):
        if not isinstance(space, Space):
            raise TypeError(f"{name}: expected spaces, found {type(space).__name__} at {i}")
        if not (isinstance(space, type(first)) or isinstance(first, type(space))):
            raise TypeError(
                f"{name}: expected spaces of one type, found {type(first).__name__} at 0 and "
                f"{type(space).__name__} at {i}"
            )
    return _batch_as(first, spaces, name)


def _same(values: Seq[Any], what: str, name: str) -> None:
    for i, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"{name}: expected spaces of one {what}, found {values[0]} at 0 and {value} at {i}"
            )


@singledispatch
def _batch_as(first: Space[Any], spaces: Seq[Any], name: str) -> Space[Any]:
    return Tuple([deepcopy(space) for space in spaces], seed=copy_generator(first.np_random))


@_batch_as.register(ArraySpace)
def _(first: ArraySpace[Any], spaces: Seq[Any], name: str) -> Space[Any]:
    _same([space.dtype for space in spaces], "dtype", name)
    _same([space.shape for space in spaces], "shape", name)
    if isinstance(first, MultiBinary):  # whose bounds are two numbers, the same for all
        return batch_space(first, len(spaces))
    low, high = map(np.array, zip(*(space._bounds() for space in spaces), strict=True))
    return Box(low, high, dtype=first.dtype, seed=copy_generator(first.np_random))


@_batch_as.register(Discrete)
def _(first: Discrete[Any], spaces: Seq[Any], name: str) -> MultiDiscrete[Any]:
    return MultiDiscrete(
        np.array([space.n for space in spaces]),
        dtype=max((space.dtype for space in spaces), key=lambda dtype: dtype.itemsize),
        start=np.array([space.start for space in spaces]),
        seed=copy_generator(first.np_random),
    )


@_batch_as.register(Product)
def _(first: Product[Any], spaces: Seq[Any], name: str) -> Space[Any]:
    keys = first._members().keys()
    if isinstance(first, Dict):
        _same([set(space.spaces) for space in spaces], "set of keys", name)
    else:
        _same([len(space) for space in spaces], "length", name)
    members = [
        _batch([space.spaces[key] for space in spaces], f"{name}[:][{key!r}]") for key in keys
    ]
    batched: Space[Any] = first._with(members, copy_generator(first.np_random))
    return batched
