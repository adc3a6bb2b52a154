"""Sequence: lengths, stacking, seeds, masks, membership."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces import spaces
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Space, Text, Tuple

LIBRARIES = [spaces, gymnasium.spaces]


@pytest.mark.parametrize("argument", [3, None, [Discrete(2)]])
def test_what_is_no_space_is_refused(argument: Any) -> None:
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            library.Sequence(argument)
    with pytest.raises(TypeError, match=r"^space: expected a Space, found "):
        Sequence(argument)


def test_only_a_stacked_sequence_has_a_stacked_feature_space() -> None:
    assert Sequence(Box(0, 1), stack=True).stacked_feature_space == Box(0, 1, (1, 1))
    assert not hasattr(Sequence(Box(0, 1)), "stacked_feature_space")


@pytest.mark.parametrize("seed", [7, (1, 2), [3, 4]])
@pytest.mark.parametrize("stack", [False, True])
def test_seeds_and_samples_are_those_of_gymnasium(seed: Any, stack: bool) -> None:
    ours, theirs = (
        library.Sequence(library.Dict(a=library.Discrete(99)), stack=stack) for library in LIBRARIES
    )
    if not isinstance(seed, int):
        seed = (seed[0], {"a": seed[1]})
    assert_identical(ours.seed(seed), theirs.seed(seed))
    for _ in range(10):
        assert_identical(ours.sample(), theirs.sample())


def test_the_returned_seeds_repeat_the_stream() -> None:
    space = Sequence(Tuple([Discrete(99)]))
    for seed in (None, 3):
        used = space.seed(seed)
        first = [space.sample() for _ in range(5)]
        assert_identical(space.seed(used), used)
        assert_identical([space.sample() for _ in range(5)], first)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        ((1, 2, 3), ValueError, "^seed: expected 2 seeds .of the lengths and of the elements."),
        ("xy", TypeError, "^seed: expected None, an int, or a list or tuple of 2 seeds"),
        ((1, [2]), TypeError, r"^seed\[1\]: expected None, an int or a dict"),
    ],
)
def test_a_wrong_seed_is_refused_with_its_path(seed: Any, error: Any, message: str) -> None:
    for library in LIBRARIES:
        space = library.Sequence(library.Dict(a=library.Discrete(3)))
        with pytest.raises(error, match=message if library is spaces else None):
            space.seed(seed)


@pytest.mark.parametrize(
    "length", [3, 0, np.int8(2), np.array([2, 5]), np.array([4], np.uint8), None]
)
@pytest.mark.parametrize("word", ["mask", "probability"])
def test_lengths_are_drawn_as_in_gymnasium(length: Any, word: str) -> None:
    ours, theirs = (library.Sequence(library.Discrete(3), seed=5) for library in LIBRARIES)
    for _ in range(5):
        assert_identical(
            ours.sample(**{word: (length, None)}), theirs.sample(**{word: (length, None)})
        )
    assert_identical(
        ours.generate_sample_length(length, word), theirs.generate_sample_length(length, word)
    )


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (-1, AssertionError),
        (np.array([[1]]), AssertionError),
        (np.array([1, -1]), AssertionError),
        (np.array([1.0]), AssertionError),
        (np.array([True]), AssertionError),
        (1.5, TypeError),
        (True, TypeError),
        ([1, 2], TypeError),
        ("2", TypeError),
    ],
)
@pytest.mark.parametrize("word", ["mask", "probability"])
def test_a_wrong_length_is_refused(length: Any, error: Any, word: str) -> None:
    for library in LIBRARIES:
        pattern = rf"^{word}\[0\]: expected .*, found " if library is spaces else None
        with pytest.raises(error, match=pattern):
            library.Sequence(library.Discrete(3)).sample(**{word: (length, None)})


def test_a_wrong_mask_of_the_elements_is_refused_with_its_path() -> None:
    for library in LIBRARIES:
        space = library.Sequence(library.MultiBinary(2))
        pattern = r"^mask\[1\]: expected " if library is spaces else None
        with pytest.raises(AssertionError, match=pattern):
            space.sample(mask=(2, [0, 1]))


@pytest.mark.parametrize("mask", [3, (), (2,)])
def test_a_mask_that_is_no_pair_is_refused_as_in_gymnasium(mask: Any) -> None:
    errors = []
    for library in LIBRARIES:
        with pytest.raises((TypeError, IndexError)) as caught:
            library.Sequence(library.Discrete(3)).sample(mask=mask)
        errors.append(caught.type)
    assert errors[0] is errors[1]


def test_mask_and_probability_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="at most one"):
        Sequence(Discrete(3)).sample(mask=(1, None), probability=(1, None))


MEMBERS: list[Space[Any]] = [
    Box(0, 1, (2,)),
    Discrete(3),
    MultiBinary(2),
    Text(3),
    Tuple([Discrete(3), Text(2)]),
    Dict(a=Box(0, 1, ()), b=Discrete(2)),
    Tuple([]),
]


@pytest.mark.parametrize("member", MEMBERS, ids=repr)
@pytest.mark.parametrize("stack", [False, True])
def test_an_empty_sequence_is_drawn_and_contained(member: Any, stack: bool) -> None:
    space = Sequence(member, stack=stack, seed=1)
    value = space.sample(mask=(0, None))
    assert space.contains(value)
    assert space.explain(value) is None


def test_an_empty_stack_has_the_shape_and_dtype_of_a_batch() -> None:
    value = Sequence(Box(0, 1, (2, 3)), stack=True).sample(mask=(0, None))
    assert_identical(value, np.empty((0, 2, 3), np.float32))


def test_only_tuples_of_elements_are_contained() -> None:
    space = Sequence(Discrete(3))
    assert () in space and (1, 2, 0, 1) in space
    for wrong in ([1, 2], (1, 3), np.array([1, 2]), 1, None, "12"):
        assert not space.contains(wrong)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((3, 2), np.float32),
        np.zeros((3, 2), np.float64),
        np.zeros((3, 2), np.float16),
        np.full((3, 2), 2, np.float32),
        np.full((3, 2), np.nan, np.float32),
        np.zeros((3, 3), np.float32),
        np.zeros((0, 2), np.float32),
        np.zeros((0, 7), np.float64),
        [np.zeros(2, np.float32)],
        (np.zeros(2, np.float32), np.ones(3, np.float32)),
        [],
        [[0.0, 0.5]],
        [None],
        {"a": 1},
    ],
)
def test_stacked_membership_is_that_of_gymnasium(value: Any) -> None:
    ours, theirs = (library.Sequence(library.Box(0, 1, (2,)), stack=True) for library in LIBRARIES)
    assert ours.contains(value) is bool(theirs.contains(value))


@pytest.mark.parametrize("value", [np.float32(0), None, 3, np.zeros(()), object()])
def test_what_gymnasium_cannot_iterate_over_is_not_contained(value: Any) -> None:
    assert not Sequence(Box(0, 1, (2,)), stack=True).contains(value)


def test_columns_of_different_lengths_are_not_contained() -> None:
    space = Sequence(Dict(a=Discrete(3), b=Discrete(3)), stack=True)
    assert space.contains({"a": np.array([1, 2]), "b": np.array([0, 0])})
    assert not space.contains({"a": np.array([1, 2]), "b": np.array([0])})
    assert not space.contains({"a": np.array([1, 2])})


def test_a_subclass_with_its_own_test_is_asked_row_by_row() -> None:
    class Even(Discrete[np.int64]):
        def contains(self, x: Any) -> bool:
            return super().contains(x) and int(x) % 2 == 0

    space = Sequence(Even(5), stack=True)
    assert space.contains(np.array([0, 2, 4]))
    assert not space.contains(np.array([0, 1]))


def test_equality_compares_the_elements_and_the_stacking() -> None:
    variants = [Sequence(Discrete(n), stack=stack) for n in (2, 3) for stack in (False, True)]
    for one, other in itertools.product(range(4), repeat=2):
        assert (variants[one] == variants[other]) is (one == other)
    assert Sequence(Discrete(3), seed=1) == Sequence(Discrete(3), seed=2)
