"""OneOf: construction, seeds, masks, membership, and JSON of members that write columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.contract import LIBRARIES, SpaceContract
from vecspaces.spaces import Box, Discrete, OneOf, Tuple


class TestOneOf(SpaceContract):
    # With None for itself, Gymnasium's seeds its own generator twice and returns another number.
    seeds = (7, (1, 2, [3]), [1, 2, (3,)])
    wrong_seeds = ((1, 2), "xyz", (1, 2, [3, 4]))
    limits = {"mask": ((np.array([0, 1], np.int8), None),), "probability": ((None, None),)}
    wrong_limits = {
        word: ([None, None], (None,), (None, None, None), ([1, 0], ([1, 0],)))
        for word in ("mask", "probability")
    }
    refused = (lambda lib: lib.OneOf(3), lambda lib: lib.OneOf([3]), lambda lib: lib.OneOf([]))
    inside = ((0, 1), (np.int64(0), 1), (True, (2,)))
    outside = (
        (np.int32(0), 1),
        (np.uint8(0), 1),
        (0.0, 1),
        (2, 1),
        (-1, 1),
        [0, 1],
        (0, 5),
        (0,),
        (0, 1, 2),
        None,
    )

    def make(self, lib: Any) -> Any:
        return lib.OneOf([lib.Discrete(2), lib.Tuple([lib.Discrete(3)])])


def test_one_of_has_members_by_index() -> None:
    space = OneOf([Discrete(2), Box(0, 1)])
    assert space[0] == Discrete(2) and space[-1] == Box(0, 1) and len(space) == 2
    with pytest.raises(IndexError):
        space[2]


def test_one_of_writes_one_column_as_gymnasium_does() -> None:
    ours, theirs = (lib.OneOf([lib.Tuple([lib.Discrete(9)])], seed=1) for lib in LIBRARIES)
    value = ours.sample()
    assert ours.to_jsonable([value]) == theirs.to_jsonable([value])


def test_one_of_seeds_members_where_it_does_not_the_index() -> None:
    space = OneOf([Discrete(99), Tuple([Discrete(99)])])
    assert space.seed((None, 2, [3]))[1:] == (2, (3,))
