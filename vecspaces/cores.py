"""How many cores this process may use: its affinity, and the CPU quota of its container."""

from __future__ import annotations

import math
from pathlib import Path

from vecspaces import system


def count_usable_cores() -> int:
    """Return the number of cores that this process may use, at least 1, by affinity and quota."""
    return math.ceil(min(cpu_quota(), system.count_cores()))


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
