"""MultiDiscrete: counts, starts, subspaces, masks, membership."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vecspaces.spaces import Discrete, MultiDiscrete

i8 = np.int8


def test_nvec_and_start_are_copies_of_the_dtype() -> None:
    nvec, start = np.array([[1, 2], [3, 4]]), np.array([[0, 1], [2, 3]])
    space = MultiDiscrete(nvec, dtype=i8, start=start)
    nvec[:], start[:] = 9, 9
    assert space.nvec.tolist() == [[1, 2], [3, 4]] and space.start.tolist() == [[0, 1], [2, 3]]
    assert space.nvec.dtype == space.start.dtype == space.dtype == np.dtype(i8)
    assert space.shape == (2, 2)
    assert MultiDiscrete([2, 3]).start.tolist() == [0, 0]


def test_samples_are_spread_evenly_over_each_range() -> None:
    space = MultiDiscrete([2, 3], start=[5, -1], seed=0)
    first, second = np.array([space.sample() for _ in range(3000)]).T
    assert np.unique(first, return_counts=True)[1].min() > 1300
    assert np.unique(second).tolist() == [-1, 0, 1]
    assert np.unique(second, return_counts=True)[1].min() > 850


def test_masks_are_nested_as_deep_as_the_axes() -> None:
    space = MultiDiscrete([[2, 3], [1, 2]], start=[[0, 10], [20, 30]], seed=0)
    mask = (
        (np.array([0, 1], i8), np.array([1, 0, 1], i8)),
        (np.zeros(1, i8), np.array([0, 0], i8)),
    )
    drawn = {tuple(space.sample(mask=mask).ravel().tolist()) for _ in range(50)}
    assert drawn == {(1, 10, 20, 30), (1, 12, 20, 30)}


def test_probabilities_weigh_each_entry() -> None:
    space = MultiDiscrete([2, 3], start=[0, 5], seed=0)
    limit = (np.array([0.0, 1.0]), np.array([0.2, 0.0, 0.8]))
    drawn = np.array([space.sample(probability=limit) for _ in range(300)])
    assert set(drawn[:, 0]) == {1} and set(drawn[:, 1]) == {5, 7}
    assert (drawn[:, 1] == 7).sum() > 200


def test_a_wrong_mask_names_the_entry() -> None:
    space = MultiDiscrete([[2, 3], [1, 2]])
    good = (np.ones(2, i8), np.ones(3, i8))
    with pytest.raises(AssertionError, match=r"^mask\[1\]\[0\]: expected an array of shape \(1,\)"):
        space.sample(mask=(good, (np.ones(7, i8), np.ones(2, i8))))
    with pytest.raises(AssertionError, match=r"^mask\[1\]: expected a tuple of 2 entries, found "):
        space.sample(mask=(good, [1]))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([5, -5], True),
        ((6, -3), True),
        ([7, 0], False),
        (np.array([5, -5]), True),
        (np.array([5, -5], i8), True),
        (np.array([5.0, -5.0]), False),
        (np.array([5, 5], np.uint64), False),
        ([5], False),
        ([[5], [1, 2]], False),
        ("ab", False),
        (None, False),
        (5, False),
        (np.array([5, -5], object), False),
        (np.zeros(2, "m8[s]"), False),
        (np.zeros(2, [("field", "i4")]), False),
    ],
)
def test_contains(x: Any, expected: bool) -> None:
    space = MultiDiscrete([2, 3], start=[5, -5])
    assert space.contains(x) is expected
    assert (space.explain(x) is None) is expected


def test_differences_that_overflow_do_not_deceive() -> None:
    """Gymnasium's report 1622: `x - start < nvec` wrapped around."""
    assert np.array([np.iinfo(np.int64).max]) not in MultiDiscrete([5], start=[-10])
    space = MultiDiscrete([120], start=[-100], dtype=i8)
    assert np.array([50], i8) not in space and np.array([19], i8) in space


def test_explain_names_the_first_entry_outside() -> None:
    space = MultiDiscrete([[2, 3]], start=[[0, 5]])
    assert space.explain(np.array([[1, 8]]), "x") == (
        "x: expected an integer from 5 to 7 at index (0, 1), found 8"
    )
    assert space.explain([1, 8]) == "expected shape (1, 2), found shape (2,)"


def test_indexing_gives_the_space_of_entries_with_the_same_stream() -> None:
    space = MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]], dtype=i8, seed=4)
    assert space[0, 1] == Discrete(3, start=1, dtype=i8)
    assert space[1] == MultiDiscrete([4, 5], start=[2, 3], dtype=i8)
    assert space[:, 0] == MultiDiscrete([2, 4], start=[0, 2], dtype=i8)
    state = space.np_random.bit_generator.state
    assert space[0].np_random.bit_generator.state == state
    assert space[0].np_random is not space.np_random
    with pytest.raises(IndexError):
        space[2]


def test_len_is_of_the_first_axis() -> None:
    assert len(MultiDiscrete([2, 3, 4])) == 3
    with pytest.warns(UserWarning, match="counts its first axis alone"):
        assert len(MultiDiscrete([[2, 3, 4]])) == 1


def test_equality_is_of_counts_starts_and_dtype() -> None:
    assert MultiDiscrete([2, 3]) == MultiDiscrete([2, 3], seed=1)
    for other in (
        MultiDiscrete([2, 4]),
        MultiDiscrete([2]),
        MultiDiscrete([2, 3], start=[0, 1]),
        MultiDiscrete([2, 3], dtype=i8),
        [2, 3],
    ):
        assert MultiDiscrete([2, 3]) != other


def test_repr_shows_a_start() -> None:
    assert repr(MultiDiscrete([2, 3])) == "MultiDiscrete([2 3])"
    assert repr(MultiDiscrete([2, 3], start=[0, 1])) == "MultiDiscrete([2 3], start=[0 1])"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nvec": [0]}, "^nvec: expected positive counts, found "),
        (
            {"nvec": [2], "start": [1, 2]},
            r"^start: expected the shape of nvec, \(1,\), found \(2,\)",
        ),
        ({"nvec": [2], "dtype": float}, "^dtype: expected an integer dtype, found float64"),
    ],
)
def test_a_wrong_argument_is_named(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiDiscrete(**arguments)


def test_without_axes_samples_are_scalars_and_contained() -> None:
    for space in (MultiDiscrete(5, seed=0), MultiDiscrete(3, dtype=i8, start=-3, seed=0)):  # type: ignore[arg-type]
        sample = space.sample()
        assert isinstance(sample, np.generic)
        assert sample in space and np.asarray(sample) in space
        assert space.explain(space.dtype.type(5)) == (
            f"expected an integer from {space.start} to {space.start + space.nvec - 1} "
            "at index (), found 5"
        )
        assert np.float64(0) not in space
