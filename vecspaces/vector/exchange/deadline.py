"""Deadline: the time limit of a wait, from 0 seconds to infinity."""

from __future__ import annotations

import math
import time

# The longest wait of one system call: `poll` takes 31 bits of milliseconds, and `select` and
# `lock.acquire` overflow at larger values. Every wait then reads the clock and continues.
_LONGEST_SECONDS = 1e6


class Deadline:
    """The end of a wait of some seconds; None or infinity: no end.

    Example:
        >>> Deadline(1e300).passed, Deadline(None).left, Deadline(0).left
        (False, None, 0.0)
    """

    __slots__ = ("_end",)

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """The seconds left, from 0 to 1e6, which every system call accepts; None: no end."""
        if self._end == math.inf:
            return None
        return min(max(0.0, self._end - time.monotonic()), _LONGEST_SECONDS)

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return self._end != math.inf and time.monotonic() >= self._end

    def __lt__(self, other: Deadline) -> bool:
        return self._end < other._end
