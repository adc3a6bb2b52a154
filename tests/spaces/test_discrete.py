"""Discrete: counts, starts, masks, membership."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vecspaces.spaces import Discrete

i8 = np.int8


def test_n_and_start_are_scalars_of_the_dtype() -> None:
    space = Discrete(5, start=-2, dtype=np.int16)
    assert type(space.n) is type(space.start) is np.int16
    assert (space.n, space.start, space.shape, space.dtype) == (5, -2, (), np.dtype("int16"))
    assert type(Discrete(np.uint8(5)).n) is np.int64


def test_samples_are_spread_evenly_over_the_values() -> None:
    space = Discrete(4, start=-1, seed=0)
    values, counts = np.unique([space.sample() for _ in range(4000)], return_counts=True)
    assert values.tolist() == [-1, 0, 1, 2] and counts.min() > 900


def test_a_mask_restricts_the_values() -> None:
    space = Discrete(4, start=10, seed=0)
    mask = np.array([0, 1, 0, 1], i8)
    assert {int(space.sample(mask=mask)) for _ in range(50)} == {11, 13}
    assert space.sample(mask=np.zeros(4, i8)) == 10


def test_a_probability_weighs_the_values() -> None:
    space = Discrete(3, seed=0)
    drawn = [space.sample(probability=np.array([0.9, 0.0, 0.1])) for _ in range(500)]
    assert drawn.count(1) == 0 and 400 < drawn.count(0) < 500


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64])
def test_samples_have_the_type_of_the_dtype_in_every_mode(dtype: Any) -> None:
    space = Discrete(3, start=1, dtype=dtype, seed=0)
    for limit in ({}, {"mask": np.ones(3, i8)}, {"mask": np.zeros(3, i8)}):
        assert type(space.sample(**limit)) is dtype
    assert type(space.sample(probability=np.ones(3) / 3)) is dtype


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (5, True),
        (7, True),
        (8, False),
        (4, False),
        (np.int64(5), True),
        (np.int8(5), True),
        (np.uint64(5), False),
        (np.array(5), True),
        (np.array([5]), False),
        (5.0, False),
        (np.float64(5), False),
        ("5", False),
        (None, False),
        (10**30, False),
        (np.timedelta64(5, "D"), False),
        (np.array(5, object), False),
    ],
)
def test_contains(x: Any, expected: bool) -> None:
    space = Discrete(3, start=5)
    assert space.contains(x) is expected
    assert (space.explain(x) is None) is expected


def test_a_bool_is_an_int() -> None:
    assert True in Discrete(2)
    assert np.True_ not in Discrete(2)


def test_an_int_that_lies_about_itself_is_taken_at_its_value() -> None:
    class Liar(int):
        def __int__(self) -> int:
            raise RuntimeError

        def __lt__(self, other: object) -> bool:
            raise RuntimeError

    assert Liar(2) in Discrete(3)
    assert Liar(3) not in Discrete(3)


def test_explain_names_the_range() -> None:
    assert Discrete(3, start=-1, dtype=i8).explain(2, "action") == (
        "action: expected an integer from -1 to 1 (int8), found 2 of type int"
    )


def test_repr_shows_what_is_not_default() -> None:
    assert repr(Discrete(3)) == "Discrete(3)"
    assert repr(Discrete(3, start=1)) == "Discrete(3, start=1)"
    assert repr(Discrete(3, start=1, dtype=i8)) == "Discrete(3, start=1, dtype=int8)"


def test_equality_is_of_count_start_and_dtype() -> None:
    assert Discrete(3) == Discrete(3, seed=5)
    for other in (Discrete(4), Discrete(3, start=1), Discrete(3, dtype=i8), 3):
        assert Discrete(3) != other


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 1.5}, TypeError, "^n: expected an integer, found 1.5 of type float"),
        ({"n": 0}, ValueError, "^n: expected a positive count, found 0"),
        ({"n": 3, "start": "a"}, TypeError, "^start: expected an integer, found 'a' of type str"),
        ({"n": 3, "dtype": float}, TypeError, "^dtype: expected an integer dtype, found float64"),
        ({"n": 3, "dtype": None}, TypeError, "^dtype: expected an integer dtype, found None"),
        ({"n": 300, "dtype": i8}, OverflowError, r"^n: expected -128 to 127 \(int8\), found 300"),
    ],
)
def test_a_wrong_argument_is_named(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Discrete(**arguments)
