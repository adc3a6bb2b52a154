"""Dict: construction and its order, the mapping protocol, seeds, masks, membership."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import ItemsView, Mapping, ValuesView
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Echo
from tests.spaces.contract import LIBRARIES, SpaceContract
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, Tuple, difference, flatten, unflatten
from vecspaces.spaces.batching import batch_space
from vecspaces.vector import SyncVectorEnv, utils


class TestDict(SpaceContract):
    seeds = (7, {"a": 3, "b": {"c": 4}}, {"b": 3, "a": 4})
    wrong_seeds = (
        {"a": 1},
        "x",
        np.int64(3),
        -1,
        {"a": 1, "b": {"c": "x"}},
        {"a": 1, "b": {"d": 1}},
    )
    limits = {
        "mask": (
            {"a": None, "b": None},
            {"a": np.array([0, 2], np.int8), "b": {"c": np.array([0, 1], np.int8)}},
        ),
        "probability": ({"a": np.array([0.5, 0.1]), "b": {"c": None}},),
    }
    wrong_limits = {
        word: ((1, 2), {"a": None}, {"a": None, "b": {"c": [1, 0]}})
        for word in ("mask", "probability")
    }
    refused = (
        lambda lib: lib.Dict({"a": 3}),
        lambda lib: lib.Dict(3),
        lambda lib: lib.Dict("ab"),
        lambda lib: lib.Dict([3]),
        lambda lib: lib.Dict({"a": lib.Discrete(3)}, a=lib.Discrete(3)),
    )
    inside = ({"b": {"c": 1}, "a": np.array([0, 1], np.int8)}, OrderedDict(a=[0, 1], b={"c": 0}))
    outside = (
        {"a": [0, 1]},
        {"a": [0, 1], "b": {"c": 1}, "d": 2},
        {"a": [0, 2], "b": {"c": 1}},
        [[0, 1], {"c": 1}],
        None,
    )
    equal = (
        Dict([("b", Dict(c=Discrete(2))), ("a", MultiBinary(2))], sort_keys=False),
        Dict(OrderedDict(b=Dict(c=Discrete(2)), a=MultiBinary(2))),
    )
    unequal = ({"a": MultiBinary(2), "b": Dict(c=Discrete(2))},)

    def make(self, lib: Any) -> Any:
        return lib.Dict(a=lib.MultiBinary(2), b=lib.Dict(c=lib.Discrete(2)))


@pytest.mark.parametrize(
    "arguments",
    [
        lambda lib: ({"b": lib.Discrete(2), "a": lib.Discrete(3)},),
        lambda lib: (OrderedDict(b=lib.Discrete(2), a=lib.Discrete(3)),),
        lambda lib: ([("b", lib.Discrete(2)), ("a", lib.Discrete(3))],),
        lambda lib: ({2: lib.Discrete(2), "a": lib.Discrete(3), 1: lib.Discrete(4)},),
        lambda lib: (lib.Dict(b=lib.Discrete(2), a=lib.Discrete(3)),),
        lambda lib: ({},),
        lambda lib: (),
        lambda lib: (None,),
    ],
)
def test_dict_keys_stand_in_gymnasiums_order(arguments: Any) -> None:
    for sort_keys in (True, False):
        ours, theirs = (
            library.Dict(*arguments(library), sort_keys=sort_keys, z=library.Discrete(5))
            for library in LIBRARIES
        )
        assert list(ours) == list(theirs)
        assert repr(ours) == repr(theirs)
        assert ours.sort_keys is theirs.sort_keys
        assert_identical(ours.seed(3), theirs.seed(3))
        assert_identical(ours.sample(), theirs.sample())


def test_dict_is_a_mapping_of_spaces() -> None:
    members = {"a": Discrete(3), "b": Box(0, 1)}
    space = Dict(members, sort_keys=False)
    del members["a"]  # a copy
    assert isinstance(space, Mapping)
    assert space["a"] == Discrete(3)
    assert space.get("c") is None
    assert list(space.keys()) == list(space) == ["a", "b"]
    assert space.keys() == {"a", "b"}
    assert isinstance(space.values(), ValuesView) and list(space.values())[1] == Box(0, 1)
    assert isinstance(space.items(), ItemsView) and dict(space.items()) == space.spaces
    assert len(space) == 2
    with pytest.raises(KeyError):
        space["c"]


def test_dict_contains_values_and_takes_members() -> None:
    space = Dict(a=Discrete(3))
    assert "a" not in space and {"a": 3} not in space
    space["a"] = Discrete(4)
    assert {"a": 3} in space
    with pytest.raises(TypeError, match=r"spaces\['b'\]: expected a Space"):
        space["b"] = 3
    assert list(space) == ["a"]
    assert Dict[Any] is not None  # for type checkers


def test_dict_generator_leaves_the_seeds_of_members_alone() -> None:
    space = Dict(a=Discrete(99), b=Tuple([Discrete(99)]))
    space.seed({"a": 1, "b": [2]})
    first = space.sample()
    space.seed({"a": 1, "b": [2]})
    batch_space(space, 3)
    assert_identical(space.sample(), first)


def test_dict_work_is_linear_in_the_number_of_keys() -> None:
    began = time.process_time()  # which other programs do not change
    space, other = (Dict({f"k{key}": Box(-1, 1, (2,)) for key in range(5_000)}) for _ in range(2))
    assert space == other and len(repr(space)) > 5_000 and difference(space, other) is None
    space.seed(1)
    value = space.sample()
    assert value in space
    batch = utils.concatenate(space, [value] * 2, utils.create_empty_array(space, 2))
    assert len(list(utils.iterate(utils.batch_space(space, 2), batch))) == 2
    assert unflatten(space, flatten(space, value)).keys() == value.keys()
    info_space = Dict({f"i{key}": Discrete(3) for key in range(5_000)})
    step = (value, 0.0, False, False, {"i7": 2})
    env_fn = partial(Echo, space, [(value, {})], [step])
    with SyncVectorEnv([env_fn] * 2, info_space=info_space, buffers=2) as envs:
        envs.reset()
        assert envs.step([0, 0])[-1]["i7"].tolist() == [2, 2]
    assert time.process_time() - began < 30  # 5 s; a minute and more for its square
