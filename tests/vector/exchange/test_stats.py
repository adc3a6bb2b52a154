"""How long steps take: what is counted, for whom, and what is not."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Failing, Ledger, ledgers
from tests.vector.bounds import kill
from vecspaces.errors import InvalidActionError, NoAsyncCallError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.process.channel import Poller
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.tickets import Ticket
from vecspaces.vector.exchange import stats
from vecspaces.vector.group import single_envs, vector_member


class Clock:
    """A clock that stands still until it is moved on."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fixed = Clock()
    for module in (stats, single_envs, vector_member):
        monkeypatch.setattr(module, "perf_counter_ns", fixed)
    return fixed


class Slow(Ledger):
    """A step takes one millisecond of the clock, and one more for each unit of the action."""

    clock: Clock

    def step(self, action: Any) -> Any:
        self.clock.now += 1_000_000 * (1 + int(action))
        return super().step(action)


@pytest.fixture
def slow(clock: Clock) -> Any:
    """Return a factory of such environments, whose episodes do not end."""
    Slow.clock = clock
    return partial(Slow, length=10**6)


def test_stats_have_means_longest_steps_and_busy_shares(clock: Clock, slow: Any) -> None:
    with SyncVectorEnv([slow] * 2, stats=True) as envs:
        envs.reset(seed=0)
        for number in range(3000):  # more than one flush
            envs.step([0, 4 if number == 3 else 1])
            clock.now += 7_000_000
            envs.step([1], env_ids=[1])
        measured = envs.stats()
    assert measured.steps.tolist() == [3000, 6000]
    mean = (5e-3 + 5999 * 2e-3) / 6000
    assert measured.step_mean == pytest.approx([1e-3, mean])
    assert measured.step_max == pytest.approx([1e-3, 5e-3])
    busy = 3000 * 1e-3 + 6000 * mean
    assert measured.busy_seconds == pytest.approx([busy])
    assert measured.worker_busy == pytest.approx([busy / (busy + 3000 * 7e-3)])


def test_stats_divide_the_time_of_a_vector_env_among_its_rows(clock: Clock, slow: Any) -> None:
    with SyncVectorEnv([slow, partial(SyncVectorEnv, [slow] * 3)], stats=True) as envs:
        envs.reset(seed=0)
        envs.step([0, 1, 1, 1])
        clock.now += 3_000_000
        measured = envs.stats()
    assert measured.steps.tolist() == [1, 1, 1, 1]
    assert measured.step_mean == pytest.approx([1e-3, 6e-3, 6e-3, 6e-3])
    assert measured.busy_seconds == pytest.approx([7e-3])
    assert measured.worker_busy == pytest.approx([0.7])


@pytest.mark.parametrize(("shared_memory", "begin"), [(True, "reset"), (False, "send_reset")])
def test_stats_count_streams_too(shared_memory: bool, begin: str) -> None:
    arguments = {"num_workers": 2, "batch_size": 2, "shared_memory": shared_memory}
    with AsyncVectorEnv(ledgers(4), stats=True, **arguments) as envs:
        getattr(envs, begin)(seed=0)
        taken = np.full(4, begin == "send_reset", int)  # which counts as a step
        for _ in range(20):
            transition = envs.recv()
            envs.send(np.zeros(2, int), transition.env_ids)
            taken[transition.env_ids] += 1
        with contextlib.suppress(NoAsyncCallError):
            while True:
                envs.recv()
        measured = envs.stats()
        assert measured.steps.tolist() == taken.tolist()
        shares = measured.caller_outside, measured.caller_computing, measured.caller_waiting
        assert sum(shares) == pytest.approx(1)


def test_stats_leave_out_a_failed_step_alone() -> None:
    with AsyncVectorEnv([Failing] * 2, num_workers=1, stats=True) as envs:
        for _ in range(2):
            envs.reset(seed=0)
            envs.step([1, 1])
            with pytest.raises(FloatingPointError):
                envs.step([0, 4])
            assert envs.stats().steps.tolist() == [0, 0]
            envs.reset(seed=0)
            envs.step([1, 1])
        assert envs.stats().steps.tolist() == [4, 4]


def test_stats_ask_only_an_idle_vector_env_anew() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, stats=True) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        assert envs.stats().steps.tolist() == [1, 1]
        envs.step_async([0, 0])
        assert envs.stats().steps.tolist() == [1, 1]
        envs.step_wait()
        assert envs.stats().steps.tolist() == [2, 2]


def shares(envs: Any) -> list[float]:
    measured = envs.stats()
    return [measured.caller_outside, measured.caller_computing, measured.caller_waiting]


def test_stats_raise_if_a_worker_died() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, stats=True) as envs:
        envs.reset()
        kill(envs.processes[:1])
        with pytest.raises(WorkerDiedError, match="during stats: call reset"):
            envs.stats()


def test_stats_divide_the_callers_time(
    clock: Clock, slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Engine._send_step

    def send_slowly(engine: Engine, name: str) -> Ticket:
        clock.now += 1_000_000
        return send(engine, name)

    monkeypatch.setattr(Engine, "_send_step", send_slowly)
    with SyncVectorEnv([slow] * 2, stats=True) as envs:
        clock.now += 99_000_000
        envs.reset(seed=0)
        for _ in range(10):
            clock.now += 7_000_000
            envs.step([3, 3])
        assert shares(envs) == pytest.approx([7 / 16, 1 / 16, 8 / 16])
        assert envs.stats().bottleneck == (
            "the environments take 50%: more workers help where cores are idle"
        )
        for _ in range(10):
            envs.step_async([3, 3])
            clock.now += 9_000_000
            envs.step_wait()
        assert shares(envs) == pytest.approx([16 / 34, 2 / 34, 16 / 34])
        clock.now += 160_000_000
        envs.call(repr)
        assert envs.stats().bottleneck == "the policy takes 64%: more workers will not help"
        clone = copy.deepcopy(envs)
        clone.step([3, 3])
        assert shares(clone) == pytest.approx([320 / 509, 21 / 509, 168 / 509])
        clone.close()


@pytest.mark.parametrize("way", ["step", "stream"])
def test_stats_have_waits_for_workers_apart(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    waits = 0
    wait = Poller.wait

    def wait_long(poller: Poller, *arguments: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        clock.now += 1_000_000
        return wait(poller, *arguments, **options)

    with AsyncVectorEnv(ledgers(4), num_workers=2, stats=True, batch_size=2) as envs:
        envs.reset(seed=0)
        if way == "stream":
            envs.recv(4)
        monkeypatch.setattr(Poller, "wait", wait_long)
        for _ in range(5):
            clock.now += 2_000_000
            if way == "step":
                envs.step([0] * 4)
            else:
                envs.send([0] * 4)
                clock.now += 2_000_000
                envs.recv(4)
        counted = waits
        outside, computing, waiting = shares(envs)
        total = 10 * (1 + (way == "stream")) + counted
        # The flush of the counters waits too, for each worker at most once.
        assert waiting == pytest.approx(counted / total, abs=2 / total)
        assert outside == pytest.approx(1 - waiting) and computing == 0


def test_stats_count_refused_calls_as_outside(clock: Clock) -> None:
    with SyncVectorEnv(ledgers(2), stats=True) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            clock.now += 5_000_000
            with pytest.raises(NoAsyncCallError):
                envs.recv(3)
            clock.now += 5_000_000
            with pytest.raises(InvalidActionError):
                envs.step_async([0, 99, 0])
        clock.now += 5_000_000
        envs.step([0, 0])
        assert shares(envs) == [1.0, 0.0, 0.0]


def test_stats_bottleneck_is_one_sentence() -> None:
    with SyncVectorEnv(ledgers(1), stats=True) as envs:
        envs.reset(seed=0)
        envs.step([0])
        measured = envs.stats()

    def sentence(*caller: float, busy: float = 0.0) -> str:
        shares = zip(("caller_outside", "caller_computing", "caller_waiting"), caller, strict=True)
        changed = dataclasses.replace(measured, worker_busy=np.array([busy]), **dict(shares))
        return changed.bottleneck

    assert sentence(0.71, 0.09, 0.2) == "the policy takes 71%: more workers will not help"
    assert "vecspaces takes 60% in the caller" in sentence(0.3, 0.6, 0.1)
    assert "the environments take 80%" in sentence(0.1, 0.1, 0.8, busy=0.7)
    assert "compute for more than 10%: fewer workers" in sentence(0.1, 0.1, 0.8, busy=0.1)
    assert sentence(0, 0, 0) == "no steps were taken since the first reset"
