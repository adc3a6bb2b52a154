"""How many rows a worker reports together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vecspaces.vector.backends.backend import pack_part
from vecspaces.vector.backends.process import worker as module
from vecspaces.vector.backends.process.worker import Worker
from vecspaces.vector.exchange.messages import Written


class Clock:
    """What stands in the place of `time` in the worker's module."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Group:
    """A group whose environments take known times; pairs of rows may be one vector env."""

    def __init__(self, clock: Clock, seconds: dict[int, float], width: int = 1) -> None:
        self.clock, self.seconds, self.width = clock, seconds, width

    def begin(self, rows: list[int], starts: Any, broken: Any) -> Written:
        assert not starts and not broken
        return Written(rows, [])

    def whole(self, rows: list[int]) -> list[list[int]]:
        return [rows[at : at + self.width] for at in range(0, len(rows), self.width)]

    def step(self, slot: int, rows: list[int]) -> list[int]:
        self.clock.now += sum(self.seconds[row] for row in rows)
        return rows


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def steps(worker: Worker, share: int, count: int = 8) -> list[int]:
    """Step the first rows; return how many were reported at a time."""
    parts: Any = list(worker._step_rows(0, list(range(count)), {}, [], share))
    assert [row for part in parts for row in part] == list(range(count))
    return [len(part) for part in parts]


def make(group: Any) -> Worker:
    nothing: Any = SimpleNamespace(index=0)
    return Worker(nothing, group, nothing)


@pytest.mark.parametrize(
    ("seconds", "share", "width", "parts"),
    [
        (0.0, 1, 1, [8]),
        (1e-6, 1, 1, [8]),
        (30e-6, 1, 1, [4, 4]),
        (200e-6, 1, 1, [1] * 8),
        (200e-6, 4, 1, [4, 4]),
        (200e-6, 6, 1, [8]),
        (200e-6, 5, 1, [4, 4]),
        (200e-6, 100, 1, [8]),
        (2e-3, 4, 1, [3, 3, 2]),
        (1.0, 8, 1, [1] * 8),
        (1e-3, 1, 2, [2] * 4),  # a vector env is reported as a whole
    ],
)
def test_rows_are_reported_together_where_they_are_cheap_or_wanted_at_once(
    clock: Clock, seconds: float, share: int, width: int, parts: list[int]
) -> None:
    worker = make(Group(clock, dict.fromkeys(range(8), seconds), width))
    assert steps(worker, share)[0] == width  # the first row is reported by itself
    for _ in range(2000):  # a clock that stands still leaves no division by zero
        found = steps(worker, share)
    assert found == parts


def test_a_slow_row_makes_the_next_reports_smaller(clock: Clock) -> None:
    group = Group(clock, dict.fromkeys(range(8), 1e-3))
    worker = make(group)
    for _ in range(9):
        steps(worker, 8)
    group.seconds[2] = 1.0
    for _ in range(9):
        found = steps(worker, 8)
    # Others wait for it at most once, and those that follow it are not held back.
    assert found[-5:] == [1] * 5


def test_a_report_for_which_memory_runs_out_is_an_error() -> None:
    def dumps(value: Any) -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        pack_part(Written([0, 1], []), (b"large", None), dumps, dumps)
