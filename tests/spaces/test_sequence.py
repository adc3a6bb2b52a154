"""Sequence: lengths, stacking, seeds, masks, membership."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compare import assert_identical
from tests.spaces.contract import LIBRARIES, SpaceContract
from vecspaces.spaces import Box, Dict, Discrete, Sequence

LENGTHS = (3, 0, np.int8(2), np.array([2, 5]), np.array([4], np.uint8), None)
WRONG_LENGTHS = (
    *(-1, np.array([[1]]), np.array([1, -1]), np.array([1.0]), np.array([True])),
    *(1.5, True, [1, 2], "2"),
)


class TestSequence(SpaceContract):
    seeds = (7, (1, {"a": 2}), [3, {"a": 4}])
    wrong_seeds = ((1, 2, 3), "xy", (1, [2]))
    limits = {word: tuple((n, None) for n in LENGTHS) for word in ("mask", "probability")}
    wrong_limits = {
        word: (3, (), (2,), (2, {"a": [0, 1]}), *((n, None) for n in WRONG_LENGTHS))
        for word in ("mask", "probability")
    }
    refused = (
        lambda lib: lib.Sequence(3),
        lambda lib: lib.Sequence(None),
        lambda lib: lib.Sequence([lib.Discrete(2)]),
    )
    inside = ((), ({"a": 1}, {"a": 2}, {"a": 0}))
    outside = ([{"a": 1}], ({"a": 1}, {"a": 3}), ({},), np.array([1, 2]), 1, None, "12")

    def make(self, lib: Any) -> Any:
        return lib.Sequence(lib.Dict(a=lib.Discrete(3)))

    def test_lengths_are_drawn_as_in_gymnasium(self) -> None:
        for length in LENGTHS:
            ours, theirs = (lib.Sequence(lib.Discrete(3), seed=5) for lib in LIBRARIES)
            drawn = (space.generate_sample_length(length, "mask") for space in (ours, theirs))
            assert_identical(*drawn)


class TestStackedSequence(SpaceContract):
    seeds = (7, (1, 2), [3, 4])
    wrong_seeds = ((1, 2, 3), "xy")
    limits = {word: ((3, None), (np.array([2, 5]), None)) for word in ("mask", "probability")}
    inside = (
        np.zeros((3, 2), np.float32),
        np.zeros((3, 2), np.float16),
        np.zeros((0, 2), np.float32),
        np.zeros((0, 7), np.float64),
        [np.zeros(2, np.float32)],
        [],
        [[0.0, 0.5]],
    )
    outside = (
        np.zeros((3, 2), np.float64),
        np.full((3, 2), 2, np.float32),
        np.full((3, 2), np.nan, np.float32),
        np.zeros((3, 3), np.float32),
        (np.zeros(2, np.float32), np.ones(3, np.float32)),
        [None],
        {"a": 1},
    )
    outside_here = (np.float32(0), None, 3, np.zeros(()), object())

    def make(self, lib: Any) -> Any:
        return lib.Sequence(lib.Box(0, 1, (2,)), stack=True)


def test_sequence_of_length_0_has_the_shape_and_dtype_of_a_batch() -> None:
    value = Sequence(Box(0, 1, (2, 3)), stack=True).sample(mask=(0, None))
    assert_identical(value, np.empty((0, 2, 3), np.float32))


def test_sequence_contains_no_columns_of_different_lengths() -> None:
    space = Sequence(Dict(a=Discrete(3), b=Discrete(3)), stack=True)
    assert space.contains({"a": np.array([1, 2]), "b": np.array([0, 0])})
    assert not space.contains({"a": np.array([1, 2]), "b": np.array([0])})
    assert not space.contains({"a": np.array([1, 2])})


def test_sequence_asks_a_subclass_with_its_own_test_row_by_row() -> None:
    class Even(Discrete[np.int64]):
        def contains(self, x: Any) -> bool:
            return super().contains(x) and int(x) % 2 == 0

    space = Sequence(Even(5), stack=True)
    assert space.contains(np.array([0, 2, 4]))
    assert not space.contains(np.array([0, 1]))
