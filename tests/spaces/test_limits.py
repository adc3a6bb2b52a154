"""Limits: at the ends of every dtype nothing overflows, and samples lie in their space."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import BOX_DTYPES, EXTREMES, FLOATS, INTEGERS, junk, seeds
from vecspaces.spaces import Box, Discrete, MultiDiscrete
from vecspaces.spaces.bounds import dtype_limits

SIGNED = [dtype for dtype in INTEGERS if dtype.kind == "i"]


def assert_samples_lie_within(space: Any, n: int = 50) -> None:
    """Sample without a warning, and find every sample in the space, of the space's dtype."""
    space.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(n):
            sample = space.sample()
            assert space.contains(sample), (space, sample)
            assert sample.dtype == space.dtype


@st.composite
def extreme_boxes(draw: st.DrawFn) -> Box[Any]:
    """Boxes whose bounds are at, or one away from, the ends of the dtype; some infinite."""
    dtype = np.dtype(draw(st.sampled_from(BOX_DTYPES)))
    smallest, largest = dtype_limits(dtype)
    if dtype.kind == "f":
        near = [smallest, smallest / 2, -1.0, -0.0, 0.0, 1.0, largest / 2, largest]
        near += [float(np.finfo(dtype).tiny), -float(np.finfo(dtype).smallest_subnormal)]
    else:
        near = [smallest, smallest + 1, 0, 1, largest // 2, largest - 1, largest]
        near += [bound for bound in EXTREMES if smallest <= bound <= largest]
    size = draw(st.integers(1, 4))
    pairs = [sorted(draw(st.tuples(*[st.sampled_from(near)] * 2))) for _ in range(size)]
    low, high = (np.array([pair[i] for pair in pairs], dtype) for i in (0, 1))
    if size == 1 and dtype.kind in "if":
        open_low, open_high = draw(st.booleans()), draw(st.booleans())
        return Box(-np.inf if open_low else low[0], np.inf if open_high else high[0], (2,), dtype)
    return Box(low, high, dtype=dtype)


@given(box=extreme_boxes())
@example(box=Box(-(2**53) - 1, -(2**53) - 1, (2,), np.int64))  # its float64 is a neighbour
@example(box=Box(0.0, -0.0, (2,), np.float16))  # NumPy calls this range negative
def test_box_samples_lie_within_the_most_extreme_bounds(box: Box[Any]) -> None:
    assert_samples_lie_within(box, 20)


@pytest.mark.parametrize("dtype", BOX_DTYPES, ids=str)
def test_box_at_the_ends_of_the_dtype(dtype: Any) -> None:
    smallest, largest = dtype_limits(dtype)
    for shape in ((), (0,), (1,), (200,), (2, 3)):
        box = Box(smallest, largest, shape, dtype)
        assert_samples_lie_within(box)
        for bound in (smallest, largest):
            assert np.full(shape, bound, dtype) in box
    for bound in {smallest, largest, 0}:
        assert np.all(Box(bound, bound, (5,), dtype, seed=0).sample() == np.array(bound, dtype))
    if dtype.kind in "if":
        with np.errstate(over="ignore"):  # float16 may round beyond its end to infinity
            for bound in (smallest, largest):
                for box in (Box(bound, np.inf, (9,), dtype), Box(-np.inf, bound, (9,), dtype)):
                    box.seed(0)
                    assert all(box.sample() in box for _ in range(50))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_box_draws_all_parts_of_an_integer_dtype(dtype: Any) -> None:
    smallest, largest = dtype_limits(dtype)
    sample = Box(smallest, largest, (4000,), dtype, seed=0).sample().astype(float)
    quarter = (float(largest) - float(smallest)) / 4
    counts, _ = np.histogram(sample, [float(smallest) + i * quarter for i in range(5)])
    assert counts.min() > 850, counts
    for first in (smallest, largest - 2):  # the three integers at either end
        drawn = set(Box(first, first + 2, (300,), dtype, seed=0).sample().tolist())
        if abs(first) < 2**53:
            assert drawn == {first, first + 1, first + 2}
        assert drawn <= {first, first + 1, first + 2}


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_box_makes_infinite_bounds_the_exact_limits(dtype: Any) -> None:
    """Gymnasium's report 1699: the limit was rounded in the bound's dtype, and wrapped."""
    for source in (np.float16, np.float32, np.float64):
        low, high = np.array([-np.inf, 0], source), np.array([1, np.inf], source)
        kept = low.copy(), high.copy()
        box = Box(low, high, dtype=dtype)
        assert box.low.tolist() == [dtype_limits(dtype)[0], 0]
        assert box.high.tolist() == [1, dtype_limits(dtype)[1]]
        assert box.bounded_below.tolist() == [False, True]
        assert box.bounded_above.tolist() == [True, False]
        np.testing.assert_equal((low, high), kept)  # the caller's arrays are as they were
        assert_samples_lie_within(box)


def test_box_refuses_a_float_just_beyond_an_integer_dtype() -> None:
    for source, dtype in product((np.float32, np.float64), ("i4", "i8", "u4", "u8")):
        beyond = source(2.0) ** (np.iinfo(dtype).bits - (dtype[0] == "i"))
        for high in (beyond, np.array([beyond])):
            with pytest.raises(ValueError, match=r"^high: expected "):
                Box(0, high, (1,), np.dtype(dtype))


def test_box_of_float64_takes_ints_of_any_size() -> None:
    assert_samples_lie_within(Box(-(10**300), 10**300, dtype=np.float64))
    with pytest.raises(ValueError, match=r"^high: expected "):
        Box(0, 10**400, dtype=np.float64)


@given(seed=seeds)
def test_box_draws_evenly_from_a_range_beyond_float64(seed: int) -> None:
    largest = np.finfo(np.float64).max
    sample = Box(-largest, largest, (400,), np.float64, seed=seed).sample()
    assert np.isfinite(sample).all()
    assert 130 < (sample > 0).sum() < 270


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_box_contains_no_number_that_its_dtype_would_wrap(dtype: Any) -> None:
    smallest, largest = dtype_limits(dtype)
    box = Box(smallest, largest, (), dtype)
    assert largest in box and smallest in box
    if dtype.kind != "f":
        for x in (largest + 1, smallest - 1, 10**30, -(10**30), float("inf"), float("nan")):
            assert x not in box
        if dtype.itemsize < 8:
            assert np.int64(largest + 1) not in box
            assert np.float64(largest + 1) not in box
    assert 10**400 not in box


@given(value=junk())
@example(value=np.timedelta64(156, "Y"))  # an np.integer, whose ticks would wrap
@example(value=np.timedelta64("NaT", "Y"))
@example(value=np.timedelta64(0, "D"))
def test_box_membership_of_scalars_and_lists_is_arithmetic(value: Any) -> None:
    """What an integer Box takes as an int lies between its bounds as a number, not as bits."""
    box = Box(-100, 100, (), np.int8)
    if value in box and isinstance(value, (int, float, np.integer, np.floating)):
        # int() of a time span gives a span again, or nothing, for some of its units.
        number = value.astype(np.int64) if isinstance(value, np.timedelta64) else value
        assert -100 <= int(number) <= 100


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_discrete_at_both_ends_of_every_dtype(dtype: Any) -> None:
    smallest, largest = dtype_limits(dtype)
    for n, is_last in product((1, 2, 3, 100), (False, True)):
        start = largest - n + 1 if is_last else smallest
        space = Discrete(n, start=start, dtype=dtype)
        assert_samples_lie_within(space)
        last = start + n - 1
        for x, expected in ((start, True), (last, True), (start - 1, False), (last + 1, False)):
            assert space.contains(x) is expected
        mask = np.zeros(n, np.int8)
        mask[-1] = 1
        assert int(space.sample(mask=mask)) == last
        assert int(space.sample(probability=mask.astype(float))) == last
        assert space.from_jsonable(space.to_jsonable([last])) == [last]
    for start in (0, smallest):  # nearly the whole dtype
        assert_samples_lie_within(Discrete(largest, start=start, dtype=dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_multi_discrete_at_both_ends_of_every_dtype(dtype: Any) -> None:
    smallest, largest = dtype_limits(dtype)
    space = MultiDiscrete([3, 3, 1], start=[smallest, largest - 2, largest], dtype=dtype)
    assert_samples_lie_within(space)
    first, last = space.start, space.start + (space.nvec - 1)
    assert first in space and last in space
    for wrong in (first - np.array([0, 1, 0], dtype), last + np.array([1, 0, 0], dtype)):
        assert wrong not in space
    masks = tuple(np.eye(n, dtype=np.int8)[-1] for n in (3, 3, 1))
    assert space.sample(mask=masks).tolist() == last.tolist()
    assert space.sample(probability=tuple(m.astype(float) for m in masks)).tolist() == last.tolist()
    assert_samples_lie_within(MultiDiscrete([largest] * 50, dtype=dtype))
