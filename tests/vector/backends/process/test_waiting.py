"""Waits that poll for a short time before they sleep, and which processes do so."""

from __future__ import annotations

from functools import partial

import pytest

from tests.envs import ledgers
from vecspaces import system
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends import worker_setup
from vecspaces.vector.backends.process import backend, waiting
from vecspaces.vector.backends.process.waiting import SPIN_SECONDS, spin


class Clock:
    """A clock that looks advance by a microsecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def look(self, ready_at: float) -> list[str]:
        self.now += 1e-6
        return ["ready"] if self.now >= ready_at else []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(system, "yield_core", lambda: None)
    return clock


@pytest.mark.parametrize("ready_at", [0.0, SPIN_SECONDS / 2])
def test_spin_ends_when_something_is_ready(clock: Clock, ready_at: float) -> None:
    assert spin(partial(clock.look, ready_at)) == ["ready"]
    assert clock.now == pytest.approx(ready_at, abs=2e-6)


def test_spin_ends_after_a_constant_time(clock: Clock) -> None:
    assert spin(partial(clock.look, 1.0)) == []
    assert clock.now == pytest.approx(SPIN_SECONDS, abs=2e-6)


def test_spin_ends_when_another_process_kept_the_core(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "yield_core", lambda: setattr(clock, "now", 1.0))
    assert spin(partial(clock.look, 2.0)) == []
    assert clock.now == pytest.approx(1.0, abs=2e-6)


@pytest.mark.parametrize(
    ("workers", "spins", "most_working"),
    [(1, [True], 1), (2, [True, False], 1), (3, [False] * 3, 0)],
)
def test_processes_spin_where_no_other_one_needs_the_core(
    workers: int, spins: list[bool], most_working: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (worker_setup, backend):
        monkeypatch.setattr(module, "count_usable_cores", lambda: 2)
    with AsyncVectorEnv(ledgers(3), num_workers=workers) as envs:
        assert [setup.spins for setup in envs._backend._setups] == spins
        assert envs._backend._most_working == most_working
        envs.reset(seed=1)
        assert envs.step([1] * 3)[0][:, 2].tolist() == [1] * 3
