"""The casting rule: exact shapes, casts of the same kind, integers in range, nothing else."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.strategies import BOX_DTYPES, FLOATS, INTEGERS, junk
from vecspaces.layout import Mismatch, fit
from vecspaces.layout.casting import KeyMismatch, fit_batch
from vecspaces.spaces.bounds import dtype_limits

INTEGERS_AND_BOOL = [*INTEGERS, np.dtype(bool)]


@given(hnp.arrays(st.sampled_from(BOX_DTYPES), hnp.array_shapes(min_dims=0, min_side=0)))
def test_fit_returns_an_array_that_fits(array: Any) -> None:
    assert fit(array, array.dtype, array.shape) is array


@given(
    hnp.arrays(st.sampled_from(INTEGERS_AND_BOOL), hnp.array_shapes(min_dims=0, min_side=0)),
    st.sampled_from(INTEGERS_AND_BOOL),
)
def test_fit_casts_integers_exactly_if_in_range(array: Any, dtype: Any) -> None:
    low, high = dtype_limits(dtype)
    values = [int(value) for value in array.reshape(-1)]
    if all(low <= value <= high for value in values):
        fitted = fit(array, dtype, array.shape)
        assert fitted.dtype == dtype
        assert [int(value) for value in fitted.reshape(-1)] == values
    else:
        with pytest.raises(Mismatch, match=f"values from {low} to {high}"):
            fit(array, dtype, array.shape)


@given(st.sampled_from([*FLOATS, *INTEGERS_AND_BOOL]), st.sampled_from(FLOATS))
def test_fit_casts_numbers_to_floats(source: Any, target: Any) -> None:
    fitted = fit(np.ones((2, 3), source), target, (2, 3))
    assert fitted.dtype == target
    assert (fitted == 1).all()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, "int64"),
        (np.float32(1), "uint8"),
        (0.0, "bool"),
        (1j, "float64"),
        ("1", "int64"),
        (b"1", "float32"),
        (None, "float32"),
        (object(), "float32"),
        (2**70, "int64"),
        (np.datetime64("2020-01-01"), "float64"),
        ({}, "int8"),
        (np.array("x"), "float32"),
    ],
)
def test_fit_refuses_other_kinds(value: Any, dtype: str) -> None:
    with pytest.raises(Mismatch, match=rf"expected {dtype} array of shape \(\), found "):
        fit(value, np.dtype(dtype), ())


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (1, 3), (4,), (3, 3), (0,)])
def test_fit_never_broadcasts(shape: tuple[int, ...]) -> None:
    with pytest.raises(Mismatch, match="of shape") as info:
        fit(np.zeros(shape, np.float32), np.dtype("float32"), (3,))
    assert info.value.actual == f"float32 array of shape {shape}"


def test_fit_takes_lists_and_scalars() -> None:
    assert fit([[1, 2], [3, 4]], np.dtype("float32"), (2, 2)).tolist() == [[1, 2], [3, 4]]
    assert fit(True, np.dtype("int8"), ()) == 1
    assert fit(2**64 - 1, np.dtype("uint64"), ()) == 2**64 - 1


@given(junk())
def test_fit_of_any_object_is_an_array_or_a_mismatch(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fitted = fit(value, np.dtype("float32"), ())
        except Mismatch:
            return
    assert fitted.dtype == np.float32
    assert fitted.shape == ()


@pytest.mark.parametrize("kind", [Mismatch, KeyMismatch])
def test_mismatch_keeps_its_fields_on_its_way(kind: type[Mismatch]) -> None:
    error = kind("a", "b", ("x",)).placed(("outer", 2), 5).called("items")
    copy = pickle.loads(pickle.dumps(error))
    for kept in (error, copy):
        assert type(kept) is kind
        assert (kept.expected, kept.actual, kept.row) == ("a", "b", 5)
        assert str(kept) == "items[5]['outer'][2]['x']: expected a, found b"
    assert isinstance(KeyMismatch("a", "b"), KeyError)


def test_fit_batch_blames_no_row_for_a_wrong_dtype_or_shape() -> None:
    for batch in (np.zeros((3, 2)), np.zeros((3, 5), np.int64), np.zeros((4, 2), np.int64)):
        with pytest.raises(Mismatch) as info:
            fit_batch(batch, 3, np.dtype("int64"), (2,))
        assert info.value.row is None
        assert info.value.expected.startswith("int64 array of shape (3, 2)")


def test_fit_batch_casts_each_row_by_itself() -> None:
    # Together they are float64 to NumPy, which does not go into an integer.
    rows = [np.int64(-1), np.uint64(5)]
    assert fit_batch(rows, 2, np.dtype("int64"), ()).tolist() == [-1, 5]
