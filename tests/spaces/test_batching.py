"""Batches: their space, putting values together and taking them apart, and testing them at once."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium.spaces
import gymnasium.vector.utils
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import assert_identical, without_0d_arrays
from tests.strategies import Recipe, recipes, seeds
from vecspaces.seeding import copy_generator
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from vecspaces.spaces.batch_values import (
    batch_length,
    batch_limits,
    contains_all,
    explain_all,
    stack,
    unstack,
)
from vecspaces.spaces.batching import batch_space


@given(recipe=recipes(), seed=seeds, n=st.integers(1, 4))
def test_the_batched_space_is_that_of_gymnasium(recipe: Recipe, seed: int, n: int) -> None:
    ours = batch_space(recipe.build(seed=seed), n)
    theirs = gymnasium.vector.utils.batch_space(recipe.build(gymnasium.spaces, seed), n)
    assert repr(ours) == repr(theirs)
    for _ in range(2):
        value = ours.sample()
        assert ours.contains(value), ours.explain(value)
        try:
            expected = theirs.sample()
        except ValueError:  # a half-open int64 Box becomes one that Gymnasium cannot sample
            return
        assert_identical(value, expected)


@given(recipe=recipes(), seed=seeds, n=st.integers(1, 3))
def test_making_a_batched_space_leaves_the_stream_alone(recipe: Recipe, seed: int, n: int) -> None:
    space, alone = recipe.build(seed=seed), recipe.build(seed=seed)
    batch_space(space, n).sample()
    assert_identical(space.sample(), alone.sample())


def test_a_batched_box_can_be_bounded_anew() -> None:
    batched = batch_space(Box(0, np.inf, (2,)), 3)
    assert isinstance(batched, Box)
    assert batched == Box(0, np.inf, (3, 2))
    assert not batched.bounded_above.any() and batched.bounded_below.all()
    assert pickle.loads(pickle.dumps(batched)) == batched


@pytest.mark.parametrize("what", [3, None, "Box"])
def test_what_is_no_space_has_no_batches(what: Any) -> None:
    with pytest.raises(TypeError, match=r"^space: expected a Space, found "):
        batch_space(what, 2)


def test_a_third_partys_space_becomes_a_tuple_of_copies() -> None:
    class Letter(Space[str]):
        def sample(self, mask: Any = None, probability: Any = None) -> str:
            return "abc"[self.np_random.integers(3)]

        def contains(self, x: Any) -> bool:
            return x in ("a", "b", "c")

    space = Letter(seed=3)
    batched = batch_space(space, 3)
    assert isinstance(batched, Tuple) and all(type(member) is Letter for member in batched)
    assert batched.sample() in batched
    assert len({id(member.np_random) for member in (*batched, space)}) == 4


@given(recipe=recipes(), seed=seeds, n=st.integers(0, 4))
def test_what_is_stacked_is_unstacked(recipe: Recipe, seed: int, n: int) -> None:
    space = recipe.build(seed=seed)
    values = [space.sample() for _ in range(n)]
    batch = stack(space, values)
    length = batch_length(space, batch)
    assert length == n
    assert_identical(*map(without_0d_arrays, (unstack(space, batch), values)))
    assert contains_all(space, batch)
    assert explain_all(space, batch, "") is None
    if n:
        assert batch_space(space, n).contains(batch)


def test_rows_are_views() -> None:
    space = Dict(a=Tuple([Box(0, 1, (2,))]))
    batch = {"a": (np.zeros((3, 2), np.float32),)}
    unstack(space, batch)[1]["a"][0][:] = 1
    assert batch["a"][0].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="columns of one length"):
        unstack(Tuple([Discrete(2), Discrete(2)]), (np.zeros(2, int), np.zeros(3, int)))


def test_values_without_data_take_their_number_from_their_neighbours() -> None:
    space = Dict(a=Tuple([]), b=Discrete(3), c=Dict({}))
    batch = {"a": (), "b": np.array([1, 2]), "c": {}}
    assert unstack(space, batch) == [{"a": (), "b": 1, "c": {}}, {"a": (), "b": 2, "c": {}}]
    assert batch_length(Tuple([]), ()) is None


@pytest.mark.parametrize("space", [Box(0, 3, (2,), np.int8), MultiBinary(2), MultiDiscrete([2, 2])])
def test_a_whole_array_is_tested_as_its_rows_are(space: Any) -> None:
    for dtype in (np.int8, np.int64, np.float32, object):
        for array in ([[0, 1]], [[0, 1], [1, 5]], [[-1, 0]], [], [[0, 1, 1]]):
            batch = np.array(array, dtype)
            assert contains_all(space, batch) is all(space.contains(row) for row in batch)


def test_nan_is_outside_of_all_bounds() -> None:
    for space in (Box(-np.inf, np.inf, (1,)), Box(0, 1, (1,))):
        assert not contains_all(space, np.array([[0], [np.nan]], np.float32))


def test_limits_of_one_value_are_repeated_where_they_belong() -> None:
    mask = np.array([1, 0], np.int8)
    space = Dict(a=Discrete(2), b=Tuple([Text(2), Box(0, 1)]))
    assert batch_limits(space, {"a": mask, "b": ((1, None), None)}, 2) == {
        "a": (mask, mask),
        "b": (((1, None), (1, None)), None),
    }


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_a_copied_generator_goes_on_alike_and_apart(bits: Any) -> None:
    generator = np.random.Generator(bits(3))
    generator.integers(5, dtype=np.int32)  # leaves half of 64 bits in store
    twin = copy_generator(generator)
    assert type(twin.bit_generator) is bits
    first = [generator.integers(99, dtype=np.int32) for _ in range(5)]
    assert [twin.integers(99, dtype=np.int32) for _ in range(5)] == first
