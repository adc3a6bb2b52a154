"""Planned replacement: which workers are due, by their episodes or their memory, and how often."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.log import log
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import Message
from vecspaces.vector.exchange.messages import Op, Reply
from vecspaces.vector.session.arguments import Settings

#: How long a worker may take to close its environments, in seconds: as long as in `close()`.
CLOSE_SECONDS = 4.0
# The share of the time that may be spent on reading how much memory workers use.
_READING_SHARE = 0.05

_WHERE = (
    "recycle_after and recycle_memory replace a worker where episodes are handed out (evaluate), "
    "at full resets, and, with num_workers=num_envs, at the end of an episode"
)


class Planned(NamedTuple):
    """A worker that is to be replaced although it lives, and why."""

    reason: str
    by_memory: bool


def check_recycling(settings: Settings, rows: Sequence[int], backend: Backend) -> None:
    """Refuse arguments that would replace no worker; `rows` are the numbers of rows of each."""
    if settings.recycle_memory is not None and backend.memory(0) is None:
        raise ValueError(
            "recycle_memory needs workers whose memory can be read from "
            "/proc/PID/smaps_rollup (on Linux, in processes of this machine): use recycle_after"
        )
    if (
        settings.recycles
        and max(rows) > 1
        and settings.autoreset_mode is not AutoresetMode.DISABLED
    ):
        raise ValueError(
            f"{_WHERE}. Found {sum(rows)} environments in {len(rows)} workers, which reset them "
            "one by one: use num_workers=num_envs, or autoreset_mode='Disabled' and full resets"
        )


class Recycling:
    """The episodes of each worker, and which are due; the session alone changes it.

    Attributes:
        exact: Whether each worker has one row, so that it can be replaced between two episodes.
        hands_out: Whether the caller hands out episodes, and asks `Session.drain` first.
        episodes: How many episodes each worker has ended since it was started.
        draining: The workers that are to begin no other episode before they are replaced.
        counts: How often each worker was replaced, after its episodes and for its memory.
    """

    def __init__(self, settings: Settings, backend: Backend, units: Sequence[int]) -> None:
        self._backend, self._slices = backend, backend.slices
        self._after, self._memory = settings.recycle_after, settings.recycle_memory
        self.exact = all(len(rows) == 1 for rows in self._slices)
        self.hands_out = False
        self.episodes: npt.NDArray[np.int64] = np.zeros(len(self._slices), np.int64)
        self.draining: dict[int, Planned] = {}
        self.counts: npt.NDArray[np.int64] = np.zeros((len(self._slices), 2), np.int64)
        # By row, its worker; and whether its ends count: the agents of an environment end together.
        self._of = np.repeat(np.arange(len(self._slices)), list(map(len, self._slices)))
        self._counts = np.zeros(len(self._of), np.bool_)
        self._counts[np.cumsum([0, *units[:-1]])] = True
        self._read_at = [0.0] * len(self._slices)

    def check_reset(self, rows: Sequence[int], call: str) -> None:
        """Refuse to begin episodes in some environments of workers, and not in the others."""
        if len(rows) < len(self._of) and not (self.exact or self.hands_out):
            raise ValueError(
                f"{call}: {_WHERE}. Environments that share a worker cannot be reset one by one: "
                "reset all of them, or use num_workers=num_envs"
            )

    def with_ends(self, ended: npt.NDArray[np.bool_], rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return `episodes` once those of some rows have ended that `ended` marks."""
        at = np.array(rows, dtype=np.intp)
        at = at[ended[at] & self._counts[at]]
        return self.episodes + np.bincount(self._of[at], minlength=len(self._slices))

    def due(self, workers: Iterable[int], more: int = 0) -> dict[int, Planned]:
        """Return the workers that are to be replaced, given `more` episodes that have ended."""
        found: dict[int, Planned] = {}
        for worker in workers:
            ended = int(self.episodes[worker]) + more
            if self._after is not None and ended >= self._after:
                found[worker] = Planned(f"{ended} episodes (recycle_after={self._after})", False)
            elif self._memory is not None and ended > 0:
                used = self._read_memory(worker)
                if used >= self._memory:
                    reason = f"{ended} episodes, with {used:,} bytes of memory"
                    found[worker] = Planned(f"{reason} (recycle_memory={self._memory:,})", True)
        return found

    def _read_memory(self, worker: int) -> int:
        """Read how much memory a worker uses, unless it was just read; 0 if it is not known.

        The system counts all pages of the process, which takes long if these are many.
        """
        began = time.monotonic()
        if began < self._read_at[worker]:
            return 0
        used = self._backend.memory(worker)
        took = time.monotonic() - began
        self._read_at[worker] = began + took / _READING_SHARE
        return used or 0

    def begin(self, worker: int, losses: int) -> None:
        """Note that a worker is started, which will report the `losses` of its predecessor."""
        self.episodes[worker] = -losses
        self.draining.pop(worker, None)

    def note(self, worker: int, planned: Planned) -> None:
        """Note that a worker was replaced."""
        self.counts[worker, int(planned.by_memory)] += 1
        rows = self._slices[worker]
        log.info(
            "%s", Message("{:worker} ({:envs}) was replaced after {}", worker, rows, planned.reason)
        )

    def note_unclosed(self, reply: Reply) -> None:
        """Log what went wrong while the environments of a worker closed."""
        worker, op, _, failure = reply
        what = f"did not close within {CLOSE_SECONDS:g} s"
        if op is Op.DIED:
            what = "ended before its environments were closed"
        elif op is Op.FAILED:
            what = f"raised while it closed: {(failure.text.strip().splitlines() or [''])[-1]}"
        rows = self._slices[worker]
        log.warning("%s", Message("{:worker} ({:envs}) {}; it is replaced", worker, rows, what))
