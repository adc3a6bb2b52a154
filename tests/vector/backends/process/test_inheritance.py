"""A worker inherits nothing of other vector envs, and nothing of the caller changes for it."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.crosses import ordinarily
from tests.envs import Ledger, ledgers
from tests.leaks import descriptors
from tests.vector.bounds import backend_of, within
from vecspaces.errors import WorkerDiedError
from vecspaces.vector import AsyncVectorEnv

METHODS = ordinarily(
    lambda method: method != "spawn", zip(multiprocessing.get_all_start_methods(), strict=True)
)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def test_a_death_is_noticed_although_workers_of_another_vector_env_were_forked_since() -> None:
    with AsyncVectorEnv(ledgers(2), context="fork", num_workers=2) as older:
        older.reset()
        with AsyncVectorEnv(ledgers(2), context="fork", num_workers=2) as younger:
            younger.reset()
            os.kill(older.processes[0].pid, signal.SIGKILL)
            with within(2.0), pytest.raises(WorkerDiedError, match="SIGKILL"):
                older.step([1, 1])
            older.reset()  # its new worker was forked beside those of both
            os.kill(younger.processes[1].pid, signal.SIGKILL)
            with within(2.0), pytest.raises(WorkerDiedError, match="SIGKILL"):
                younger.step([1, 1])
            with within(2.0):
                older.close()
            younger.reset()
            assert younger.step([1, 1])[0][:, 2].tolist() == [1, 1]


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


@pytest.mark.parametrize("method", METHODS)
def test_programs_that_an_environment_starts_hold_nothing_of_the_worker(method: str) -> None:
    with AsyncVectorEnv([Starting] * 2, context=method, num_workers=1) as envs:
        envs.reset()
        opened, channel = descriptors(), backend_of(envs)._handles[0].channel
        pipes = {opened[channel.fd], opened[channel.out_fd]}
        targets = envs.call("descriptors_of_a_program")[0]
    assert targets
    assert not pipes.intersection(targets)
    assert not [to for to in targets if "memfd" in to or "pidfd" in to]


class Starting(Ledger):
    """A ledger that starts a program."""

    def descriptors_of_a_program(self) -> list[str]:
        """What a program holds beside its standard streams."""
        import subprocess

        listing = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True
        )
        return [line.split(" -> ")[1] for line in listing.stdout.splitlines() if " -> " in line]


class Handling(Ledger):
    """A ledger that runs an event loop in its thread, and sends a signal to its own process."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()  # Playwright's and others' objects own it

    def run_loops(self) -> list[int]:
        assert threading.get_ident() == self.thread

        async def answer() -> int:
            return 42

        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        inherited = [] if sys.version_info >= (3, 14) else [asyncio.get_event_loop()]
        loops = [*inherited, asyncio.new_event_loop()]
        answers = [loop.run_until_complete(answer()) for loop in loops]
        for loop in loops:
            loop.close()
        return [*answers, asyncio.run(answer())]

    def handle(self, number: int) -> tuple[Any, list[int]]:
        before, seen = signal.getsignal(number), list[int]()
        signal.signal(number, lambda number, _: seen.append(number))
        signal.raise_signal(number)
        return before, seen

    def interrupt_a_program(self) -> int:
        return subprocess.run(["sh", "-c", "kill -INT $$; sleep 1000"]).returncode


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:There is no current event loop:DeprecationWarning")
def test_a_worker_has_no_handlers_and_no_event_loop_of_the_caller(method: str) -> None:
    heard: list[int] = []

    async def call() -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            asyncio.get_running_loop().add_signal_handler(number, heard.append, number)
        with AsyncVectorEnv([Handling], context=method) as envs:
            (answers,) = envs.call("run_loops")
            assert answers and set(answers) == {42}
            for number in (signal.SIGTERM, signal.SIGUSR1):
                assert envs.call("handle", number) == ((signal.SIG_DFL, [number]),)
            assert envs.call("interrupt_a_program") == (-signal.SIGINT,)

    asyncio.run(call())
    assert heard == []


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
