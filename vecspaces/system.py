"""What this machine has: no other module asks for the system, or for what its libraries offer.

`VECSPACES_SYSTEM=darwin` (macOS) or `portable` (Windows) in the environment hides what these
systems do not have, in this process and its workers: the same code takes their paths on Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

AFFINITY = hasattr(os, "sched_getaffinity")
#: Whether a process passes descriptors to those that it starts.
DESCRIPTORS = sys.platform != "win32"
EPOLL = hasattr(select, "epoll")
FIFO = hasattr(os, "mkfifo")
FORK = hasattr(os, "fork")
GROUPS = hasattr(os, "setpgid")
LOCK = find_spec("fcntl") is not None
MEMFD = hasattr(os, "memfd_create")
#: Whether memory has names that disappear with its last user.
NAMED_MEMORY = sys.platform == "win32"
PIDFD = hasattr(os, "pidfd_open")
POLL = hasattr(select, "poll")
PROC = sys.platform == "linux" and os.path.isdir("/proc/self")
#: Whether the system's own libraries survive a fork, unlike those of macOS.
SAFE_FORK = sys.platform == "linux"
SIGMASK = hasattr(signal, "pthread_sigmask")
#: Whether it can be asked if a child has ended, without taking its exit code.
WAITID = hasattr(os, "waitid")

_LINUX_ALONE = ("AFFINITY", "EPOLL", "MEMFD", "PIDFD", "PROC", "SAFE_FORK", "WAITID")
#: What a system lacks, of what Linux has.
LACKS = {
    "darwin": _LINUX_ALONE,
    "portable": (*_LINUX_ALONE, "DESCRIPTORS", "FIFO", "FORK", "GROUPS", "LOCK", "POLL", "SIGMASK"),
}
#: The start method of workers by default; None: that of `multiprocessing`.
START_METHOD: str | None = None
if _SYSTEM := os.environ.get("VECSPACES_SYSTEM"):
    if _SYSTEM not in LACKS:
        raise ValueError(f"VECSPACES_SYSTEM: expected {' or '.join(LACKS)}, found {_SYSTEM!r}")
    globals().update(dict.fromkeys(LACKS[_SYSTEM], False))
    START_METHOD = "spawn"

# Flags of `os.open` that some systems do not have.
O_BINARY: int = getattr(os, "O_BINARY", 0)

#: Events of `make_poll`.
POLLIN: int = getattr(select, "POLLIN", 1)
POLLOUT: int = getattr(select, "POLLOUT", 4)

#: Lets other processes run on this core.
yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class SelectPoll:
    """The methods of `select.poll` for sockets, by `select.select`."""

    def __init__(self) -> None:
        self._events: dict[int, int] = {}

    def register(self, descriptor: int, events: int) -> None:
        """Watch a descriptor; without events, `poll` reports it at once."""
        self._events[descriptor] = events

    def unregister(self, descriptor: int) -> None:
        """Stop watching a descriptor; KeyError if it is not watched."""
        del self._events[descriptor]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        """Wait, and return descriptors with their events."""
        events = dict(self._events)
        seconds = None if milliseconds is None else milliseconds / 1000
        ready = [(descriptor, 0) for descriptor in events if not events[descriptor]]
        if ready or (not events and seconds is not None):
            time.sleep(0 if ready else seconds or 0)
            return ready
        readers, writers = (
            [fd for fd in events if events[fd] & kind] for kind in (POLLIN, POLLOUT)
        )
        readable, writable, _ = select.select(readers, writers, [], seconds)
        return [(fd, POLLIN) for fd in readable] + [(fd, POLLOUT) for fd in writable]


def make_poll() -> Any:
    """Return what waits for descriptors: a `select.poll`, or its methods."""
    if POLL:
        return select.poll()
    return SelectPoll()


def count_cores() -> int:
    """Return the number of cores that this process may run on."""
    # Python 3.13: the affinity, unless the user asked for another number (-X cpu_count).
    count: int | None = getattr(os, "process_cpu_count", lambda: None)()
    if count is None and AFFINITY:
        count = len(os.sched_getaffinity(0))
    return count or os.cpu_count() or 1


def run_in_forks(function: Callable[[], object]) -> None:
    """Call a function in every process that is forked from this process."""
    if FORK:
        os.register_at_fork(after_in_child=function)


def run_before_forks(function: Callable[[], object]) -> None:
    """Call a function before every fork of this process."""
    if FORK:
        os.register_at_fork(before=function)


def lock_file(descriptor: int) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    if LOCK:
        import fcntl

        try:
            # Not `flock`: forked workers share its locks, and would keep this one for some time
            # after the caller was killed.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # any other errno: a file system without locks
            return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def load_libc() -> Any:
    """Load the C library of this process; None on Windows."""
    return ctypes.CDLL(None) if SIGMASK else None
