"""Tuple: construction, the sequence protocol, seeds, masks, membership."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces import spaces
from vecspaces.spaces import Box, Discrete, Tuple

LIBRARIES = [spaces, gymnasium.spaces]


def test_any_iterable_of_spaces_will_do() -> None:
    members = [Discrete(2), Box(0, 1)]
    assert Tuple(members) == Tuple(iter(members)) == Tuple(tuple(members))
    assert Tuple(members).spaces == tuple(members)


@pytest.mark.parametrize("arguments", [(3,), ([3],), ([Discrete(2), "x"],), (None,)])
def test_what_is_no_iterable_of_spaces_is_refused(arguments: Any) -> None:
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            library.Tuple(*arguments)


def test_a_member_that_is_no_space_is_named() -> None:
    with pytest.raises(TypeError, match=r"^spaces\[1\]: expected a Space, found 'x' of type str$"):
        Tuple([Discrete(2), "x"])


def test_it_is_a_sequence_of_spaces() -> None:
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


def test_an_int_seed_reaches_every_member_as_in_gymnasium() -> None:
    ours, theirs = (
        library.Tuple([library.Discrete(99), library.Tuple([library.Discrete(99)])])
        for library in LIBRARIES
    )
    assert_identical(ours.seed(7), theirs.seed(7))
    assert_identical(ours.sample(), theirs.sample())


@pytest.mark.parametrize("make", [tuple, list])
def test_a_sequence_of_seeds_has_one_for_each_member(make: Any) -> None:
    ours, theirs = (
        library.Tuple([library.Discrete(99), library.Tuple([library.Discrete(99)])])
        for library in LIBRARIES
    )
    assert_identical(ours.seed(make([3, [4]])), theirs.seed(make([3, [4]])))
    assert_identical(ours.sample(), theirs.sample())


def test_the_returned_seeds_repeat_the_stream() -> None:
    space = Tuple([Discrete(99), Tuple([Box(0, 1)])])
    for seed in (None, 3):
        used = space.seed(seed)
        first = space.sample()
        assert_identical(space.seed(used), used)
        assert_identical(space.sample(), first)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        ([1], ValueError, "^seed: expected 2 seeds .one for each member., found 1"),
        ("xy", TypeError, "^seed: expected None, an int, or a list or tuple of 2 seeds"),
        (np.int64(1), TypeError, "^seed: expected None, an int"),
        ({0: 1}, TypeError, "^seed: expected None, an int"),
        ([1, [2, 3]], ValueError, r"^seed\[1\]: expected 1 seeds"),
        ([1, [-2]], Exception, r"^seed\[1\]\[0\]: expected an int that is not negative"),
    ],
)
def test_a_wrong_seed_is_refused_with_its_path(seed: Any, error: Any, message: str) -> None:
    for library in LIBRARIES:
        space = library.Tuple([library.Discrete(3), library.Tuple([library.Discrete(3)])])
        with pytest.raises(error, match=message if library is spaces else None):
            space.seed(seed)


@pytest.mark.parametrize("word", ["mask", "probability"])
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ([None, None], "^{word}: expected a tuple of 2 entries, found "),
        ((None,), "^{word}: expected a tuple of 2 entries, found 1"),
        ((None, (None, [1, 0])), r"^{word}\[1\]\[1\]"),
    ],
)
def test_a_wrong_mask_is_refused_with_its_path(word: str, limit: Any, message: str) -> None:
    for library in LIBRARIES:
        inner = library.Tuple([library.Box(0, 1), library.Discrete(2)])
        space = library.Tuple([library.Discrete(2), inner])
        pattern = message.format(word=word) if library is spaces else None
        with pytest.raises(AssertionError, match=pattern):
            space.sample(**{word: limit})


def test_mask_and_probability_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="at most one"):
        Tuple([Discrete(2)]).sample(mask=(None,), probability=(None,))


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ((1, 2), True),
        ([1, 2], True),
        (np.array([1, 2]), True),
        ((1, 3), False),
        ((1,), False),
        ((1, 2, 2), False),
        (np.array(1), False),
        (np.array([1.0, 2.0]), False),
        ({0: 1, 1: 2}, False),
        ("12", False),
        (None, False),
    ],
)
def test_tuples_lists_and_arrays_of_members_are_contained(value: Any, answer: bool) -> None:
    assert Tuple([Discrete(3), Discrete(3)]).contains(value) is answer


def test_a_space_without_members_has_one_value() -> None:
    space = Tuple((), seed=1)
    assert space.sample() == () and () in space and (1,) not in space


def test_equality_compares_members_in_order() -> None:
    one = Tuple([Discrete(3), Discrete(2)], seed=1)
    assert one == Tuple([Discrete(3), Discrete(2)], seed=2)
    assert one != Tuple([Discrete(2), Discrete(3)])
    assert one != (Discrete(3), Discrete(2))


def test_it_cannot_be_hashed_as_in_gymnasium() -> None:
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            hash(library.Tuple(()))
