"""Slow environments: when a warning is issued, once per episode (`slow_warning`)."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
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
        seen: By worker and environment, the position and since when the worker is busy with it;
            dropped when the environment has answered.
    """

    def __init__(self, seconds: float | None, backend: Backend) -> None:
        never = seconds is None or seconds == math.inf
        self._seconds = math.inf if seconds is None else seconds
        self._backend = backend
        self.interval = None if never else min(self._seconds / _LOOKS, _LONGEST_SECONDS)
        self.due = math.inf if never else 0.0
        self.seen: dict[int, dict[int, tuple[object, float]]] = {}
        self._warned: dict[tuple[int, ...], object] = {}

    def shorten(self, seconds: float | None) -> float | None:
        """Return the time until the next check, if it is less than `seconds`."""
        if self.interval is None or seconds is None:
            return self.interval if seconds is None else seconds
        return min(seconds, self.interval)

    def note_answer(self, worker: int, rows: Sequence[int]) -> None:
        """Note that environments have answered; for those in threads, others may still be busy."""
        seen = self.seen.get(worker)
        if not seen:
            return
        if self._backend.buffers.busy is None:
            seen.clear()
        for row in rows:
            seen.pop(row, None)

    def look(self, workers: Iterable[int], call: int, verb: str) -> None:
        """Check workers that are busy with the command number `call`; warn of slow environments."""
        if self.interval is None:
            return
        now = time.monotonic()
        self.due = now + self.interval
        for worker in sorted(workers):
            before, seen = self.seen.get(worker, {}), dict[int, tuple[object, float]]()
            places = self._backend.places(worker)
            for place in places:
                known, since = before.get(place.env_ids[0], (None, now))
                is_same = known == (call, *place)
                seen[place.env_ids[0]] = (call, *place), since if is_same else now
            self.seen[worker] = seen
            for place in places:
                seconds = now - seen[place.env_ids[0]][1]
                if seconds >= self._seconds:
                    self._warn(worker, place, call, verb, seconds)

    def _warn(self, worker: int, place: Place, call: int, verb: str, seconds: float) -> None:
        """Warn of a slow environment, once per episode."""
        ids = tuple(place.env_ids)
        episode = call if place.episode is None else place.episode
        if self._warned.get(ids) == episode:
            return
        # Before the warning, which may be an error, after which the caller waits again.
        self._warned[ids] = episode
        stack = self._backend.stack(worker, row=place.env_ids[0])
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
