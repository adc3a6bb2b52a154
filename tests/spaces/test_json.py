"""JSON: every value survives the trip; the text is Gymnasium's wherever that works."""

from __future__ import annotations

import json
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest
from hypothesis import given

from tests.compare import assert_identical, without_0d_arrays
from tests.strategies import Recipe, recipes, seeds
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)


def trip(space: Space[Any], values: list[Any]) -> list[Any]:
    """The values after a trip through JSON text."""
    return space.from_jsonable(json.loads(json.dumps(space.to_jsonable(iter(values)))))


NO_ARRAYS = {"Graph", "OneOf", "Sequence", "Text"}


def batches_without_arrays(recipe: Recipe) -> bool:
    """Whether it writes batches that have no array form, of which Gymnasium may lose elements."""
    batches = recipe.name == "Graph" or recipe.kwargs.get("stack", False)
    return (batches and any(member.kinds & NO_ARRAYS for member in recipe.members)) or any(
        batches_without_arrays(member) for member in recipe.members
    )


@given(recipe=recipes(), seed=seeds)
def test_to_jsonable_is_gymnasiums_where_that_comes_back(recipe: Recipe, seed: int) -> None:
    ours, theirs = recipe.build(seed=seed), recipe.build(gymnasium.spaces, seed)
    values = [ours.sample() for _ in range(3)]
    for n in (0, 1, 3):
        assert_identical(*map(without_0d_arrays, (trip(ours, values[:n]), values[:n])))
    if batches_without_arrays(recipe):
        return
    try:
        text = json.dumps(theirs.to_jsonable([theirs.sample() for _ in range(3)]))
        back = theirs.from_jsonable(json.loads(text))
        assert_identical(*map(without_0d_arrays, (back, values)))
    except Exception:
        return  # Gymnasium loses or changes something on the way, or cannot even sample
    assert json.dumps(ours.to_jsonable(values)) == text


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_from_jsonable_gives_special_numbers_back(dtype: Any) -> None:
    special = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny, 0.1], dtype)
    box = Box(-np.inf, np.inf, (7,), dtype)
    for space, value in (
        (box, special),
        (Dict(a=box), {"a": special}),
        (Tuple([box]), (special,)),
        (OneOf([Discrete(2), box]), (np.int64(1), special)),
        (Sequence(box), (special, special)),
        (Sequence(box, stack=True), np.stack([special, special])),
        (Graph(box, None), GraphInstance(special[None], None, None)),
    ):
        assert_identical(trip(space, [value]), [value])


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_from_jsonable_gives_integers_beyond_float64_back(dtype: Any) -> None:
    info = np.iinfo(dtype)
    value = np.array([info.min, info.max, info.max - 1], dtype)
    space = Sequence(Box(int(info.min), int(info.max), (3,), dtype), stack=True)
    assert_identical(trip(space, [value[None]]), [value[None]])


#: What random spaces rarely are.
MEMBERS: list[Space[Any]] = [
    Box(0, 1, (0, 3)),
    Tuple([]),
    Dict({}),
    Tuple([Text(2), Tuple([]), Discrete(2, dtype=np.int8)]),
    OneOf([Text(2), Tuple([MultiDiscrete([3, 4], dtype=np.uint8)])]),
    Sequence(Text(2), stack=True),
    Sequence(Sequence(Tuple([MultiBinary([2, 2])])), stack=True),
    Graph(Discrete(2), Discrete(2)),
]


@pytest.mark.parametrize("member", MEMBERS, ids=repr)
def test_from_jsonable_gives_every_nesting_back(member: Any) -> None:
    sequences = Sequence(member, seed=3), Sequence(member, stack=True, seed=3)
    nested = (
        Tuple([member], seed=3),
        OneOf([Discrete(2), member], seed=3),
        Sequence(Tuple([member, Discrete(2)]), stack=True, seed=3),
        Graph(Tuple([member, Discrete(2)]), member, seed=3),
    )
    cases: list[Any] = [(space, [space.sample() for _ in range(3)]) for space in nested]
    cases += [(space, [space.sample(mask=(n, None)) for n in (0, 2)]) for space in sequences]
    for space, values in cases:
        assert all(space.contains(value) for value in values)
        assert_identical(trip(space, values), values)


def test_from_jsonable_gives_a_graph_with_no_edges_left_back() -> None:
    space = Graph(Discrete(3), Box(0, 1, (2,)))
    value = GraphInstance(np.array([1]), np.empty((0, 2), np.float32), np.empty((0, 2), np.int32))
    assert_identical(trip(space, [value]), [value])
