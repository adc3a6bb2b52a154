"""Core affinity: a process is moved back to its own core now and then."""

from __future__ import annotations

import math
import os
import sys
import time

# How long a process may be away from its core: seldom enough to cost nothing.
_RETURN_SECONDS = 2e-3


class CoreAffinity:
    """The core that a thread returns to from time to time, free to be moved in between.

    Linux may keep processes that wake each other on one core while another is idle, for seconds:
    the workers then run one after the other. To request a core from time to time, without insisting
    on it, ends that, and binds neither the environments' own processes nor other programs.
    """

    def __init__(self, core: int | None) -> None:
        self._core = core if sys.platform == "linux" else None
        self._due = 0.0 if self._core is not None else math.inf  # on the monotonic clock

    def return_to_core(self) -> None:
        """Return to the core, if it is time; the cores that the user allowed stay allowed."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _RETURN_SECONDS
        allowed = os.sched_getaffinity(0)
        if self._core not in allowed:
            return
        try:
            try:
                os.sched_setaffinity(0, {self._core})
            finally:  # a signal handler may raise in between
                os.sched_setaffinity(0, allowed)
        except OSError:  # the system took the core away a moment ago
            self._due = math.inf
