"""Parity: the same arguments and the same seed give what Gymnasium gives, bit for bit."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.spaces.contract import LIBRARIES, outcome
from tests.strategies import FUNDAMENTAL, Recipe, fundamentals, junk, masked_recipes, recipes, seeds
from vecspaces import spaces

DRAWS = 5
i8 = np.int8


def pair(recipe: Recipe, seed: int) -> tuple[Any, Any]:
    """Our space and Gymnasium's."""
    return recipe.build(seed=seed), recipe.build(gymnasium.spaces, seed)


def compare_samples(recipe: Recipe, seed: int, **limit: Any) -> None:
    """Compare the first samples; where Gymnasium raises, ours still has to lie in its space."""
    ours, theirs = pair(recipe, seed)
    for _ in range(DRAWS):
        sample = ours.sample(**limit)
        assert ours.contains(sample)
        if isinstance(sample, np.ndarray):
            assert sample.flags.writeable and sample.flags.c_contiguous
        try:
            expected = theirs.sample(**limit)
        except ValueError:  # a stacked Sequence of length 0: "need at least one array to stack"
            return
        assert_identical(sample, expected)
    if recipe.name not in ("Dict", "Tuple"):  # whose own generator is drawn from by seed() alone
        states = (space.np_random.bit_generator.state for space in (ours, theirs))
        assert next(states) == next(states)


@given(recipe=fundamentals() | recipes(), seed=seeds)
def test_samples(recipe: Recipe, seed: int) -> None:
    compare_samples(recipe, seed)


@pytest.mark.parametrize("word", ["mask", "probability"])
@pytest.mark.parametrize("nested", [False, True])
def test_samples_with_masks_and_probabilities(word: str, nested: bool) -> None:
    source = recipes() if nested else fundamentals(tuple(k for k in FUNDAMENTAL if k != "Box"))

    @given(drawn=masked_recipes(word, source), seed=seeds)
    def compare(drawn: tuple[Recipe, Any], seed: int) -> None:
        recipe, limit = drawn
        compare_samples(recipe, seed, **{word: limit})

    compare()


@given(recipe=recipes(), seed=seeds)
def test_repr_attributes_and_flags(recipe: Recipe, seed: int) -> None:
    ours, theirs = pair(recipe, seed)
    assert repr(ours) == repr(theirs)
    assert str(ours) == str(theirs)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert ours.is_np_flattenable is theirs.is_np_flattenable
    assert public(theirs) <= public(ours)
    assert outcome(lambda: hash(ours)) is outcome(lambda: hash(theirs)) is TypeError
    result, other = (outcome(lambda: lib.sample(mask=1, probability=1)) for lib in (ours, theirs))  # noqa: B023
    assert result == other
    if recipe.name in FUNDAMENTAL:
        for name, value in vars(theirs).items():
            if name[0] != "_" and not name.endswith("_repr"):
                assert_identical(getattr(ours, name), value)


@given(recipe=recipes(max_leaves=3), other=recipes(max_leaves=3))
def test_equality_and_difference(recipe: Recipe, other: Recipe) -> None:
    for right in (other, recipe):
        left, space = recipe.build(), right.build()
        ours = left == space
        assert ours is (recipe.build(gymnasium.spaces) == right.build(gymnasium.spaces))
        assert (spaces.difference(left, space) is None) is ours


@given(
    recipe=fundamentals() | recipes(),
    other=fundamentals(),
    value=st.one_of(st.none(), junk()),
    seed=seeds,
)
def test_contains_and_explain(recipe: Recipe, other: Recipe, value: Any, seed: int) -> None:
    """For samples of other spaces, and any objects; where Gymnasium raises, the answer is False."""
    if value is None:
        value = other.build(seed=seed).sample()
    ours, theirs = pair(recipe, seed)
    expected = outcome(lambda: bool(theirs.contains(value)))
    contained = ours.contains(value)
    answer = ours.explain(value)
    assert (answer is None) is contained
    assert answer is None or ("expected " in answer and "found " in answer)
    if recipe.name not in FUNDAMENTAL:  # whose members may contain what Gymnasium cannot test
        assert contained or expected is not True
    elif not _wraps(ours, value):
        assert contained is (expected is True)


def _wraps(space: Any, value: Any) -> bool:
    """Whether Gymnasium casts a NumPy scalar to an integer Box, and so changes its value."""
    if not isinstance(space, spaces.Box) or space.dtype.kind not in "iu":
        return False
    return not isinstance(value, np.ndarray)


@given(recipe=recipes(), seed=seeds)
def test_copies_carry_the_state_of_the_generator(recipe: Recipe, seed: int) -> None:
    ours, theirs = pair(recipe, seed)
    ours.sample(), theirs.sample()
    twins = copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours
    expected = [theirs.sample() for _ in range(3)]
    for twin in twins:
        assert twin == ours
        assert_identical([twin.sample() for _ in range(3)], expected)
    assert copy.copy(ours).np_random is ours.np_random


def test_a_generator_as_seed_is_drawn_from_as_it_is() -> None:
    for name, args in (("Box", (0, 1)), ("Discrete", (9,)), ("Text", (5,)), ("Dict", ())):
        samples = []
        for library in (spaces, gymnasium.spaces):
            generator = np.random.default_rng(5)
            space = getattr(library, name)(*args, seed=generator)
            assert space.np_random is generator
            samples.append([space.sample() for _ in range(5)])
        assert_identical(*samples)


CONSTRUCTIONS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Box": [
        ((np.nan, 1), {}),
        ((0, np.array([np.nan])), {}),
        (([0], [1]), {}),
        (([0], [1], (1,)), {}),
        ((None, None), {}),
        ((False, True), {}),
        ((False, True, (1,)), {}),
        ((np.array([1j]), 1), {}),
        ((np.array(["a"]), 1), {}),
        ((np.array([1], dtype=object), 1), {}),
        ((0, 1), {"dtype": None}),
        ((0, 1), {"dtype": str}),
        ((0, 1), {"dtype": complex}),
        ((0, 1), {"dtype": "no such dtype"}),
        ((0, 1, 3), {}),
        ((0, 1, (3.0,)), {}),
        ((0, 1, "ab"), {}),
        ((0, 1, (-1,)), {}),
        ((0, 1, (True,)), {}),
        ((0, 1, (np.int8(2),)), {}),
        ((0, 1, [2, 3]), {}),
        ((np.zeros(2), np.ones(3)), {}),
        ((np.zeros((2, 3)), 1), {}),
        ((0, np.ones((2, 3))), {}),
        *(
            ((low, high), {"dtype": dtype})
            for low, high in ((0, np.inf), (-np.inf, 1), (np.array([0, -np.inf]), 1))
            for dtype in (np.float32, np.int32)
        ),
        ((np.zeros(2), 1, (3,)), {}),
        ((2, 1), {}),
        ((np.array([0, 2]), 1), {}),
        ((-1, 1), {"dtype": bool}),
        ((0, 2), {"dtype": bool}),
        ((-1, 1), {"dtype": np.uint8}),
        ((0, 256), {"dtype": np.uint8}),
        ((0, -1), {"dtype": np.uint8}),
        ((300, np.inf), {"dtype": i8}),
        ((-np.inf, -300), {"dtype": i8}),
        ((-np.inf, 1), {"dtype": np.uint8}),
        ((0, np.inf), {"dtype": np.uint8}),
        ((0, np.inf), {"dtype": bool}),
        ((np.array([-np.inf]), 1), {"dtype": np.uint8}),
        ((np.array([0]), np.array([256])), {"dtype": np.uint8}),
        ((0, 1e39), {}),
        ((np.float16(0), np.int8(5)), {}),
        ((np.array(0.0), np.array(1.0)), {}),
        ((0, 1), {"seed": "a"}),
        ((0, 1), {"seed": -1}),
        ((0, 1), {"seed": 1.0}),
        ((0, 1), {"seed": np.int64(1)}),
        ((0, 1), {"seed": [1, 2]}),
        ((0,), {}),
        ((0, 1), {"unknown": 1}),
    ],
    "Discrete": [
        *(((n,), {}) for n in (0, -1, 1.0, "a", None, True, np.int8(3), np.array(3), 2**63, 2**64)),
        *(((n,), {"dtype": np.uint8}) for n in (255, 256, 2**64, np.int64(3))),
        *(((3,), {"start": start}) for start in (1.0, None, True, 2**63, -(2**63), np.int8(-3))),
        *(((3,), {"start": start, "dtype": i8}) for start in (125, 300, -129, np.int64(5))),
        *(((3,), {"dtype": dtype}) for dtype in (None, float, bool, "x", "int32", ">i4")),
        ((), {}),
    ],
    "MultiBinary": [
        *(((n,), {}) for n in (0, -1, True, 5.0, "ab", "12", None, [2, 3], (2,), [], [0], (2, 0))),
        *(((n,), {}) for n in (np.array([2, 3]), np.array(3), np.int64(3), [2.5], ["a"], {3})),
    ],
    "MultiDiscrete": [
        *(((n,), {}) for n in ([2, 3], [[1, 2], [3, 4]], 5, [], [0], [-1], [2.5], "ab", None)),
        *(((n,), {"dtype": i8}) for n in ([300], [[1], [2, 3]], (2, 3), [True, 2])),
        *(((n,), {"dtype": dtype}) for n in ([2],) for dtype in (None, float, bool, "x", "int32")),
        *((([3, 3],), {"start": start}) for start in ([1, 2], [1], [1.5, 2], 5, ["a", 1], None)),
    ],
    "Text": [
        *(((n,), {}) for n in (5, 5.0, "a", True, -1, 0, None, np.int8(3), np.array(2))),
        *(((2,), {"min_length": n}) for n in (0, 2, 3, -1, 1.0, None, np.uint8(1))),
        *(((2,), {"charset": c}) for c in ("abca", ["b", "a"], ["ab"], [1], [(1,)], "", 5, None)),
        *(((2,), {"charset": c}) for c in ({"é", "b"}, [""], [[1]], frozenset("ba"), {1, "a"})),
        ((2, 1), {}),
    ],
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_constructor_accepts_and_refuses_what_gymnasiums_does(name: str) -> None:
    for args, kwargs in CONSTRUCTIONS[name]:
        ours, theirs = (
            outcome(lambda: getattr(library, name)(*copy.deepcopy(args), **kwargs))  # noqa: B023
            for library in LIBRARIES
        )
        if ours is OverflowError and np.lib.NumpyVersion(np.__version__) < "2.0.0":
            continue  # NumPy 1.26 wraps integers around, and Gymnasium with it
        if isinstance(theirs, type):
            assert isinstance(ours, type), (args, kwargs, ours, theirs)
            assert issubclass(ours, theirs), (args, kwargs, ours, theirs)
        else:
            assert repr(ours) == repr(theirs), (args, kwargs)
            for manner in ("both", "below", "above") if isinstance(ours, spaces.Box) else ():
                assert ours.is_bounded(manner) is theirs.is_bounded(manner), (args, kwargs)


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_every_public_name_of_gymnasium_spaces_exists() -> None:
    assert [name for name in public(gymnasium.spaces) if not hasattr(spaces, name)] == []
    assert set(gymnasium.spaces.__all__) <= set(spaces.__all__)
    for name in ("flatdim", "flatten", "flatten_space", "unflatten"):
        assert getattr(spaces, name) is getattr(spaces.utils, name)
        assert hasattr(getattr(spaces, name), "register")
