"""Planned replacement: which workers are replaced between two episodes, and how."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.log import log
from vecspaces.vector.agents import first_rows
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import Message
from vecspaces.vector.exchange.infos import Columns, Part, as_columns
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.session.arguments import Settings

#: The time in which a worker must close its environments, in seconds: as in `close()`.
CLOSE_SECONDS = 4.0
# The maximum share of the time for reading how much memory workers use.
_READING_SHARE = 0.05

_WHERE = (
    "recycle_after and recycle_memory replace a worker where episodes are handed out (evaluate), "
    "at full resets, and, with num_workers=num_envs, at the end of an episode"
)


class Planned(NamedTuple):
    """The reason for replacing a live worker."""

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
    """The workers that are due for replacement, and the answers of their successors.

    Only the session calls it. A worker that is due is noted in `Workers.deaths`, so it is replaced
    like one that died. If workers reset their environments, worker i has only row i.

    Attributes:
        hands_out: Whether the caller distributes episodes, and calls `drain` first.
        episodes: The number of episodes that each worker has ended since its start.
        draining: The workers that must not begin another episode before they are replaced.
        successors: Workers that began an episode in place of their predecessors, until that command
            ends, each with the last info of its predecessor (SAME_STEP).
        counts: How often each worker was replaced, after its episodes and for its memory.
    """

    def __init__(self, settings: Settings, backend: Backend, units: Sequence[int]) -> None:
        self._backend, self._slices = backend, backend.slices
        self._after, self._memory = settings.recycle_after, settings.recycle_memory
        self._mode = settings.autoreset_mode
        self._is_exact = all(len(rows) == 1 for rows in self._slices)
        self.hands_out = False
        self.episodes: npt.NDArray[np.int64] = np.zeros(len(self._slices), np.int64)
        self.draining: dict[int, Planned] = {}
        self.successors: dict[int, Columns] = {}
        self.counts: npt.NDArray[np.int64] = np.zeros((len(self._slices), 2), np.int64)
        # By row, its worker, and whether its ends are counted: the agents of an environment end
        # together.
        self._of = np.repeat(np.arange(len(self._slices)), list(map(len, self._slices)))
        self._counts = np.zeros(len(self._of), np.bool_)
        self._counts[first_rows(units)] = True
        self._read_at = [0.0] * len(self._slices)

    # ------------------------------------------------------------------ which workers are due

    def with_ends(self, ended: npt.NDArray[np.bool_], rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return `episodes` after the ends of episodes that `ended` marks in some rows.

        Ends that successors report are those of their predecessors.
        """
        at = np.array([row for row in rows if row not in self.successors], dtype=np.intp)
        at = at[ended[at] & self._counts[at]]
        return self.episodes + np.bincount(self._of[at], minlength=len(self._slices))

    def _due(self, workers: Iterable[int], more: int = 0) -> dict[int, Planned]:
        """Return the workers to replace, given `more` episodes that have ended."""
        due: dict[int, Planned] = {}
        for worker in workers:
            ended = int(self.episodes[worker]) + more
            if self._after is not None and ended >= self._after:
                due[worker] = Planned(f"{ended} episodes (recycle_after={self._after})", False)
            elif self._memory is not None and ended > 0:
                used = self._read_memory(worker)
                if used >= self._memory:
                    reason = f"{ended} episodes, with {used:,} bytes of memory"
                    due[worker] = Planned(f"{reason} (recycle_memory={self._memory:,})", True)
        return due

    def _read_memory(self, worker: int) -> int:
        """Read how much memory a worker uses, unless it was just read; 0 if it is not known.

        The system counts all pages of the process, which takes long if these are many. Time in
        which other programs have the core does not count: one second of it would delay the next
        reading by 20 seconds.
        """
        now = time.monotonic()
        if now < self._read_at[worker]:
            return 0
        began = time.thread_time()
        used = self._backend.memory(worker)
        self._read_at[worker] = now + (time.thread_time() - began) / _READING_SHARE
        return used or 0

    def due_in_reset(
        self, rows: Sequence[int], call: str, playing: npt.NDArray[np.bool_]
    ) -> dict[int, Planned]:
        """Return the due workers all of whose rows will be reset; episodes of `playing` end."""
        if len(rows) < len(self._of):
            if self.hands_out:
                return {}  # `drain` returned them
            if not self._is_exact:
                raise ValueError(
                    f"{call}: {_WHERE}. Environments that share a worker cannot be reset one by "
                    "one: reset all of them, or use num_workers=num_envs"
                )
        if not self.hands_out:
            self.episodes = self.with_ends(playing, rows)
        return self._due(set(self._of[list(rows)].tolist()))

    def due_in_step(
        self, rows: Sequence[int], finished: npt.NDArray[np.bool_]
    ) -> dict[int, Planned]:
        """Return the due workers whose next step is a reset (NEXT_STEP)."""
        if self._mode is not AutoresetMode.NEXT_STEP:
            return {}
        due = self._due(row for row in rows if finished[row])
        self.successors.update({worker: {} for worker in due})
        return due

    def drain(
        self, ended: Sequence[int], playing: Collection[int], cut: npt.NDArray[np.bool_]
    ) -> dict[int, Planned]:
        """Return the due workers none of whose rows plays, for a caller that distributes episodes.

        Episodes that `ended` without a flag were `cut` by the caller.
        """
        self.hands_out = True
        self.episodes = self.with_ends(cut, ended)
        self.draining |= self._due(set(self._of[list(ended)].tolist()) - self.draining.keys())
        return {
            worker: why
            for worker, why in self.draining.items()
            if not any(row in playing for row in self._slices[worker])
        }

    # ------------------------------------------------------------------ SAME_STEP

    def holds_back(
        self, worker: int, slot: int, infos: Sequence[Part] | None, deaths: dict[int, Any]
    ) -> bool:
        """In SAME_STEP mode, note that a worker is due if its row has ended an episode.

        Its successor makes the reset that follows, and sends the answer.
        """
        if self._mode is not AutoresetMode.SAME_STEP:
            return False
        if not isinstance(deaths.get(worker), Planned):  # otherwise it would be processed again
            flags, at = self._backend.buffers.whole[slot], worker
            has_ended = flags.terminations[at] or flags.truncations[at]
            if worker in self.successors or not has_ended:
                return False
            due = self._due([worker], more=1)
            if not due:
                return False
            deaths.update(due)
        parts = map(as_columns, infos or ())
        last = [columns["final_info"] for columns in parts if "final_info" in columns]
        self.successors[worker] = {"final_info": last[0]} if last else {}
        return True

    def join_last(self, worker: int, infos: Any) -> Any:
        """Add the last info of an episode to the infos of the reset that another worker made."""
        last = self.successors.get(worker)
        return [{**as_columns(part), **last} for part in infos or [{}]] if last else infos

    # ------------------------------------------------------------------ replacing

    def retire(self, deaths: Mapping[int, object]) -> None:
        """Let all workers that will be replaced close their environments at the same time."""
        planned = [worker for worker, why in deaths.items() if isinstance(why, Planned)]
        for worker, op, _, failure in self._backend.retire(planned, CLOSE_SECONDS):
            what = f"did not close within {CLOSE_SECONDS:g} s"
            if op is Op.DIED:
                what = "ended before its environments were closed"
            elif op is Op.FAILED:
                what = f"raised while it closed: {failure.last_line}"
            rows = self._slices[worker]
            log.warning("%s", Message("{:worker} ({:envs}) {}; it is replaced", worker, rows, what))

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
