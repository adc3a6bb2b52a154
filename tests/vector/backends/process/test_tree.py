"""What environments start ends with their worker, however that ends, and however it was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.crosses import diagonal
from tests.envs import Ledger
from tests.programs import environ, run_python
from tests.vector.bounds import assert_gone, kill, within
from vecspaces.errors import WorkerDiedError
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import processes, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")

METHODS = ("fork", "spawn", "forkserver")
STUBBORN = "trap '' TERM; echo ready; exec sleep 1000"


class Host(Ledger):
    """A ledger with processes: a program, one in a session, a stubborn one, and a stopped fork.

    Args:
        number: Which environment it is.
        hangs: Whether its first episode hangs in a step.
    """

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

    def get_pids(self) -> list[int]:
        return self.pids

    def step(self, action: Any) -> Any:
        if self.hangs and action == 4:
            threading.Event().wait()
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
import os, signal, sys
from tests.vector.backends.process.test_tree import make

if __name__ == "__main__":
    envs = make(sys.argv[1])
    envs.reset()
    print(*sum(envs.get_attr("pids"), []), *[process.pid for process in envs.processes], flush=True)
    if sys.argv[2] == "busy":
        envs.step_async([0, 4])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@diagonal(method=METHODS, state=["idle", "busy"])
def test_what_an_environment_starts_ends_with_the_caller(
    method: str, state: str, tmp_path: Any
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), method, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ()) as program:
        assert program.stdout is not None
        pids = list(map(int, program.stdout.readline().split()))
    assert program.returncode == -signal.SIGKILL
    assert len(pids) == 10
    with within(4.0):
        assert_gone(pids)


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
