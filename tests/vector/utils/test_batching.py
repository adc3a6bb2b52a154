"""batch_space and batch_differing_spaces: Gymnasium's spaces, bounds and random streams."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import gymnasium.vector.utils as theirs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.strategies import Recipe, recipes, seeds
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.vector.utils import batch_differing_spaces, batch_space, concatenate, iterate


class Colour(Space[str]):
    """A space that nobody described."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return str(self.np_random.choice(["red", "blue"]))

    def contains(self, x: Any) -> bool:
        return x in ("red", "blue")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colour)


class Interval(Box):
    """A subclass that behaves as its parent."""


def assert_same_space(ours: Any, other: Any) -> None:
    """Assert equal types, text, dtypes and shapes all the way down."""
    assert type(ours).__name__ == type(other).__name__
    assert repr(ours) == repr(other)
    assert ours.dtype == other.dtype
    assert ours.shape == other.shape
    if isinstance(ours, (Dict, Tuple)):
        keys = ours.spaces if isinstance(ours, Dict) else range(len(ours))
        for key in keys:
            assert_same_space(ours[key], other[key])
    if isinstance(ours, Box):
        assert_identical(np.array([ours.low, ours.high]), np.array([other.low, other.high]))
    if isinstance(ours, MultiDiscrete):
        assert_identical(ours.start, other.start)
        assert_identical(np.asarray(ours.nvec, int), np.asarray(other.nvec, int))


def gymnasium_of(recipe: Recipe, seed: int) -> Any:
    try:
        return recipe.build(gymnasium.spaces, seed)
    except Exception:  # where Gymnasium fails there is nothing to compare with
        assume(False)


def samples(space: Any, count: int) -> list[Any]:
    try:
        return [space.sample() for _ in range(count)]
    except Exception:  # where Gymnasium fails there is nothing to compare with
        assume(False)
        raise AssertionError from None


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@given(recipes(), seeds, st.integers(1, 4), st.integers(0, 2))
def test_the_batched_space_is_gymnasiums_with_its_stream(
    recipe: Recipe, seed: int, n: int, drawn: int
) -> None:
    gym_space = gymnasium_of(recipe, seed)
    space = recipe.build(seed=seed)
    samples(gym_space, drawn)
    samples(space, drawn)
    gym_batched = theirs.batch_space(gym_space, n)
    batched = batch_space(space, n)
    assert_same_space(batched, gym_batched)
    expected = samples(gym_batched, 3)
    assert_identical(samples(batched, 3), expected)
    assert_identical(samples(space, 1), samples(gym_space, 1))


@given(recipes(), seeds, st.integers(1, 4))
def test_a_batch_lies_in_the_batched_space(recipe: Recipe, seed: int, n: int) -> None:
    space = recipe.build(seed=seed)
    batch = concatenate(space, [space.sample() for _ in range(n)], None)
    assert batch in batch_space(space, n)


def test_an_unknown_space_is_batched_as_copies() -> None:
    space = Colour(seed=3)
    batched = batch_space(space, 4)
    assert batched == Tuple([Colour()] * 4)
    assert batched.sample() in batched
    assert len({id(member.np_random) for member in batched}) == 4


def test_a_subclass_is_batched_as_its_parent_wherever_it_sits() -> None:
    interval = Interval(0, 1, (2,))
    assert batch_space(interval, 3) == Box(0, 1, (3, 2))
    space = Tuple((interval, Dict(x=interval)))
    batched = batch_space(space, 3)
    batch = concatenate(space, [space.sample() for _ in range(3)], None)
    assert batch[0].shape == (3, 2)
    first = next(iterate(batched, batch))
    assert_identical(first[1]["x"], batch[1]["x"][0])


def test_what_is_no_space_cannot_be_batched() -> None:
    with pytest.raises(TypeError, match="expected a Space"):
        batch_space("Box")  # type: ignore[arg-type]


DIFFERING: list[list[Recipe]] = [
    [Recipe("Box", (0, high, (2,), np.float32)) for high in (1, 2, 5)],
    [Recipe("Box", (-high, high, (), np.int8)) for high in (1, 2)],
    [Recipe("Discrete", (n,), {"start": start}) for n, start in ((3, 0), (5, -2), (1, 7))],
    [Recipe("Discrete", (3,), {"dtype": dtype}) for dtype in (np.int8, np.int32)],
    [Recipe("MultiDiscrete", ([2, n],), {"start": [n, -n]}) for n in (1, 3)],
    [Recipe("MultiBinary", (3,))] * 2,
    [Recipe("Text", (n,)) for n in (2, 5)],
    [Recipe("Sequence", (Recipe("Discrete", (n,)),)) for n in (2, 5)],
    [
        Recipe("Dict", ([("b", Recipe("Discrete", (n,))), ("a", Recipe("Discrete", (2,)))],))
        for n in (2, 5)
    ],
    [Recipe("Graph", (Recipe("Discrete", (n,)), None)) for n in (2, 5)],
    [Recipe("OneOf", ([Recipe("Discrete", (n,)), Recipe("Text", (n,))],)) for n in (2, 5)],
    [
        Recipe(
            "Tuple", ([Recipe("Box", (0, n, (2,))), Recipe("Tuple", ([Recipe("Text", (n,))],))],)
        )
        for n in (1, 2, 3)
    ],
    [
        Recipe(
            "Dict", ({"b": Recipe("Discrete", (n,)), "a": Recipe("MultiBinary", (2,))},), options
        )
        for n in (1, 4)
        for options in ({"sort_keys": False},)
    ],
]


@pytest.mark.parametrize("group", DIFFERING, ids=lambda group: group[0].name)
def test_differing_spaces_are_batched_as_gymnasium_does(group: list[Recipe]) -> None:
    ours = batch_differing_spaces([recipe.build(seed=7) for recipe in group])
    other = theirs.batch_differing_spaces([r.build(gymnasium.spaces, 7) for r in group])
    assert_same_space(ours, other)
    assert_identical(samples(ours, 3), samples(other, 3))


@given(recipes(), seeds, st.integers(1, 3))
def test_equal_spaces_are_differing_spaces_too(recipe: Recipe, seed: int, n: int) -> None:
    space = recipe.build(seed=seed)
    batched = batch_differing_spaces([copy.deepcopy(space) for _ in range(n)])
    assert batched == batch_space(space, n)
    assert batched.sample() in batched


def test_copies_of_differing_spaces_are_independent() -> None:
    spaces = [Text(3, seed=1), Text(4, seed=2)]
    batched = batch_differing_spaces(spaces)
    before = spaces[0].np_random.bit_generator.state
    batched.sample()
    assert spaces[0].np_random.bit_generator.state == before


def test_unknown_spaces_are_a_tuple_of_copies() -> None:
    batched = batch_differing_spaces([Colour(), Colour()])
    assert batched == Tuple((Colour(), Colour()))


def test_a_space_and_its_subclass_are_of_one_type() -> None:
    spaces = [Interval(0, 1, (2,)), Box(0, 2, (2,))]
    assert batch_differing_spaces(spaces).shape == (2, 2)
    assert batch_differing_spaces(spaces[::-1]).shape == (2, 2)


@pytest.mark.parametrize(
    ("spaces", "error", "message"),
    [
        ([], ValueError, "expected at least one space, found none"),
        ([Box(0, 1), Discrete(2)], TypeError, "found Box at 0 and Discrete at 1"),
        ([Box(0, 1), "Box"], TypeError, "expected spaces, found str at 1"),
        ([Box(0, 1, (1,)), Box(0, 1, (2,))], ValueError, r"one shape, found \(1,\) at 0"),
        ([Box(0, 1), Box(0, 1, dtype=np.float64)], ValueError, "one dtype, found float32 at 0"),
        ([MultiBinary(2), MultiBinary(3)], ValueError, "one shape"),
        ([MultiDiscrete([2]), MultiDiscrete([2, 2])], ValueError, "one shape"),
        ([MultiDiscrete([2]), MultiDiscrete([2], dtype=np.int8)], ValueError, "one dtype"),
        ([Dict(a=Discrete(2)), Dict(b=Discrete(2))], ValueError, "one set of keys"),
        ([Tuple((Discrete(2),)), Tuple((Discrete(2),) * 2)], ValueError, "one length"),
        (
            [Dict(a=Tuple((Box(0, 1),))), Dict(a=Tuple((Discrete(2),)))],
            TypeError,
            r"spaces\[:\]\['a'\]\[:\]\[0\]: expected spaces of one type",
        ),
        ([Text(2), Graph(Box(0, 1), None)], TypeError, "one type"),
        ([OneOf([Text(2)]), Sequence(Text(2))], TypeError, "one type"),
    ],
)
def test_spaces_that_differ_too_much_are_refused(
    spaces: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        batch_differing_spaces(spaces)
