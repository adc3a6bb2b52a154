"""Box: bounds, shapes, attributes, laws of sampling, membership."""

from __future__ import annotations

import copy
import pickle
import warnings
from itertools import product
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest

import vecspaces.spaces
from tests.compare import assert_identical
from tests.spaces.contract import SpaceContract
from vecspaces.spaces import Box


class TestBox(SpaceContract):
    limits = {"mask": (None,)}
    wrong_limits = {word: (1, np.zeros(2, np.int8)) for word in ("mask", "probability")}
    inside = (
        [0.5, 1],
        (0, 1),
        np.zeros(2, np.float32),
        np.zeros(2, ">f4"),
        np.zeros(2, "f2"),
        np.zeros(2, "i2"),
        np.zeros(2, "?"),
        np.array([np.inf, 1], np.float32),
    )
    outside = (
        [0.5, 2],
        [0.5],
        np.zeros(2, "f8"),
        np.zeros(2, "i4"),
        np.zeros(2, "c8"),
        np.zeros(2, "m8[s]"),
        np.zeros(2, "U1"),
        np.zeros(2, "O"),
        np.array([-np.inf, 1], np.float32),
        np.array([np.nan, 1], np.float32),
        0.5,
    )
    outside_here = ([[0.5], [1, 2]], None, "left", np.zeros(2, "V4"), np.float64(1e300))
    equal = (
        Box(0, np.array([np.inf, 1 + 1e-9]), dtype=np.float32),
        Box(1e-10, np.array([np.inf, 1])),
    )

    def make(self, lib: Any) -> Any:
        return lib.Box(0, np.array([np.inf, 1]))


def test_box_bounds_cannot_be_changed_by_accident() -> None:
    lower = np.zeros(3)
    box = Box(lower, 1)
    for space in (box, copy.deepcopy(box), pickle.loads(pickle.dumps(box)), Box(0, 1, (3,))):
        for name in ("low", "high", "bounded_below", "bounded_above"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(space, name)[0] = 0
    lower[:] = 5
    assert box.low.tolist() == [0, 0, 0]


def test_box_pickles_nothing_that_was_compiled() -> None:
    box = Box(np.zeros(999), 1)
    size = len(pickle.dumps(box))
    assert box.sample() in box
    assert len(pickle.dumps(box)) < size + 500  # for the generator


def test_box_takes_an_assigned_bound_at_once() -> None:
    box = Box(0, 1, (3,), np.float64, seed=0)
    box.sample(), box.contains(np.zeros(3)), repr(box)
    high = np.full(3, 9.0)
    box.low, box.high = np.full(3, 8.0), high
    assert np.all(box.sample() >= 8) and box.sample() in box
    assert np.zeros(3) not in box
    assert repr(box) == "Box(8.0, 9.0, (3,), float64)"
    high[:] = 0  # what was assigned is a copy
    assert np.all(box.high == 9)


def test_box_casts_scalars_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0.5 in Box(0, 1, ())
        assert np.uint8(3) in Box(0, 5, (), np.uint8)
        assert None not in Box(0, 1, ())
        assert np.float64(1e300) not in Box(0, 1, ())


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-np.inf, 1), (0, np.inf), (-np.inf, np.inf)])
def test_box_contains_no_nan_and_no_entry_outside(low: float, high: float) -> None:
    for size, equal in product((3, 5000), (False, True)):
        bounds = [np.full(size, bound, np.float64) for bound in (low, high)]
        if not equal:
            bounds[1][0] = 0.75
        box = Box(*bounds, dtype=np.float64)
        inside = np.full(size, 0.5)
        assert inside in box
        for i in (0, size - 1):
            wrong = inside.copy()
            for value in (np.nan, -1.0 if np.isfinite(low) else None, 2.0 if high == 1 else None):
                if value is not None:
                    wrong[i] = value
                    assert wrong not in box


def test_box_repr_leaves_the_bounds_in_attributes() -> None:
    box = Box(0, 1)
    assert (box.low_repr, box.high_repr) == (None, None)
    repr(box)
    assert (box.low_repr, box.high_repr) == ("0.0", "1.0")


@pytest.mark.parametrize("dtype", [np.int8, np.float32, ">f4", ">u2"])
def test_box_samples_keep_the_dtype_with_assigned_bounds_of_another(dtype: Any) -> None:
    samples = []
    for library in (gymnasium.spaces, vecspaces.spaces):
        box: Any = library.Box(0, 9, (3,), dtype, seed=0)
        box.low = np.array([1.0, 2.0, 3.0])
        pickled = pickle.loads(pickle.dumps(library.Box(0, 9, (3,), dtype, seed=0)))
        samples.append([space.sample() for space in (box, pickled)])
    assert_identical(*samples)
    assert samples[1][1].dtype == dtype
