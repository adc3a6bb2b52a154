"""A worker inherits nothing of other vector envs, and nothing of the caller changes for it."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.crosses import ordinarily
from tests.envs import Ledger, ledgers
from tests.leaks import descriptors
from vecspaces.errors import WorkerDiedError
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import forking

METHODS = ordinarily(
    lambda method: method != "spawn", zip(multiprocessing.get_all_start_methods(), strict=True)
)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def watched(pid: int) -> set[int]:
    """The processes that a process holds descriptors of."""
    found = set()
    for number, to in descriptors(pid).items():
        if "pidfd" in to:
            details = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
            found.add(int(re.search(r"^Pid:\s*(-?\d+)", details, re.M)[1]))  # type: ignore[index]
    return found


def unnamed(opened: dict[int, str]) -> set[str]:
    return {to for to in opened.values() if to.startswith(("pipe:", "socket:"))}


def test_a_forked_worker_inherits_nothing_of_other_vector_envs() -> None:
    outside = unnamed(descriptors())
    with AsyncVectorEnv(ledgers(2), context="fork", num_workers=2) as older:
        older.reset()
        others = unnamed(descriptors()) - outside
        with AsyncVectorEnv(ledgers(2), context="fork", num_workers=2) as younger:
            for restarts in (False, True):
                younger.reset()
                pids = [process.pid for process in younger.processes]
                for pid in pids:
                    assert watched(pid) == {os.getpid()}
                    assert not unnamed(descriptors(pid)) & others
                siblings = [unnamed(descriptors(pid)) - outside for pid in pids]
                assert not siblings[0] & siblings[1]
                if not restarts:
                    # Then all of the caller's ends and memory of this very vector env are there.
                    os.kill(pids[0], signal.SIGKILL)
                    with pytest.raises(WorkerDiedError, match="SIGKILL"):
                        younger.step([0, 0])


#: What the caller holds when it forks, and a worker drops.
KEPT: list[Any] = []


class Dropping(Ledger):
    """A ledger that drops what a fork left in its process, and counts its descriptors."""

    def drop(self) -> int:
        KEPT.clear()
        gc.collect()
        return len(os.listdir("/proc/self/fd"))


def test_what_a_fork_left_can_be_collected_in_the_worker() -> None:
    KEPT.append(AsyncVectorEnv(ledgers(2), context="fork", copy=False))
    KEPT[0].reset()
    try:
        with AsyncVectorEnv([Dropping] * 2, context="fork", num_workers=1) as envs:
            envs.reset()
            first = envs.call("drop", env_ids=[0])
            assert envs.call("drop", env_ids=[1]) == first, "it closed what is not its own"
            assert envs.step([1, 1])[0][:, 3].tolist() == [1, 1]
        KEPT[0].step([0, 0])
    finally:
        KEPT.pop().close()


def test_a_process_that_another_thread_forks_can_open_and_close() -> None:
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with forking.alone():
            holding.set()
            done.wait(0.05)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    child = os.fork()  # waits for the other thread, as a lock that it held would never be released
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            forking.close(*forking.acquire(os.pipe))
            code = 0
        os._exit(code)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("method", METHODS)
def test_programs_that_an_environment_starts_hold_nothing_of_the_worker(method: str) -> None:
    with AsyncVectorEnv([Starting] * 2, context=method, num_workers=1) as envs:
        envs.reset()
        pipes = {descriptors()[number] for number in forking._descriptors}
        found = envs.call("descriptors_of_a_program")[0]
    assert found
    assert not pipes.intersection(found)
    assert not [to for to in found if "memfd" in to or "pidfd" in to]


class Starting(Ledger):
    """A ledger that starts a program."""

    def descriptors_of_a_program(self) -> list[str]:
        """What a program holds beside its standard streams."""
        import subprocess

        found = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True
        )
        return [line.split(" -> ")[1] for line in found.stdout.splitlines() if " -> " in line]


# ---------------------------------------------------------------------- the caller's environment


@pytest.mark.parametrize("method", METHODS)
def test_the_callers_environment_variables_are_never_changed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    changed: list[Any] = []
    caller, before = os.getpid(), dict(os.environ)
    for name in ("putenv", "unsetenv"):
        real = getattr(os, name)

        def watch(*arguments: Any, real: Any = real) -> None:
            if os.getpid() == caller:
                changed.append(arguments)
            real(*arguments)

        monkeypatch.setattr(os, name, watch)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMPI_COMM_WORLD_RANK")
    for threads in (3, None):
        libraries = ["3"] * 3 if threads else [*map(os.environ.get, names[:3])]
        with AsyncVectorEnv([Ledger], context=method, worker_threads=threads) as envs:
            assert [envs.call("variable", name)[0] for name in names] == [*libraries, None]
    assert changed == [] and dict(os.environ) == before
