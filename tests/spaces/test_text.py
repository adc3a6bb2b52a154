"""Text: lengths, charsets, masks, membership."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.contract import SpaceContract
from vecspaces.spaces import Text
from vecspaces.spaces.equivalence import is_twin

i8 = np.int8


class TestText(SpaceContract):
    limits = {
        "mask": (
            (3, np.array([0, 1, 0], i8)),
            (i8(2), None),
            (None, np.array([1, 0, 1], i8)),
            None,
        ),
        "probability": ((2, np.array([0.0, 0.0, 1.0])),),
    }
    wrong_limits = {
        "mask": (
            *((5, None), (0, None), (2.0, None), (True, None), [2, None], (2,), 5, ()),
            *((2, np.ones(2, i8)), (None, np.zeros(3, i8))),
        ),
        "probability": ((2, np.zeros(3)), (9, None)),
    }
    inside = ("a", "abc", np.str_("ab"))
    outside = ("", "abca", "abd", None, 5, ["a"], b"a", np.array("a"))
    equal = (Text(3, charset="cba"), Text(3, charset=frozenset("abc")))

    def make(self, lib: Any) -> Any:
        return lib.Text(3, charset="abc")


def test_text_keeps_the_order_of_a_string_and_sorts_a_set() -> None:
    assert Text(1, charset="bcab").character_list == ("b", "c", "a")
    assert Text(1, charset=set("qwerty")).character_list == tuple("eqrtwy")
    assert Text(1, charset="bca").characters == "abc"
    assert Text(1, charset="bca").character_set == frozenset("abc")
    assert [Text(1, charset="bca").character_index(c) for c in "bca"] == [0, 1, 2]
    assert type(Text(1).character_index("a")) is np.int32
    with pytest.raises(KeyError):
        Text(1, charset="a").character_index("b")


def test_text_without_characters_is_empty_or_an_error() -> None:
    nothing = np.zeros(3, i8)
    assert Text(5, min_length=0, charset="abc").sample(mask=(3, nothing)) == ""
    assert Text(5, min_length=0, charset="").sample() == ""
    for space, limit in ((Text(5, charset="abc"), (None, nothing)), (Text(5, charset=""), None)):
        with pytest.raises(ValueError, match="expected a character to draw from"):
            space.sample(mask=limit)


def test_text_takes_a_str_that_lies_at_its_characters() -> None:
    class Liar(str):
        def __len__(self) -> int:
            raise RuntimeError

        def __iter__(self) -> Any:
            raise RuntimeError

    assert Liar("ab") in Text(3)
    assert Liar("abcd") not in Text(3)
    assert Text(3).explain(Liar("abcd")) is not None


def test_text_twins_have_characters_in_one_order() -> None:
    space = Text(4, charset="zyx")
    assert is_twin(space, Text(4, charset="zyx"))
    assert not is_twin(space, Text(4, charset="xyz"))  # samples depend on the order


def test_text_takes_zeros_as_characters() -> None:
    for space in (Text(4, min_length=4, charset="\0", seed=0), Text(1, charset="\0")):
        assert space.sample() == "\0" * space.max_length
