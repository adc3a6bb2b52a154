"""OneOf: construction, seeds, masks, membership, and JSON of members that write columns."""

from __future__ import annotations

import json
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces import spaces
from vecspaces.spaces import Box, Dict, Discrete, OneOf, Sequence, Tuple

LIBRARIES = [spaces, gymnasium.spaces]


@pytest.mark.parametrize(
    ("argument", "error"), [(3, TypeError), ([3], TypeError), ([], ValueError)]
)
def test_what_is_no_iterable_of_spaces_is_refused(argument: Any, error: Any) -> None:
    for library in LIBRARIES:
        with pytest.raises(error):
            library.OneOf(argument)


def test_members_are_found_by_index() -> None:
    space = OneOf([Discrete(2), Box(0, 1)])
    assert space[0] == Discrete(2) and space[-1] == Box(0, 1) and len(space) == 2
    with pytest.raises(IndexError):
        space[2]


@pytest.mark.parametrize("seed", [7, (1, 2, [3]), [1, 2, (3,)], (None, 2, 3)])
def test_seeds_are_those_of_gymnasium(seed: Any) -> None:
    ours, theirs = (
        library.OneOf([library.Discrete(99), library.Tuple([library.Discrete(99)])])
        for library in LIBRARIES
    )
    used = ours.seed(seed)
    assert_identical(used[1:], theirs.seed(seed)[1:])
    if isinstance(seed, int) or seed[0] is not None:
        for _ in range(5):
            assert_identical(ours.sample(), theirs.sample())


def test_the_returned_seeds_repeat_the_stream() -> None:
    space = OneOf([Discrete(99), Tuple([Box(0, 1)])])
    for seed in (None, 3):
        used = space.seed(seed)
        first = [space.sample() for _ in range(5)]
        assert_identical(space.seed(used), used)
        assert_identical([space.sample() for _ in range(5)], first)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        ((1, 2), ValueError, "^seed: expected 3 seeds .of the index and of each member., found 2"),
        ("xyz", TypeError, "^seed: expected None, an int, or a list or tuple of 3 seeds"),
        ((1, 2, [3, 4]), ValueError, r"^seed\[2\]: expected 1 seeds"),
    ],
)
def test_a_wrong_seed_is_refused_with_its_path(seed: Any, error: Any, message: str) -> None:
    for library in LIBRARIES:
        space = library.OneOf([library.Discrete(3), library.Tuple([library.Discrete(3)])])
        with pytest.raises(error, match=message if library is spaces else None):
            space.seed(seed)


def test_only_the_mask_of_the_drawn_member_is_used() -> None:
    space = OneOf([Discrete(3), Discrete(3)], seed=3)
    mask = (np.array([0, 0, 1], np.int8), np.array([1, 0, 0], np.int8))
    drawn = {tuple(map(int, space.sample(mask=mask))) for _ in range(30)}
    assert drawn == {(0, 2), (1, 0)}


@pytest.mark.parametrize("word", ["mask", "probability"])
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ([None], "^{word}: expected a tuple of 1 entries, found"),
        ((None, None), "^{word}: expected a tuple of 1 entries, found 2"),
        (([1, 0],), r"^{word}\[0\]"),
    ],
)
def test_a_wrong_mask_is_refused_with_its_path(word: str, limit: Any, message: str) -> None:
    for library in LIBRARIES:
        pattern = message.format(word=word) if library is spaces else None
        with pytest.raises(AssertionError, match=pattern):
            library.OneOf([library.Discrete(2)]).sample(**{word: limit})


@pytest.mark.parametrize(
    "value",
    [
        (0, 1),
        (np.int64(0), 1),
        (True, 1),
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
    ],
)
def test_membership_is_that_of_gymnasium(value: Any) -> None:
    ours, theirs = (
        library.OneOf([library.Discrete(2), library.Discrete(4)]) for library in LIBRARIES
    )
    assert ours.contains(value) is bool(theirs.contains(value))


@pytest.mark.parametrize(
    "member",
    [
        Tuple([Discrete(9), Box(0, 1)]),
        Tuple([Discrete(9)]),
        Tuple([]),
        Dict(a=Discrete(9), b=Box(0, 1)),
        Dict({}),
        Sequence(Dict(a=Discrete(9)), stack=True),
        Sequence(Tuple([Discrete(9), Discrete(9)]), stack=True),
        Sequence(Sequence(Tuple([Discrete(9)])), stack=True),
        OneOf([Tuple([Discrete(9), Discrete(2)])]),
    ],
    ids=repr,
)
def test_a_member_that_writes_columns_survives_json(member: Any) -> None:
    space = OneOf([Discrete(3), member], seed=1)
    values = [space.sample() for _ in range(6)]
    text = json.dumps(space.to_jsonable(values))
    assert_identical(space.from_jsonable(json.loads(text)), values)


def test_equality_compares_members_in_order() -> None:
    assert OneOf([Discrete(3), Discrete(2)]) == OneOf([Discrete(3), Discrete(2)], seed=3)
    assert OneOf([Discrete(3)]) != OneOf([Discrete(2)])
    assert OneOf([Discrete(3)]) != Tuple([Discrete(3)])
