"""An interrupt at a random moment of starting, replacing and ending workers leaves nothing."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.envs import ledgers
from tests.leaks import children
from tests.vector.bounds import settled
from vecspaces.errors import AlreadyPendingCallError, VecspacesError
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.backends.process.interrupts import uninterrupted

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    # What a handler raises in a destructor is not raised, and what it interrupts in the standard
    # library, such as a file that is read, is closed when it is collected.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


class Struck(BaseException):
    """What the program's own signal handler raises."""


@pytest.fixture
def handler() -> Iterator[None]:
    """Raise at SIGALRM in the main thread, to which another thread brings it if it is blocked."""

    def strike(number: int, frame: Any) -> None:
        raise Struck

    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    before = signal.signal(signal.SIGALRM, strike)
    yield
    signal.signal(signal.SIGALRM, before)
    done.set()
    thread.join()


@contextlib.contextmanager
def strike_after(seconds: float) -> Iterator[None]:
    """Interrupt the block after some time, unless it ended before."""
    with contextlib.suppress(Struck):
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def held() -> tuple[list[str], set[int]]:
    """The descriptors and the children of this process."""
    multiprocessing.active_children()  # frees what a busy system took long to end
    return sorted(os.listdir("/proc/self/fd")), set(children(os.getpid()))


def duration(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def start_and_end(method: str) -> None:
    AsyncVectorEnv(ledgers(3), num_workers=3, context=method).close()


def interrupt_starts(method: str, rounds: int) -> None:
    start_and_end(method)
    before = held()
    longest = min(duration(lambda: start_and_end(method)) for _ in range(3))
    moments = random.Random(7)
    for _ in range(rounds):
        envs = None
        with strike_after(moments.random() * longest):
            envs = AsyncVectorEnv(ledgers(3), num_workers=3, context=method)
        if envs is not None:
            envs.close()
        del envs
        assert_held(before)


def assert_held(expected: tuple[list[str], set[int]]) -> None:
    """Check that nothing else is held."""
    assert settled(held, expected) == expected


def interrupt_resets(method: str, rounds: int) -> None:
    """Interrupt the reset that replaces killed workers; after it another reset, or close, works."""
    start_and_end(method)
    before = held()
    moments = random.Random(8)
    longest = 0.0
    for number in range(rounds):
        envs = AsyncVectorEnv(ledgers(3), num_workers=3, context=method)
        envs.reset()
        for process in envs.processes[number % 2 :]:
            os.kill(process.pid, signal.SIGKILL)
            process.join(10)
        with contextlib.suppress(VecspacesError):
            envs.step([0] * 3)
        if number == 0:
            longest = duration(envs.reset)
        with strike_after(moments.random() * longest):
            envs.reset()
        for _ in range(number % 3):
            try:
                envs.reset(seed=1)
            except AlreadyPendingCallError:  # it was sent before the interrupt
                envs.reset_wait()
            assert envs.step([1] * 3)[0][:, 0].tolist() == [0, 1, 2]
        envs.close()
        assert envs.processes == []
        assert_held(before)


def interrupt_closes(method: str, rounds: int) -> None:
    start_and_end(method)
    before = held()
    moments = random.Random(9)
    longest = 0.0
    for number in range(rounds):
        envs = AsyncVectorEnv(ledgers(3), num_workers=3, context=method)
        if number == 0:
            longest = duration(envs.close)
        with strike_after(moments.random() * longest):
            envs.close()
        envs.close()
        assert envs.processes == []
        assert_held(before)


INTERRUPTED = {"start": interrupt_starts, "reset": interrupt_resets, "close": interrupt_closes}


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("what", INTERRUPTED)
def test_what_is_interrupted_leaves_nothing_and_can_be_repeated(what: str) -> None:
    INTERRUPTED[what]("fork", 12)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("what", INTERRUPTED)
@pytest.mark.parametrize(("method", "rounds"), [("fork", 1000), ("spawn", 30), ("forkserver", 150)])
def test_what_is_interrupted_often_leaves_nothing(what: str, method: str, rounds: int) -> None:
    INTERRUPTED[what](method, rounds)


# ---------------------------------------------------------------------- one section by itself


@pytest.mark.usefixtures("handler")
def test_a_handler_runs_after_the_section() -> None:
    steps = []
    with pytest.raises(Struck), uninterrupted():
        signal.raise_signal(signal.SIGALRM)
        steps.append("inside")
        with uninterrupted():
            steps.append("nested")
        steps.append("still inside")
    assert steps == ["inside", "nested", "still inside"]
    with pytest.raises(Struck):
        signal.raise_signal(signal.SIGALRM)


def test_every_handler_runs_and_stands_as_before() -> None:
    seen: list[int] = []
    mine = {signal.SIGUSR1: lambda *_: seen.append(1), signal.SIGUSR2: lambda *_: seen.append(2)}
    before = {number: signal.signal(number, handler) for number, handler in mine.items()}
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            for number in (signal.SIGINT, *mine):
                signal.raise_signal(number)
            assert seen == []
        assert seen == [1, 2]
        assert {number: signal.getsignal(number) for number in mine} == mine
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_another_thread_has_no_handlers_to_hold_back() -> None:
    def look() -> None:
        with uninterrupted():
            found.append(signal.getsignal(signal.SIGINT))

    found: list[Any] = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


# --------------------------------------------------------------- handlers of native libraries

_C_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


def make_and_close() -> None:
    AsyncVectorEnv(ledgers(1), num_workers=1).close()


@pytest.mark.parametrize("do", [make_and_close, count_usable_cores])
def test_a_native_librarys_handler_stays(do: Callable[[], Any]) -> None:
    """As a JVM or Qt installs one: over Python's, which `signal.getsignal` goes on to return."""
    libc = ctypes.CDLL(None)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    seen: list[int] = []
    mine = _C_HANDLER(seen.append)
    before = libc.signal(signal.SIGINT, ctypes.cast(mine, ctypes.c_void_p))
    try:
        assert callable(signal.getsignal(signal.SIGINT))
        do()
        os.kill(os.getpid(), signal.SIGINT)  # KeyboardInterrupt, if Python's is installed
        assert seen == [signal.SIGINT]
    finally:
        libc.signal(signal.SIGINT, before)


@pytest.mark.parametrize("do", [make_and_close, count_usable_cores])
def test_a_faulthandler_stays_registered(do: Callable[[], Any], tmp_path: Any) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)  # which `getsignal` goes on to return
    with open(tmp_path / "stacks", "w+") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        try:
            do()
            os.kill(os.getpid(), signal.SIGUSR1)
            stacks.seek(0)
            assert "test_a_faulthandler_stays_registered" in stacks.read()
        finally:
            faulthandler.unregister(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("interrupts", [False, True])
def test_system_calls_are_restarted_as_before(interrupts: bool) -> None:
    """As `signal.siginterrupt` says: in the section and after it, in the C code of any thread."""
    libc = ctypes.CDLL(None)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, interrupts)
    result: list[int] = []

    def strike() -> None:
        read, write = os.pipe()
        buffer = ctypes.create_string_buffer(1)
        thread = threading.Thread(target=lambda: result.append(libc.read(read, buffer, 1)))
        thread.start()
        time.sleep(0.05)  # until it waits in the system call
        assert thread.ident is not None
        signal.pthread_kill(thread.ident, signal.SIGUSR1)
        thread.join(0.05)
        os.write(write, b"y")
        thread.join()
        os.close(read)
        os.close(write)

    try:
        with uninterrupted():
            strike()
        strike()
        assert result == [-1 if interrupts else 1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)
