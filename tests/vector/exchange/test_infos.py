"""Merging infos: as Gymnasium does where it is right, the same however the rows are sliced."""

from __future__ import annotations

import itertools
import pickle
import pickletools
from collections import defaultdict
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.compare import assert_identical
from vecspaces.testing.contract import assert_same_infos
from vecspaces.vector import infos_as_list
from vecspaces.vector.exchange.infos import (
    columns_of,
    finish,
    from_plain,
    join,
    merge,
    shift,
    split,
    take,
    to_plain,
)

# For each key one kind of value, as in most programs: there Gymnasium and we agree on dtypes.
SAME_KIND: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**62), 2**62),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "float32": st.floats(width=32, allow_nan=False).map(np.float32),
    "uint8": st.integers(0, 255).map(np.uint8),
    "bool_": st.booleans().map(np.bool_),
    "text": st.text(max_size=3),
    "none": st.none(),
    "list": st.lists(st.integers(), max_size=2),
    "array": hnp.arrays(np.float32, (2, 1), elements=st.floats(0, 1, width=32)),
    "final_obs": st.integers(),
}
nested = st.fixed_dictionaries({}, optional=SAME_KIND)
tame = st.fixed_dictionaries(
    {},
    optional={
        **SAME_KIND,
        "nested": st.fixed_dictionaries({}, optional={"deeper": nested, "x": st.integers(0, 9)}),
    },
)
# Anything under any key, of other kinds in other environments.
wild_values = st.one_of(
    *SAME_KIND.values(),
    st.complex_numbers(allow_nan=False),
    hnp.arrays(hnp.integer_dtypes(), hnp.array_shapes(max_side=2)),
    hnp.arrays(object, (2,), elements=st.text(max_size=1)),
    hnp.arrays("U2", (2,), elements=st.text("ab", max_size=2)),
    hnp.arrays("M8[s]", (1,)),
    st.tuples(st.integers()),
)
wild = st.recursive(
    st.dictionaries(st.sampled_from("abc"), wild_values, max_size=2),
    lambda inner: st.dictionaries(
        st.sampled_from("abc"), st.one_of(inner, wild_values), max_size=2
    ),
    max_leaves=4,
)


def merged(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """All infos at once."""
    return finish([merge(dict(enumerate(infos)))], len(infos))


def gymnasiums(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """What Gymnasium makes of them."""
    envs = gymnasium.vector.VectorEnv()
    envs.num_envs = len(infos)
    result: dict[str, Any] = {}
    for row, info in enumerate(infos):
        result = envs._add_info(result, info, row)
    return result


@given(st.lists(tame, min_size=1, max_size=5))
def test_infos_of_one_kind_a_key_are_gymnasiums(infos: list[dict[str, Any]]) -> None:
    assert_same_infos(merged(infos), gymnasiums(infos))


@given(st.lists(st.one_of(tame, wild), min_size=2, max_size=6), st.data())
def test_slices_do_not_matter(infos: list[dict[str, Any]], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(infos)), max_size=3).map(sorted))
    bounds = [0, *cuts, len(infos)]
    parts = [
        shift(merge(dict(enumerate(infos[low:high]))), low)
        for low, high in itertools.pairwise(bounds)
        if low < high
    ]
    parts = [from_plain(pickle.loads(pickle.dumps(to_plain(part)))) for part in parts if part]
    assert_same_infos(finish(parts, len(infos)), merged(infos))
    if parts:
        assert_same_infos(finish([join(parts)], len(infos)), merged(infos))


@given(st.lists(st.one_of(tame, wild), min_size=1, max_size=4))
def test_a_list_of_infos_holds_what_each_environment_said(infos: list[dict[str, Any]]) -> None:
    found = infos_as_list(merged(infos), len(infos))
    assert [set(info) for info in found] == [set(info) for info in infos]
    again = merged(found)
    assert_same_infos(again, merged(infos))


@given(st.lists(tame, min_size=1, max_size=4))
def test_a_list_of_tame_infos_is_what_went_in(infos: list[dict[str, Any]]) -> None:
    for found, info in zip(infos_as_list(merged(infos), len(infos)), infos, strict=True):
        assert_same_infos(found, info)


@given(st.lists(st.one_of(tame, wild), min_size=1, max_size=4))
def test_finished_infos_become_the_same_columns_again(infos: list[dict[str, Any]]) -> None:
    finished = merged(infos)
    assert_same_infos(finish([columns_of(finished, len(infos))], len(infos)), finished)


@given(st.lists(tame, min_size=2, max_size=5), st.data())
def test_chosen_rows_are_as_if_there_had_been_no_others(
    infos: list[dict[str, Any]], data: st.DataObject
) -> None:
    rows = data.draw(st.permutations(range(len(infos))).map(lambda order: order[: len(order) // 2]))
    chosen = take(merge(dict(enumerate(infos))), rows, range(len(rows)))
    assert_same_infos(
        finish([chosen], max(len(rows), 1)), merged([infos[row] for row in rows] or [{}])
    )


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 1.75], np.float64),
        ([True, 2], np.int64),
        ([False, 0.5], np.float64),
        ([np.float32(1), 0.1], np.float64),
        ([np.uint8(200), np.int8(-1)], np.int16),
        ([np.int64(1), np.float32(0.5)], np.float64),
        ([1, np.complex64(2j)], np.complex128),
        ([np.float32(0.5), np.float32(2)], np.float32),
        ([np.float64(0.1), 2, True], np.float64),
        ([np.int32(3), True], np.int32),
    ],
)
def test_numbers_are_promoted(values: list[Any], dtype: Any) -> None:
    for order in (values, values[::-1]):
        found = merged([{"x": value} for value in order])["x"]
        assert found.dtype == dtype
        assert found.tolist() == order


@pytest.mark.parametrize(
    "values",
    [
        [2**63, -1],
        [2**64, 1],
        [10**30],
        [2**63 + 1, -5],
        [True, 2**63 + 1, -5],
        [np.int64(-5), 2**63 + 1],
    ],
)
def test_integers_that_no_dtype_holds_stay_as_they_are(values: list[Any]) -> None:
    found = merged([{"x": value} for value in values])["x"]
    assert found.tolist() == values


def test_arrays_of_one_shape_are_promoted_too() -> None:
    arrays = [np.array([1, 2]), np.array([0.5, 1.5], np.float32)]
    found = merged([{"x": array} for array in arrays])["x"]
    assert_identical(found, np.array([[1, 2], [0.5, 1.5]], np.float64))


def test_strings_in_arrays_are_not_cut() -> None:
    found = merged([{"x": np.array(["a"])}, {"x": np.array(["long"])}])["x"]
    assert found.tolist() == [["a"], ["long"]]


@pytest.mark.parametrize("other", [np.array([1.5]), np.array(["2020"], "M8[Y]"), np.array([None])])
def test_arrays_of_unlike_kinds_are_not_converted(other: Any) -> None:
    text = np.array(["text"])
    found = merged([{"x": text}, {"x": other}])["x"]
    assert_identical(list(found), [text, other])


def test_arrays_of_objects_are_kept() -> None:
    array = np.array([None, "a"], dtype=object)
    infos = merged([{"x": array}, {}, {"x": array}])
    found = infos_as_list(infos, 3)
    assert [info.get("x", np.array([])).tolist() for info in found] == [
        [None, "a"],
        [],
        [None, "a"],
    ]


def test_a_dict_in_one_and_a_number_in_another_are_objects() -> None:
    values: list[Any] = [{"deep": 1}, 3]
    found = merged([{"x": value} for value in values])["x"]
    assert found.dtype == object and found.tolist() == values


def test_keys_need_not_be_strings() -> None:
    infos = merged([{0: 1.5, ("a", 1): "x"}, {}])
    assert infos[0].tolist() == [1.5, 0.0]
    assert infos_as_list(infos, 2) == [{0: 1.5, ("a", 1): "x"}, {}]


def test_keys_with_an_underscore_are_keys() -> None:
    infos = merged([{"_private": 3}, {}])
    assert infos_as_list(infos, 2) == [{"_private": 3}, {}]


def test_a_key_without_a_mask_was_said_by_all() -> None:
    assert infos_as_list({"x": np.array([1, 2])}, 2) == [{"x": 1}, {"x": 2}]


def test_no_infos_are_none() -> None:
    assert merged([{}, {}]) == {}
    assert infos_as_list({}, 2) == [{}, {}]


def test_a_slice_travels_as_a_few_arrays() -> None:
    infos = [{"x": float(row), "deep": {"n": row, "ok": True}} for row in range(512)]
    columns = merge(dict(enumerate(infos)))
    deep = columns["deep"].values
    assert isinstance(deep, dict)
    for column in (columns["x"], deep["n"], deep["ok"]):
        assert isinstance(column.values, np.ndarray) and len(column.values) == 512
    plain = to_plain(columns)
    assert sum(1 for _ in pickletools.genops(pickle.dumps(plain))) < 100
    again = from_plain(plain)
    assert_same_infos(finish([again], 512), finish([columns], 512))


def test_split_gives_each_row_its_own_infos() -> None:
    columns = merge({3: {"a": 1, "n": {"x": 2.5}}, 5: {"a": 7}, 8: {"b": "text"}})
    found = split([columns], [5, 3, 9])
    assert list(found) == [5, 3, 9]
    assert finish([found[3]], 1) == finish([merge({0: {"a": 1, "n": {"x": 2.5}}})], 1)
    assert finish([found[5]], 1) == finish([merge({0: {"a": 7}})], 1)
    assert found[9] == {}


@pytest.mark.parametrize("kind", [dict, lambda info: defaultdict(int, info)])
def test_as_many_keys_need_not_be_the_same(kind: Any) -> None:
    infos = [kind({"a": 1, "b": 2}), kind({"a": 3, "c": 4})]
    for nested in (False, True):
        given = [{"n": info} for info in infos] if nested else infos
        found = finish([merge(dict(enumerate(given)))], 2)
        assert infos_as_list(found, 2) == given
    assert [list(info) for info in infos] == [["a", "b"], ["a", "c"]]


class Marked(np.ndarray):
    """An array of a class of its own."""


@pytest.mark.parametrize("apart", [False, True])
def test_arrays_of_a_derived_class_need_not_have_one_shape(apart: bool) -> None:
    one, other = np.zeros(2, np.int8).view(Marked), np.ones((3, 1)).view(Marked)
    columns = merge({0: {"x": one}, 1: {"x": other}}, apart)
    found = infos_as_list(finish([columns], 2), 2)
    assert_identical(np.asarray(found[0]["x"]), np.zeros(2, np.int8))
    assert_identical(np.asarray(found[1]["x"]), np.ones((3, 1)))


@pytest.mark.parametrize(
    "values",
    [
        [np.zeros(2, np.int8).view(Marked), np.ones(2).view(Marked)],
        [np.timedelta64(1, "s"), np.timedelta64(1, "ms")],
    ],
    ids=["derived", "timedelta64"],
)
def test_dtypes_that_differ_stay_apart_also_where_types_do_not(values: list[Any]) -> None:
    columns = merge({row: {"x": value} for row, value in enumerate(values)}, apart=True)
    for row, cell in split([columns], range(2)).items():
        assert_same_infos(finish([cell], 1), merged([{"x": values[row]}]))
