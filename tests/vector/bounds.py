"""Bounds on time that hold on an idle machine as they stand, and on a busy one in proportion."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.crosses import FASTEST
from tests.leaks import read_stat
from vecspaces.cores import count_usable_cores
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.exchange import deadline

_HAS_PROC = os.path.exists("/proc/self/stat")


def stretched(seconds: float) -> float:
    """A bound in seconds, longer where more processes want to run than there are cores.

    The load is that of the last minute; of the workers of pytest-xdist it is known from the start
    that each keeps two cores busy, with a caller and a worker. Starting processes without a fork
    takes longer.
    """
    cores = count_usable_cores()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    starting = 1.0 if FASTEST == "fork" else 4.0
    return seconds * starting * max(1.0, load / cores, 2 * beside / cores if beside > 1 else 0.0)


def overrun(seconds: float) -> float:
    """A bound that what hangs overruns, and that other calls keep, as `stretched` does.

    A busy machine may stop a process for a second or more, whatever the bound of an idle one is.
    """
    bound = stretched(seconds)
    return bound if bound == seconds else max(bound, 2.0)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a bound end as soon as nothing but what hangs is awaited, however long the bound is.

    After `hurry(hangs, 1)` all bounds of the caller pass, once: when `hangs()` is true and the
    caller waits for worker 1 alone; without a number, for any one worker. No other call is late
    then, so the bounds may be long.
    """
    return hurry_by(monkeypatch)


def hurry_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return the fixture `hurry`, which lasts as long as this patch."""
    ahead = 0.0
    expected: list[tuple[Callable[[], bool], set[int]]] = []
    look, shorten = SlowWatch.look, SlowWatch.shorten

    def look_and_hurry(watch: SlowWatch, workers: Iterable[int], call: int, verb: str) -> None:
        nonlocal ahead
        awaited = {*workers}
        hangs, named = expected[0] if expected else (bool, awaited)
        if awaited == (named or awaited) and len(awaited) <= len(named or "1") and hangs():
            expected.clear()
            ahead += 10_000.0
        look(watch, workers, call, verb)

    def look_soon(watch: SlowWatch, seconds: float | None) -> float:
        left = shorten(watch, seconds)
        return 0.02 if left is None else min(left, 0.02)

    def hurry(hangs: Callable[[], bool], *workers: int) -> None:
        expected[:] = [(hangs, {*workers})]

    monkeypatch.setattr(SlowWatch, "look", look_and_hurry)
    monkeypatch.setattr(SlowWatch, "shorten", look_soon)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)
    monkeypatch.setattr(deadline, "time", clock)
    return hurry


T = TypeVar("T")


def settled(read: Callable[[], T], expected: T) -> T:
    """What `read` returns, as soon as it is `expected`, or after half a minute.

    On a busy machine a process that was killed may end some seconds later.
    """
    give_up = time.monotonic() + 30.0
    while (value := read()) != expected and time.monotonic() < give_up:
        time.sleep(0.02)
    return value


def backend_of(envs: Any) -> Any:
    """Return the backend of a vector env, to look inside."""
    return envs._backend


def running(envs: Any) -> list[int]:
    """Return the environments that are in a command."""
    backend = backend_of(envs)
    return sorted(row for worker in range(len(backend.slices)) for row in backend.running(worker))


def wait_until_running(envs: Any, *rows: int) -> None:
    """Wait until these environments are in a command, and no others."""
    assert settled(lambda: running(envs), [*rows]) == [*rows]


def kill(processes: Iterable[Any]) -> None:
    """Kill processes, and wait until all have ended, which the system may do one after the other.

    They are not reaped: the parent has yet to learn of it. Needs Linux.
    """
    ends = [os.pidfd_open(process.pid) for process in processes]
    for end in ends:
        signal.pidfd_send_signal(end, signal.SIGKILL)
    for end in ends:
        select.select([end], [], [], 10)
        os.close(end)


def wait_until_idle(pid: int) -> None:
    """Wait until a process waits for something, so that it has done what it was told.

    On a busy machine a process that can go on is not asleep, however long it waits for a core.
    """
    give_up, looks = time.monotonic() + 20, 0
    while looks < 5 and time.monotonic() < give_up:
        time.sleep(0.02)
        looks = looks + 1 if not _HAS_PROC or read_stat(pid)[1] == "S" else 0


def assert_gone(pids: Iterable[int]) -> None:
    """Check that none of these processes is left."""
    pids = list(pids)
    assert settled(lambda: [pid for pid in pids if _exists(pid)], []) == []


def _exists(pid: int) -> bool:
    """Whether a process has not ended, or this one has not received its exit code."""
    try:
        _, state, parent = read_stat(pid)
    except OSError:
        return False
    return state != "Z" or parent == os.getpid()


@contextlib.contextmanager
def interrupted_when(reached: Callable[[], bool]) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block, a tenth of a second after this is true."""
    ended = threading.Event()

    def interrupt() -> None:
        give_up = time.monotonic() + 20
        while not reached() and time.monotonic() < give_up and not ended.is_set():
            time.sleep(0.005)
        pause = stretched(0.1)  # in which the caller comes to wait
        while not ended.wait(pause):
            os.kill(os.getpid(), signal.SIGINT)
            pause = 5.0  # a signal just before a system call does not end it: send another one

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail what takes longer than this."""
    began = time.monotonic()
    yield
    elapsed = time.monotonic() - began
    assert elapsed < stretched(seconds), f"took {elapsed:.2f} s"
