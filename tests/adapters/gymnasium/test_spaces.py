"""from_gymnasium and to_gymnasium: all ten spaces, both ways, samples going on as before."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.strategies import Recipe, recipes, seeds
from vecspaces.adapters.gymnasium import from_gymnasium, to_gymnasium
from vecspaces.interop import foreign_values, native_values

counts = st.integers(0, 3)


def sample_of(theirs: Any) -> Any:
    """A sample of Gymnasium's, where it can draw one: not from batches of int64 to infinity."""
    try:
        return theirs.sample()
    except ValueError:
        reject()


@given(recipe=recipes(), seed=seeds, drawn=counts)
def test_from_gymnasium_is_what_our_constructor_makes(
    recipe: Recipe, seed: int, drawn: int
) -> None:
    theirs = recipe.build(gymnasium.spaces, seed)
    for _ in range(drawn):
        sample_of(theirs)
    ours = from_gymnasium(theirs)
    assert ours == recipe.build()
    assert type(ours) is type(recipe.build())
    assert repr(ours) == repr(theirs)
    for _ in range(3):  # by turns, so that neither moves the other's generator
        assert_identical(ours.sample(), sample_of(theirs))


@given(recipe=recipes(), seed=seeds, drawn=counts)
def test_to_gymnasium_is_what_its_constructor_makes(recipe: Recipe, seed: int, drawn: int) -> None:
    ours = recipe.build(seed=seed)
    for _ in range(drawn):
        ours.sample()
    theirs = to_gymnasium(ours)
    assert theirs == recipe.build(gymnasium.spaces)
    assert repr(theirs) == repr(ours)
    for _ in range(3):
        expected = sample_of(theirs)
        assert_identical(ours.sample(), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_missing_bounds_stay_missing(dtype: Any) -> None:
    theirs = gymnasium.spaces.Box(-np.inf, np.inf, (2,), dtype)
    for side in ("below", "above"):
        assert not from_gymnasium(theirs).is_bounded(side)
        assert not to_gymnasium(from_gymnasium(theirs)).is_bounded(side)


def test_generators_of_any_kind_go_on_and_spaces_without_one_stay_so() -> None:
    theirs: Any = gymnasium.spaces.Discrete(3)
    assert from_gymnasium(theirs)._np_random is None and theirs._np_random is None
    generator = np.random.Generator(np.random.MT19937(5))
    theirs = gymnasium.spaces.Box(0, 1, (4,), seed=generator)
    assert_identical(from_gymnasium(theirs).sample(), theirs.sample())


def test_a_space_or_a_generator_in_two_places_is_one_afterwards() -> None:
    shared = gymnasium.spaces.Discrete(100, seed=3)
    ours: Any = from_gymnasium(gymnasium.spaces.Tuple([shared, shared]))
    assert ours[0] is ours[1]
    generator = np.random.default_rng(3)
    theirs = gymnasium.spaces.Tuple(
        [gymnasium.spaces.Discrete(100, seed=generator) for _ in range(2)]
    )
    ours = from_gymnasium(theirs)
    assert [ours.sample() for _ in range(5)] == [theirs.sample() for _ in range(5)]


def test_the_order_of_keys_is_kept() -> None:
    members = {"b": gymnasium.spaces.Discrete(2), "a": gymnasium.spaces.Discrete(3)}
    theirs = gymnasium.spaces.Dict(members, sort_keys=False)
    ours = from_gymnasium(theirs)
    assert list(ours) == ["b", "a"]
    assert list(to_gymnasium(ours)) == ["b", "a"]


def test_graphs_in_lists_are_converted_too() -> None:
    theirs = gymnasium.spaces.Tuple([gymnasium.spaces.Graph(gymnasium.spaces.Discrete(2), None)])
    value = list(theirs.sample())
    assert value in theirs
    convert = native_values(theirs)
    assert convert is not None and convert(value) in from_gymnasium(theirs)
    back = foreign_values(theirs)
    assert back is not None and back(convert(value)) in theirs
