"""Tuple: construction, the sequence protocol, seeds, masks, membership."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.spaces.contract import SpaceContract
from vecspaces.spaces import Box, Discrete, OneOf, Tuple


class TestTuple(SpaceContract):
    seeds = (7, [3, [4]], (3, (4,)))
    wrong_seeds = ([1], "xy", np.int64(1), {0: 1}, [1, [2, 3]], [1, [-2]])
    limits = {
        "mask": ((None, None), (np.array([0, 1, 1], np.int8), (None,))),
        "probability": ((None, (np.array([0.5, 0.5, 0]),)),),
    }
    wrong_limits = {
        word: ([None, None], (None,), (None, None, None), (None, ([1, 0],)))
        for word in ("mask", "probability")
    }
    refused = (
        lambda lib: lib.Tuple(3),
        lambda lib: lib.Tuple([3]),
        lambda lib: lib.Tuple(None),
        lambda lib: lib.Tuple([lib.Discrete(2), "x"]),
    )
    inside = ((1, (2,)), [1, [2]], (1, np.array([2])))
    outside = ((1, (3,)), (1,), (1, (2,), 2), {0: 1, 1: (2,)}, "12", None, np.array([1.0, 2.0]))
    outside_here = (np.array(1),)
    equal = (Tuple(iter((Discrete(3), Tuple((Discrete(3),))))),)
    unequal = ((Discrete(3), Tuple([Discrete(3)])), OneOf([Discrete(3), Tuple([Discrete(3)])]))

    def make(self, lib: Any) -> Any:
        return lib.Tuple([lib.Discrete(3), lib.Tuple([lib.Discrete(3)])])


def test_tuple_is_a_sequence_of_spaces() -> None:
    space = Tuple([Discrete(2), Box(0, 1), Discrete(2)])
    assert isinstance(space, Sequence)
    assert space[0] == space[-1] == Discrete(2)
    assert space[0:2] == (Discrete(2), Box(0, 1))
    assert len(space) == 3
    assert list(space) == list(space.spaces)
    assert list(reversed(space)) == list(reversed(space.spaces))
    assert space.index(Box(0, 1)) == 1 and space.count(Discrete(2)) == 2
    with pytest.raises(IndexError):
        space[3]
