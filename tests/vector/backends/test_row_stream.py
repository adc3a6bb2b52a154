"""RowStream: how many rows a worker reports together."""

from __future__ import annotations

from typing import Any, cast

import pytest

from vecspaces.vector.backends import row_stream
from vecspaces.vector.backends.row_stream import RowStream
from vecspaces.vector.exchange.messages import StepRows, Written


class Clock:
    """What stands in the place of `time` in the module."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Group:
    """A group whose environments take known times; pairs of rows may be one vector env."""

    def __init__(self, clock: Clock, seconds: dict[int, float], width: int = 1) -> None:
        self.clock, self.seconds, self.width = clock, seconds, width

    def divide(self, payload: Any) -> Any:
        return [(self, payload)]

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
    monkeypatch.setattr(row_stream, "time", clock)
    return clock


def steps(stream: RowStream, share: int, count: int = 8) -> list[int]:
    """Step the first rows; return how many were reported at a time."""
    parts: Any = list(stream.step(0, StepRows(range(count), {}, [], share)))
    assert [row for part in parts for row in part] == list(range(count))
    return [len(part) for part in parts]


@pytest.mark.parametrize(
    ("seconds", "share", "width", "parts"),
    [
        (0.0, 1, 1, [8]),
        (30e-6, 1, 1, [4, 4]),
        (200e-6, 1, 1, [1] * 8),
        (200e-6, 4, 1, [4, 4]),
        (200e-6, 6, 1, [8]),
        (2e-3, 4, 1, [3, 3, 2]),
        (1.0, 8, 1, [1] * 8),
        (1e-3, 1, 2, [2] * 4),  # a vector env is reported as a whole
    ],
)
def test_rows_are_reported_together_where_they_are_cheap_or_wanted_at_once(
    clock: Clock, seconds: float, share: int, width: int, parts: list[int]
) -> None:
    stream = RowStream(cast("Any", Group(clock, dict.fromkeys(range(8), seconds), width)))
    assert steps(stream, share)[0] == width  # the first row is reported by itself
    for _ in range(2000):  # a clock that stands still leaves no division by zero
        found = steps(stream, share)
    assert found == parts


def test_a_slow_row_makes_the_next_reports_smaller(clock: Clock) -> None:
    group = Group(clock, dict.fromkeys(range(8), 1e-3))
    stream = RowStream(cast("Any", group))
    for _ in range(9):
        steps(stream, 8)
    group.seconds[2] = 1.0
    for _ in range(9):
        found = steps(stream, 8)
    # Others wait for it at most once, and those that follow it are not held back.
    assert found[-5:] == [1] * 5
