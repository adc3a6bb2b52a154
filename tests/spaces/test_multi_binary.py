"""MultiBinary: shapes, coins, membership."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as hnp

from tests.spaces.contract import SpaceContract
from vecspaces.spaces import MultiBinary

i8 = np.int8


class TestMultiBinary(SpaceContract):
    limits = {"mask": (np.array([0, 1, 2], i8), None), "probability": (np.array([0.0, 0.3, 1.0]),)}
    wrong_limits = {
        "mask": (np.array([1, 1], i8), np.array([1, 1, 3], i8)),
        "probability": (np.array([0.1, 1]), np.array([1.1, 0, 0])),
    }
    inside = ([0, 1, 1], (0, 1.0, True), np.array([0, 1, 1], object))
    outside = ([0, 1, 2], [0, 1], "011", b"011", None, 3)
    outside_here = ([0, [1], 2], np.zeros(3, [("field", "i4")]), range(3))

    def make(self, lib: Any) -> Any:
        return lib.MultiBinary(3)


@given(array=hnp.arrays(hnp.scalar_dtypes().filter(lambda dtype: dtype.kind != "m"), 3))
def test_multi_binary_contains_arrays_of_zeros_and_ones(array: Any) -> None:
    space = MultiBinary(3)
    expected = array.dtype.kind in "biufc" and all(x in (0, 1) for x in array.tolist())
    assert space.contains(array) is expected
    assert (space.explain(array) is None) is expected


def test_multi_binary_without_axes_contains_scalars() -> None:
    space = MultiBinary([], seed=0)
    assert space.sample() in space
    assert i8(1) in space and np.array(1) in space
    assert i8(2) not in space and np.str_("1") not in space
    assert i8(1) not in MultiBinary(1)
