"""Sections that no signal handler interrupts, and the handlers of others that they leave alone."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.envs import ledgers
from tests.interrupts import Struck
from vecspaces.cores import count_usable_cores
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import interrupts as module
from vecspaces.vector.backends.process.interrupts import uninterrupted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="holds back signals")


@pytest.fixture
def handler() -> Iterator[None]:
    """Raise at SIGALRM."""

    def strike(number: int, frame: Any) -> None:
        raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("handler")
def test_a_signal_that_comes_as_handlers_are_restored_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def restore_and_strike() -> None:
        restore()
        signal.raise_signal(signal.SIGALRM)

    restore = module._restore
    monkeypatch.setattr(module, "_restore", restore_and_strike)
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        with pytest.raises(Struck), uninterrupted():
            signal.raise_signal(signal.SIGUSR1)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_every_handler_runs_after_the_section_and_stands_as_before() -> None:
    seen: list[Any] = []
    mine = {signal.SIGUSR1: lambda *_: seen.append(1), signal.SIGUSR2: lambda *_: seen.append(2)}
    before = {number: signal.signal(number, handler) for number, handler in mine.items()}
    interrupt = signal.getsignal(signal.SIGINT)
    # Another thread has no handlers to hold back.
    thread = threading.Thread(target=lambda: seen.append(_handler_in_a_section()))
    thread.start()
    thread.join()
    assert seen.pop() is interrupt
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            for number in (signal.SIGINT, *mine):
                signal.raise_signal(number)
            assert _handler_in_a_section() is not interrupt
            assert seen == []
        assert seen == [1, 2]
        assert {number: signal.getsignal(number) for number in mine} == mine
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handler_in_a_section() -> Any:
    with uninterrupted():
        return signal.getsignal(signal.SIGINT)


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


@pytest.mark.parametrize("interrupts", [False, True])
def test_system_calls_are_restarted_as_before(interrupts: bool) -> None:
    """As `signal.siginterrupt` chose: in the section and after it, in the C code of any thread."""
    libc = ctypes.CDLL(None)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, interrupts)
    result: list[int] = []

    def strike() -> None:
        read, write = os.pipe()
        buffer = ctypes.create_string_buffer(1)
        has_read, over = threading.Event(), threading.Event()

        def wait_in_c() -> None:
            result.append(libc.read(read, buffer, 1))
            has_read.set()
            over.wait()  # a signal to a thread that has ended may crash

        thread = threading.Thread(target=wait_in_c)
        thread.start()
        assert thread.ident is not None
        # Nothing says that it waits in the system call: a signal that comes before is repeated.
        give_up = time.monotonic() + (20.0 if interrupts else 0.1)
        while not has_read.is_set() and time.monotonic() < give_up:
            has_read.wait(0.02)
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
        os.write(write, b"y")
        has_read.wait()
        over.set()
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
