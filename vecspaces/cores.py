"""How many cores this process may use: its affinity, and the CPU quota of its container."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count_usable_cores() -> int:
    """Return the number of cores that this process may use, at least 1, by affinity and quota."""
    # Python 3.13: the affinity, unless the user asked for another number (-X cpu_count).
    count = getattr(os, "process_cpu_count", lambda: None)() or len(usable_cores())
    return math.ceil(min(cpu_quota(), count))


def cpu_quota(root: Path = Path("/")) -> float:
    """Return the CPU quota of control groups (v2), in cores; infinity: no limit.

    A group is also limited by those above it, so the smallest quota on the path applies. In a
    container, the own group may be at the root of the mount, whatever its path is.
    """
    try:
        text = (root / "proc/self/cgroup").read_text(errors="surrogateescape")  # names are bytes
    except OSError:
        return math.inf
    quota, top = math.inf, root / "sys/fs/cgroup"
    for path in [line.removeprefix("0::") for line in text.splitlines() if line[:3] == "0::"]:
        group = top / path.lstrip("/")
        groups = [group, *group.parents]
        for folder in groups[: groups.index(top) + 1]:
            try:
                time, period = (folder / "cpu.max").read_text().split()
                if time != "max":
                    quota = min(quota, int(time) / int(period))
            except (OSError, ValueError, ZeroDivisionError):  # missing, or in another form
                continue
    return quota
