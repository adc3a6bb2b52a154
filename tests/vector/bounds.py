"""Bounds on time that hold on an idle machine as they stand, and on a busy one in proportion."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator


def stretched(seconds: float) -> float:
    """A bound in seconds, longer where more processes want to run than there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return seconds * max(1.0, load / (cores or 1))


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail what takes longer than this."""
    began = time.monotonic()
    yield
    elapsed = time.monotonic() - began
    assert elapsed < stretched(seconds), f"took {elapsed:.2f} s"
