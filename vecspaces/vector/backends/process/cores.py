"""How many cores this process may use: its affinity, and the CPU quota of its container."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from vecspaces.vector.backends.process.interrupts import uninterrupted


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count_usable_cores() -> int:
    """Return how many cores' worth of time this process may use, at least 1."""
    # Python 3.13: the affinity, unless the user asked for another number (-X cpu_count).
    count = getattr(os, "process_cpu_count", lambda: None)() or len(usable_cores())
    with uninterrupted():  # which would leave a file open
        quota = cpu_quota()
    return math.ceil(min(quota, count))


def cpu_quota(root: Path = Path("/")) -> float:
    """Return the cores' worth of time that control groups allow; infinity where none limits it.

    A group is limited by those above it too, so the smallest quota on the way up counts. In a
    container the own group may lie at the root of what is mounted, whatever its path is called.
    """
    try:
        text = (root / "proc/self/cgroup").read_text(errors="surrogateescape")  # names are bytes
    except OSError:
        return math.inf
    quota = math.inf
    for membership in text.splitlines():
        _, _, rest = membership.partition(":")
        controllers, separator, path = rest.partition(":")
        read: Callable[[Path], float]
        if not separator:
            continue
        if not controllers:
            mounts, read = ["", "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read = [controllers, "cpu"], _quota_v1
        else:
            continue
        for mount in mounts:
            top = root / "sys/fs/cgroup" / mount
            group = top / path.lstrip("/")
            groups = [group, *group.parents]
            for folder in groups[: groups.index(top) + 1]:
                try:
                    quota = min(quota, read(folder))
                except (OSError, ValueError, ZeroDivisionError):  # not here, or of no such form
                    continue
    return quota


def _quota_v2(folder: Path) -> float:
    """Return the quota of a group of version 2: time and period, or "max"."""
    time, period = (folder / "cpu.max").read_text().split()
    return math.inf if time == "max" else int(time) / int(period)


def _quota_v1(folder: Path) -> float:
    """Return the quota of a group of version 1, where -1 stands for no limit."""
    time = int((folder / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu.cfs_period_us").read_text())
    return math.inf if time <= 0 else time / period
