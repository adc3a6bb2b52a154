"""What this machine has: no other module asks for the system, or for what its libraries offer.

`has` names what is missing somewhere. The variable `VECSPACES_SYSTEM` hides what macOS (`darwin`),
or Windows (`portable`), does not have, in this process and its workers, so that the same code takes
the paths of these systems on Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

_HAS = {
    "affinity": hasattr(os, "sched_getaffinity"),
    "descriptors": sys.platform != "win32",  # that a process passes to those that it starts
    "epoll": hasattr(select, "epoll"),
    "fifo": hasattr(os, "mkfifo"),
    "fork": hasattr(os, "fork"),
    "groups": hasattr(os, "setpgid"),
    "lock": find_spec("fcntl") is not None,
    "memfd": hasattr(os, "memfd_create"),
    "pidfd": hasattr(os, "pidfd_open"),
    "poll": hasattr(select, "poll"),
    "proc": sys.platform == "linux" and os.path.isdir("/proc/self"),
    "sigmask": hasattr(signal, "pthread_sigmask"),
}
_LINUX_ALONE = {"affinity", "epoll", "memfd", "pidfd", "proc"}
_HIDDEN = {
    "darwin": _LINUX_ALONE,
    "portable": _LINUX_ALONE | {"descriptors", "fifo", "fork", "groups", "lock", "poll", "sigmask"},
}

# Flags of `os.open` that some systems do not have.
O_BINARY: int = getattr(os, "O_BINARY", 0)
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)

#: Lets other processes run on this core.
yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


def has(name: str) -> bool:
    """Whether this system has something, and `VECSPACES_SYSTEM` does not hide it."""
    return _HAS[name] and name not in _HIDDEN.get(os.environ.get("VECSPACES_SYSTEM", ""), ())


def count_cores() -> int:
    """Return the number of cores that this process may run on."""
    # Python 3.13: the affinity, unless the user asked for another number (-X cpu_count).
    count: int | None = getattr(os, "process_cpu_count", lambda: None)()
    if count is None and has("affinity"):
        count = len(os.sched_getaffinity(0))
    return count or os.cpu_count() or 1


def run_in_forks(function: Callable[[], object]) -> None:
    """Call a function in every process that is forked from this one."""
    if has("fork"):
        os.register_at_fork(after_in_child=function)


def lock_file(descriptor: int) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    if has("lock"):
        import fcntl

        try:
            # Not `flock`: forked workers share its locks, and would keep this one for some time
            # after the caller was killed.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # any other errno: a file system without locks
            return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def load_libc() -> Any:
    """Load the C library of this process; None where it has no POSIX signals."""
    return ctypes.CDLL(None) if has("sigmask") else None
