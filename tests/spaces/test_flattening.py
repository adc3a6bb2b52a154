"""Flattening and equivalence: against Gymnasium, there and back, for spaces of third parties."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium.spaces
import gymnasium.spaces.utils
import numpy as np
import pytest
from hypothesis import assume, given

from tests.compare import assert_identical, without_0d_arrays
from tests.strategies import INTEGERS, Recipe, recipes, seeds
from vecspaces import spaces
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
    flatdim,
    flatten,
    flatten_space,
    unflatten,
)
from vecspaces.spaces.utils import is_space_dtype_shape_equiv

THEIRS = gymnasium.spaces.utils


def assert_comes_back(space: Any, value: Any) -> None:
    """Assert that a flattened value is in the flat space, and is unflattened to what it was."""
    flat, flat_space = flatten(space, value), flatten_space(space)
    assert flat_space.contains(flat), flat_space.explain(flat)
    assert_identical(*map(without_0d_arrays, (unflatten(space, flat), value)))
    if space.is_np_flattenable:
        assert isinstance(flat_space, Box) and isinstance(flat, np.ndarray)
        assert flat.shape == flat_space.shape == (flatdim(space),)
        assert flat.dtype == flat_space.dtype


@given(recipe=recipes(), seed=seeds)
def test_flatten_gives_gymnasiums_values_which_come_back(recipe: Recipe, seed: int) -> None:
    ours, theirs = recipe.build(seed=seed), recipe.build(gymnasium.spaces)
    assume(can_be_flattened(ours))
    if ours.is_np_flattenable:
        assert flatdim(ours) == THEIRS.flatdim(theirs)
    for value in (ours.sample(), ours.sample(), ours.sample()):
        assert_comes_back(ours, value)
    try:
        flat_space = repr(THEIRS.flatten_space(theirs))
        flat = THEIRS.flatten(theirs, to_theirs(value))
    except (ValueError, IndexError, OverflowError, AttributeError):
        return  # a padding taken from no entries, an index that overflows, ...
    assert repr(flatten_space(ours)) == flat_space
    if not has_small_indices(recipe):
        assert_identical(flatten(ours, value), flat)


def has_small_indices(recipe: Recipe) -> bool:
    """Whether a one-hot index wraps in its own small dtype in Gymnasium."""
    if recipe.name in ("Discrete", "MultiDiscrete"):
        return np.dtype(recipe.kwargs.get("dtype", np.int64)).itemsize < 8
    return any(map(has_small_indices, recipe.members))


def can_be_flattened(space: Any) -> bool:
    """Whether no OneOf in there has a member without a fixed size, which no vector can hold."""
    try:
        flatten_space(space)
    except ValueError as error:
        assert "fixed size" in str(error)
        return False
    return True


def to_theirs(value: Any) -> Any:
    """The same value with Gymnasium's GraphInstance."""
    if isinstance(value, GraphInstance):
        return gymnasium.spaces.GraphInstance(*map(to_theirs, value))
    if isinstance(value, tuple):
        return tuple(map(to_theirs, value))
    if isinstance(value, dict):
        return {key: to_theirs(item) for key, item in value.items()}
    return value


UINT64 = np.iinfo(np.uint64).max
NOTHING = Tuple([Tuple([]), Dict({})])
#: What random spaces rarely are.
RARE: list[tuple[Space[Any], Any]] = [
    (Tuple([Text(4, min_length=0), Box(0, 1)]), ("aZ9", np.array([0.5], np.float32))),
    # padded beside a member without entries
    (OneOf([Box(0, 1, (0,)), Box(2, 3, (2,))]), (np.int64(0), np.zeros(0, np.float32))),
    # bounds that float64 cannot hold
    (OneOf([Box(0, int(UINT64), (1,), np.uint64)]), (np.int64(0), np.array([UINT64]))),
    *((space, space.sample()) for space in (Tuple([]), Dict({}), NOTHING)),
    # an index that the members' dtype cannot hold
    *(
        (OneOf([Box(0, 1, (1,), dtype)] * count), (np.int64(count - 1), np.ones(1, dtype)))
        for dtype, count in (("i1", 130), ("u1", 260), ("f2", 2050))
    ),
    # batches of values without a fixed size
    *(
        (space, space.sample())
        for space in (
            Graph(Sequence(Discrete(2)), Graph(Discrete(3), None), seed=0),
            Sequence(Sequence(MultiDiscrete([2, 3], np.uint64), stack=True), stack=True, seed=0),
        )
    ),
    # the ends of a dtype
    *(
        (
            Tuple([
                Discrete(100, None, start, dtype),
                MultiDiscrete([100] * 3, dtype, start=[start] * 3),
            ]),
            (
                dtype.type(start + offset),
                np.array([start, start + offset, start + 99], dtype),
            ),
        )
        for dtype in INTEGERS
        for start in (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) - 99)
        for offset in (0, 1, 99)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("space", "value"), RARE, ids=lambda value: repr(value)[:60])
def test_unflatten_gives_rare_values_back(space: Space[Any], value: Any) -> None:
    assert_comes_back(space, value)


def test_flatten_pads_text_and_promotes_no_dtype_without_members() -> None:
    assert_identical(flatten(Text(4, charset="xyz"), "zx"), np.array([2, 0, 3, 3], np.int32))
    for kind in (Tuple, OneOf):
        assert flatten_space(kind([Tuple([]), Discrete(3)])).dtype == np.int64


def test_unflatten_gives_a_scalar_back_as_a_scalar() -> None:
    for library in (spaces, gymnasium.spaces):
        space: Any = library.MultiDiscrete(5)
        value = library.unflatten(space, library.flatten(space, np.int64(3)))
        assert_identical(value, np.int64(3))


def test_flatten_copies() -> None:
    value = np.zeros(3, np.float32)
    flatten(Box(0, 1, (3,)), value)[0] = 1
    assert not value.any()


class Unknown(Space[Any]):
    is_np_flattenable = True  # type: ignore[assignment]

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return complex(self.np_random.random(), 0.5)

    def contains(self, x: Any) -> bool:
        return isinstance(x, complex)


def test_flatdim_of_a_third_partys_dynamic_space_is_a_value_error() -> None:
    class Dynamic(Unknown):
        is_np_flattenable = False  # type: ignore[assignment]

    with pytest.raises(ValueError, match="fixed size"):
        flatdim(Dynamic())


def test_flatten_takes_registered_spaces_of_third_parties() -> None:
    class Complex(Unknown):
        pass

    flatdim.register(Complex, lambda space: 2)
    flatten.register(Complex, lambda space, x: np.array([x.real, x.imag]))
    unflatten.register(Complex, lambda space, x: complex(x[0], x[1]))
    flatten_space.register(Complex, lambda space: Box(0, 1, (2,), np.float64))
    value = (np.int64(1), {"a": 0.25 + 0.5j, "b": np.int64(2)})
    space = OneOf([Discrete(2), Dict(a=Complex(), b=Discrete(3))])
    assert flatdim(space) == 6
    assert_comes_back(space, value)


SPACES = [
    Box(0, 1, (2,)),
    Box(0, 1, (3,)),
    Box(0, 1, (2,), np.float64),
    Discrete(2),
    Discrete(2, dtype=np.int32),
    MultiBinary(2),
    MultiDiscrete([2, 3]),
    Text(3),
    Text(4),
    Text(3, charset="ab"),
    Dict(a=Discrete(2)),
    Dict(b=Discrete(2)),
    Dict(a=Box(0, 1)),
    Tuple([Discrete(2)]),
    Tuple([Discrete(2), Discrete(3)]),
    OneOf([Discrete(2)]),
    OneOf([Box(0, 1)]),
    Sequence(Discrete(2)),
    Sequence(Discrete(2), stack=True),
    Sequence(Box(0, 1)),
    Graph(Discrete(2), None),
    Graph(Discrete(2), Discrete(2)),
    Graph(Box(0, 1), None),
]


def test_is_space_dtype_shape_equiv_of_a_space_and_itself_alone() -> None:
    for space, other in itertools.product(SPACES, repeat=2):
        assert is_space_dtype_shape_equiv(space, other) is (space is other), (space, other)


@pytest.mark.parametrize(
    ("space", "other"),
    [
        (Box(0, 1, (2,)), Box(-5, 7, (2,))),
        (Discrete(2), Discrete(5, start=3)),
        (MultiDiscrete([2, 3]), MultiDiscrete([4, 5])),
        (Text(3, min_length=1), Text(3, min_length=2)),
        (Graph(Discrete(2), Box(0, 1)), Graph(Discrete(9), Box(3, 4))),
    ],
)
def test_is_space_dtype_shape_equiv_ignores_bounds(space: Any, other: Any) -> None:
    assert is_space_dtype_shape_equiv(space, other)
    assert is_space_dtype_shape_equiv(Tuple([space]), Tuple([other]))


def test_flatten_keeps_the_byte_order_of_batches() -> None:
    for stack in (False, True):
        space = Sequence(Box(0, 9, (2,), ">u2"), stack=stack, seed=0)
        theirs = gymnasium.spaces.Sequence(
            gymnasium.spaces.Box(0, 9, (2,), ">u2"), stack=stack, seed=0
        )
        assert_identical(flatten(space, space.sample()), THEIRS.flatten(theirs, theirs.sample()))
