"""`stats()`: the time of steps, the shares of the caller's time, the bottleneck in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
import numpy.typing as npt

RowIndices = npt.NDArray[np.intp] | Sequence[int]
Times = npt.NDArray[np.int64]

_COUNT, _TOTAL, _LONGEST = 0, 1, 2
#: Numbers per environment: the count of its steps, the sum of their nanoseconds, and the longest.
ENV_SHAPE = (3,)
#: Numbers per worker: nanoseconds in which its environments stepped, and nanoseconds since its
#: first command.
WORKER_SHAPE = (2,)

_FLUSH = 4096


class Timings:
    """Gathers clock readings, and counts many of them at once.

    `environments` (of shape `(num_envs, *ENV_SHAPE)`) and `worker` are shared with the caller.
    `together`: whether the rows are one vector env, which is timed as a whole. `is_first`: whether
    the time since the first command is counted, which groups of one process share.
    """

    def __init__(
        self,
        environments: Times,
        worker: Times,
        rows: range,
        *,
        together: bool = False,
        is_first: bool = True,
    ) -> None:
        self._counters, self._worker = environments, worker if is_first else worker[:1]
        self._others = rows[1:] if together else rows[:0]
        self._timed = np.array(rows[:1] if together else rows)
        self._began: int | None = None
        # Clock readings of the pass: at its beginning, and after each of its environments.
        self._stamps: list[int] = []
        self._passes: list[tuple[RowIndices, list[int]]] = []
        self._readings = 0

    def start(self) -> Callable[[int], None]:
        """Begin a pass; return the function to call with the time after each environment.

        A pass that failed, or was interrupted, is dropped.
        """
        now = perf_counter_ns()
        if self._began is None:
            self._began = now
        self._stamps = [now]
        return self._stamps.append

    def finish(self, rows: RowIndices | None) -> None:
        """End the pass; `rows` were its environments, in order, None: all of them."""
        self._passes.append((self._timed if rows is None or self._others else rows, self._stamps))
        self._readings += len(self._stamps)
        if self._readings > _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Count the passes that ended."""
        if not self._passes:
            return
        assert self._began is not None
        # Taken before they are counted, so that no pass is counted twice after an interrupt.
        passes, self._passes, self._readings = self._passes, [], 0
        rows = np.concatenate([rows for rows, _ in passes])
        # The time between two passes is waiting, not stepping.
        ends = np.array([len(stamps) for _, stamps in passes]).cumsum()[:-1] - 1
        times = np.array([now for _, stamps in passes for now in stamps], dtype=np.int64)
        took = np.delete(times[1:] - times[:-1], ends)
        now = perf_counter_ns()
        self._worker += (int(took.sum()), now - self._began)[: len(self._worker)]
        self._began = now
        low = rows.min()  # other workers write the counters of other rows at the same time
        counters = self._counters[low : rows.max() + 1]
        counters[:, _COUNT] += np.bincount(rows - low)
        counters[:, _TOTAL] += np.bincount(rows - low, took).astype(np.int64)
        np.maximum.at(counters[:, _LONGEST], rows - low, took)
        if self._others:  # a step of a vector env is a step of each of its rows
            self._counters[self._others.start : self._others.stop] = self._counters[low]


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
        """Count the time from now on, if it is not counted yet."""
        if self._since is None:
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


@dataclass(frozen=True)
class Stats:
    """What `VectorEnv.stats()` returns; times in seconds, one entry per environment or worker.

    Args:
        steps: Steps of each environment; an autoreset and a `send_reset` count as steps.
        step_mean: Mean time of a step, with its autoreset.
        step_max: The longest step.
        busy_seconds: The time of these steps in each worker, without calls of `reset`.
        worker_busy: The same as a share of the time since the worker's first step.
        worker_envs: The environments of each worker.
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
    step_max: npt.NDArray[np.float64]
    busy_seconds: npt.NDArray[np.float64]
    worker_busy: npt.NDArray[np.float64]
    worker_envs: tuple[range, ...]
    caller_outside: float
    caller_computing: float
    caller_waiting: float
    restarts: npt.NDArray[np.int64]
    lost_episodes: npt.NDArray[np.int64]

    @property
    def bottleneck(self) -> str:
        """A sentence that says what takes the largest share of the caller's time, and what helps.

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
    environments: Times,
    workers: Times,
    slices: tuple[range, ...],
    clock: CallerClock | None,
    restarts: Times,
    lost_episodes: Times,
) -> Stats:
    """Return the `Stats` of the counters of all environments and workers."""
    counts = environments[:, _COUNT].copy()
    seconds = environments.astype(np.float64) * 1e-9
    busy, elapsed = workers.T
    return Stats(
        counts,
        seconds[:, _TOTAL] / np.maximum(counts, 1),
        seconds[:, _LONGEST],
        busy * 1e-9,
        np.clip(busy / np.maximum(elapsed, 1), 0.0, 1.0),
        slices,
        *(clock or CallerClock()).shares(),
        restarts.copy(),
        lost_episodes.copy(),
    )
