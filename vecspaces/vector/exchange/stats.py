"""`stats()`: the time of steps, the shares of the caller's time, the bottleneck in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from threading import Lock, get_ident
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

RowIndices = npt.NDArray[np.intp] | list[int]

# Eight bins per octave: a percentile read from them is at most 9 % off.
_PER_OCTAVE = 8
_OCTAVES = 40  # 1 ns to 18 minutes
_BINS = _PER_OCTAVE * _OCTAVES
_ALL, _COUNT, _TOTAL, _HISTOGRAM = 0, 1, 2, 3

#: Numbers per environment, for its steps and then for its resets: their count, how many were timed,
#: the nanoseconds of these, and their histogram.
ENV_SHAPE = (2, _HISTOGRAM + _BINS)
#: Numbers per worker: environment steps, how many of them were timed, the nanoseconds that these
#: took, and the nanoseconds since its first command.
WORKER_SHAPE = (4,)

_FLUSH = 4096
# Steps shorter than this are timed in one of six passes on average, so that reading the clock takes
# little time. The gaps are random, so that they cannot coincide with a period of an environment.
_SHORT = 20_000
_GAPS = np.random.default_rng(0).integers(1, 10, 1021).tolist()


class Timings:
    """Gathers clock readings, and counts many of them at once.

    `environments` (of shape `(num_envs, *ENV_SHAPE)`) and `worker` are shared with the caller.
    `resets_are_steps` says whether the step that resets does nothing else (NEXT_STEP). `starts` are
    the rows of a whole pass (only the first of each vector env), and `widths` the number of rows
    that are stepped together from each on.
    """

    def __init__(
        self,
        environments: npt.NDArray[np.int64],
        worker: npt.NDArray[np.int64],
        resets_are_steps: bool,
        starts: npt.NDArray[np.intp],
        widths: npt.NDArray[np.intp],
    ) -> None:
        # Flat, because `np.add.at` is fast only with one index.
        self._counters = environments.reshape(-1)
        self._worker = worker
        self._resets_are_steps = resets_are_steps
        self._rows = starts
        self._widths = widths
        self._began: int | None = None
        self._gaps = cycle(_GAPS)
        self._short = False
        self._gap = 0
        # The timed passes: clock readings, the index of each pass in them, and its rows.
        self._stamps: list[int] = []
        self._starts: list[int] = []
        self._timed: list[RowIndices] = []
        # The other passes: how many were whole, and the rows of those that were not.
        self._untimed_whole = 0
        self._untimed: list[RowIndices] = []
        # Row, nanoseconds, and the clock reading that follows; 0 in a pass that is not timed.
        self._resets: list[tuple[int, int, int]] = []
        # The lengths of these lists before the pass.
        self._before = 0, 0, 0
        self._is_timed = False
        self._is_open = False

    def start(self) -> Callable[[int], None] | None:
        """Begin a pass; return the function to call after each environment; None if not timed."""
        if self._is_open:  # an interrupt ended the last pass
            self.abandon()
        self._before = len(self._stamps), len(self._starts), len(self._resets)
        self._is_timed = self._gap == 0
        self._is_open = True
        if not self._is_timed:
            self._gap -= 1
            return None
        if self._short:
            self._gap = next(self._gaps)
        now = perf_counter_ns()
        if self._began is None:
            self._began = now
        self._starts.append(len(self._stamps))
        self._stamps.append(now)
        return self._stamps.append

    def reset(self, row: int, nanoseconds: int) -> None:
        """Note the time of a reset inside a step."""
        self._resets.append((row, nanoseconds, len(self._stamps) if self._is_timed else 0))

    def finish(self, rows: RowIndices | None) -> None:
        """End the pass; `rows` were its environments, in order, None: all of them."""
        self._is_open = False
        if self._is_timed:
            self._timed.append(self._rows if rows is None else rows)
            if len(self._stamps) > _FLUSH:
                self.flush()
        elif rows is None:
            self._untimed_whole += 1
        else:
            self._untimed.append(rows)

    def abandon(self) -> None:
        """Drop the pass, in which an environment failed."""
        self._is_open = False
        stamps, starts, resets = self._before
        del self._stamps[stamps:], self._starts[starts:], self._resets[resets:]

    def flush(self) -> None:
        """Count what was gathered."""
        if self._is_open:
            self.abandon()
        if self._began is None or not self._timed:
            return
        # All at once, so that an interrupt leaves nothing counted in part.
        stamps, starts, passes = self._stamps, self._starts, self._timed
        untimed, whole, reset_times = self._untimed, self._untimed_whole, self._resets
        self._stamps, self._starts, self._timed = [], [], []
        self._untimed, self._untimed_whole, self._resets = [], 0, []
        times = np.array(stamps, dtype=np.int64)
        took = times[1:] - times[:-1]
        # The time between two passes is waiting, not stepping.
        within = np.ones(len(took), dtype=np.bool_)
        within[np.array(starts[1:], dtype=np.intp) - 1] = False
        timed = np.concatenate(passes)
        parts = np.concatenate(untimed) if untimed else timed[:0]
        busy = int(took[within].sum())
        steps = len(timed) + len(parts) + whole * len(self._rows)
        self._worker[:3] += steps, len(timed), busy
        now = perf_counter_ns()
        self._worker[3] += now - self._began
        self._began = now
        self._short = busy < _SHORT * len(timed)

        is_step = within.copy()
        resets = np.array(reset_times, dtype=np.int64).reshape(-1, 3)
        nanoseconds, ends = resets[resets[:, 2] > 0, 1:].T
        took[ends - 1] = np.maximum(took[ends - 1] - nanoseconds, 0)
        is_step[ends - 1] &= not self._resets_are_steps
        self._count(1, resets[:, 0], resets[:, 1])
        self._add(1, _ALL, resets[:, 0], 1)
        self._count(0, *self._spread(timed[is_step[within]], took[is_step]))
        self._add(0, _ALL, self._spread(np.concatenate([timed, parts]))[0], 1)
        self._add(0, _ALL, self._spread(self._rows)[0], whole)
        if self._resets_are_steps:
            self._add(0, _ALL, resets[:, 0], -1)

    def _spread(
        self, rows: npt.NDArray[np.intp], took: npt.NDArray[np.int64] | None = None
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Count a step, and its time, for every row that it stepped."""
        took = rows if took is None else took
        widths = self._widths[rows]
        if len(rows) == 0 or widths.max() == 1:
            return rows, took
        before = np.cumsum(widths) - widths
        within = np.arange(widths.sum()) - np.repeat(before, widths)
        return np.repeat(rows, widths) + within, np.repeat(took, widths)

    def _count(self, kind: int, rows: npt.NDArray[Any], took: npt.NDArray[np.int64]) -> None:
        bins = np.clip(np.log2(np.maximum(took, 1)) * _PER_OCTAVE, 0, _BINS - 1).astype(np.intp)
        self._add(kind, _COUNT, rows, 1)
        self._add(kind, _TOTAL, rows, took)
        self._add(kind, _HISTOGRAM + bins, rows, 1)

    def _add(self, kind: int, number: Any, rows: npt.NDArray[Any], amount: Any) -> None:
        np.add.at(self._counters, (rows * ENV_SHAPE[0] + kind) * ENV_SHAPE[1] + number, amount)


#: The parts of the caller's time: its program, this package, waiting for environments.
OUTSIDE, COMPUTING, WAITING = 0, 1, 2


class CallerClock:
    """Divides the caller's time; each part ends when it is noted.

    An exception leaves no wrong state: each call into the package notes the time before it as
    outside, however the last call ended.
    """

    def __init__(self) -> None:
        self._spent = [0, 0, 0]
        self._since: int | None = None

    def begin(self) -> None:
        """Count the time from now on."""
        self._since = perf_counter_ns()

    def note(self, kind: int) -> None:
        """Note how the time since the last note was spent."""
        if self._since is not None:
            now = perf_counter_ns()
            self._spent[kind] += now - self._since
            self._since = now

    def shares(self) -> tuple[float, float, float]:
        """Return the share of the time of each part."""
        total = max(1, sum(self._spent))
        outside, computing, waiting = self._spent
        return outside / total, computing / total, waiting / total


class ThreadTimings(Timings):
    """The timings of environments in threads; all steps are timed.

    A worker is busy while one of its environments is.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock = Lock()
        self._running: dict[int, int] = {}  # by thread, since when
        self._since = self._busy = 0
        self._ended: list[tuple[int, int, int]] = []  # row, nanoseconds, and those of its reset

    def begin(self) -> None:
        """Note that a step begins; called in the environment's thread, like `end`."""
        with self._lock:
            now = perf_counter_ns()
            if self._began is None:
                self._began = now
            if not self._running:
                self._since = now
            self._running[get_ident()] = now

    def end(self, row: int, reset_time: int, counts: bool) -> None:
        """Note that a step ended, with the time of its reset or -1; a failed one is not counted."""
        with self._lock:
            now = perf_counter_ns()
            began = self._running.pop(get_ident())
            if not self._running:
                self._busy += now - self._since
            if counts:
                self._ended.append((row, now - began, reset_time))
            is_full = len(self._ended) > _FLUSH
        if is_full:
            self.flush()

    def flush(self) -> None:
        """Count what was gathered."""
        with self._lock:
            if not self._ended or self._began is None:
                return
            ended, self._ended = self._ended, []
            now = perf_counter_ns()
            if self._running:
                self._busy, self._since = self._busy + now - self._since, now
            busy, self._busy = self._busy, 0
            self._worker[:] += len(ended), len(ended), busy, now - self._began
            self._began = now
        rows, took, of_resets = np.array(ended, dtype=np.int64).T
        has_reset = of_resets >= 0
        is_step = ~has_reset if self._resets_are_steps else np.ones(len(rows), dtype=np.bool_)
        self._count(1, rows[has_reset], of_resets[has_reset])
        self._add(1, _ALL, rows[has_reset], 1)
        took = np.maximum(took - np.maximum(of_resets, 0), 0)
        stepped, took = self._spread(rows[is_step], took[is_step])
        self._count(0, stepped, took)
        self._add(0, _ALL, stepped, 1)


class EnvTimings:
    """The timings of one environment, which adds them to those of all in its process."""

    def __init__(self, whole: ThreadTimings, row: int) -> None:
        self._whole, self._row, self._reset_time = whole, row, -1

    def start(self) -> None:
        """Begin a step, in which there is one environment to time."""
        self._reset_time = -1
        self._whole.begin()

    def reset(self, row: int, nanoseconds: int) -> None:
        """Note the time of a reset inside a step."""
        self._reset_time = nanoseconds

    def finish(self, rows: RowIndices | None) -> None:
        """End the step."""
        self._whole.end(self._row, self._reset_time, True)

    def abandon(self) -> None:
        """End a step that failed, which does not count."""
        self._whole.end(self._row, -1, False)

    def flush(self) -> None:
        """Count what was gathered."""
        self._whole.flush()


@dataclass(frozen=True)
class Stats:
    """What `VectorEnv.stats()` returns; times in seconds, one entry per environment or worker.

    All steps and resets are counted. All resets are timed, and all steps that take 20 us or more on
    average. About a sixth of shorter steps, drawn at random, is timed.

    Args:
        steps: Steps of each environment, without autoresets. If an environment is a vector env, the
            autoresets that it makes itself count as steps.
        step_mean: Mean time of a step.
        step_p99: 99th percentile of the time of a step, at most 9 % off.
        resets: Autoresets of each environment.
        reset_mean: Mean time of an autoreset.
        reset_p99: 99th percentile of the time of an autoreset.
        env_waiting: Share of the worker's time in which each environment did nothing.
        worker_waiting: Share of time in which each worker did nothing; with `concurrent_envs`, in
            which none of its environments stepped.
        worker_envs: The environments of each worker.
        recycled_after: How often each worker was replaced because of `recycle_after`.
        recycled_memory: How often each worker was replaced because of `recycle_memory`.
        caller_outside: Share of the caller's time since the first reset that was spent outside of
            the vector env: in the policy, in wrappers, in the rest of the program.
        caller_computing: Share of this time in which the vector env computed in the caller.
        caller_waiting: Share of this time in which the caller waited for workers; in SyncVectorEnv,
            in which it stepped the environments.
        restarts: How often each worker was replaced because it died or exceeded `step_timeout`.
        lost_episodes: How many episodes of each environment ended because of this: those that
            `infos["worker_restarted"]` reported, except for processes inside one actor of Ray.
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
    recycled_after: npt.NDArray[np.int64]
    recycled_memory: npt.NDArray[np.int64]
    caller_outside: float
    caller_computing: float
    caller_waiting: float
    restarts: npt.NDArray[np.int64]
    lost_episodes: npt.NDArray[np.int64]

    @property
    def worker_busy(self) -> npt.NDArray[np.float64]:
        """Share of time in which the environments of each worker computed."""
        return 1.0 - self.worker_waiting

    @property
    def bottleneck(self) -> str:
        """One sentence: what takes the largest share of the caller's time, and what helps.

        Example:
            >>> from vecspaces import make_vec
            >>> with make_vec("CartPole-v1", backend="sync", vector_kwargs={"stats": True}) as envs:
            ...     envs.stats().bottleneck
            'no steps were taken since the first reset'
        """
        outside, computing = self.caller_outside, self.caller_computing
        waiting, busiest = self.caller_waiting, float(self.worker_busy.max())
        most = max(outside, computing, waiting)
        if not (most and self.steps.any()):
            return "no steps were taken since the first reset"
        if most == outside:
            return f"the policy takes {outside:.0%}: more workers will not help"
        if most == computing:
            return (
                f"vecspaces takes {computing:.0%} in the caller: more workers will not help, more "
                "environments per worker will"
            )
        if busiest < waiting / 2:
            return (
                f"waiting takes {waiting:.0%}, but the environments of no worker compute for more "
                f"than {busiest:.0%}: fewer workers, or SyncVectorEnv, may be faster"
            )
        return f"the environments take {waiting:.0%}: more workers help where cores are idle"


def summarise(
    environments: npt.NDArray[np.int64],
    workers: npt.NDArray[np.int64],
    slices: tuple[range, ...],
    recycled: npt.NDArray[np.int64],
    clock: CallerClock | None,
    restarts: npt.NDArray[np.int64],
    lost_episodes: npt.NDArray[np.int64],
) -> Stats:
    """Return the `Stats` of the counters of all environments and workers."""
    everything, counts = environments[:, :, _ALL], environments[:, :, _COUNT]
    means = environments[:, :, _TOTAL] * 1e-9 / np.maximum(counts, 1)
    p99 = np.apply_along_axis(_p99, 2, environments[:, :, _HISTOGRAM:])
    steps, timed, busy, elapsed = workers.T
    elapsed = np.maximum(elapsed, 1) * 1e-9
    busy = busy * 1e-9 * steps / np.maximum(timed, 1)
    owner = np.zeros(len(environments), dtype=np.intp)
    for number, rows in enumerate(slices):
        owner[rows.start : rows.stop] = number
    env_busy = (means * everything).sum(axis=1)
    after, memory = recycled.T.copy()
    return Stats(
        everything[:, 0].copy(),
        means[:, 0],
        p99[:, 0],
        everything[:, 1].copy(),
        means[:, 1],
        p99[:, 1],
        # If only some steps were timed, the busy time is an estimate.
        np.clip(1.0 - env_busy / elapsed[owner], 0.0, 1.0),
        np.clip(1.0 - busy / elapsed, 0.0, 1.0),
        slices,
        after,
        memory,
        *(clock or CallerClock()).shares(),
        restarts.copy(),
        lost_episodes.copy(),
    )


def _p99(histogram: npt.NDArray[Any]) -> float:
    """The upper edge of the bin of the 99th percentile, in seconds."""
    total = int(histogram.sum())
    if total == 0:
        return 0.0
    position = int(np.searchsorted(np.cumsum(histogram), 0.99 * total))
    return float(2.0 ** ((position + 1) / _PER_OCTAVE) * 1e-9)
