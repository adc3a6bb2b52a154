"""Dict: construction and its order, the mapping protocol, seeds, masks, membership."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView, Mapping, ValuesView
from typing import Any

import gymnasium.spaces
import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces import spaces
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from vecspaces.spaces.batching import batch_space

LIBRARIES = [spaces, gymnasium.spaces]


@pytest.mark.parametrize("sort_keys", [True, False])
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
def test_keys_stand_in_gymnasiums_order(arguments: Any, sort_keys: bool) -> None:
    ours, theirs = (
        library.Dict(*arguments(library), sort_keys=sort_keys, z=library.Discrete(5))
        for library in LIBRARIES
    )
    assert list(ours) == list(theirs)
    assert repr(ours) == repr(theirs)
    assert ours.sort_keys is theirs.sort_keys
    assert_identical(ours.seed(3), theirs.seed(3))
    assert_identical(ours.sample(), theirs.sample())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({"a": 3},), TypeError, r"^spaces\['a'\]: expected a Space, found 3 of type int$"),
        ((3,), TypeError, "^spaces: expected a mapping or a sequence of pairs"),
        (("ab",), ValueError, r"^spaces: expected pairs \(key, space\), found 'ab' of type str"),
        (([3],), TypeError, r"^spaces: expected pairs \(key, space\), found \[3\] of type list"),
    ],
)
def test_what_is_no_dict_of_spaces_is_refused(arguments: Any, error: Any, message: str) -> None:
    for library in LIBRARIES:
        with pytest.raises(error):
            library.Dict(*arguments)
    with pytest.raises(error, match=message):
        Dict(*arguments)


def test_a_keyword_that_is_a_key_too_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a: expected a keyword that is not a key"):
        Dict({"a": Discrete(3)}, a=Discrete(3))


def test_the_argument_is_not_shared() -> None:
    members = {"a": Discrete(3)}
    space = Dict(members)
    members["b"] = Discrete(4)
    assert list(space) == ["a"]


def test_it_is_a_mapping_of_spaces() -> None:
    space = Dict(a=Discrete(3), b=Box(0, 1))
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


def test_in_asks_for_values_not_for_keys() -> None:
    assert "a" not in Dict(a=Discrete(3))
    assert {"a": 1} in Dict(a=Discrete(3))


def test_a_member_can_be_set() -> None:
    space = Dict(a=Discrete(3))
    space["a"] = Discrete(4)
    assert {"a": 3} in space
    with pytest.raises(TypeError, match=r"spaces\['b'\]: expected a Space"):
        space["b"] = 3
    assert list(space) == ["a"]


def test_an_int_seed_reaches_every_member_as_in_gymnasium() -> None:
    ours, theirs = (
        library.Dict(a=library.Discrete(99), b=library.Dict(c=library.Discrete(99)))
        for library in LIBRARIES
    )
    assert_identical(ours.seed(7), theirs.seed(7))
    assert_identical(ours.sample(), theirs.sample())


def test_the_returned_seeds_repeat_the_stream() -> None:
    space = Dict(a=Discrete(99), b=Dict(c=Discrete(99), d=Box(0, 1)))
    for seed in (None, 3):
        used = space.seed(seed)
        first = space.sample()
        assert_identical(space.seed(used), used)
        assert_identical(space.sample(), first)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        ({"a": 1}, ValueError, r"^seed: expected the keys \['a', 'b'\], found the keys \['a'\]"),
        ("x", TypeError, "^seed: expected None, an int or a dict"),
        (np.int64(3), TypeError, "^seed: expected None, an int or a dict"),
        (-1, Exception, "^seed: expected an int that is not negative"),
        ({"a": 1, "b": {"c": "x"}}, Exception, r"^seed\['b'\]\['c'\]: expected a Python int"),
        ({"a": 1, "b": {"d": 1}}, ValueError, r"^seed\['b'\]: expected the keys \['c'\]"),
    ],
)
def test_a_wrong_seed_is_refused_with_its_path(seed: Any, error: Any, message: str) -> None:
    space = Dict(a=Discrete(3), b=Dict(c=Discrete(3)))
    with pytest.raises(error, match=message):
        space.seed(seed)
    theirs = gymnasium.spaces.Dict(
        a=gymnasium.spaces.Discrete(3), b=gymnasium.spaces.Dict(c=gymnasium.spaces.Discrete(3))
    )
    with pytest.raises(error):
        theirs.seed(seed)


@pytest.mark.parametrize("word", ["mask", "probability"])
@pytest.mark.parametrize(
    ("limit", "error", "message"),
    [
        ((1, 2), AssertionError, "^{word}: expected a dict, found "),
        ({"a": None}, AssertionError, r"^{word}: expected the keys \['a', 'b'\]"),
        ({"a": None, "b": {"c": [1, 0]}}, AssertionError, r"^{word}\['b'\]\['c'\]"),
    ],
)
def test_a_wrong_mask_is_refused_with_its_path(
    word: str, limit: Any, error: Any, message: str
) -> None:
    for library in LIBRARIES:
        space = library.Dict(a=library.MultiBinary(2), b=library.Dict(c=library.Discrete(2)))
        pattern = message.format(word=word) if library is spaces else None
        with pytest.raises(error, match=pattern):
            space.sample(**{word: limit})


def test_mask_and_probability_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="at most one"):
        Dict(a=Discrete(2)).sample(mask={"a": None}, probability={"a": None})


def test_only_dicts_with_exactly_the_keys_are_contained() -> None:
    space = Dict(a=Discrete(3), b=MultiBinary(2))
    good = np.array([0, 1], np.int8)
    assert space.contains({"b": good, "a": 1})
    assert space.contains(OrderedDict(a=1, b=good))
    for wrong in ({"a": 1}, {"a": 1, "b": good, "c": 2}, {"a": 3, "b": good}, [1, good], None):
        assert not space.contains(wrong)


def test_a_dict_that_raises_is_not_contained() -> None:
    class Trap(dict):
        def __getitem__(self, key: Any) -> Any:
            raise RuntimeError(key)

        def keys(self) -> Any:
            raise RuntimeError

    assert not Dict(a=Discrete(3)).contains(Trap(a=1))


def test_equality_ignores_the_order_of_keys_and_the_generator() -> None:
    one = Dict([("a", Discrete(3)), ("b", Discrete(2))], seed=1)
    assert one == Dict([("b", Discrete(2)), ("a", Discrete(3))], seed=2, sort_keys=False)
    assert one != Dict(a=Discrete(3))
    assert one != {"a": Discrete(3), "b": Discrete(2)}


def test_it_cannot_be_hashed_as_in_gymnasium() -> None:
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            hash(library.Dict())


def test_a_space_without_members_has_one_value() -> None:
    space = Dict({}, seed=1)
    assert space.sample() == {} and {} in space and {"a": 1} not in space
    assert space.is_np_flattenable


def test_a_generator_as_seed_is_for_the_space_alone() -> None:
    generator = np.random.default_rng(3)
    space = Dict(a=Discrete(3), seed=generator)
    assert space.np_random is generator


def test_its_class_can_be_subscripted_for_type_checkers() -> None:
    assert Dict[Any] is not None


def test_what_needs_its_own_generator_leaves_the_members_seeds_alone() -> None:
    space = Dict(a=Discrete(99), b=Tuple([Discrete(99)]))
    space.seed({"a": 1, "b": [2]})
    first = space.sample()
    space.seed({"a": 1, "b": [2]})
    batch_space(space, 3)
    assert_identical(space.sample(), first)
