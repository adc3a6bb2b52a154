"""`concurrent_envs`: environments of a process that step at the same time, each in one thread.

That results are those of environments in line is the contract's and the state machine's to check.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crosses import diagonal, ordinarily
from tests.envs import Failing, Gated, Ledger, Patient, ledgers
from tests.interrupts import Interrupts
from tests.vector.bounds import (
    interrupted_when,
    overrun,
    running,
    settled,
    wait_until_running,
    within,
)
from tests.vector.test_send_recv import times
from vecspaces import Env, spaces
from vecspaces.errors import (
    ClosedEnvironmentError,
    InvalidInfoError,
    NoAsyncCallError,
    ResetNeededError,
    SlowEnvironmentWarning,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

KINDS: dict[str, Any] = {
    "sync": SyncVectorEnv,
    "one worker": partial(AsyncVectorEnv, num_workers=1),
    "two workers": partial(AsyncVectorEnv, num_workers=2),
}
# One worker and two differ in how rows are divided, which the crosses below try.
of_each_kind = pytest.mark.parametrize(
    "kind",
    ordinarily(lambda kind: kind is not KINDS["one worker"], zip(KINDS.values(), strict=True)),
    ids=KINDS,
)


class Homebody(Env[Any, Any]):
    """Notes every thread that touches it; its episodes take two steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, folder: Path | None = None) -> None:
        self.threads = {threading.current_thread().name}
        self.folder = folder
        self.time = 0

    def note(self, *_: Any, **__: Any) -> set[str]:
        self.threads.add(threading.current_thread().name)
        return self.threads

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.note()
        self.time = 0
        return self.observe(), {"time": 0}

    def step(self, action: Any) -> Any:
        self.note()
        if action == 2:
            raise FloatingPointError("a two")
        self.time += 1
        return self.observe(), float(action), self.time == 2, False, {"time": self.time}

    def observe(self) -> Any:
        self.note()
        return np.array([self.time, self.np_random.random()])

    def render(self) -> Any:
        return sorted(self.note())

    def close(self) -> None:
        if self.folder is not None:
            (self.folder / uuid.uuid4().hex).write_text(" ".join(self.note()))


@diagonal(kind=KINDS, mode=["NextStep", "SameStep"], threads=[2, 3, 99])
def test_an_environment_lives_in_one_thread(
    kind: Any, mode: str, threads: int, tmp_path: Path
) -> None:
    factory = partial(Homebody, tmp_path)
    with kind([factory] * 5, concurrent_envs=threads, autoreset_mode=mode) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(np.zeros(5, int))
        envs.send(np.zeros(5, int))
        envs.recv()
        envs.reset(options={"reset_mask": np.array([True] * 2 + [False] * 3)})
        envs.step(np.zeros(2, int), env_ids=[1, 2])
        envs.set_attr("extra", 1)
        with pytest.raises(FloatingPointError):
            envs.step([0, 2, 0, 0, 0])
        envs.reset()  # builds environment 1 again
        homes = envs.call("note")
        assert [set(shown) for shown in envs.render()] == list(homes)
        assert all(len(home) == 1 for home in homes)
        for rows in [[0, 1], [2, 3, 4]] if kind is KINDS["two workers"] else [range(5)]:
            names = [next(iter(homes[row])) for row in rows]
            assert names == [f"vecspaces-env-{at % threads}" for at in range(len(rows))]
    closed = [path.read_text().split() for path in tmp_path.iterdir()]
    assert len(closed) == 6 and all(len(names) == 1 for names in closed)


@of_each_kind
def test_rows_are_received_as_each_is_ready(kind: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env_fns = [partial(Gated, gate, number, length=99) for number in range(4)]
    with kind(env_fns, concurrent_envs=4) as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send([4, 1, 4, 1])
        assert sorted(times(envs.recv(2, timeout=20))) == [1, 3]
        wait_until_running(envs, 0, 2)  # at the same time
        # Neighbours of those that hang step and are called meanwhile.
        envs.send([1], [3])
        assert times(envs.recv(1, timeout=20)) == {3: 2}
        assert envs.call("multiply", 1, env_ids=[1]) == (1,)
        envs.send_reset([1])
        assert times(envs.recv(1, timeout=20)) == {1: 0}
        gate.touch()
        assert sorted(times(envs.recv(2, timeout=20))) == [0, 2]


@of_each_kind
def test_the_lowest_failure_is_raised_and_others_take_their_step(kind: Any) -> None:
    env_fns = [partial(Failing, number, length=99) for number in range(4)]
    with kind(env_fns, concurrent_envs=4) as envs:
        envs.reset(seed=0)
        with pytest.raises(FloatingPointError, match="number 1"):
            envs.step([1, 4, 4, 1])
        if kind is SyncVectorEnv:
            assert [env.time for env in envs.envs] == [1, 0, 0, 1]
        observations, _ = envs.reset(seed=0)
        assert len(observations) == 4
        envs.step([1, 1, 1, 1])


# ---------------------------------------------------------------------- what hangs


class Stuck(Env[Any, Any]):
    """Waits at the action 2 until it is told to go on, in all environments of the process."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)
    go_on = threading.Event()

    def __init__(self, sign: Path | None = None) -> None:
        self.sign, self.time = sign, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.array([0.0]), {}

    def step(self, action: Any) -> Any:
        if action == 2:
            wait_for_the_end(self.sign)
            self.time = 1000
        self.time += 1
        return np.array([float(self.time)]), float(self.time), False, False, {}

    def ponder(self, sign: Path) -> int:
        wait_for_the_end(sign)
        return 7

    def close(self) -> None:
        if self.sign is not None:
            (self.sign.parent / f"closed {id(self)}").touch()


def wait_for_the_end(sign: Path | None) -> None:
    give_up = time.monotonic() + 60
    while not Stuck.go_on.is_set() and time.monotonic() < give_up:
        if sign is not None and sign.exists():
            return
        time.sleep(0.002)


@pytest.fixture
def released() -> Iterator[None]:
    """Let threads that hang in this process go on, at the end."""
    Stuck.go_on.clear()
    yield
    Stuck.go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("vecspaces-env-"):
            thread.join(10)
    Stuck.go_on.clear()


SOON = overrun(0.25)
STUCK_LINES = ("in wait_for_the_end", "in step")


@pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux")
def test_a_timeout_names_the_environment_that_hangs_and_shows_its_stack(hurry: Any) -> None:
    envs = AsyncVectorEnv([Stuck] * 4, num_workers=1, concurrent_envs=4, step_timeout=30)
    with envs:
        envs.reset(seed=[5, 6, 7, 8])
        hurry(lambda: running(envs) == [2] and not time.sleep(0.05), 0)
        with pytest.raises(StepTimeoutError, match=r"environment 2 \(last seed 7") as caught:
            envs.step([1, 1, 2, 1])
        assert caught.value.env_ids == caught.value.running == (2,)
        assert all(line in (caught.value.stack or "") for line in STUCK_LINES)
        envs.reset(seed=1)
        envs.step([1, 1, 1, 1])


@pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux")
def test_each_slow_environment_is_warned_of() -> None:
    arguments: Any = {"num_workers": 1, "concurrent_envs": 4, "slow_warning": overrun(0.2)}
    with AsyncVectorEnv([Stuck] * 4, **arguments) as envs:
        envs.reset(seed=1)
        envs.send([2, 1, 2, 1])
        give_up = time.monotonic() + 20
        with pytest.warns(SlowEnvironmentWarning) as caught:
            envs.recv(2)
            while len(caught) < 2 and time.monotonic() < give_up:
                with pytest.raises(StepTimeoutError):
                    envs.recv(1, timeout=0.3)
        texts = sorted(str(warning.message) for warning in caught)
        assert len(texts) == 2
        for row, text in zip((0, 2), texts, strict=True):
            assert text.startswith(f"step of environment {row} has taken")
            assert all(line in text for line in STUCK_LINES)
        envs.close(terminate=True)


def test_environments_that_answer_in_turn_are_not_slow() -> None:
    env_fns = [partial(Gated, Path("no gate"), number, length=10**6) for number in range(2)]
    slow = overrun(0.2)
    make = partial(AsyncVectorEnv, env_fns, num_workers=1, slow_warning=slow)
    with make() as in_line, make(concurrent_envs=2) as in_threads:
        for envs in (in_line, in_threads):
            envs.reset(seed=1)
            envs.recv()
            envs.send([1, 1])
        give_up = time.monotonic() + 1.3 * slow
        with warnings.catch_warnings():
            warnings.simplefilter("error", SlowEnvironmentWarning)
            while time.monotonic() < give_up:
                for envs in (in_line, in_threads):
                    (row,) = envs.recv(1).env_ids
                    time.sleep(0.003)  # meanwhile the environment may do nothing
                    envs.send([1], [row])


class Crashing(Ledger):
    """Crashes at the action 4, while others are in their steps."""

    def step(self, action: Any) -> Any:
        time.sleep(0.1 if action == 4 else 60.0)
        if action == 4:
            faulthandler._sigsegv()  # type: ignore[attr-defined]
        return super().step(action)


@pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux")
def test_a_crash_names_the_environment_whose_thread_crashed() -> None:
    env_fns = [partial(Crashing, number) for number in range(4)]
    with AsyncVectorEnv(env_fns, num_workers=1, concurrent_envs=4) as envs:
        envs.reset(seed=5)
        with pytest.raises(WorkerDiedError, match="while environment 2 was running") as caught:
            envs.step([1, 1, 4, 1])
        assert caught.value.running == 2
        assert "environment 2 (last seed 7" in str(caught.value)
        assert "faulthandler._sigsegv()" in (caught.value.stack or "")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills")
def test_of_several_environments_that_run_a_death_blames_none() -> None:
    with AsyncVectorEnv([Stuck] * 3, num_workers=1, concurrent_envs=3) as envs:
        envs.reset(seed=0)
        envs.send([2, 2, 1])
        envs.recv(1)
        wait_until_running(envs, 0, 1)
        os.kill(envs.processes[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError) as caught:
            envs.recv(1)
        assert caught.value.running is None and caught.value.env_ids == (0, 1, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="stacks are read on Linux")
def test_a_factory_that_hangs_is_named_with_its_stack() -> None:
    with pytest.raises(StepTimeoutError, match=r"environment 1 \(being built") as caught:
        env_fns = [partial(sleep_to_build, number) for number in range(3)]
        arguments: Any = {"concurrent_envs": 3, "start_timeout": SOON, "context": "fork"}
        AsyncVectorEnv(env_fns, num_workers=1, **arguments)
    assert "in sleep_to_build" in (caught.value.stack or "")


def sleep_to_build(number: int) -> Any:
    if number == 1:
        time.sleep(60)
    return Ledger(number)


def test_workers_whose_threads_never_return_are_ended() -> None:
    envs = AsyncVectorEnv([Stuck] * 3, num_workers=1, concurrent_envs=3)
    envs.reset(seed=0)
    envs.step_async([1, 2, 1])
    with within(5.0), pytest.warns(RuntimeWarning, match="0 to 2 did not close within 0.3 s and"):
        envs.close(timeout=0.3)


@pytest.mark.usefixtures("released")
def test_threads_of_sync_that_never_return_are_named_and_left() -> None:
    envs = SyncVectorEnv([Stuck] * 3, concurrent_envs=3)
    envs.reset(seed=0)
    envs.step_async([1, 2, 1])
    wait_until_running(envs, 1)
    with pytest.raises(StepTimeoutError, match=r"wait again, or close\(\)"):
        envs.step_wait(timeout=0.05)
    bound = round(overrun(0.3), 2)  # in which the other threads end
    expected = f"environment 1 did not close within {bound:g} s; their threads go on"
    with within(5.0), pytest.warns(RuntimeWarning, match=expected):
        envs.close(timeout=bound)
    (left,) = [one for one in threading.enumerate() if one.name.startswith("vecspaces-env-")]
    assert left.daemon and left.name == "vecspaces-env-1"


# ---------------------------------------------------------------------- giving rows up


def give_up(envs: Any, row: int) -> None:
    """Give a row up as the pool does, and receive its error."""
    error = StepTimeoutError("it took too long", [row])
    assert envs._session.give_up(row, error)
    with pytest.raises(StepTimeoutError, match="it took too long"):
        envs.recv(1, timeout=20)


def stuck_worker(tmp_path: Path, count: int = 3, threads: int = 3, env: Any = Stuck) -> Any:
    env_fns = [partial(env, tmp_path / f"go on {number}") for number in range(count)]
    envs = AsyncVectorEnv(env_fns, num_workers=1, concurrent_envs=threads)
    envs.reset(seed=0)
    envs.recv()
    return envs


def test_a_late_answer_reaches_no_one(tmp_path: Path) -> None:
    with stuck_worker(tmp_path) as envs:
        (process,) = envs.processes
        envs.send([2, 1, 1])
        assert sorted(envs.recv(2).env_ids) == [1, 2]
        give_up(envs, 0)
        envs.send_reset([0])
        assert envs.recv(1, timeout=20).observations.tolist() == [[0.0]]
        (tmp_path / "go on 0").touch()  # the old environment returns
        give_up_at = time.monotonic() + 20
        while not list(tmp_path.glob("closed *")) and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert len(list(tmp_path.glob("closed *"))) == 1  # in its own thread
        assert not envs._backend.collect(0.2)
        for step in (1.0, 2.0):
            envs.send([1], [0])
            received = envs.recv(1, timeout=20)
            assert received.observations.tolist() == [[step]] and received.rewards == [step]
        assert envs.processes == [process] and process.is_alive()


def test_a_row_that_had_answered_answers_no_second_time(tmp_path: Path) -> None:
    with stuck_worker(tmp_path) as envs:
        envs.send([1, 1, 1])
        time.sleep(0.1)  # it has answered, and what follows is the same if it has not
        envs._session.give_up(1, StepTimeoutError("it took too long", [1]))
        with pytest.raises(StepTimeoutError, match="it took too long"):
            envs.recv(3, timeout=20)
        assert sorted(envs.recv(2, timeout=20).env_ids) == [0, 2]
        envs.send_reset([1])
        assert envs.recv(1, timeout=20).observations.tolist() == [[0.0]]
        with pytest.raises(NoAsyncCallError):
            envs.recv(1)


def test_rows_behind_one_stuck_thread_move_to_one_other_thread(tmp_path: Path) -> None:
    with stuck_worker(tmp_path, count=8, threads=2) as envs:  # even rows share a thread
        envs.send([2], [0])
        wait_until_running(envs, 0)
        envs.send([1, 1, 1, 1], [1, 2, 4, 6])
        assert envs.recv(1, timeout=20).env_ids == [1]
        for row in (2, 0, 4, 6):
            give_up(envs, row)
        envs.send_reset([0, 2, 4, 6])
        assert sorted(envs.recv(4, timeout=20).env_ids) == [0, 2, 4, 6]


def test_threads_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    sign = tmp_path / "go on"
    with SyncVectorEnv([partial(Stuck, sign)] * 2, concurrent_envs=2) as envs:
        envs.reset(seed=0)
        envs.recv()
        made = envs._backend.group._made
        for _ in range(3):
            envs.send([2], [0])
            give_up(envs, 0)
            sign.touch()
            envs.send_reset([0])
            envs.recv(1, timeout=20)
            assert settled(lambda: len([one for one in made if one.is_alive]), 2) == 2
            sign.unlink()
        assert len(made) == 3


# ---------------------------------------------------------------------- interrupts


@pytest.mark.skipif(sys.platform == "win32", reason="raises SIGINT")
@pytest.mark.parametrize("ends_calls", [True, False])
def test_an_interrupted_step_goes_on_and_stays_pending(tmp_path: Path, ends_calls: bool) -> None:
    """Also if system calls are restarted after a signal, as C libraries that handle it ask for."""
    sign = tmp_path / "go on"
    with (
        SyncVectorEnv([partial(Stuck, sign)] * 3, concurrent_envs=3) as envs,
        contextlib.ExitStack() as after,
    ):
        envs.reset(seed=0)
        after.callback(signal.siginterrupt, signal.SIGINT, True)
        signal.siginterrupt(signal.SIGINT, ends_calls)
        with (
            pytest.raises(KeyboardInterrupt) as caught,
            interrupted_when(lambda: running(envs) == [1]),
        ):
            envs.step([1, 2, 1])
        assert "environment 1" in "".join(caught.value.__notes__)
        sign.touch()
        assert envs.step_wait()[1].tolist() == [1.0, 1001.0, 1.0]
        assert envs.step([1, 1, 1])[1].tolist() == [2.0, 1002.0, 2.0]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timer signals")
@pytest.mark.timeout(method="thread")
@pytest.mark.parametrize("rounds", [20, pytest.param(2000, marks=pytest.mark.full)])
def test_an_interrupted_recv_loses_no_row(rounds: int) -> None:
    env_fns = [partial(Ledger, number, length=10**6) for number in range(3)]
    with SyncVectorEnv(env_fns, concurrent_envs=2) as envs, Interrupts(7, 4e-4) as interrupts:
        envs.reset(seed=0)
        envs.recv(3)
        taken = 0
        while interrupts.count < rounds:
            ended, received = interrupts.during(lambda: received_after_send(envs))
            if not ended:
                received = received_again(envs)
            taken = max(taken, *times(received).values())
        assert taken > 3


def received_after_send(envs: Any) -> Any:
    envs.send([1, 1, 1])
    return envs.recv(3)


def received_again(envs: Any) -> Any:
    """Receive after an interrupt, which may have come before all actions were sent."""
    try:
        return envs.recv(3, timeout=20)
    except (NoAsyncCallError, ResetNeededError):
        observations, _ = envs.reset()
        assert len(observations) == 3
        envs.recv(3)
        return received_after_send(envs)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_has_no_threads_to_step_in() -> None:
    with SyncVectorEnv(ledgers(2), concurrent_envs=2) as envs:
        envs.reset(seed=0)
        pid = os.fork()
        if pid == 0:
            try:
                envs.step([1, 1])
            except ClosedEnvironmentError as error:
                os._exit(7 if "threads" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


# ---------------------------------------------------------------------- building and the end


def fail_to_build(number: int) -> Any:
    raise FileNotFoundError(f"number {number}")


@of_each_kind
def test_what_cannot_be_built_is_the_lowest_and_others_are_closed(
    kind: Any, tmp_path: Path
) -> None:
    env_fns: list[Any] = [partial(Homebody, tmp_path)] * 2
    env_fns += [partial(fail_to_build, 2), partial(fail_to_build, 3)]
    with pytest.raises(FileNotFoundError, match="number 2"):
        kind(env_fns, concurrent_envs=4)
    closed = [path.read_text().split() for path in tmp_path.iterdir()]
    if kind is not KINDS["two workers"]:
        assert len(closed) == 2 and all(len(names) == 1 for names in closed)


def test_a_vector_env_that_is_dropped_leaves_no_threads() -> None:
    envs = SyncVectorEnv(ledgers(3), concurrent_envs=3)
    envs.reset(seed=0)
    threads = [one for one in threading.enumerate() if one.name.startswith("vecspaces-env-")]
    assert len(threads) == 3
    del envs

    def collect() -> bool:
        gc.collect()  # a thread may hold its last job for a moment
        return any(thread.is_alive() for thread in threads)

    assert not settled(collect, False)


def test_stats_count_each_environment_by_itself() -> None:
    env_fns = [partial(Patient, number, length=3) for number in range(3)]
    with SyncVectorEnv(env_fns, concurrent_envs=3, stats=True) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            envs.step([50, 0, 100])
        stats = envs.stats()
    assert (stats.steps == 3).all()
    assert (stats.resets == 1).all()
    assert stats.step_mean[0] >= 0.05 and stats.step_mean[2] >= 0.1
    assert stats.step_max[0] < stats.step_max[2] < stats.busy_seconds[0]
    assert stats.worker_busy[0] > 0.5


def test_an_error_names_the_command_whose_info_cannot_be_pickled() -> None:
    class Locked(Ledger):
        def step(self, action: Any) -> Any:
            *results, info = super().step(action)
            return (*results, {**info, "lock": threading.Lock()})

    with AsyncVectorEnv([Locked] * 2, num_workers=1, concurrent_envs=2) as envs:
        envs.reset(seed=0)
        for command, make in (
            ("step", lambda: envs.step([0, 0])),
            ("call", lambda: envs.call(lock_of)),
        ):
            with pytest.raises((InvalidInfoError, TypeError), match="cannot be pickled") as caught:
                make()
            assert f"environment 0 (worker 0) failed in {command}" in str(caught.value.__cause__)
            envs.reset()


def lock_of(env: Any) -> Any:
    return threading.Lock()
