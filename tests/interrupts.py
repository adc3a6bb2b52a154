"""Interrupts for tests, at random moments."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from vecspaces import Env, spaces

# The mark of tests that use the timer and the signal of pytest-timeout's own method.
guarded = partial(pytest.mark.timeout, method="thread")
# The longest time until a thread has received a signal that was sent.
_SIGNAL_SECONDS = 0.5


class Struck(BaseException):
    """What a program's own signal handler raises."""


class Counting(Env[Any, Any]):
    """Counts its steps, each of which takes some time; the info grows large now and then.

    Args:
        number: Which one it is.
        seconds: The time of a step and of a reset.
        large: How many bytes every seventh info holds.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(100)

    def __init__(self, number: int, seconds: float = 0.0, large: int = 0) -> None:
        self.number, self.seconds, self.large = number, seconds, large
        self.time = 0

    def answer(self, action: int) -> tuple[Any, dict[str, Any]]:
        if self.seconds:
            time.sleep(self.seconds)
        observation = np.array([self.number, self.time, action], np.float64)
        large = self.large and self.time % 7 == 3
        return observation, {"text": "x" * self.large} if large else {}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        return self.answer(-1 if seed is None else seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        observation, info = self.answer(int(action))
        return observation, float(self.time), self.time % 11 == 0, False, info

    def echo(self, value: Any) -> Any:
        return self.number, value


class Interrupts:
    """Interrupts calls at moments drawn from a seed, by a timer's signal.

    Another thread receives the signal if the main thread blocks it. The handler sends SIGINT, which
    waits where Ctrl-C is blocked, or raises an exception of its own.

    Args:
        seed: Of the moments.
        longest: The latest moment after the beginning of a call, in seconds.
        error: What the handler raises; None: it sends SIGINT.
    """

    def __init__(self, seed: int, longest: float, error: type[BaseException] | None = None) -> None:
        self._random = random.Random(seed)
        self.longest, self.error = longest, error
        self.count = 0

    def __enter__(self) -> Interrupts:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._done.wait)
        self._thread.start()
        self._before = signal.signal(signal.SIGALRM, self._raise)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        self._done.set()
        self._thread.join()

    def _raise(self, number: int, frame: Any) -> None:
        self._is_handled = True
        if self.error is not None:
            raise self.error
        signal.raise_signal(signal.SIGINT)

    def during(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Make a call; return whether it ended before the interrupt, and its result."""
        result, self._is_handled = None, False
        try:
            try:
                moment = self.longest * self._random.random() ** 2
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, moment))
                result = (call(),)
            finally:
                remaining, _ = signal.setitimer(signal.ITIMER_REAL, 0)
                # Without a remaining time, the other thread has not received the signal yet, or
                # less than a microsecond was left, which the system rounds to zero.
                give_up = time.monotonic() + _SIGNAL_SECONDS
                while not (remaining or self._is_handled or time.monotonic() > give_up):
                    time.sleep(0.001)
        except (KeyboardInterrupt, Struck):
            self.count += 1
        # What came between the end of the call and that of the timer is a whole result.
        return result is not None, result and result[0]
