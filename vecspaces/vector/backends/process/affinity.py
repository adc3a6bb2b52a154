"""Core affinity: a process returns to its own core at intervals."""

from __future__ import annotations

import math
import os
import sys
import time

# The interval between two returns, long enough to take no measurable time.
_RETURN_SECONDS = 2e-3


class CoreAffinity:
    """The core to which a thread returns at intervals; the system may move it in between.

    Linux may keep processes that wake each other on one core for seconds while another core is
    idle, so that workers run one after the other. Requesting a core at intervals, without staying
    pinned, prevents this, and affects neither processes of environments nor other programs.
    """

    def __init__(self, core: int | None) -> None:
        self._core = core if sys.platform == "linux" else None
        self._due = 0.0 if self._core is not None else math.inf  # on the monotonic clock

    def return_to_core(self) -> None:
        """Return to the core, if it is time; the allowed cores stay the same."""
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
        except OSError:  # the system has just removed the core
            self._due = math.inf
