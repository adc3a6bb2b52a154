"""concatenate, iterate and create_empty_array: round trips for every space, Gymnasium's results."""

from __future__ import annotations

import pickle
import weakref
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import gymnasium
import gymnasium.vector.utils as theirs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import assert_identical, without_0d_arrays
from tests.strategies import Recipe, recipes, seeds
from vecspaces.layout.describe import _remembered
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, Space, Text, Tuple
from vecspaces.vector.utils import batch_space, concatenate, create_empty_array, iterate


class Colour(Space[str]):
    """A space that nobody described."""

    def __repr__(self) -> str:
        return "Colour()"  # part of a test's id, which is the same in every process


@pytest.mark.filterwarnings("ignore")
@given(recipes(), seeds, st.integers(0, 4), st.sampled_from([np.zeros, np.ones]))
def test_concatenate_is_gymnasiums_and_iterate_gives_items_back(
    recipe: Recipe, seed: int, n: int, fn: Any
) -> None:
    space, gym_space = recipe.build(seed=seed), recipe.build(gymnasium.spaces)
    assert_identical(create_empty_array(space, n, fn), theirs.create_empty_array(gym_space, n, fn))
    items = [space.sample() for _ in range(n)]
    batch = concatenate(space, items, create_empty_array(space, n, fn=np.empty))
    assert_identical(concatenate(space, iter(items), None), batch)
    if n:
        again = list(iterate(batch_space(space, n), batch))
        assert_identical(*map(without_0d_arrays, (again, items)))
        out = theirs.create_empty_array(gym_space, n)
        assert_identical(batch, theirs.concatenate(gym_space, gymnasium_graphs(items), out))


def gymnasium_graphs(value: Any) -> Any:
    """Turn our graphs into Gymnasium's."""
    if type(value).__name__ == "GraphInstance":
        return gymnasium.spaces.GraphInstance(*value)
    if isinstance(value, dict):
        return {key: gymnasium_graphs(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(gymnasium_graphs, value))
    return value


def test_concatenate_of_an_unknown_space_is_a_tuple() -> None:
    assert create_empty_array(Colour(), 2) is None
    assert concatenate(Colour(), ["red", "blue"], None) == ("red", "blue")
    space = Dict(colour=Colour(), number=Discrete(3))
    batch = concatenate(space, [{"colour": "red", "number": 1}], create_empty_array(space, 1))
    assert_identical(batch, {"colour": ("red",), "number": np.array([1])})
    assert_identical(
        list(iterate(batch_space(space, 1), batch)),
        [{"colour": "red", "number": batch["number"][0]}],
    )


def test_concatenate_writes_to_out_and_returns_it() -> None:
    space = Dict(a=Box(0, 1, (2,)), b=Tuple((Discrete(3), MultiBinary(2))))
    out = create_empty_array(space, 3)
    arrays = out["a"], *out["b"]
    items = [space.sample() for _ in range(3)]
    pair = out["b"]
    batch = concatenate(space, items, out)
    assert batch is out and batch["b"] is pair
    for array, now in zip(arrays, (batch["a"], *batch["b"]), strict=True):
        assert array is now
    assert_identical(batch["a"], np.stack([item["a"] for item in items]))


def test_concatenate_makes_anew_only_what_cannot_be_written_to() -> None:
    space = Tuple((Box(0, 1, (2,)), Text(3)))
    out = create_empty_array(space, 1)
    batch = concatenate(space, [(np.ones(2, np.float32), "abc")], out)
    assert batch[0] is out[0]
    assert batch[1] == ("abc",)
    frozen = MappingProxyType({"x": np.zeros((1, 2), np.float32)})
    batch = concatenate(Dict(x=Box(0, 1, (2,))), [{"x": [1, 1]}], frozen)
    assert batch["x"] is frozen["x"]


@pytest.mark.parametrize("shape", [(), (4,), (64, 64)], ids=str)
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_concatenate_takes_out_of_any_order_in_memory(shape: tuple[int, ...], order: str) -> None:
    out = np.zeros((2, *shape), np.float32, order="F" if order == "F" else "C")
    if order == "strided":
        out = np.zeros((4, *shape), np.float32)[::2]
    items = [np.full(shape, value, np.float32) for value in (1, 2)]
    assert concatenate(Box(0, 9, shape), items, out) is out
    assert_identical(out.copy("C"), np.stack(items))


def test_concatenate_casts_to_the_dtype_of_out() -> None:
    out = np.zeros((2, 2), np.float64)
    assert concatenate(Box(0, 1, (2,)), [[0, 1], [1, 0]], out) is out
    with pytest.raises(ValueError, match=r"items\[0\]: expected int8 array of shape"):
        concatenate(Box(0, 1, (2,)), [np.zeros(2, np.float32)] * 2, np.zeros((2, 2), np.int8))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_concatenate_rounds_integers_to_floats_once(dtype: Any) -> None:
    """By way of float64, 2**54 + 2**30 + 1 would lose the bit that decides how float32 rounds."""
    items = [2**54 + 2**30 + 1, -(2**54) - 2**30 - 1, 2**53 + 1, 3]
    if dtype is np.float16:
        items = [2049, 2051, -2049, 3]
    expected = np.array(items).astype(dtype)
    for values in (items, [*items[:3], 3.0]):
        assert_identical(concatenate(Box(-np.inf, np.inf, (), dtype), values, None), expected)


def test_concatenate_and_iterate_items_without_data() -> None:
    space = Dict(a=Tuple(()), b=Dict({}))
    item = {"a": (), "b": {}}
    assert concatenate(space, [item] * 2, create_empty_array(space, 2)) == item
    assert list(iterate(Tuple(()), ())) == []
    assert create_empty_array(Text(3, min_length=1, charset=""), 2) == ("", "")
    space = Dict(a=Tuple(()), b=Discrete(3))
    items = [{"a": (), "b": value} for value in (0, 2)]
    batch = concatenate(space, items, None)
    assert list(iterate(batch_space(space, 2), OrderedDict(batch))) == items


def test_create_empty_array_sees_a_dict_change() -> None:
    space = Dict(a=Discrete(3), b=Dict(c=Discrete(3)))
    concatenate(space, [{"a": 1, "b": {"c": 1}}], None)
    space["b"]["c"] = Box(0, 1, (2,))
    batch = concatenate(space, [{"a": 1, "b": {"c": [0, 1]}}], None)
    assert_identical(batch["b"]["c"], np.array([[0, 1]], np.float32))
    space["d"] = Discrete(2)
    assert list(create_empty_array(space, 1)) == ["a", "b", "d"]
    space.spaces["e"] = space.spaces.pop("d")
    assert list(create_empty_array(space, 1)) == ["a", "b", "e"]
    inner = space["b"] = Dict(c=Box(0, 1, (2,)))  # equal to the one before, until it changes
    assert list(create_empty_array(space, 1)["b"]) == ["c"]
    inner["f"] = Discrete(2)
    assert list(create_empty_array(space, 1)["b"]) == ["c", "f"]


def test_create_empty_array_sees_assigned_members() -> None:
    for space in (Dict(a=Discrete(3)), Tuple((Discrete(3),)), Dict(a=Tuple((Discrete(3),)))):
        create_empty_array(space, 1)
        holder: Any = space["a"] if isinstance(space, Dict) and "Tuple" in repr(space) else space
        holder.spaces = {"z": Text(3)} if isinstance(holder, Dict) else (Text(3), Discrete(2))
        expected = create_empty_array(pickle.loads(pickle.dumps(space)), 1)
        assert_identical(create_empty_array(space, 1), expected)


def test_create_empty_array_keeps_no_space() -> None:
    space = Dict(a=Tuple((Discrete(3), Dict(b=Text(3)))))
    create_empty_array(space, 1)
    reference, key = weakref.ref(space), id(space)
    assert key in _remembered
    del space
    assert reference() is None and key not in _remembered


def test_iterate_copies_nothing() -> None:
    space = Dict(a=Box(0, 1, (3, 2)), b=Tuple((MultiBinary([3, 2]),)))
    batch = create_empty_array(space, 1)
    batch = {"a": batch["a"][0], "b": (batch["b"][0][0],)}
    for item in iterate(space, batch):
        assert np.shares_memory(item["a"], batch["a"])
        assert np.shares_memory(item["b"][0], batch["b"][0])
