"""How long steps and resets take, counted at the price of one clock reading a step."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

# Eight bins an octave: a percentile read from them is at most 9 % off.
_PER_OCTAVE = 8
_OCTAVES = 40  # 1 ns to 18 minutes
_BINS = _PER_OCTAVE * _OCTAVES
_COUNT, _TOTAL, _HISTOGRAM = 0, 1, 2

#: Numbers per environment: (count, total, histogram) of steps, then of resets.
ENV_SHAPE = (2, 2 + _BINS)
#: Numbers per worker: nanoseconds at work, and since its first command.
WORKER_SHAPE = (2,)

_FLUSH = 4096


class Timings:
    """Gathers clock readings cheaply and counts them in bulk.

    Args:
        environments: Shape `(num_envs, 2, bins)`, int64, shared with the caller.
        worker: Shape `(2,)`, int64, shared with the caller.
        resets_are_steps: Whether the step that resets does nothing else (NEXT_STEP).
        widths: Shape `(num_envs,)`: how many rows, from this one on, are stepped as one.
    """

    def __init__(
        self,
        environments: npt.NDArray[np.int64],
        worker: npt.NDArray[np.int64],
        resets_are_steps: bool,
        widths: npt.NDArray[np.intp],
    ) -> None:
        # Flat, as `np.add.at` is fast with one index alone.
        self._counters = environments.reshape(-1)
        self._worker = worker
        self._resets_are_steps = resets_are_steps
        self._widths = widths
        self._began: int | None = None
        # `note(perf_counter_ns())`, once for each environment that a pass has stepped.
        self._stamps: list[int] = []
        self.note = self._stamps.append
        self._starts: list[int] = []
        self._passes: list[npt.NDArray[np.intp]] = []
        self._resets: list[tuple[int, int, int]] = []

    def start(self) -> None:
        """A pass over environments begins."""
        now = perf_counter_ns()
        if self._began is None:
            self._began = now
        self._starts.append(len(self._stamps))
        self.note(now)

    def reset(self, row: int, nanoseconds: int) -> None:
        """A reset took so long, inside a step."""
        self._resets.append((row, nanoseconds, len(self._stamps)))

    def finish(self, rows: npt.NDArray[np.intp]) -> None:
        """The pass is over; `rows` were its environments, in order."""
        self._passes.append(rows)
        if len(self._stamps) > _FLUSH:
            self.flush()

    def abandon(self) -> None:
        """An environment of the pass failed: nothing of the pass counts."""
        start = self._starts.pop()
        del self._stamps[start:]
        self._resets = [reset for reset in self._resets if reset[2] <= start]

    def flush(self) -> None:
        """Count what was gathered."""
        if self._began is None or not self._stamps:
            return
        took = np.diff(np.array(self._stamps, dtype=np.int64))
        # What lies between two passes is waiting, not stepping.
        within = np.ones(len(took), dtype=np.bool_)
        within[np.array(self._starts[1:], dtype=np.intp) - 1] = False
        self._worker[0] += int(took[within].sum())
        self._worker[1] = perf_counter_ns() - self._began
        is_step = within.copy()
        if self._resets:
            reset_rows, nanoseconds, ends = np.array(self._resets, dtype=np.int64).T
            took[ends - 1] = np.maximum(took[ends - 1] - nanoseconds, 0)
            is_step[ends - 1] &= not self._resets_are_steps
            self._count(1, reset_rows, nanoseconds)
        rows = np.concatenate(self._passes)[is_step[within]]
        self._count(0, *self._spread(rows, took[is_step]))
        for gathered in (self._stamps, self._starts, self._passes, self._resets):
            gathered.clear()

    def _spread(
        self, rows: npt.NDArray[np.intp], took: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Give the time of a step to every row that it stepped."""
        widths = self._widths[rows]
        if len(rows) == 0 or widths.max() == 1:
            return rows, took
        before = np.cumsum(widths) - widths
        within = np.arange(widths.sum()) - np.repeat(before, widths)
        return np.repeat(rows, widths) + within, np.repeat(took, widths)

    def _count(self, kind: int, rows: npt.NDArray[Any], took: npt.NDArray[np.int64]) -> None:
        bins = np.clip(np.log2(np.maximum(took, 1)) * _PER_OCTAVE, 0, _BINS - 1).astype(np.intp)
        at = (rows * ENV_SHAPE[0] + kind) * ENV_SHAPE[1]
        np.add.at(self._counters, at + _COUNT, 1)
        np.add.at(self._counters, at + _TOTAL, took)
        np.add.at(self._counters, at + _HISTOGRAM + bins, 1)


@dataclass(frozen=True)
class Stats:
    """What `VectorEnv.stats()` tells; times in seconds, one entry per environment or worker.

    Args:
        steps: Steps of each environment; autoresets do not count, but for those that a vector env
            among the environments makes itself.
        step_mean: Mean time of a step.
        step_p99: 99th percentile of the time of a step, at most 9 % off.
        resets: Autoresets of each environment.
        reset_mean: Mean time of an autoreset.
        reset_p99: 99th percentile of the time of an autoreset.
        env_waiting: Share of its worker's time in which an environment did nothing.
        worker_waiting: Share of its time in which a worker did nothing.
        worker_envs: The environments of each worker.
    """

    steps: npt.NDArray[np.int64]
    step_mean: npt.NDArray[np.float64]
    step_p99: npt.NDArray[np.float64]
    resets: npt.NDArray[np.int64]
    reset_mean: npt.NDArray[np.float64]
    reset_p99: npt.NDArray[np.float64]
    env_waiting: npt.NDArray[np.float64]
    worker_waiting: npt.NDArray[np.float64]
    worker_envs: tuple[range, ...]


def summarise(
    environments: npt.NDArray[np.int64],
    workers: npt.NDArray[np.int64],
    slices: tuple[range, ...],
) -> Stats:
    """Turn the counters into `Stats`.

    Args:
        environments: Shape `(num_envs, 2, bins)`.
        workers: Shape `(num_workers, 2)`.
        slices: The environments of each worker.

    Returns:
        The summary.
    """
    counts = environments[:, :, _COUNT]
    totals = environments[:, :, _TOTAL] * 1e-9
    means = totals / np.maximum(counts, 1)
    p99 = np.apply_along_axis(_p99, 2, environments[:, :, _HISTOGRAM:])
    elapsed = np.maximum(workers[:, 1], 1) * 1e-9
    owner = np.zeros(len(environments), dtype=np.intp)
    for number, rows in enumerate(slices):
        owner[rows.start : rows.stop] = number
    return Stats(
        counts[:, 0].copy(),
        means[:, 0],
        p99[:, 0],
        counts[:, 1].copy(),
        means[:, 1],
        p99[:, 1],
        1.0 - totals.sum(axis=1) / elapsed[owner],
        1.0 - workers[:, 0] * 1e-9 / elapsed,
        slices,
    )


def _p99(histogram: npt.NDArray[Any]) -> float:
    """The upper edge of the bin in which the 99th percentile lies, in seconds."""
    total = int(histogram.sum())
    if total == 0:
        return 0.0
    position = int(np.searchsorted(np.cumsum(histogram), 0.99 * total))
    return float(2.0 ** ((position + 1) / _PER_OCTAVE) * 1e-9)
