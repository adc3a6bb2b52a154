"""The queue of episodes: which row plays which, and what became of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vecspaces.errors import StepTimeoutError, WorkerDiedError, WorkerError
from vecspaces.evaluation.journal import Episode, Journal
from vecspaces.evaluation.policies import Player, pick, pick_infos
from vecspaces.evaluation.result import Evaluation
from vecspaces.vector import Transition
from vecspaces.vector.exchange.failures import (
    Failure,
    Message,
    reworded,
    without_advice,
)
from vecspaces.vector.managed_vector_env import ManagedVectorEnv

#: Called with the number of finished episodes and that of all.
Progress: TypeAlias = Callable[[int, int], object]

_IDLE = -1


class EpisodeQueue:
    """Episodes that wait, are played, or have finished.

    An episode stays with its row until it has finished, and is begun anew in the same row when it
    is lost. So what it returns depends on its seed and the policy alone.

    Args:
        seeds: One per episode.
        max_episode_steps: Where an episode is cut off; None: nowhere.
        max_retries: How often an episode may be running when its worker dies.
        journal: Takes each finished episode, and holds some already; None: there is none.
        progress: Called after each change of the number of finished episodes.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        max_episode_steps: int | None,
        max_retries: int,
        journal: Journal | None,
        progress: Progress | None,
    ) -> None:
        self._seeds = list(seeds)
        self._limit = math.inf if max_episode_steps is None else max_episode_steps
        self._max_retries = max_retries
        self._journal = journal
        self._progress = progress
        self._finished: dict[int, Episode] = {} if journal is None else dict(journal.finished)
        waiting = [k for k in range(len(seeds)) if k not in self._finished]
        self._waiting: deque[int] = deque(waiting)
        # By episode: how often it was begun anew, and how often it was running when a worker died.
        self._retries = [0] * len(seeds)
        self._deaths = [0] * len(seeds)
        # By row: the episode that it plays, and what that returned so far.
        self._playing: list[int] = []
        self._totals: npt.NDArray[np.float64] = np.zeros(0)
        self._lengths: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        # Rows whose next observation is the first of an episode, and rows that died with a worker
        # and have not reported it.
        self._starting: set[int] = set()
        self._lost: set[int] = set()
        # Rows that died in the first reset, which is repeated unless it had ended in their worker.
        self._died_in_reset: set[int] = set()
        self._resetting = False

    @property
    def remaining(self) -> int:
        """How many episodes have not finished."""
        return len(self._seeds) - len(self._finished)

    # ------------------------------------------------------------------ playing

    def play(self, envs: ManagedVectorEnv[Any, Any], player: Player, *, in_turns: bool) -> None:
        """Play all episodes; `in_turns`: call the policy for the half that is ready first."""
        count = envs.num_envs
        self._totals = np.zeros(count)
        self._lengths = np.zeros(count, dtype=np.int64)
        self._playing = [self._waiting.popleft() for _ in range(count)]
        self._starting = set(range(count))
        self._report()
        try:
            self._resetting = True
            envs.reset(seed=[self._seeds[k] for k in self._playing])
            self._resetting = False
            while self._active:
                ready = self._active
                if in_turns and not player.waits_for_all:
                    ready = (ready + 1) // 2
                self._advance(envs, player, envs.recv(ready))
        except Exception as error:
            self._add_note(error)
            raise

    @property
    def _active(self) -> int:
        return len(self._playing) - self._playing.count(_IDLE)

    def _advance(
        self, envs: ManagedVectorEnv[Any, Any], player: Player, received: Transition
    ) -> None:
        """Take in what some rows returned, and send each its next reset or action."""
        rows: list[int] = received.env_ids.tolist()
        lost = self._take_lost(received)
        begun = [row for row in rows if row in self._starting and row not in lost]
        stepped: Any = slice(None)
        if begun or lost:  # which took no step
            stepped = [row not in self._starting and row not in lost for row in rows]
        at = received.env_ids[stepped]
        self._totals[at] += received.rewards[stepped]
        self._lengths[at] += 1
        ended = (received.terminations | received.truncations)[stepped]
        ended |= self._lengths[at] >= self._limit
        over = np.arange(len(rows))[stepped][ended].tolist() if ended.any() else []
        for number in over:
            self._finish(received, number)
        if over:
            self._report()
        self._starting.difference_update(rows)
        free = {*lost, *(rows[number] for number in over)}
        observations, infos = received.observations, received.infos
        going = rows
        if free:
            self._begin(envs, sorted(free))
            numbers = [number for number, row in enumerate(rows) if row not in free]
            going = [rows[number] for number in numbers]
            observations = pick(envs.single_observation_space, observations, numbers)
            infos = pick_infos(infos, numbers)
        if begun:
            player.begin(begun, [self._seeds[self._playing[row]] for row in begun])
        if going:
            envs.send(player.act(observations, infos, going), going)

    def _take_lost(self, received: Transition) -> set[int]:
        """Return the rows that report the loss of their episode, which then begins anew."""
        marks = received.infos.get("_worker_restarted")
        if marks is None or not self._lost:
            return set()
        # An environment may use the key for something of its own.
        lost = self._lost.intersection(received.env_ids[marks].tolist())
        for row in lost - self._died_in_reset:
            self._retries[self._playing[row]] += 1
        return lost

    def _begin(self, envs: ManagedVectorEnv[Any, Any], rows: Sequence[int]) -> None:
        """Begin the episodes of rows: the next that waits, where the last has finished."""
        starting = []
        for row in rows:
            if self._playing[row] == _IDLE and self._waiting:
                self._playing[row] = self._waiting.popleft()
            if self._playing[row] != _IDLE:
                starting.append(row)
        self._totals[rows], self._lengths[rows] = 0.0, 0
        self._lost.difference_update(rows)
        self._died_in_reset.difference_update(rows)
        if starting:
            self._starting.update(starting)
            envs.send_reset(starting, seed=[self._seeds[self._playing[row]] for row in starting])

    def _finish(self, received: Transition, number: int) -> None:
        """Note what an episode returned; its row is idle then."""
        row = int(received.env_ids[number])
        k = self._playing[row]
        episode = Episode(
            k,
            self._seeds[k],
            float(self._totals[row]),
            int(self._lengths[row]),
            bool(received.terminations[number]),
            self._retries[k],
            numbers_of(received.infos, number),
        )
        if self._journal is not None:
            self._journal.add(episode)
        self._finished[k] = episode
        self._playing[row] = _IDLE

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(len(self._finished), len(self._seeds))

    # ------------------------------------------------------------------ what goes wrong

    def judge(self, error: WorkerDiedError | StepTimeoutError) -> None:
        """Count the loss of a worker against the episode that was running, or raise.

        Where it is not known which one was running, all of the worker's are suspects.
        """
        rows = [row for row in error.env_ids if self._playing[row] != _IDLE]
        self._lost.update(rows)
        if self._resetting:  # counted here, as not every row will report it
            self._died_in_reset.update(rows)
            for row in rows:
                self._retries[self._playing[row]] += 1
        else:
            self._died_in_reset.difference_update(rows)
        named = error.running if isinstance(error, StepTimeoutError) else (error.running,)
        running = [row for row in rows if row in named]
        suspects = [self._playing[row] for row in running or rows]
        for k in suspects:
            self._deaths[k] += 1
        lost = [k for k in suspects if self._deaths[k] > self._max_retries]
        if lost:
            names = " or ".join(f"episode {k} with seed {self._seeds[k]}" for k in lost)
            what = Message(
                "{} lost its worker {}, and max_retries is {}; the last time {}",
                names,
                "once" if self._max_retries == 0 else f"{self._deaths[lost[0]]} times",
                self._max_retries,
                without_advice(error),
            )
            alone = f"evaluate(..., episodes=1, seed=[{self._seeds[lost[0]]}]) plays it alone"
            raise reworded(error, what, alone)

    def _add_note(self, error: Exception) -> None:
        """Name the episodes that an environment's error concerns."""
        cause = error.__cause__
        if isinstance(cause, Failure):
            rows: Sequence[int] = cause.env_ids
        elif isinstance(error, (WorkerError, StepTimeoutError)):
            rows = () if isinstance(error, WorkerDiedError) else error.env_ids
        else:  # the policy's, or the caller's
            return
        playing = [self._playing[row] for row in rows if self._playing[row] != _IDLE]
        if playing:
            seeds = ", ".join(f"episode {k} with seed {self._seeds[k]}" for k in playing)
            error.add_note(f"evaluate was playing {seeds}")

    # ------------------------------------------------------------------ the result

    def result(self, seconds: float) -> Evaluation:
        """Return what all episodes returned."""
        played = [self._finished[k] for k in range(len(self._seeds))]
        keys = list(dict.fromkeys(key for episode in played for key in sorted(episode.infos)))
        lengths = np.array([episode.length for episode in played], dtype=np.int64)
        return Evaluation(
            returns=np.array([episode.total for episode in played], dtype=np.float64),
            lengths=lengths,
            seeds=np.array(self._seeds, dtype=np.int64),
            retries=np.array([episode.retries for episode in played], dtype=np.int64),
            terminated=np.array([episode.terminated for episode in played], dtype=np.bool_),
            infos={
                key: np.array([episode.infos.get(key, math.nan) for episode in played])
                for key in keys
            },
            steps=int(lengths.sum()),
            seconds=seconds,
        )


def numbers_of(infos: dict[str, Any], row: int) -> dict[str, float]:
    """Return the numbers in one row of merged infos.

    All become floats, and complex numbers that are real too: which other rows meet it in a batch
    decides whether an integer is one.

    Example:
        >>> infos = {"n": np.array([0, 2]), "_n": np.array([False, True])}
        >>> numbers_of(infos, 1), numbers_of(infos, 0)
        ({'n': 2.0}, {})
    """
    found = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or isinstance(values, dict) or not mask[row]:
            continue
        try:
            value = np.asarray(values[row])
        except Exception:  # a ragged list, or an object that refuses to be an array
            continue
        if value.ndim == 0 and value.dtype.kind == "c" and value.imag == 0:
            value = value.real
        if value.ndim == 0 and value.dtype.kind in "biuf":
            found[str(key)] = float(value)
        elif isinstance(values[row], int):  # of more than 64 bits
            found[str(key)] = _as_float(values[row])
    return found


def _as_float(value: int) -> float:
    """Return an int as a float; beyond the range of floats, infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value > 0 or -1)
