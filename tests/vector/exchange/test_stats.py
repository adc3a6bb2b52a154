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
from vecspaces.vector.exchange import stats as stats_module
from vecspaces.vector.exchange.stats import ENV_SHAPE, WORKER_SHAPE, Stats, Timings, summarise


class Clock:
    """A clock that stands still until it is moved on."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(stats_module, "perf_counter_ns", found)
    return found


def summarised(environments: Any, worker: Any) -> Stats:
    """The statistics of one worker that was never replaced."""
    none, nothing = np.zeros((1, 2), int), np.zeros(len(environments), int)
    slices = (range(len(environments)),)
    return summarise(environments, worker, slices, None, none[:, 0], nothing)


class Counted:
    """Timings, whose counters are read as statistics."""

    def __init__(self, count: int) -> None:
        self.environments = np.zeros((count, *ENV_SHAPE), np.int64)
        self.worker = np.zeros((1, *WORKER_SHAPE), np.int64)
        self.timings = self.of(range(count))

    def of(self, rows: range, **options: bool) -> Timings:
        """Timings of some rows."""
        return Timings(self.environments, self.worker[0], rows, **options)

    def stats(self) -> Stats:
        self.timings.flush()
        return summarised(self.environments, self.worker)


def run(counted: Counted, clock: Clock, took: dict[int, int]) -> None:
    """Time one pass over rows, each of which takes as many nanoseconds."""
    note = counted.timings.start()
    for nanoseconds in took.values():
        clock.now += nanoseconds
        note(clock.now)
    counted.timings.finish(None if len(took) == len(counted.environments) else list(took))


def test_means_longest_steps_and_what_lies_between_passes(clock: Clock) -> None:
    counted = Counted(2)
    for number in range(3000):  # more than one flush
        run(counted, clock, {0: 1_000_000, 1: 50_000_000 if number == 3 else 2_000_000})
        clock.now += 7_000_000
        run(counted, clock, {1: 2_000_000})
    stats = counted.stats()
    assert stats.steps.tolist() == [3000, 6000]
    mean = (50e-3 + 5999 * 2e-3) / 6000
    assert stats.step_mean == pytest.approx([1e-3, mean])
    assert stats.step_max == pytest.approx([1e-3, 50e-3])
    busy = 3000 * 1e-3 + 6000 * mean
    assert stats.busy_seconds == pytest.approx([busy])
    assert stats.worker_busy == pytest.approx([busy / (busy + 3000 * 7e-3)])


def test_a_pass_that_failed_counts_for_nothing(clock: Clock) -> None:
    counted = Counted(2)
    run(counted, clock, {0: 1000, 1: 1000})
    counted.timings.start()(clock.now)
    run(counted, clock, {0: 1000, 1: 1000})
    assert counted.stats().steps.tolist() == [2, 2]


def test_the_rows_of_a_vector_env_share_its_time(clock: Clock) -> None:
    counted = Counted(4)
    counted.timings = counted.of(range(1))
    vector = counted.of(range(1, 4), together=True, is_first=False)
    run(counted, clock, {0: 1_000_000})
    note = vector.start()
    clock.now += 6_000_000
    note(clock.now)
    vector.finish(range(1, 4))
    clock.now += 3_000_000
    vector.flush()
    stats = counted.stats()
    assert stats.steps.tolist() == [1, 1, 1, 1]
    assert stats.step_mean == pytest.approx([1e-3, 6e-3, 6e-3, 6e-3])
    assert counted.worker[0].tolist() == [7_000_000, 10_000_000]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_streams_are_timed_too(shared_memory: bool) -> None:
    arguments = {"num_workers": 2, "batch_size": 2, "shared_memory": shared_memory}
    with AsyncVectorEnv(ledgers(4), stats=True, **arguments) as envs:
        envs.reset(seed=0)
        taken = np.zeros(4, int)
        for _ in range(20):
            transition = envs.recv()
            envs.send(np.zeros(2, int), transition.env_ids)
            taken[transition.env_ids] += 1
        with contextlib.suppress(NoAsyncCallError):
            while True:
                envs.recv()
        stats = envs.stats()
        assert stats.steps.tolist() == taken.tolist()


def test_a_failed_step_counts_for_nothing_and_the_next_ones_do() -> None:
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


def test_only_an_idle_vector_env_is_asked_anew() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, stats=True) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        assert envs.stats().steps.tolist() == [1, 1]
        envs.step_async([0, 0])
        assert envs.stats().steps.tolist() == [1, 1]
        envs.step_wait()
        assert envs.stats().steps.tolist() == [2, 2]


# ---------------------------------------------------------------------- the caller's time


class Slow(Ledger):
    """Moves the clock on by four milliseconds per step."""

    clock: Clock

    def step(self, action: Any) -> Any:
        self.clock.now += 4_000_000
        return super().step(action)


def shares(envs: Any) -> list[float]:
    stats = envs.stats()
    return [stats.caller_outside, stats.caller_computing, stats.caller_waiting]


def test_a_worker_that_died_is_found_in_stats() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, stats=True) as envs:
        envs.reset()
        kill(envs.processes[:1])
        with pytest.raises(WorkerDiedError, match="during stats: call reset"):
            envs.stats()


def test_the_callers_time_is_divided(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    Slow.clock = clock
    begin = Engine.issue_step

    def begin_slowly(engine: Engine, *arguments: Any) -> None:
        clock.now += 1_000_000
        begin(engine, *arguments)

    monkeypatch.setattr(Engine, "issue_step", begin_slowly)
    with SyncVectorEnv([partial(Slow, 0, length=99)] * 2, stats=True) as envs:
        clock.now += 99_000_000
        envs.reset(seed=0)
        for _ in range(10):
            clock.now += 7_000_000
            envs.step([0, 0])
        assert shares(envs) == pytest.approx([7 / 16, 1 / 16, 8 / 16])
        assert envs.stats().bottleneck == (
            "the environments take 50%: more workers help where cores are idle"
        )
        for _ in range(10):
            envs.step_async([0, 0])
            clock.now += 9_000_000
            envs.step_wait()
        assert shares(envs) == pytest.approx([16 / 34, 2 / 34, 16 / 34])
        clock.now += 160_000_000
        envs.call(repr)
        assert envs.stats().bottleneck == "the policy takes 64%: more workers will not help"
        clone = copy.deepcopy(envs)
        clone.step([0, 0])
        assert shares(clone) == pytest.approx([320 / 509, 21 / 509, 168 / 509])
        clone.close()


@pytest.mark.parametrize("way", ["step", "stream"])
def test_waits_for_workers_are_apart(
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


def test_a_call_that_is_refused_leaves_the_program_outside(clock: Clock) -> None:
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


def test_the_bottleneck_is_one_sentence() -> None:
    def sentence(*caller: float, busy: float = 0.0) -> str:
        counters = np.zeros((1, *ENV_SHAPE), np.int64)
        counters[0, 0] = 1
        worker = np.array([[busy * 1e9, 1e9]])
        stats = summarised(counters, worker.astype(np.int64))
        given = dict(
            zip(("caller_outside", "caller_computing", "caller_waiting"), caller, strict=True)
        )
        return dataclasses.replace(stats, **given).bottleneck

    assert sentence(0.71, 0.09, 0.2) == "the policy takes 71%: more workers will not help"
    assert "vecspaces takes 60% in the caller" in sentence(0.3, 0.6, 0.1)
    assert "the environments take 80%" in sentence(0.1, 0.1, 0.8, busy=0.7)
    assert "compute for more than 10%: fewer workers" in sentence(0.1, 0.1, 0.8, busy=0.1)
    assert sentence(0, 0, 0) == "no steps were taken since the first reset"
