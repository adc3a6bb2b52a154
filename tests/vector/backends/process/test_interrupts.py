"""Sections that no signal handler interrupts, and the handlers of others that they leave alone."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interrupts import Struck
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
