"""MultiBinary: shapes, coins, membership."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from vecspaces.spaces import MultiBinary

i8 = np.int8


@pytest.mark.parametrize(
    ("n", "kept", "shape"),
    [
        (3, 3, (3,)),
        ([2, 3], (2, 3), (2, 3)),
        ((2,), (2,), (2,)),
        (np.array([2, 1]), (2, 1), (2, 1)),
        ([], (), ()),
    ],
)
def test_n_is_a_length_or_a_shape(n: Any, kept: Any, shape: Any) -> None:
    space = MultiBinary(n, seed=0)
    assert (space.n, space.shape, space.dtype) == (kept, shape, np.dtype(i8))
    assert space.sample().shape == shape and space.sample() in space
    assert repr(space) == f"MultiBinary({kept})"


def test_coins_are_fair() -> None:
    sample = MultiBinary(10_000, seed=0).sample()
    assert set(sample.tolist()) == {0, 1} and 4800 < sample.sum() < 5200


def test_a_mask_fixes_entries_and_leaves_coins() -> None:
    space = MultiBinary(300, seed=0)
    mask = np.repeat(np.array([0, 1, 2], i8), 100)
    sample = space.sample(mask=mask)
    assert sample.dtype == i8
    assert not sample[:100].any() and sample[100:200].all() and 20 < sample[200:].sum() < 80


def test_a_probability_weighs_each_entry() -> None:
    sample = MultiBinary((3, 1000), seed=0).sample(
        probability=np.repeat([[0.0], [0.3], [1.0]], 1000, axis=1)
    )
    assert sample.dtype == i8
    assert sample[0].sum() == 0 and 230 < sample[1].sum() < 370 and sample[2].sum() == 1000


@given(array=hnp.arrays(hnp.scalar_dtypes().filter(lambda dtype: dtype.kind != "m"), 3))
def test_an_array_is_contained_if_its_entries_equal_zero_or_one(array: Any) -> None:
    space = MultiBinary(3)
    expected = array.dtype.kind in "biufc" and all(x in (0, 1) for x in array.tolist())
    assert space.contains(array) is expected
    assert (space.explain(array) is None) is expected


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([0, 1, 1], True),
        ((0, 1.0, True), True),
        ([0, 1, 2], False),
        ([0, 1], False),
        ([0, [1], 2], False),
        ("011", False),
        (b"011", False),
        (None, False),
        (3, False),
        (np.array([0, 1, 1], object), True),
        (np.zeros(3, [("field", "i4")]), False),
        (range(3), False),
    ],
)
def test_contains_of_other_objects(x: Any, expected: bool) -> None:
    assert MultiBinary(3).contains(x) is expected
    assert (MultiBinary(3).explain(x) is None) is expected


def test_explain_names_the_first_entry_that_is_wrong() -> None:
    assert MultiBinary(3).explain(np.array([0, 7, 8]), "x") == (
        "x: expected an integer from 0 to 1 at index (1,), found 7"
    )
    assert MultiBinary((2, 1)).explain(np.zeros(2)) == "expected shape (2, 1), found shape (2,)"


def test_equality_is_of_n() -> None:
    assert MultiBinary(3) == MultiBinary(3)
    for other in (MultiBinary([3]), MultiBinary(4), 3):
        assert MultiBinary(3) != other


def test_an_array_without_axes_as_n_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^n: expected an int or a sequence of ints, found int64 array"
    ):
        MultiBinary(np.array(3))


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (0, "^n: expected positive counts, found 0"),
        ([2, -1], "^n: expected positive counts, found "),
        (2.0, "^n: expected an int or a sequence of ints, found 2.0 of type float"),
    ],
)
def test_a_wrong_n_is_named(n: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiBinary(n)


def test_without_axes_scalars_are_contained_as_arrays_are() -> None:
    space = MultiBinary([], seed=0)
    assert space.sample() in space
    assert i8(1) in space and np.array(1) in space
    assert i8(2) not in space and np.str_("1") not in space
    assert i8(1) not in MultiBinary(1)
