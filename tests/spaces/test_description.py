"""Descriptions of spaces: equal spaces come back, and whatever was tampered with is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.strategies import Recipe, junk, recipes, seeds
from vecspaces.errors import CustomSpaceError
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
    difference,
    from_description,
    to_description,
)


def assert_returns(space: Space[Any], seed: int = 0) -> None:
    """Assert that a space comes back through JSON text: equal, shown and sampled alike."""
    text = json.dumps(to_description(space), allow_nan=False)
    back = from_description(json.loads(text))
    assert back == space
    assert repr(back) == repr(space)
    assert type(back) is type(space)
    assert difference(space, back) is None
    assert json.dumps(to_description(back)) == text
    assert back._np_random is None
    assert_equal_bounds(space, back)
    space.seed(seed)
    back.seed(seed)
    for _ in range(2):
        assert_identical(back.sample(), space.sample())


def assert_equal_bounds(one: Any, other: Any) -> None:
    """Assert that bounds are the same to the last bit; `==` accepts what is close."""
    if isinstance(one, Box):
        for name in ("low", "high", "bounded_below", "bounded_above"):
            mine, others = getattr(one, name), getattr(other, name)
            assert mine.dtype == others.dtype
            assert np.array_equal(mine, others)
    for key in ("spaces", "node_space", "edge_space", "feature_space"):
        members = getattr(one, key, None)
        if isinstance(members, dict):
            assert list(members) == list(other.spaces)
            for name in members:
                assert_equal_bounds(members[name], other.spaces[name])
        elif isinstance(members, tuple):
            for mine, others in zip(members, other.spaces, strict=True):
                assert_equal_bounds(mine, others)
        elif members is not None:
            assert_equal_bounds(members, getattr(other, key))


@given(recipe=recipes(), seed=seeds)
def test_every_space_comes_back(recipe: Recipe, seed: int) -> None:
    assert_returns(recipe.build(), seed)


@pytest.mark.full
@pytest.mark.timeout(1800)
@settings(max_examples=10_000)
@given(recipe=recipes(max_leaves=8), seed=seeds)
def test_ten_thousand_spaces_come_back(recipe: Recipe, seed: int) -> None:
    assert_returns(recipe.build(), seed)


INT64 = np.iinfo(np.int64)


@pytest.mark.parametrize(
    "space",
    [
        Box(INT64.min, INT64.max, (2,), np.int64),
        Box(np.array([INT64.min, 0]), np.array([0, INT64.max]), dtype=np.int64),
        Box(-np.inf, np.inf, (2,), np.int64),
        Box(np.array([-np.inf, 3.0]), np.array([7.0, np.inf]), dtype=np.int32),
        Box(0, np.iinfo(np.uint64).max, (1,), np.uint64),
        Box(np.array([-np.inf, 0.1]), np.array([np.inf, 0.2]), dtype=np.float64),
        Box(np.inf, np.inf, (2,)),
        Box(np.array([0.0, -0.0]), np.array([-0.0, 0.0])),
        Box(0.1, 0.3, (2, 2), np.float16),
        Box(0.1, 1.0, (2,), np.longdouble),
        Box(np.array([0.1, -np.inf], np.longdouble), np.longdouble(1) / 3, (2,), np.longdouble),
        Box(0, 1, (2,), ">f4"),
        Box(0, 1, (3,), bool),
        Box(0, 1, (0, 3)),
        Box(np.zeros((2, 0)), np.ones((2, 0))),
        Box(-1, 1, ()),
        Discrete(3, start=INT64.max - 2),
        Discrete(2, start=-1, dtype=np.int8),
        MultiBinary(3),
        MultiBinary([3]),
        MultiBinary([2, 3]),
        MultiDiscrete(5),
        MultiDiscrete([[1, 2], [3, 4]], start=[[0, 1], [2, 3]]),
        MultiDiscrete(np.zeros((0, 3), np.int64)),
        Text(4, charset="zyx"),
        Text(3, min_length=0, charset="\ud800\n\"'é😀"),
        Text(2, charset="\ud800\udc00a"),  # which JSON would make two characters of
        Text(2, charset="\udc00\ud800😀"),
        Dict([("\ud800", Discrete(2)), ("\udc00", Discrete(2))]),
        Dict({}),
        Dict({1: Discrete(2), "1": Discrete(3), None: Discrete(4)}, sort_keys=False),  # type: ignore[dict-item]
        Dict(b=Discrete(2), a=Discrete(3)),
        Tuple(()),
        Graph(Dict({}), None),
        Graph(Dict({}), Dict({})),
        Sequence(Sequence(OneOf([Discrete(2), Text(3)])), stack=True),
    ],
    ids=repr,
)
def test_limits_survive(space: Space[Any]) -> None:
    description = json.loads(json.dumps(to_description(space), allow_nan=False))
    back = from_description(description)
    assert back == space
    assert repr(back) == repr(space)
    assert_equal_bounds(space, back)
    assert to_description(back) == description
    if isinstance(space, Text):
        assert back.character_list == space.character_list  # type: ignore[attr-defined]


def test_one_number_stands_for_equal_bounds() -> None:
    description = to_description(Box(0, 255, (84, 84, 4), np.uint8))
    assert description == {
        "version": 1, "type": "Box", "shape": [84, 84, 4], "dtype": "uint8", "low": 0, "high": 255,
    }  # fmt: skip


def test_the_state_of_generators_is_left_out() -> None:
    seeded, fresh = (Dict(a=Discrete(3), b=Box(0, 1)) for _ in range(2))
    seeded.seed(7)
    seeded.sample()
    assert to_description(seeded) == to_description(fresh)


class Interval(Box[Any]):
    """A class that may have changed what a value is."""


@pytest.mark.parametrize(
    ("space", "where"),
    [
        (Interval(0, 1), "space"),
        (Dict(a=Tuple([Discrete(2), Interval(0, 1)])), r"space\['a'\]\[1\]"),
        (Sequence(Space()), r"space.feature_space"),
        (Graph(Discrete(2), Space()), "space.edge_space"),
        (3, "space"),
        (Dict({(1, 2): Discrete(2)}), "space"),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_described_is_refused_with_its_path(space: Any, where: str) -> None:
    with pytest.raises(CustomSpaceError, match=rf"^{where}: .*found "):
        to_description(space)


# --- descriptions that are none -----------------------------------------------------------------


def changed(description: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**description, **changes}


BOX = to_description(Box(0, 1, (2,)))
INTEGERS = to_description(Box(0, 9, (2,), np.int32))
WIDE = to_description(Box(0, 1, (2,), np.longdouble))
DICT = to_description(Dict(a=Discrete(2), b=Tuple([Text(3)])))


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({}, r"^description\['version'\]: expected a version number, found none"),
        (changed(BOX, version="1"), r"^description\['version'\]: expected a version number"),
        (changed(BOX, version=True), r"^description\['version'\]: expected a version number"),
        (changed(BOX, version=0), r"^description\['version'\]: expected a version number"),
        (changed(BOX, version=2), r"^description\['version'\]: .* newer .* upgrade"),
        (changed(WIDE, low="1e999999"), r"^description\['low'\]"),
        (changed(WIDE, high=["1", "-1e999999"]), r"^description\['high'\]\[1\]"),
        (changed(BOX, type="Sphere"), r"^description\['type'\]: expected one of Box"),
        (changed(BOX, type=["Box"]), r"^description\['type'\]"),
        (changed(BOX, colour=3), "^description: expected the fields"),
        ({"version": 1, "type": "Box"}, "^description: expected the fields"),
        (changed(BOX, dtype="O"), r"^description\['dtype'\]"),
        (changed(BOX, dtype="i4,i4"), r"^description\['dtype'\]"),
        (changed(BOX, dtype="float96000"), r"^description\['dtype'\]"),
        (changed(BOX, dtype=None), r"^description\['dtype'\]"),
        (changed(BOX, shape=[-1]), r"^description\['shape'\]"),
        (changed(BOX, shape=[2.0]), r"^description\['shape'\]"),
        (changed(BOX, shape=[True]), r"^description\['shape'\]"),
        (changed(BOX, shape=2), r"^description\['shape'\]"),
        (changed(BOX, shape=[2**40, 2**40]), "^description: "),
        (changed(BOX, shape=[1] * 100), "^description: "),
        (changed(BOX, low="0"), r"^description\['low'\]"),
        (changed(BOX, low=float("nan")), r"^description\['low'\]"),
        (changed(BOX, low=1e300), r"^description\['low'\]"),
        (changed(BOX, low=10**400), r"^description\['low'\]"),
        (changed(BOX, low=True), r"^description\['low'\]"),
        (changed(BOX, low=2), "^description: low, high: expected low <= high"),
        (changed(BOX, low=[0.0]), r"^description\['low'\]: expected lists of shape"),
        (changed(BOX, low=[0.0, [0.0]]), r"^description\['low'\]\[1\]"),
        (changed(BOX, low=[0.0, "nan"]), r"^description\['low'\]\[1\]"),
        (changed(INTEGERS, low=0.5), r"^description\['low'\]"),
        (changed(INTEGERS, low=[0, 2**40]), r"^description\['low'\]\[1\]"),
        (changed(INTEGERS, low="inf"), r"^description\['low'\]"),
        (changed(INTEGERS, dtype="uint8", low="-inf"), r"^description\['low'\]"),
        (changed(DICT, sort_keys=1), r"^description\['sort_keys'\]"),
        (changed(DICT, spaces={}), r"^description\['spaces'\]"),
        (changed(DICT, spaces=[["a"]]), r"^description\['spaces'\]\[0\]: expected a pair"),
        (changed(DICT, spaces=[[float("nan"), BOX]]), r"^description.*: expected a pair"),
        (changed(DICT, spaces=[["a", 3]]), r"^description\['spaces'\]\[0\]\[1\]"),
        (changed(DICT, spaces=[[["a"], 3]]), r"^description\['spaces'\]\[0\]: expected a pair"),
        (changed(DICT, spaces=[DICT["spaces"][0]] * 2), r"^description\['spaces'\]\[1\]: expected"),
        ({"version": 1, "type": "Text", "min_length": 2, "max_length": 1, "charset": "a"},
         "^description: min_length: expected at most"),
        ({"version": 1, "type": "Text", "min_length": 0, "max_length": 1, "charset": ["ab"]},
         r"^description\['charset'\]"),
        ({"version": 1, "type": "OneOf", "spaces": []}, "^description: spaces: expected at least"),
        ({"version": 1, "type": "MultiBinary", "n": ["3"]}, r"^description\['n'\]"),
        ({"version": 1, "type": "MultiBinary", "n": True}, r"^description\['n'\]"),
        ({"version": 1, "type": "Sequence", "space": BOX, "stack": False},
         r"^description\['space'\]: expected the fields"),
        ({"version": 1, "type": "Graph", "node_space": None, "edge_space": None},
         r"^description\['node_space'\]"),
        ({"version": 1, "type": "MultiDiscrete", "shape": [1], "dtype": "int64", "nvec": "",
          "start": 0}, r"^description\['nvec'\]"),
        ({"version": 1, "type": "MultiDiscrete", "shape": [1], "dtype": "float32", "nvec": 2,
          "start": 0}, "^description: dtype: expected an integer dtype"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_was_tampered_with_is_refused_with_its_path(
    description: dict[str, Any], message: str
) -> None:
    before = copy.deepcopy(description)
    with pytest.raises(ValueError, match=message):
        from_description(description)
    assert repr(description) == repr(before)


@pytest.mark.parametrize("wrong", [None, 3, "{}", [BOX], Box(0, 1)])
def test_what_is_no_dict_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^description: expected a dict, found "):
        from_description(wrong)


def test_a_description_nested_without_end_is_refused() -> None:
    inner: dict[str, Any] = {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
    for _ in range(100_000):
        inner = {"type": "Tuple", "spaces": [inner]}
    with pytest.raises(ValueError, match="nested too deeply"):
        from_description({"version": 1, **inner})
    while "spaces" in inner:  # freeing it in one go would recurse too
        inner = inner.pop("spaces")[0]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a description, with each of its keys."""
    found = []
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *places(value[key])]
    return found


JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.none()),
)  # fmt: skip


@given(data=st.data(), recipe=recipes())
def test_one_changed_entry_gives_a_space_or_a_value_error(
    data: st.DataObject, recipe: Recipe
) -> None:
    description = to_description(recipe.build())
    container, key = data.draw(st.sampled_from(places(description)))
    value = data.draw(JSON)
    sides = value if isinstance(value, list) else [value]
    # A large shape is no mistake that can be told from a large space.
    assume(not any(isinstance(side, int) and abs(side) > 1000 for side in sides))
    container[key] = value
    try:
        assert isinstance(from_description(description), Space)
    except ValueError as error:
        assert str(error).startswith("description")


@given(value=junk())
def test_any_object_gives_a_value_error_or_a_type_error(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^description"):
        from_description(value)
    with pytest.raises(ValueError, match=r"^description"):
        from_description({"version": 1, "type": value})


# --- differences --------------------------------------------------------------------------------

CAMERA = Dict(camera=Box(0, 255, (2, 2), np.uint8), arm=Tuple([Discrete(3), Text(4)]))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (CAMERA, None),
        (Discrete(3), "Dict, found Discrete"),
        (Dict(camera=CAMERA["camera"]), "the keys 'camera', 'arm', found the keys 'camera'"),
        (
            Dict(camera=Box(0, 255, (2, 2)), arm=CAMERA["arm"]),
            "['camera']: dtype uint8, found float32",
        ),
        (
            Dict(camera=Box(0, 255, (2, 3), np.uint8), arm=CAMERA["arm"]),
            "['camera']: shape (2, 2), found (2, 3)",
        ),
        (
            Dict(camera=Box(np.array([[0, 0], [0, 1]]), 255, (2, 2), np.uint8), arm=CAMERA["arm"]),
            "['camera']: low[1][1] 0, found 1",
        ),
        (
            Dict(camera=CAMERA["camera"], arm=Tuple([Discrete(3, start=1), Text(4)])),
            "['arm'][0]: start 0, found 1",
        ),
        (
            Dict(camera=CAMERA["camera"], arm=Tuple([Discrete(3)])),
            "['arm']: 2 members, found 1",
        ),
        (
            Dict(camera=CAMERA["camera"], arm=Tuple([Discrete(3), Text(4, charset="ab")])),
            "['arm'][1]: characters 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
            ", found ab",
        ),
    ],
)
def test_the_first_difference_is_named_with_its_path(other: Space[Any], expected: Any) -> None:
    assert difference(CAMERA, other) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (MultiBinary(3), MultiBinary([3]), "n 3, found (3,)"),
        (MultiDiscrete([2, 3]), MultiDiscrete([2, 4]), "nvec[1] 3, found 4"),
        (Sequence(Discrete(2)), Sequence(Discrete(2), stack=True), "stack False, found True"),
        (
            Sequence(OneOf([Discrete(2)])),
            Sequence(OneOf([Discrete(3)])),
            ".feature_space[0]: n 2, found 3",
        ),
        (
            Graph(Discrete(2), None),
            Graph(Discrete(2), Discrete(2)),
            "edge_space None, found Discrete(2)",
        ),
        (Graph(Box(0, 1), None), Graph(Box(0, 2), None), ".node_space: high[0] 1.0, found 2.0"),
        (Box(0, 1, ()), Box(0, 2, ()), "high 1.0, found 2.0"),
        (Box(0, 1), Box(0, 1 + 1e-9), None),
        (Text(3), Text(4), "max_length 3, found 4"),
    ],
)
def test_each_kind_of_space_names_what_differs(a: Any, b: Any, expected: str | None) -> None:
    assert difference(a, b) == expected


@given(data=st.data(), recipe=recipes(), other=recipes())
def test_spaces_differ_exactly_where_they_are_not_equal(
    data: st.DataObject, recipe: Recipe, other: Recipe
) -> None:
    a = recipe.build()
    b = data.draw(st.sampled_from([recipe, other])).build()
    assert (difference(a, b) is None) == (a == b)


def test_spaces_of_other_classes_are_compared_by_themselves() -> None:
    class Colour(Space[str]):
        def __init__(self, names: tuple[str, ...]) -> None:
            super().__init__()
            self.names = names

    red, blue = Colour(("red",)), Colour(("blue",))
    assert difference(Tuple([red]), Tuple([red])) is None
    assert difference(Tuple([red]), Tuple([Colour(("red",))])) is None
    assert difference(Tuple([red]), Tuple([blue])) == (
        "[0]: Colour(names=('red',)), found Colour(names=('blue',))"
    )
    with pytest.raises(TypeError, match=r"^b: expected a Space"):
        difference(red, 3)  # type: ignore[arg-type]
