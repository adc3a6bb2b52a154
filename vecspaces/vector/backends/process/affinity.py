"""Returning to a core, and busy-polling on one that is free."""

from __future__ import annotations

import math
import os
import select
import sys
import time

# How long to busy-poll. To wake a process that sleeps takes a tenth of it on bare machines and up
# to a third on virtual ones, where a core without work is taken away.
_SPIN_SECONDS = 200e-6
# How long a process may be away from its core: seldom enough to cost nothing.
_RETURN_SECONDS = 2e-3


class CoreAffinity:
    """The core that a thread returns to from time to time, free to be moved in between.

    Linux may keep processes that wake each other on one core while another is idle, for seconds:
    the workers then run one after the other. To request a core from time to time, without insisting
    on it, ends that, and binds neither the environments' own processes nor other programs.

    Args:
        core: Its number; None: none is preferred.
    """

    def __init__(self, core: int | None) -> None:
        self._core = core if sys.platform == "linux" else None
        self._due = 0.0 if self._core is not None else math.inf  # on the monotonic clock

    def visit(self) -> None:
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


class SpinPoll:
    """A `select.poll` that busy-polls for a moment before it sleeps.

    Only while waits are short: after one that busy-polling did not shorten, it sleeps at once until
    a wait was short again. Between two looks it lets other threads run. Use it where a core has
    nothing better to do.

    Args:
        poll: What to wait for.
    """

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll.poll
        self._soon = True

    def poll(self, milliseconds: int | None) -> list[tuple[int, int]]:
        """Wait as `select.poll` does, up to 0.2 ms of it busy-polling; None waits forever."""
        look, clock = self._poll, time.perf_counter
        began = clock()
        if self._soon and milliseconds != 0:
            until = began + _SPIN_SECONDS
            while True:
                found = look(0)
                if found:
                    return found
                os.sched_yield()
                if clock() > until:
                    break
        found = look(milliseconds)
        self._soon = clock() - began < _SPIN_SECONDS
        return found
