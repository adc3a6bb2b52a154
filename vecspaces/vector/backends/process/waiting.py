"""How a process waits: it polls for a constant, short time, and then sleeps.

Waking a process that sleeps takes 10 us on bare machines and up to 100 us on virtual machines,
which remove the core of an idle process.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from vecspaces import system

Ready = TypeVar("Ready")

#: Longer than most waits of a worker for the caller's next step of cheap environments. With 100 us,
#: 64 environments with infos made 0.8 times the steps on a machine where waking takes 70 us.
SPIN_SECONDS = 250e-6
#: The longest system call of a wait. A signal that comes just before the call, or that another
#: thread takes, does not end it, and its handler runs after the call.
HANDLER_SECONDS = 0.1


def spin(look: Callable[[], Ready]) -> Ready:
    """Call `look` until it returns what is not empty, or the time is over; return the last result.

    Example:
        >>> spin(iter([[], [(3, 1)]]).__next__)
        [(3, 1)]
    """
    until = perf_counter() + SPIN_SECONDS
    while not (ready := look()) and perf_counter() < until:
        system.yield_core()
    return ready
