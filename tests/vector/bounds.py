"""Bounds on time that hold on an idle machine as they stand, and on a busy one in proportion."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from vecspaces.vector.backends.process.cores import count_usable_cores


def stretched(seconds: float) -> float:
    """A bound in seconds, longer where more processes want to run than there are cores.

    The load is that of the last minute; of the workers of pytest-xdist it is known from the start
    that each keeps two cores busy, with a caller and a worker.
    """
    cores = count_usable_cores()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return seconds * max(1.0, load / cores, 2 * beside / cores if beside > 1 else 0.0)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail what takes longer than this."""
    began = time.monotonic()
    yield
    elapsed = time.monotonic() - began
    assert elapsed < stretched(seconds), f"took {elapsed:.2f} s"
