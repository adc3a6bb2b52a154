"""Merging infos: as Gymnasium does where it is right, the same however rows are divided."""

from __future__ import annotations

import itertools
import pickle
import pickletools
from collections import defaultdict, namedtuple
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import assert_same_infos
from tests.envs import Echo, telling
from vecspaces import spaces
from vecspaces.errors import AlreadyPendingCallError, InvalidInfoError, ResetNeededError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, infos_as_list
from vecspaces.vector.exchange.infos import InfosByRow, columns_of, gather, merge, split

full = partial(pytest.param, marks=pytest.mark.full)


def merged(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """All infos at once."""
    return merge([gather(dict(enumerate(infos)))], len(infos))


def sent(part: Any) -> Any:
    """Columns, or the infos of some rows, as they come out of a message."""
    return pickle.loads(pickle.dumps(part))


def gymnasiums(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """What Gymnasium makes of them."""
    envs = gymnasium.vector.VectorEnv()
    envs.num_envs = len(infos)
    result: dict[str, Any] = {}
    for row, info in enumerate(infos):
        result = envs._add_info(result, info, row)
    return result


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
        ([True, 2**63 + 1, -5], object),
        ([np.uint64(5), np.int64(5)], object),
        ([2j, 1], object),  # of Python: no number of an info
    ],
)
def test_merge_promotes_numbers(values: list[Any], dtype: Any) -> None:
    for order in (values, values[::-1]):
        array = merged([{"x": value} for value in order])["x"]
        assert array.dtype == dtype
        assert array.tolist() == order


@pytest.mark.parametrize("count", [2, 9])  # sent by row, and by key
def test_merge_returns_arrays_that_share_nothing(count: int) -> None:
    infos = {row: {"a": 1.5, "b": np.ones(2)} for row in range(count)}
    arrays = list(merge([sent(InfosByRow(infos))], count).values())
    for first, second in itertools.combinations(arrays, 2):
        first[:] = 0
        assert second.all()


@pytest.mark.parametrize("info", [{0: 1.5, ("a", 1): "x"}, {"_private": 3}, {}])
def test_merge_takes_any_keys(info: dict[Any, Any]) -> None:
    infos = merged([info, {}])
    assert infos.keys() == {*info, *(f"_{key}" for key in info)}
    assert infos_as_list(infos, 2) == [info, {}]


@pytest.mark.parametrize("keys", [("a", "_a"), ("_a", "a")])
def test_merge_keeps_masks_although_an_environment_uses_their_names(keys: tuple[str, str]) -> None:
    infos = merged([{}, dict.fromkeys(keys, 7)])
    assert_identical(infos, {"a": np.array([0, 7]), "_a": np.array([False, True])})
    assert split([columns_of(infos, 2)], [0, 1]) == {0: {}, 1: {"a": 7}}


def test_infos_by_row_travel_as_a_few_arrays() -> None:
    infos = {
        row: {
            "x": float(row),
            "deep": {"n": row, "ok": True},
            "m": np.ones(3),
            "0": np.ones((0, 3)),
        }
        for row in range(512)
    }
    part = InfosByRow(infos)
    assert sum(1 for _ in pickletools.genops(pickle.dumps(part))) < 1200
    assert_identical(split([sent(part)], [7])[7], infos[7])


@pytest.mark.parametrize("kind", [dict, lambda info: defaultdict(int, info)])
def test_merge_takes_as_many_keys_that_differ(kind: Any) -> None:
    infos = [kind({"a": 1, "b": 2}), kind({"a": 3, "c": 4})]
    for rows in [list(map(dict, infos)), [{"n": info} for info in infos]]:
        assert infos_as_list(merged(rows), 2) == rows
    assert [list(info) for info in infos] == [["a", "b"], ["a", "c"]]


class Stubborn(dict[str, Any]):
    """A dict that cannot be changed, so that no copy of it can be filled."""

    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError("this dict is fixed")


def test_merge_keeps_what_allows_no_copy() -> None:
    values = [Stubborn(a=[1]), 3]
    array = merged([{"x": value} for value in values])["x"]
    assert array[0] is values[0] and array[1] == 3


class Marked(np.ndarray):
    """An array of a class of its own."""


class Number(float):
    """A number of a class of its own."""


RECORD = np.dtype([("a", "i1"), ("b", "f8")])
POINT = namedtuple("POINT", "x y")
# Of each kind what two environments return.
KINDS: dict[str, tuple[Any, Any]] = {
    "int": (1, -7),
    "large int": (2**53 + 1, -(2**53) - 1),
    "beyond int64": (2**63, 2**63 + 1),
    "beyond uint64": (2**64, -(10**30)),
    "beyond floats": (10**400, -(10**400)),
    "bool": (True, False),
    "float": (0.1, -0.0),
    "no number": (float("nan"), float("inf")),
    "complex": (1 + 2j, 3j),
    "derived float": (Number(0.5), Number(2)),
    "bool_": (np.bool_(True), np.bool_(False)),
    **{kind.__name__: (kind(-3), kind(7)) for kind in (np.int8, np.int32)},
    **{kind.__name__: (kind(200), kind(7)) for kind in (np.uint8, np.uint16)},
    "int64": (np.int64(2**53 + 1), np.int64(-7)),
    "uint64": (np.uint64(2**64 - 1), np.uint64(7)),
    **{kind.__name__: (kind(0.1), kind(-2)) for kind in (np.float16, np.float32, np.float64)},
    "longdouble": (np.longdouble("0.1"), np.longdouble(-2)),
    **{kind.__name__: (kind(2j), kind(3)) for kind in (np.complex64, np.clongdouble)},
    "datetime64": (np.datetime64("2020-01-01"), np.datetime64("2021")),
    "timedelta64": (np.timedelta64(3, "s"), np.timedelta64(7, "s")),
    "other timedelta64": (np.timedelta64(3, "ms"), np.timedelta64(1, "M")),
    "text": ("a", "long text"),
    "str_": (np.str_("a"), np.str_("long text")),
    "bytes": (b"a", b"long bytes"),
    "bytes_": (np.bytes_(b"a"), np.bytes_(b"long bytes")),
    "void": (np.void(b"ab"), np.zeros(1, RECORD)[0]),
    "None": (None, None),
    "0-d int": (np.array(3), np.array(-7)),
    "0-d bool": (np.array(True), np.array(False)),
    "0-d float32": (np.array(0.1, np.float32), np.array(-2, np.float32)),
    "0-d text": (np.array("a"), np.array("long text")),
    "0-d datetime64": (np.array(0, "M8[s]"), np.array(1, "M8[s]")),
    "0-d timedelta64": (np.array(3, "m8[s]"), np.array(7, "m8[s]")),
    "floats": (np.array([0.1, 2]), np.array([3.0, -0.0])),
    "int64s": (np.array([2**53 + 1, 2]), np.array([-1, -2])),
    "uint64s": (np.array([2**64 - 1, 2], np.uint64), np.array([1, 2], np.uint64)),
    "strided": (np.arange(4, dtype=np.float32)[::2], np.arange(4, dtype=np.float32)[1::2]),
    "in Fortran's order": (np.asfortranarray(np.eye(2)), np.asfortranarray(np.ones((2, 2)))),
    "swapped bytes": (np.array([1, 2], ">f4"), np.array([3, 4], ">f4")),
    "texts": (np.array(["a", "b"]), np.array(["long", "text"])),
    "datetimes": (np.array([1, 2], "M8[s]"), np.array([3, 4], "M8[s]")),
    "records": (np.zeros(2, RECORD), np.ones(2, RECORD)),
    "objects": (np.array([None, [1]], object), np.array([{"a": 1}, "b"], object)),
    "empty": (np.zeros((0, 2)), np.zeros((0, 2))),
    "masked": (
        np.ma.array([1.0, 2.0], mask=[True, False]),
        np.ma.array([3.0, 4.0], mask=[False, True]),
    ),
    "derived array": (np.ones(2).view(Marked), np.zeros(2).view(Marked)),
    "dict": ({"a": 1, "b": {"c": 2.5}}, {"a": -1, "b": {"c": 0}}),
    "other dict": ({"a": 0.5}, {"d": None}),
    "empty dict": ({}, {}),
    "derived dict": (defaultdict(int, a=1), defaultdict(int, a=2)),
    "list": ([1, [2]], []),
    "tuple": ((1, 2.5), (np.arange(2),)),
    "named tuple": (POINT(1, 2), POINT(3, [4])),
    "set": ({1, 2}, set()),
}
PAIRS = [f"{first}/{other}" for first in KINDS for other in KINDS]


def infos_of_pairs(pairs: Sequence[str] = PAIRS) -> list[dict[str, Any]]:
    """The infos of four environments: under each key, two return one kind and two another.

    The first or the third of them leaves out every other key; every third is two dicts deep.
    """
    infos: list[dict[str, Any]] = [{"nested": {"deep": {}}} for _ in range(4)]
    for number, pair in enumerate(pairs):
        pair_of_first, other = (KINDS[name] for name in pair.split("/"))
        for row, value in enumerate((pair_of_first[0], other[0], pair_of_first[1], other[1])):
            if row != (0, None, 2, None)[number % 4]:
                info = infos[row] if number % 3 else infos[row]["nested"]["deep"]
                info[pair] = value
    return infos


BOX = spaces.Box(0, 1, (1,))


def draw_infos(random: np.random.Generator, count: int, depth: int = 2) -> list[dict[str, Any]]:
    """Infos of environments: under each of a few keys, values of any kinds, dicts, or nothing."""
    infos: list[dict[str, Any]] = [{} for _ in range(count)]
    # NumPy unpickles swapped bytes as the machine has them; others here are listed as scalars.
    kinds = KINDS.keys() - {"swapped bytes", "0-d text", "0-d datetime64"}
    values = [value for kind in sorted(kinds) for value in KINDS[kind]]
    for key in "abc":
        inner = draw_infos(random, count, depth - 1) if depth else infos
        alike = values[2 * random.integers(len(values) // 2) :][:2]  # of one kind
        for info, deeper in zip(infos, inner, strict=True):
            which = random.integers(5)
            if which == 0 and depth:
                info[key] = deeper
            elif which < 4:
                source = alike if random.integers(4) else values
                info[key] = source[random.integers(len(source))]
    return infos


@pytest.mark.parametrize("seed", [*range(20), *(full(seed) for seed in range(20, 500))])
def test_merge_is_the_same_however_infos_are_cut_sent_and_listed(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 7))
    infos = draw_infos(random, count)
    whole = merged(infos)
    cuts = np.sort(random.integers(0, count + 1, random.integers(4))).tolist()
    pairs = list(itertools.pairwise([0, *cuts, count]))
    by_row = [InfosByRow({row: infos[row] for row in range(*pair)}) for pair in pairs]
    parts = list(map(gather, by_row))
    for pieces in (by_row, [by_row[0], *parts[1:]], parts, list(map(sent, parts))):
        assert_same_infos(merge(pieces, count), whole)
    arrived = split([sent(gather(dict(enumerate(infos))))], range(count))
    for row_info, info in zip(arrived.values(), infos, strict=True):
        assert_same_infos(row_info, info)
    listed = infos_as_list(whole, count)
    assert [set(info) for info in listed] == [set(info) for info in infos]
    assert_same_infos(merged(listed), whole)
    assert_same_infos(merge([columns_of(whole, count)], count), whole)
    members = [
        columns_of(merged(infos[low:end]), end - low, low) for low, end in pairs if low < end
    ]
    assert_same_infos(merge(list(map(sent, members)), count), merge(members, count))


def test_merge_of_all_pairs_of_kinds_has_their_values() -> None:
    assert len(KINDS) > 41
    infos = infos_of_pairs()
    whole = merged(infos)
    deep = [info.pop("nested")["deep"] for info in infos]
    for values, row_infos in ((whole, infos), (whole["nested"]["deep"], deep)):
        for key in row_infos[0]:
            for row, info in enumerate(row_infos):
                assert values[f"_{key}"][row] == (key in info)
                if key in info:
                    assert_holds(values[key], row, info[key])


def assert_holds(values: Any, row: int, returned: Any) -> None:
    """A row of merged infos holds what its environment returned, if need be in a wider dtype."""
    if isinstance(values, dict):
        for key, value in returned.items():
            assert_holds(values[key], row, value)
    elif values.dtype == object:
        assert_identical(values[row], returned)
    else:
        array = np.asarray(returned)
        assert array.dtype.kind == values.dtype.kind or (
            array.dtype.kind in "biuf" and values.dtype.kind in "iufc"
        )
        # NumPy rounds integers on their way to a longer complex dtype.
        dtype = np.complex128 if values.dtype.char == "G" else values.dtype
        np.testing.assert_array_equal(values[row].astype(dtype), array.astype(dtype))
        if values.dtype.kind in "iu":  # nothing is cut
            assert values[row].tolist() == array.tolist()


def test_merge_of_one_kind_is_gymnasiums() -> None:
    # Gymnasium truncates the second text, loses units and masks, and rounds large integers.
    wrong = {"texts", "0-d text", "timedelta64", "other timedelta64", "masked", "beyond int64"}
    wrong |= {"beyond uint64", "beyond floats", "objects", "derived array"}
    for name in KINDS.keys() - wrong:
        infos = [{name: value} for value in KINDS[name]]
        assert_same_infos(merged(infos), gymnasiums(infos))


def results_of(envs: Any) -> dict[str, Any]:
    """The infos that each way of stepping returns."""
    actions = np.zeros(4, np.int64)
    by_call = {"reset": envs.reset(seed=0)[1], "step": envs.step(actions)[4]}
    for env_ids in ([2, 0], [3, 0, 1]):
        by_call[f"step {env_ids}"] = envs.step(actions[: len(env_ids)], env_ids)[4]
    envs.send(actions[:2], [1, 2])
    received = envs.recv(2)
    singles = infos_as_list(received.infos, 2)
    if received.env_ids.tolist() == [2, 1]:
        singles.reverse()
    return {**by_call, "recv": dict(enumerate(singles))}


@pytest.mark.parametrize(("num_workers", "stride"), [(2, 5), *(full(n, 1) for n in (1, 2, 3, 4))])
def test_infos_do_not_depend_on_the_workers(num_workers: int, stride: int) -> None:
    env_fns = telling(infos_of_pairs(PAIRS[::stride]))
    with SyncVectorEnv(env_fns) as alone, AsyncVectorEnv(env_fns, num_workers=num_workers) as envs:
        expected = results_of(alone)
        for name, infos in results_of(envs).items():
            assert_same_infos(infos, expected[name])


def test_merge_of_a_dict_beside_another_kind_holds_the_very_values() -> None:
    value = {"deep": (1, [2]), "n": 3}
    rows = columns_of(merged([{"x": value}]), 1)
    other = columns_of(merged([{"x": None}]), 1, 1)
    array = merge([rows, other], 2)["x"]
    assert_identical(array.tolist(), [value, None])


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
@pytest.mark.parametrize("streams", [False, True])
def test_infos_that_hold_themselves_are_named(make: Any, streams: bool) -> None:
    endless: dict[str, Any] = {"n": 1}
    endless["me"] = endless
    zero = np.zeros(1, np.float32)
    steps = [(zero, 0.0, False, False, {"x": info}) for info in ({"n": 1}, {"n": 2}, endless)]
    with make([partial(Echo, BOX, [(zero, {})], [step]) for step in steps]) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidInfoError, match=r"environment 2: info\['x'\] holds itself"):
            if streams:
                envs.send(np.zeros(3, np.int64))
                envs.recv(3)
            else:
                envs.step(np.zeros(3, np.int64))
        # The other rows of a stream can go on.
        with pytest.raises(AlreadyPendingCallError if streams else ResetNeededError):
            envs.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("num_envs", [1, 2])
def test_merge_of_a_part_without_rows_is_empty(num_envs: int) -> None:
    assert merge([InfosByRow()], num_envs) == {}


@pytest.mark.parametrize(
    "info",
    [
        {"a": 1, "b": 2.5, "c": True, "d": np.float32(3)},
        {"a": 2**70, "b": 2**63},
        {"mask": np.ones(3, np.int8), "empty": np.zeros((2, 0)), "scalar": np.array(4, np.int16)},
        {"big": np.arange(3, dtype=">i4"), "names": np.array(["a", "bc"])},
        {"text": "a", "nested": {"x": 1, "y": np.zeros(2)}, "none": None},
        {"a": 1, "_a": 2},
        {"final_obs": np.zeros(2), "a": 1},
    ],
)
def test_merge_of_one_environment_is_a_row_of_the_merge_of_two(info: dict[str, Any]) -> None:
    alone = merge([InfosByRow({0: info})], 1)
    both = merge([InfosByRow({0: info, 1: info})], 2)
    assert list(alone) == list(both)
    for key, array in both.items():
        rows = {"": array} if not isinstance(array, dict) else array
        for name, values in rows.items():
            single = alone[key][name] if name else alone[key]
            assert (single.dtype, single.shape) == (values.dtype, (1, *values.shape[1:]))
            np.testing.assert_array_equal(single[0], values[0])
