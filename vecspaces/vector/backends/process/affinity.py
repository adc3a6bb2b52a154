"""Cores: which there are, coming back to one, and waiting awake on one that is free."""

from __future__ import annotations

import os
import select
import sys
import time

# How long to wait awake. To wake a process that sleeps takes a tenth of it on bare machines and up
# to a third on virtual ones, where a core without work is taken away.
_SPIN_SECONDS = 200e-6
# How long a process may be away from its core: seldom enough to cost nothing.
_RETURN_SECONDS = 2e-3


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class CoreAffinity:
    """The core that a thread comes back to now and then, free to be moved in between.

    Linux may keep processes that wake each other on one core while another is idle, for seconds:
    the workers then run one after the other. To ask for a core now and then, and not to insist on
    it, ends that, and binds neither the environments' own processes nor other programs.

    Args:
        core: Its number; None for no home.
    """

    def __init__(self, core: int | None) -> None:
        self._core = core if sys.platform == "linux" else None
        self._due = 0.0  # on the monotonic clock

    def visit(self) -> None:
        """Come back, if it is time."""
        if self._core is None:
            return
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _RETURN_SECONDS
        allowed = os.sched_getaffinity(0)
        if self._core in allowed:
            os.sched_setaffinity(0, {self._core})
            os.sched_setaffinity(0, allowed)


class SpinPoll:
    """A `select.poll` that looks again and again for a moment before it sleeps.

    Only while waits are short: after one that looking did not shorten, it sleeps at once until a
    wait was short again. Between two looks it lets others run. Use it where a core has nothing
    better to do.

    Args:
        poll: What to wait for.
    """

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll.poll
        self._soon = True

    def poll(self, milliseconds: int | None) -> list[tuple[int, int]]:
        """Wait as `select.poll` does, up to 0.2 ms of it awake.

        Args:
            milliseconds: The longest wait; None waits for ever.

        Returns:
            Descriptors and what befell them.
        """
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
