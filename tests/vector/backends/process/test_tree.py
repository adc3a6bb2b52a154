"""Workers end with their caller, and what environments start with their worker, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.crosses import diagonal, ordinarily
from tests.envs import Ledger
from tests.leaks import made_here, shared_memory
from tests.programs import environ, run_python
from tests.vector.bounds import assert_gone, kill, wait_until_idle, within
from vecspaces.errors import WorkerDiedError
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import processes, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")

METHODS = ("fork", "spawn", "forkserver")
FORK_OR_FULL = ordinarily(lambda method: method == "fork", zip(METHODS, strict=True))
STUBBORN = "trap '' TERM; echo ready; exec sleep 1000"


def compute() -> None:
    while True:
        pass


# Native code that keeps the interpreter's lock is not among it: docs/reliability.md says so.
OCCUPATIONS: dict[str, Callable[[], Any]] = {
    "sleeping": lambda: threading.Event().wait(),
    "computing": compute,
    "in native code": lambda: ctypes.CDLL(None).sleep(1000),
}


class Host(Ledger):
    """A ledger with processes: a program, one in a session, a stubborn one, and a stopped fork.

    Args:
        number: Which environment it is.
        hangs: Whether it is occupied for ever by action 4.
    """

    occupation = "sleeping"

    def __init__(self, number: int = 0, hangs: bool = False) -> None:
        super().__init__(number)
        self.hangs = hangs
        programs = [
            subprocess.Popen(["sleep", "1000"]),
            subprocess.Popen(["sleep", "1000"], start_new_session=True),
            subprocess.Popen(
                ["sh", "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True
            ),
        ]
        assert programs[2].stdout is not None and programs[2].stdout.readline() == b"ready\n"
        fork = os.fork()
        if fork == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            threading.Event().wait()
        os.waitpid(fork, os.WUNTRACED)
        self.pids = [*(program.pid for program in programs), fork]

    def step(self, action: Any) -> Any:
        if self.hangs and action == 4:
            OCCUPATIONS[self.occupation]()
        return super().step(action)


def make(method: str, **arguments: Any) -> Any:
    env_fns = [partial(Host, 0), partial(Host, 1, hangs=True)]
    return AsyncVectorEnv(env_fns, num_workers=2, context=method, **arguments)


def _close(envs: Any) -> None:
    envs.close()


def _terminate(envs: Any) -> None:
    envs.close(terminate=True)


def _kill(envs: Any) -> None:
    kill(envs.processes)
    with pytest.raises(WorkerDiedError):
        envs.step([0, 0])


def _restart(envs: Any) -> None:
    envs.restart()


def _reset(envs: Any) -> None:
    with pytest.raises(TimeoutError):
        envs.step_async([4, 4])
        envs.step_wait(timeout=0.01)
    envs.restart([0], terminate=True)
    envs.reset()


@diagonal(end=[_close, _terminate, _kill, _restart, _reset], method=METHODS)
def test_what_an_environment_starts_ends_with_its_worker(
    end: Callable[[Any], None], method: str
) -> None:
    with make(method) as envs:
        envs.reset()
        before = [pid for pids in envs.get_attr("pids") for pid in pids]
        with within(4.0):
            end(envs)
        assert_gone(before)


PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
from tests.vector.backends.process.test_tree import make
from tests.vector.bounds import wait_until_running

if __name__ == "__main__":
    method, state, folder = sys.argv[1:]
    with make(method) as envs:
        envs.reset()
        pids = sum(envs.get_attr("pids"), [])
        envs.call(lambda env: setattr(env, "close", (Path(folder) / f"closed {env.number}").touch))
        holder = os.fork()  # it keeps the caller's ends of all pipes open
        if holder == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            threading.Event().wait()
        if state != "idle":
            envs.set_attr("occupation", state)
            envs.step_async([0, 4])
            wait_until_running(envs, 1)
        print(holder, *pids, *[process.pid for process in envs.processes], flush=True)
        envs.step_wait() if state != "idle" else threading.Event().wait()
"""


@contextlib.contextmanager
def running_caller(folder: Path, method: str, state: str) -> Iterator[Any]:
    """A program in a state of a vector env; at the end, nothing of it may be left."""
    (folder / "program.py").write_text(PROGRAM)
    names = shared_memory()
    with subprocess.Popen(
        [sys.executable, str(folder / "program.py"), method, state, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ(),
        start_new_session=True,
    ) as caller:
        holder = 0
        try:
            assert caller.stdout is not None
            holder, *pids = map(int, caller.stdout.readline().split())
            assert len(pids) == 10
            yield caller
            with within(4.0):
                assert_gone(pids)
        finally:
            caller.kill()
            if holder:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(holder, signal.SIGKILL)
    assert made_here(shared_memory() - names) == set()


@diagonal(method=METHODS, state=["idle", *OCCUPATIONS])
def test_workers_and_what_environments_start_end_with_the_caller(
    method: str, state: str, tmp_path: Path
) -> None:
    with running_caller(tmp_path, method, state) as caller:
        caller.kill()
    closed = {path.name for path in tmp_path.glob("closed *")}
    assert state != "idle" or closed == {"closed 0", "closed 1"}


@pytest.mark.parametrize("method", FORK_OR_FULL)
def test_ctrl_c_in_a_long_step_ends_all_and_shows_one_traceback(
    method: str, tmp_path: Path
) -> None:
    with running_caller(tmp_path, method, "computing") as caller:
        wait_until_idle(caller.pid)
        os.killpg(caller.pid, signal.SIGINT)
        _, err = caller.communicate(timeout=30)
    assert err.count("Traceback") == 1
    assert "\nKeyboardInterrupt\n" in err
    assert "\nstep was waiting " in err


LEAVER = """
import os
from tests.vector.backends.process.test_tree import make

if __name__ == "__main__":
    with make("fork") as envs:
        envs.reset()
        print(*sum(envs.get_attr("pids"), []), flush=True)
        os.setsid()
"""


def test_what_an_environment_starts_ends_also_if_the_caller_begins_a_session() -> None:
    pids = run_python("-c", LEAVER).stdout.split()
    assert len(pids) == 8
    with within(4.0):
        assert_gone(list(map(int, pids)))


def test_end_trees_is_done_before_a_signal_handler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []

    def find(trees: Any) -> set[int]:
        signal.raise_signal(signal.SIGINT)
        looks.append(trees)
        return set()

    monkeypatch.setattr(tree, "_find", find)
    worker: Any = SimpleNamespace(tree=tree.Tree("token", 0), exitcode=lambda: 0)
    with pytest.raises(KeyboardInterrupt):
        processes.end_trees([worker])
    assert len(looks) == 1 and worker.tree is None
