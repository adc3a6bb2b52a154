"""Infos in cells: the same values and types as by any other way."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import pytest

from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.exchange.infos import merge, split
from vecspaces.vector.exchange.tables import CELL_BYTES, MOST_KEYS, Cells, Form, join, select

NUM_ENVS = 6
# The infos of successive steps: forms that change, differ between environments, or have no form.
STEPS: list[Any] = [
    lambda number: {"x": float(number), "y": np.float32(0.1) * number, "n": number},
    lambda number: {"x": float(number + 1), "y": np.float32(0.3) * number, "n": -number},
    lambda number: {"n": np.int32(number), "b": number > 2},
    lambda number: {"c": np.bool_(number < 2)},
    lambda number: {"n": number, "b": number > 2} if number < 3 else {"b": 0.5, "n": np.int64(3)},
    lambda number: {"x": float(number)} if number % 2 else {"y": number},
    lambda number: {"x": number, "text": "a"},
    lambda number: {"x": 2**70 + number},
    lambda number: {"x": np.nan, "_x": 1},
    lambda number: {f"key{key}": key * number for key in range(MOST_KEYS + number // 5)},
    lambda number: {1: 2.0},
    lambda number: {},
    lambda number: {"x": float("-inf"), "y": 2**63 - 1, "z": -(2**63)},
]


class Reporting(Env[Any, Any]):
    """Reports the infos of `STEPS` in turn."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, number: int) -> None:
        self._number, self._steps = number, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        return 0, 0.0, False, False, STEPS[(self._steps - 1) % len(STEPS)](self._number)


def make(number: int) -> Any:
    return lambda: Reporting(number)


FACTORIES = [make(number) for number in range(NUM_ENVS)]
ACTIONS = np.zeros(NUM_ENVS, np.int64)


def assert_same(infos: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(infos) == list(expected)
    for key, values in expected.items():
        assert infos[key].dtype == values.dtype, key
        np.testing.assert_array_equal(infos[key], values)
        assert infos[key].flags.writeable and infos[key].flags.owndata


@pytest.mark.parametrize("num_workers", [1, 2, 3, NUM_ENVS])
def test_step_returns_the_same_infos_as_sync(num_workers: int) -> None:
    with (
        SyncVectorEnv(FACTORIES) as sync,
        AsyncVectorEnv(FACTORIES, num_workers=num_workers) as envs,
    ):
        sync.reset(), envs.reset()
        kept = []
        for _ in range(2 * len(STEPS)):
            infos, expected = envs.step(ACTIONS)[4], sync.step(ACTIONS)[4]
            assert_same(infos, expected)
            kept.append((infos, expected))
        for infos, expected in kept:  # later steps do not overwrite them
            assert_same(infos, expected)


@pytest.mark.parametrize("count", [1, 4, NUM_ENVS])
def test_recv_returns_the_infos_of_each_environment(count: int) -> None:
    with AsyncVectorEnv(FACTORIES, num_workers=2) as envs:
        envs.reset(), envs.recv(NUM_ENVS)
        steps, kept = [0] * NUM_ENVS, []
        envs.send(ACTIONS)
        for _ in range(3 * len(STEPS)):
            result = envs.recv(count)
            rows = result.env_ids.tolist()
            expected = [STEPS[steps[row] % len(STEPS)](row) for row in rows]
            for row in rows:
                steps[row] += 1
            envs.send(ACTIONS[rows], rows)
            kept.append((result, expected))
        for result, expected in kept:  # the rows have taken other steps meanwhile
            for info, wanted in zip(result.row_infos, expected, strict=True):
                np.testing.assert_equal(info, wanted)
                assert [*map(type, info.values())] == [*map(type, wanted.values())]
            numbers = [number for number, info in enumerate(expected) if "n" in info]
            if numbers:
                assert np.flatnonzero(result.infos["_n"]).tolist() == numbers
                values = [expected[number]["n"] for number in numbers]
                assert result.infos["n"][numbers].tolist() == values


def test_recv_returns_rows_whose_workers_report_different_forms() -> None:
    with AsyncVectorEnv(FACTORIES, num_workers=NUM_ENVS) as envs:
        envs.reset(), envs.recv(NUM_ENVS)
        for steps, row in itertools.product(range(4), range(3)):
            if steps > row:
                continue
            envs.send(ACTIONS[[row]], [row])
            envs.recv(1)
        envs.send(ACTIONS)  # environment i takes step i + 1, or its first
        result = envs.recv(NUM_ENVS)
        for row, info in zip(result.env_ids.tolist(), result.row_infos, strict=True):
            np.testing.assert_equal(info, STEPS[row + 1 if row < 3 else 0](row))


class Silent(Reporting):
    """Reports one number; after action 1 no info."""

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {} if action else {"x": self._number}


def test_recv_returns_no_old_infos_of_a_row_without_infos() -> None:
    with AsyncVectorEnv([lambda: Silent(0), lambda: Silent(1)], num_workers=1) as envs:
        envs.reset(), envs.recv(2)
        for _ in range(30):  # until the worker reports both rows together
            envs.send([0, 0]), envs.recv(2)
        envs.send([0, 0])
        (row,) = envs.recv(1).env_ids.tolist()
        envs.send([1], [row])
        result = envs.recv(2)  # the answer of the other row has the old infos of this row too
        infos = dict(zip(result.env_ids.tolist(), result.row_infos, strict=True))
        assert infos == {row: {}, 1 - row: {"x": 1 - row}}
        assert result.infos["_x"].tolist() == (result.env_ids != row).tolist()


class Key(str):
    """A key that equals a plain one, and whose mask has another name."""

    def __format__(self, spec: str) -> str:
        return "other"


def test_write_refuses_keys_of_a_subclass_that_equal_earlier_keys() -> None:
    cells = make_cells()
    assert cells.write([0], {0: {"x": 1.0}}) is not None
    assert cells.write([0], {0: {Key("x"): 1.0}}) is None
    assert cells.write([0], {0: {"x": 1.0}}) is not None


def make_cells() -> Cells:
    return Cells(np.zeros(MOST_KEYS * CELL_BYTES * NUM_ENVS, np.uint8), NUM_ENVS)


def test_cells_keep_rows_apart_whose_kinds_differ() -> None:
    cells = make_cells()
    first = {row: {"x": -(row + 1)} for row in (0, 1)}
    second = {row: {"x": True} for row in (2, 3, 4, 5)}
    forms = [cells.write([0, 1], first), cells.write([2, 3, 4, 5], second)]
    assert forms == [Form(("x",), b"\1"), Form(("x",), b"\2")]
    parts = [cells.table([0, 1], forms[0]), cells.table([2, 3, 4, 5], forms[1])]
    assert split(parts, range(NUM_ENVS)) == {**first, **second}
    assert join(parts) is None
    assert merge(parts, NUM_ENVS)["x"].tolist() == [-1, -2, 1, 1, 1, 1]


def test_write_refuses_rows_that_are_not_consecutive_or_lack_infos() -> None:
    cells, infos = make_cells(), {row: {"x": 1.0} for row in (0, 2)}
    assert cells.write([0, 2], infos) is None
    assert cells.write([0, 1], {0: {"x": 1.0}}) is None
    assert cells.write([], {}) is None
    assert cells.write([0, 1], {0: {"x": 1.0}, 1: {"x": 1}}) is None


def test_table_keeps_few_forms() -> None:
    cells, memory = make_cells(), []
    for kinds in itertools.islice(itertools.product(b"\0\1\2", repeat=6), 700):
        form = Form(tuple("abcdef"), bytes(kinds))
        tables = [cells.table([0, 1], form), cells.table([2], form)]
        memory.append(weakref.ref(tables[0].arrays[0]))
        assert join(tables) is not None
    assert sum(array() is not None for array in memory) <= 64


def test_select_needs_exactly_the_rows_of_the_tables() -> None:
    cells = make_cells()
    form = cells.write(range(NUM_ENVS), {row: {"x": row} for row in range(NUM_ENVS)})
    assert form is not None
    parts = [cells.table([4, 1], form), cells.table([3], form)]
    rows = [1, 3, 4]
    chosen = select(parts, rows, np.array(rows))
    assert chosen is not None and chosen.arrays[0].tolist() == rows
    for other in ([1, 3], [1, 3, 5], [0, 1, 3, 4]):
        assert select(parts, other, np.array(other)) is None
    assert select([*parts, parts[1]], rows, np.array(rows)) is None
