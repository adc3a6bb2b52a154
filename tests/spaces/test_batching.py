"""Batches: their spaces are Gymnasium's; values are put together, taken apart, tested at once."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium.spaces
import gymnasium.vector.utils as theirs
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.strategies import Recipe, recipes, seeds
from vecspaces.adapters.gymnasium import from_gymnasium
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from vecspaces.spaces.batch_values import batch_length, contains_all, unstack
from vecspaces.spaces.batching import batch_differing_spaces, batch_space
from vecspaces.spaces.equivalence import is_twin
from vecspaces.vector.utils import concatenate, iterate


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
    """Assert that Gymnasium's space is ours, to the last bit of its bounds."""
    assert is_twin(ours, from_gymnasium(other))
    assert repr(ours) == repr(other)


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
def test_batch_space_is_gymnasiums_with_its_stream(
    recipe: Recipe, seed: int, n: int, drawn: int
) -> None:
    gym_space = gymnasium_of(recipe, seed)
    space = recipe.build(seed=seed)
    samples(gym_space, drawn)
    samples(space, drawn)
    gym_batched = theirs.batch_space(gym_space, n)
    batched = batch_space(space, n)
    assert_same_space(batched, gym_batched)
    expected = samples(gym_batched, 2)
    assert_identical(samples(batched, 2), expected)
    assert_identical(samples(space, 1), samples(gym_space, 1))


def test_batch_space_of_unknown_spaces_has_copies() -> None:
    spaces = [Colour(seed=3), Colour(seed=4)]
    before = copy.deepcopy(spaces[0])
    for batched in (batch_space(spaces[0], 2), batch_differing_spaces(spaces)):
        assert batched == Tuple([Colour()] * 2)
        assert batched.sample() in batched
        assert len({id(member.np_random) for member in (*spaces, *batched)}) == 4
    assert spaces[0].sample() == before.sample()


def test_batch_space_of_a_subclass_is_that_of_its_parent() -> None:
    interval = Interval(0, 1, (2,))
    assert batch_space(interval, 3) == Box(0, 1, (3, 2))
    space = Tuple((interval, Dict(x=interval)))
    batched = batch_space(space, 3)
    batch = concatenate(space, [space.sample() for _ in range(3)], None)
    assert batch[0].shape == (3, 2)
    first = next(iterate(batched, batch))
    assert_identical(first[1]["x"], batch[1]["x"][0])
    for spaces in ([interval, Box(0, 2, (2,))], [Box(0, 2, (2,)), interval]):
        assert batch_differing_spaces(spaces).shape == (2, 2)


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
def test_batch_differing_spaces_is_gymnasiums(group: list[Recipe]) -> None:
    ours = batch_differing_spaces([recipe.build(seed=7) for recipe in group])
    other = theirs.batch_differing_spaces([r.build(gymnasium.spaces, 7) for r in group])
    assert_same_space(ours, other)
    assert_identical(samples(ours, 3), samples(other, 3))


def test_unstack_counts_values_without_data_by_their_neighbours() -> None:
    space = Dict(a=Tuple([]), b=Discrete(3), c=Dict({}))
    batch = {"a": (), "b": np.array([1, 2]), "c": {}}
    assert unstack(space, batch) == [{"a": (), "b": 1, "c": {}}, {"a": (), "b": 2, "c": {}}]
    assert batch_length(Tuple([]), ()) is None


@pytest.mark.parametrize("space", [Box(0, 3, (2,), np.int8), MultiBinary(2), MultiDiscrete([2, 2])])
def test_contains_all_tests_an_array_as_its_rows(space: Any) -> None:
    for dtype in (np.int8, np.int64, np.float32, object):
        for array in ([[0, 1]], [[0, 1], [1, 5]], [[-1, 0]], [], [[0, 1, 1]]):
            batch = np.array(array, dtype)
            assert contains_all(space, batch) is all(space.contains(row) for row in batch)
    for space in (Box(-np.inf, np.inf, (1,)), Box(0, 1, (1,))):
        assert not contains_all(space, np.array([[0], [np.nan]], np.float32))
