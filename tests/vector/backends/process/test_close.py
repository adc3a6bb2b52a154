"""close() ends within its bound, from every state, and everything that was held is freed."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crosses import diagonal
from tests.envs import Ledger
from tests.envs.faulty import Factory, Fault, FaultyEnv, OddError, arm, factories
from tests.leaks import descriptors, made_here, possessions
from tests.programs import run_python
from tests.vector.bounds import assert_gone, interrupted_when, settled, within
from vecspaces.errors import ClosedEnvironmentError, StepTimeoutError, WorkerDiedError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, ThreadVectorEnv, send_recv
from vecspaces.vector.engine import engine
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import merge

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stopped by signals")

ACTIONS = np.array([0, 1, 2, 1])
BOTH = np.array([1, 0])
two_workers = partial(AsyncVectorEnv, num_workers=2, context="fork")


def make(folder: Path, deed: str | None = None, where: str = "step", **arguments: Any) -> Any:
    return two_workers(factories(4, folder, deed, where), **arguments)


# ---------------------------------------------------------------------- from every state


def _broken(envs: Any) -> None:
    envs.reset()
    os.kill(envs.processes[1].pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        envs.step(ACTIONS)


STATES: dict[str, Callable[[Any], Any]] = {
    "new": lambda envs: None,
    "idle": lambda envs: envs.reset(),
    "reset pending": lambda envs: envs.reset_async(),
    "step pending": lambda envs: (envs.reset(), envs.step_async(ACTIONS)),
    "call pending": lambda envs: envs.call_async("poke"),
    "streaming": lambda envs: (envs.reset(), envs.send(ACTIONS[:2], env_ids=[0, 1])),
    "broken": _broken,
    "much to send": lambda envs: envs.call_async("poke", b"x" * (1 << 24)),
}


@diagonal(state=list(STATES), terminate=[False, True])
def test_close_ends_at_once_from_every_state(state: str, terminate: bool, tmp_path: Path) -> None:
    envs = make(tmp_path)
    STATES[state](envs)
    pids = [process.pid for process in envs.processes]
    with within(1.0):
        envs.close(terminate=terminate)
    assert envs.closed
    assert envs.processes == []
    assert_gone(pids)
    envs.close()
    envs.close(timeout=1.0, terminate=True)
    for use in (envs.reset, lambda: envs.step(ACTIONS), lambda: envs.call("poke"), envs.recv):
        with pytest.raises(ClosedEnvironmentError):
            use()


@pytest.mark.full
def test_close_bounds_a_hang_by_five_seconds_when_not_told_otherwise(tmp_path: Path) -> None:
    envs = make(tmp_path, "hang", "close")
    arm(tmp_path)
    with within(5.0), pytest.warns(RuntimeWarning, match="did not close"):
        envs.close()


def test_close_while_a_worker_is_being_built_again(tmp_path: Path) -> None:
    last = Factory(3, Fault("hang", "build", tmp_path / "trigger"))
    envs = two_workers([*factories(3, tmp_path), last], on_worker_death="restart")
    envs.reset()
    arm(tmp_path)
    os.kill(envs.processes[1].pid, signal.SIGKILL)
    envs.processes[1].join()
    envs.step_async(ACTIONS)
    with pytest.raises(KeyboardInterrupt), interrupted_when(lambda: True):
        envs.step_wait()
    with within(1.0):
        envs.close()


def test_an_interrupted_close_has_freed_everything(tmp_path: Path) -> None:
    envs = make(tmp_path, "hang", "close")
    arm(tmp_path)
    with within(1.5), pytest.raises(KeyboardInterrupt), interrupted_when(lambda: True):
        envs.close(timeout=30.0)
    assert envs.closed
    assert envs.processes == []


# ---------------------------------------------------------------------- what environments say


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_exception_in_close_is_raised_once_all_others_have_closed(
    kind: str, tmp_path: Path
) -> None:
    class Tells(FaultyEnv):
        def close(self) -> None:
            (tmp_path / str(self.index)).touch()
            if self.index % 2 == 0:
                raise OddError(f"number {self.index}")

    make: Any = SyncVectorEnv if kind == "sync" else two_workers
    envs = make([partial(Tells, index) for index in range(4)])
    with pytest.raises(OddError, match="number 0") as caught:
        envs.close()
    assert "environment 0" in str(caught.value.__cause__)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2", "3"}
    envs.close()


# ---------------------------------------------------------------------- what is freed


def held() -> set[str]:
    """Descriptors and mappings of shared memory."""
    things = {f"{fd} {to}" for fd, to in descriptors().items()}
    maps = Path("/proc/self/maps").read_text()
    return things | set(re.findall(r"^\S+(?=.*memfd:)", maps, re.M))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_closed_vector_env_that_is_still_held_holds_nothing(tmp_path: Path) -> None:
    gc.collect()
    before = held()
    envs = make(tmp_path)
    envs.reset()
    envs.step(ACTIONS)
    assert held() - before
    envs.close()
    assert held() - before == set()
    assert envs.num_envs == 4


class Scored(Ledger):
    """Reports a number at each step."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"score": 1.5}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_closed_vector_env_holds_no_infos_that_were_not_received() -> None:
    gc.collect()
    before = held()
    envs = two_workers([Scored] * 4)
    envs.reset(), envs.recv(4)
    os.kill(envs.processes[1].pid, signal.SIGSTOP)
    envs.send(np.zeros(4, np.int64))
    while not {0, 1} <= envs._engine.rows.ready.keys():
        with pytest.raises(StepTimeoutError):
            envs.recv(4, timeout=0.05)
    envs.close(terminate=True)
    assert held() - before == set()


def test_observations_that_were_not_copied_outlive_close(tmp_path: Path) -> None:
    envs = make(tmp_path, copy=False)
    observations, _ = envs.reset(seed=3)
    envs.close()
    assert observations["place"][:, 0].tolist() == [0, 1, 2, 3]


def test_an_environment_with_a_stubborn_thread_does_not_keep_its_worker(tmp_path: Path) -> None:
    class Threaded(FaultyEnv):
        def __init__(self, index: int) -> None:
            super().__init__(index)
            threading.Thread(target=threading.Event().wait).start()

    envs: Any = AsyncVectorEnv([lambda: Threaded(0)], context="fork")
    with within(1.5):
        envs.close()


# ---------------------------------------------------------------------- dropped without close


def test_dropped_without_close_it_is_gone_at_once(tmp_path: Path) -> None:
    """Nothing of it refers to itself, so that no garbage collection is waited for."""
    gc.collect()
    gc.disable()
    try:
        envs = make(tmp_path)
        envs.reset()
        envs.step(envs.action_space.sample())
        envs.call("render")
        envs.send(envs.action_space.sample())
        envs.recv()
        pids = [process.pid for process in envs.processes]
        with pytest.warns(ResourceWarning, match=r"dropped without close\(\)"):
            del envs
        assert_gone(pids)
    finally:
        gc.enable()


def test_dropped_without_close_it_cleans_up_though_warnings_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []  # the tracebacks keep what cleaned up, and all that it refers to
    monkeypatch.setattr(sys, "unraisablehook", lambda report: raised.append(report.exc_value))
    before = possessions()
    envs = make(tmp_path, daemon=False)
    pids = [process.pid for process in envs.processes]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del envs
        gc.collect()
    assert [type(error) for error in raised] == [ResourceWarning]
    assert_gone(pids)
    assert settled(lambda: made_here(possessions() - before), set()) == set()


PROGRAM = """
from tests.envs.faulty import Factory
from vecspaces.vector import AsyncVectorEnv
if __name__ == "__main__":
    envs = AsyncVectorEnv([Factory(i) for i in range(4)], num_workers=2, context="fork")
    envs.reset()
    print(*[process.pid for process in envs.processes], flush=True)
    raise RuntimeError("so it ends")
"""


def test_dropped_without_close_it_warns_and_cleans_up_at_exit() -> None:
    with within(10.0):
        run = run_python("-W", "always::ResourceWarning", "-c", PROGRAM, code=1)
    assert "ResourceWarning: an AsyncVectorEnv was dropped without close()" in run.stderr
    assert run.stderr.count("Traceback") == 1
    assert_gone([int(pid) for pid in run.stdout.split()])


# ---------------------------------------------------------------------- while a call runs


class Signalling(Ledger):
    """Sends a signal to the caller in each reset, step and call, and then works for a moment."""

    def reset(self, **arguments: Any) -> Any:
        self._signal()
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._signal()
        return super().step(action)

    def work(self) -> None:
        self._signal()

    def _signal(self) -> None:
        os.kill(self.caller, signal.SIGUSR1)
        time.sleep(0.02)

    caller = os.getpid()


CALLS = {
    "reset": lambda envs: envs.reset(),
    "step": lambda envs: envs.step(BOTH),
    "step of some": lambda envs: envs.step(BOTH[:1], env_ids=[1]),
    "send and recv": lambda envs: (envs.send(BOTH), envs.recv(2)),
    "call": lambda envs: envs.call("work"),
}


@pytest.fixture
def handler() -> Iterator[list[Any]]:
    """Return the list of what the handler of SIGUSR1 closes, at first nothing."""
    vector_envs: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: vector_envs and vector_envs.pop().close())
    yield vector_envs
    signal.signal(signal.SIGUSR1, before)


@diagonal(what=list(CALLS), kind=[SyncVectorEnv, two_workers, ThreadVectorEnv])
def test_a_signal_handler_that_closes_ends_the_call(
    what: str, kind: Any, handler: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Signalling, "caller", os.getpid())
    envs = kind([Signalling] * 2)
    envs.reset()
    handler.append(envs)
    with pytest.raises(ClosedEnvironmentError, match=r"close\(\)"):
        CALLS[what](envs)
    with pytest.raises(ClosedEnvironmentError, match="after close"):
        envs.reset()
    envs.close()


@pytest.mark.parametrize("call", ["reset", "step", "send and recv"])
@pytest.mark.parametrize("kind", [SyncVectorEnv, two_workers, ThreadVectorEnv])
def test_a_signal_handler_that_closes_while_results_are_read_ends_the_call(
    call: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kind([Scored] * 2) as envs:
        envs.reset(), envs.recv(2)

        def interrupted(*arguments: Any) -> Any:
            envs.close()
            return merge(*arguments)

        for module in (engine, send_recv):
            monkeypatch.setattr(module, "merge", interrupted)
        with pytest.raises(ClosedEnvironmentError, match=r"close\(\) was called during"):
            CALLS[call](envs)


def test_another_thread_that_closes_ends_a_wait_for_many_workers() -> None:
    """Whose descriptors are watched by one of epoll."""
    envs = AsyncVectorEnv([partial(FaultyEnv, number) for number in range(6)], num_workers=6)
    envs.reset()
    for process in envs.processes:
        os.kill(process.pid, signal.SIGSTOP)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            envs.step(np.zeros(6, np.int64))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert settled(lambda: envs._backend._collecting, thread.ident) == thread.ident
    with within(2.0):
        envs.close(terminate=True)
        thread.join(20)
    assert [type(error) for error in ended] == [ClosedEnvironmentError]


@pytest.mark.parametrize("terminate", [False, True])
def test_on_worker_death_may_close(terminate: bool, tmp_path: Path) -> None:
    envs: Any = None
    envs = make(tmp_path, "SIGKILL", on_worker_death=lambda error: envs.close(terminate=terminate))
    envs.reset()
    arm(tmp_path)
    with pytest.raises(ClosedEnvironmentError, match=r"during step"):
        envs.step(ACTIONS)
    assert envs.closed
    assert envs.processes == []


# ---------------------------------------------------------------------- a constructor that fails


class Noting(Ledger):
    """A ledger that notes in a folder that it is built, and that it is closed.

    Args:
        number: Which environment it is.
        folder: The folder.
        deed: "raise" or "hang" in the constructor, or "wait" there until another one has raised.
    """

    def __init__(self, number: int, folder: Path, deed: str = "") -> None:
        super().__init__(number)
        self.folder = folder
        (folder / f"{deed} {number}").touch()
        if deed == "raise":
            assert settled((folder / "wait 3").exists, True)
            raise OddError(number)
        while deed == "hang" or (deed == "wait" and not (folder / "failed").exists()):
            time.sleep(0.01)

    def close(self) -> None:
        (self.folder / f"closed {self.number}").touch()


def closed_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("closed *"))


@pytest.mark.parametrize("make", [two_workers, ThreadVectorEnv], ids=["process", "thread"])
def test_a_failed_constructor_closes_what_other_workers_build(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throw(failure: Failure) -> None:
        (tmp_path / "failed").touch()
        throw_it(failure)

    throw_it = Failure.throw
    monkeypatch.setattr(Failure, "throw", throw)
    deeds = ["", "", "", "wait", "", "", "", "raise"]
    env_fns = [partial(Noting, number, tmp_path, deed) for number, deed in enumerate(deeds)]
    with within(3.0), pytest.raises(OddError):
        make(env_fns, num_workers=2)
    assert closed_in(tmp_path) == [f"closed {number}" for number in range(7)]


def test_a_constructor_that_is_late_closes_what_is_built(hurry: Any, tmp_path: Path) -> None:
    hurry((tmp_path / "hang 1").exists, 1)
    deeds = ["", "hang", ""]
    env_fns = [partial(Noting, number, tmp_path, deed) for number, deed in enumerate(deeds)]
    with within(2.0), pytest.raises(StepTimeoutError):
        AsyncVectorEnv(env_fns, num_workers=3, context="fork")
    assert closed_in(tmp_path) == ["closed 0", "closed 2"]
