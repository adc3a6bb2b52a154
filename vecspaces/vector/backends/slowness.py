"""Slow environments: when a warning is issued, once per episode (`slow_warning`)."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from vecspaces.errors import SlowEnvironmentWarning
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import Message, whereabouts
from vecspaces.vector.exchange.positions import Place

# The number of checks within `slow_warning`: a warning is late by at most the time between two.
_LOOKS = 8
_LONGEST_SECONDS = 1e6
_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


class SlowWatch:
    """Checks busy workers at intervals; an environment is slow if its worker is still busy with it.

    Time that a worker spends in other environments is not counted.

    Attributes:
        interval: The time between two checks, in seconds; None: no checks.
        due: The time of the next check, by `time.monotonic`.
        seen: By worker, the position of its environment, and since when the worker is busy with it.
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
        """Return the time until the next check, if it is less than `seconds`."""
        if self.interval is None or seconds is None:
            return self.interval if seconds is None else seconds
        return min(seconds, self.interval)

    def note_answer(self, worker: int) -> None:
        """Note that environments of a worker have answered."""
        self.seen.pop(worker, None)

    def look(self, workers: Iterable[int], number_of: Callable[[int], int], verb: str) -> None:
        """Check busy workers, and warn of slow environments.

        `number_of` returns the number of the command that an environment was sent.
        """
        if self.interval is None:
            return
        now = time.monotonic()
        self.due = now + self.interval
        for worker in sorted(workers):
            if self._backend.is_answering(worker):
                continue
            place = self._backend.locate(worker)
            number = number_of(place.env_ids[0])
            known, since = self.seen.get(worker, (None, now))
            if known != (number, *place):
                since = now
            self.seen[worker] = (number, *place), since
            if now - since >= self._seconds:
                self._warn(worker, place, number, verb, now - since)

    def _warn(self, worker: int, place: Place, call: int, verb: str, seconds: float) -> None:
        """Warn of a slow environment, once per episode."""
        ids = tuple(place.env_ids)
        episode = call if place.episode is None else place.episode
        if self._warned.get(ids) == episode:
            return
        # Before the warning, which a filter may turn into an error: a repeated wait warns no more.
        self._warned[ids] = episode
        stack = self._backend.stack(worker)
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
