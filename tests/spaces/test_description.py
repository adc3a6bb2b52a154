"""Descriptions of spaces: equal spaces come back, and whatever was tampered with is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.strategies import Recipe, junk, recipes, seeds
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
from vecspaces.spaces.equivalence import is_twin


def returned(space: Space[Any]) -> Any:
    """Return a space that came back through JSON text, equal and shown alike."""
    text = json.dumps(to_description(space), allow_nan=False)
    back = from_description(json.loads(text))
    assert back == space
    assert repr(back) == repr(space)
    assert type(back) is type(space)
    assert difference(space, back) is None
    assert json.dumps(to_description(back)) == text
    assert back._np_random is None
    assert is_twin(space, back)  # to the last bit, while `==` accepts what is close
    return back


@given(recipe=recipes(max_leaves=8), seed=seeds)
def test_from_description_samples_as_the_described_space(recipe: Recipe, seed: int) -> None:
    space = recipe.build()
    back = returned(space)
    space.seed(seed)
    back.seed(seed)
    for _ in range(2):
        assert_identical(back.sample(), space.sample())
    assert to_description(space) == to_description(recipe.build())  # without generators


INT64 = np.iinfo(np.int64)


def test_from_description_keeps_limits() -> None:
    for space in (
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
    ):
        back = returned(space)
        if isinstance(space, Text):
            assert back.character_list == space.character_list


def test_to_description_keeps_the_order_of_fields() -> None:
    fields = [
        (Box(0, 1), "shape dtype low high"),
        (Discrete(2), "n start dtype"),
        (MultiBinary(2), "n"),
        (MultiDiscrete([2]), "shape dtype nvec start"),
        (Text(2), "min_length max_length charset"),
        (Dict(a=Discrete(2)), "sort_keys spaces"),
        (Tuple([Discrete(2)]), "spaces"),
        (OneOf([Discrete(2)]), "spaces"),
        (Sequence(Discrete(2)), "space stack"),
        (Graph(Discrete(2), None), "edge_space node_space"),
        (Graph(Discrete(2), Discrete(2)), "edge_space node_space"),
    ]
    for space, names in fields:
        assert list(to_description(space)) == ["version", "type", *names.split()]


@pytest.mark.parametrize(
    ("space", "changes"),
    [
        (Box(0, 1), {"shape": [2**40, 2**40]}),
        (Box(0, 1), {"shape": [1] * 100}),
        (Box(0, 1, (2,), np.longdouble), {"low": "1e999999"}),
        (Box(0, 1, (2,), np.longdouble), {"high": ["1", "-1e999999"]}),
    ],
)
def test_what_no_array_can_hold_is_refused(space: Space[Any], changes: dict[str, Any]) -> None:
    description = {**to_description(space), **changes}
    before = copy.deepcopy(description)
    with pytest.raises(ValueError, match=r"^description"):
        from_description(description)
    assert repr(description) == repr(before)


def test_from_description_refuses_endless_nesting() -> None:
    inner: dict[str, Any] = {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
    for _ in range(100_000):
        inner = {"type": "Tuple", "spaces": [inner]}
    with pytest.raises(ValueError, match="nested too deeply"):
        from_description({"version": 1, **inner})
    while "spaces" in inner:  # freeing it in one go would recurse too
        inner = inner.pop("spaces")[0]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a description, with each of its keys."""
    keys = []
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            keys += [(value, key), *places(value[key])]
    return keys


JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.none()),
)  # fmt: skip


@given(data=st.data(), recipe=recipes())
def test_from_description_of_a_changed_entry_is_a_space_or_a_value_error(
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
def test_from_description_of_any_object_is_an_error(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^description"):
        from_description(value)
    with pytest.raises(ValueError, match=r"^description"):
        from_description({"version": 1, "type": value})


def test_difference_lets_other_classes_compare_themselves() -> None:
    class Colour(Space[str]):
        def __init__(self, names: Any) -> None:
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
    space, other = Colour({"red"}), Colour({"red"})
    assert difference(space, other) is None and difference(space, Colour({"blue"})) is not None
