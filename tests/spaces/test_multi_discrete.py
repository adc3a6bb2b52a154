"""MultiDiscrete: counts, starts, subspaces, masks, membership."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.contract import SpaceContract
from vecspaces.spaces import Discrete, MultiDiscrete

i8 = np.int8


class TestMultiDiscrete(SpaceContract):
    limits = {
        "mask": ((np.array([0, 1], i8), np.array([1, 0, 1], i8)), None),
        "probability": ((np.array([0.0, 1.0]), np.array([0.2, 0.0, 0.8])),),
    }
    wrong_limits = {
        "mask": (
            [np.ones(2, i8), np.ones(3, i8)],
            (np.ones(2, i8),),
            (np.ones(2, i8), np.ones(2, i8)),
            (None, None),
            np.ones((1, 3), i8),
        ),
        "probability": ((np.array([0.5, 0.6]), np.array([1.0, 0, 0])),),
    }
    inside = ([5, -5], (6, -3), np.array([5, -5]), np.array([5, -5], i8))
    outside = (
        [7, 0],
        np.array([5.0, -5.0]),
        np.array([5, 5], np.uint64),
        [5],
        "ab",
        None,
        5,
        np.array([5, -5], object),
    )
    outside_here = ([[5], [1, 2]], np.zeros(2, "m8[s]"), np.zeros(2, [("field", "i4")]))

    def make(self, lib: Any) -> Any:
        return lib.MultiDiscrete([2, 3], start=[5, -5])


def test_multi_discrete_copies_nvec_and_start_in_the_dtype() -> None:
    nvec, start = np.array([[1, 2], [3, 4]]), np.array([[0, 1], [2, 3]])
    space = MultiDiscrete(nvec, dtype=i8, start=start)
    nvec[:], start[:] = 9, 9
    assert space.nvec.tolist() == [[1, 2], [3, 4]] and space.start.tolist() == [[0, 1], [2, 3]]
    assert space.nvec.dtype == space.start.dtype == space.dtype == np.dtype(i8)
    assert space.shape == (2, 2)
    assert MultiDiscrete([2, 3]).start.tolist() == [0, 0]


def test_multi_discrete_contains_no_difference_that_overflows() -> None:
    """Gymnasium's report 1622: `x - start < nvec` wrapped around."""
    assert np.array([np.iinfo(np.int64).max]) not in MultiDiscrete([5], start=[-10])
    space = MultiDiscrete([120], start=[-100], dtype=i8)
    assert np.array([50], i8) not in space and np.array([19], i8) in space


def test_multi_discrete_index_is_a_space_with_the_same_stream() -> None:
    space = MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]], dtype=i8, seed=4)
    assert space[0, 1] == Discrete(3, start=1, dtype=i8)
    assert space[1] == MultiDiscrete([4, 5], start=[2, 3], dtype=i8)
    assert space[:, 0] == MultiDiscrete([2, 4], start=[0, 2], dtype=i8)
    state = space.np_random.bit_generator.state
    assert space[0].np_random.bit_generator.state == state
    assert space[0].np_random is not space.np_random
    with pytest.raises(IndexError):
        space[2]


def test_multi_discrete_len_is_of_the_first_axis() -> None:
    assert len(MultiDiscrete([2, 3, 4])) == 3
    with pytest.warns(UserWarning, match="counts its first axis alone"):
        assert len(MultiDiscrete([[2, 3, 4]])) == 1


def test_multi_discrete_without_axes_samples_scalars() -> None:
    for space in (MultiDiscrete(5, seed=0), MultiDiscrete(3, dtype=i8, start=-3, seed=0)):  # type: ignore[arg-type]
        sample = space.sample()
        assert isinstance(sample, np.generic)
        assert sample in space and np.asarray(sample) in space
        assert space.dtype.type(5) not in space and np.float64(0) not in space
