"""Sections that no signal handler interrupts."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

import pytest

from vecspaces.vector.backends.process.interrupts import uninterrupted

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="holds back signals")


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
