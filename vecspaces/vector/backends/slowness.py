"""Slow environments: when one is noticed and warned of, once per episode (`slow_warning`)."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

from vecspaces.errors import SlowEnvironmentWarning
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import Message, whereabouts

# How many looks there are within `slow_warning`: a warning is late by the time between two at most.
_LOOKS = 8
_LONGEST_SECONDS = 1e6
_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


class SlowWatch:
    """Looks at busy workers now and then; what each is busy with must be the same for some time.

    An environment is not slow because others of its worker came before it.

    Attributes:
        interval: The time between two looks, in seconds; None: there are none.
        due: When the next look is to be, as `time.monotonic` counts.
        seen: The place and the time since which each worker is there; dropped once it has answered.
    """

    def __init__(self, seconds: float | None, backend: Backend) -> None:
        never = seconds is None or seconds == math.inf
        self._seconds = math.inf if seconds is None else seconds
        self._backend = backend
        self.interval = None if never else min(self._seconds / _LOOKS, _LONGEST_SECONDS)
        self.due = math.inf if never else 0.0
        self.seen: dict[int, tuple[object, float]] = {}
        self._warned: dict[tuple[int, ...], object] = {}

    def shorten(self, seconds: float | None) -> float | None:
        """Return how long to wait until the next look, where one would wait for `seconds`."""
        if self.interval is None or seconds is None:
            return self.interval if seconds is None else seconds
        return min(seconds, self.interval)

    def look(self, workers: Iterable[int], call: int, verb: str) -> None:
        """Look at workers that are busy with the command number `call`; warn of the slow ones."""
        if self.interval is None:
            return
        now = time.monotonic()
        self.due = now + self.interval
        for worker in sorted(workers):
            place = self._backend.locate(worker)
            busy = call, *place
            before, since = self.seen.get(worker, (None, now))
            if before != busy:
                self.seen[worker] = busy, now
            elif now - since >= self._seconds:
                ids = tuple(place.env_ids)
                episode = call if place.episode is None else place.episode
                if self._warned.get(ids) != episode:
                    # Before the warning, which may be turned into an error: then one waits again.
                    self._warned[ids] = episode
                    self._warn(worker, verb, now - since)

    def _warn(self, worker: int, verb: str, seconds: float) -> None:
        """Warn of the environment that a worker is busy with."""
        stack = self._backend.stack(worker, insist=False)
        place = self._backend.locate(worker)
        frame, level = sys._getframe(), 1
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame, level = frame.f_back, level + 1
        warnings.warn(
            Message(
                "{} of {:envs} has taken {} s so far: step_timeout and start_timeout bound the "
                "wait, and slow_warning says after how long to warn (None: never){}",
                verb,
                place.env_ids,
                f"{seconds:.3g}",
                whereabouts(place.env_ids, place.text, stack),
            ),
            SlowEnvironmentWarning,
            stacklevel=level,
        )
