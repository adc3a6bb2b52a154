"""Discrete: counts, starts, masks, membership."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.spaces.contract import SpaceContract
from vecspaces.spaces import Discrete

i8 = np.int8


class TestDiscrete(SpaceContract):
    limits = {
        "mask": (np.array([0, 1, 1], i8), np.zeros(3, i8), None),
        "probability": (np.array([0.9, 0.0, 0.1]),),
    }
    wrong_limits = {
        "mask": (
            [1, 1, 1],
            np.array([1, 1, 1]),
            np.array([1, 1], i8),
            np.array([1, 1, 2], i8),
            np.array([1, 1, -1], i8),
            np.ones((3, 1), i8),
        ),
        "probability": (
            [1, 0, 0],
            np.array([1, 0, 0]),
            np.array([0.5, 0.5]),
            np.array([0.5, 0.6, 0]),
            np.array([1.5, -0.5, 0]),
            np.array([np.nan, 0, 1]),
            np.ones(3, np.float32) / 3,
            np.array([1 - 1e-6, 0, 0]),
        ),
    }
    inside = (5, 7, np.int64(5), i8(5), np.array(5))
    outside = (8, 4, np.uint64(5), np.array([5]), 5.0, np.float64(5), "5", None, 10**30)
    outside_here = (np.timedelta64(5, "D"), np.array(5, object))

    def make(self, lib: Any) -> Any:
        return lib.Discrete(3, start=5)


def test_discrete_contains_bools_as_ints() -> None:
    assert True in Discrete(2)
    assert np.True_ not in Discrete(2)


def test_discrete_takes_an_int_that_lies_at_its_value() -> None:
    class Liar(int):
        def __int__(self) -> int:
            raise RuntimeError

        def __lt__(self, other: object) -> bool:
            raise RuntimeError

    assert Liar(2) in Discrete(3)
    assert Liar(3) not in Discrete(3)
