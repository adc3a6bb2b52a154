"""The loop over episodes: the episode of each row, and the repetition of lost episodes."""

from __future__ import annotations

import copy
import math
import reprlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.errors import StepTimeoutError, WorkerDiedError, WorkerError
from vecspaces.evaluation.policies import PolicyAdapter, pick_infos
from vecspaces.evaluation.result import EpisodeResult
from vecspaces.evaluation.tracks import AnyVectorEnv, Tracks
from vecspaces.spaces.batch_values import pick
from vecspaces.vector import Transition

_IDLE = -1


class EpisodeQueue:
    """Plays the episodes of a queue in rows of environments.

    An episode stays in its row until it has finished, and begins again in this row when it is lost,
    so it depends only on its seed, its options and the policy. The totals of each finished episode
    are yielded; `tracks` stores its steps. An episode begins only if its number is less than
    `ahead` above that of the first unfinished episode. After `restart_after` episodes of a row,
    its worker, which has no other row, is restarted before the next.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        options: Sequence[dict[str, Any] | None] | None = None,
        *,
        caller: str = "evaluate",
        waiting: Iterable[int] | None = None,
        max_episode_steps: int | None = None,
        max_retries: int = 0,
        tracks: Tracks | None = None,
        ahead: int | None = None,
        restart_after: int | None = None,
    ) -> None:
        self._caller = caller
        self._seeds, self._options = seeds, [None] * len(seeds) if options is None else options
        #: The numbers of the episodes that no row plays yet.
        self.waiting = deque(range(len(seeds)) if waiting is None else waiting)
        self._limit = math.inf if max_episode_steps is None else max_episode_steps
        self._max_retries = max_retries
        self._tracks, self._ahead = tracks, ahead
        self._restart_after = math.inf if restart_after is None else restart_after
        #: Each loss is counted for an episode, which bounds the number of losses.
        self.max_losses = (max_retries + 1) * len(seeds)
        # By episode: how often it began again, and how often it was running when a worker died.
        self._retries = [0] * len(seeds)
        self._deaths = [0] * len(seeds)
        # By row: the episode, the sum of its rewards so far, its steps so far, and the number of
        # episodes that its worker has begun.
        self._playing: list[int] = []
        self._begun: list[int] = []
        self._totals: npt.NDArray[np.float64] = np.zeros(0)
        self._lengths: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        # Rows whose next observation is the first of an episode, and rows that died with a worker
        # and have not reported it.
        self._starting: set[int] = set()
        self._lost: set[int] = set()
        # Rows whose worker died in the first reset. The reset is repeated, except in workers that
        # had completed it.
        self._died_in_reset: set[int] = set()
        self._resetting = False

    def play(
        self, envs: AnyVectorEnv, policy: PolicyAdapter, *, in_turns: bool
    ) -> Iterator[EpisodeResult]:
        """Play all episodes, and yield each as soon as it has finished.

        With `in_turns`, the policy chooses actions for one half of the environments while the
        workers step the other half.
        """
        count = envs.num_envs
        self._totals = np.zeros(count)
        self._lengths = np.zeros(count, dtype=np.int64)
        self._playing = [self.waiting.popleft() for _ in range(count)]
        self._starting = set(range(count))
        self._begun = [0] * count
        if self._tracks is not None:
            self._tracks.open(envs)
        try:
            self._resetting = True
            options = [copy.deepcopy(self._options[k]) for k in self._playing]
            envs.reset(seed=[self._seeds[k] for k in self._playing], options=options)
            self._resetting = False
            while self._active:
                ready = self._active
                if in_turns and not policy.waits_for_all:
                    ready = (ready + 1) // 2
                yield from self._advance(envs, policy, envs.recv(ready))
        except Exception as error:
            self._add_note(error)
            raise

    @property
    def _active(self) -> int:
        return len(self._playing) - self._playing.count(_IDLE)

    def _advance(
        self, envs: AnyVectorEnv, policy: PolicyAdapter, received: Transition
    ) -> Iterator[EpisodeResult]:
        """Process the results of some rows, yield ended episodes, and send resets and actions."""
        rows: list[int] = received.env_ids.tolist()
        lost = self._take_lost(received)
        begun = [row for row in rows if row in self._starting and row not in lost]
        if self._tracks is not None:
            playing = [None if row in lost else self._playing[row] for row in rows]
            self._tracks.take(received, playing, {self._playing[row] for row in begun})
        stepped: Any = slice(None)
        if begun or lost:  # rows without a step
            stepped = [row not in self._starting and row not in lost for row in rows]
        stepped_rows = received.env_ids[stepped]
        self._totals[stepped_rows] += received.rewards[stepped]
        self._lengths[stepped_rows] += 1
        ended = (received.terminations | received.truncations)[stepped]
        ended |= self._lengths[stepped_rows] >= self._limit
        over = np.arange(len(rows))[stepped][ended].tolist() if ended.any() else []
        for number in over:
            yield self._finish(received, number)
        self._starting.difference_update(rows)
        free = {*lost, *(rows[number] for number in over)}
        observations, infos = received.observations, received.infos
        going = rows
        if free:
            idle = {row for row, k in enumerate(self._playing) if k == _IDLE and self.waiting}
            self._begin(envs, sorted(lost | idle))
            numbers = [number for number, row in enumerate(rows) if row not in free]
            going = [rows[number] for number in numbers]
            observations = pick(envs.single_observation_space, observations, numbers)
            infos = pick_infos(infos, numbers)
        for row in begun:
            self._begun[row] += 1
        if begun:
            policy.begin(begun, [self._seeds[self._playing[row]] for row in begun])
        if going:
            actions = policy.act(observations, infos, going)
            envs.send(actions, going)
            if self._tracks is not None:
                self._tracks.note_actions([self._playing[row] for row in going], actions)

    def _take_lost(self, received: Transition) -> set[int]:
        """Return the rows that report the loss of their episode, which will begin again."""
        marks = received.infos.get("_worker_restarted")
        if marks is None or not self._lost:
            return set()
        # An environment's own info may have this key, so only rows that died are checked.
        lost = self._lost.intersection(received.env_ids[marks].tolist())
        for row in lost - self._died_in_reset:
            self._retries[self._playing[row]] += 1
        return lost

    def _begin(self, envs: AnyVectorEnv, rows: Sequence[int]) -> None:
        """Begin the next episode in idle rows, and begin lost episodes again."""
        starting = []
        for row in rows:
            if self._playing[row] == _IDLE and self._may_begin():
                self._playing[row] = self.waiting.popleft()
            if self._playing[row] != _IDLE:
                starting.append(row)
        self._totals[rows], self._lengths[rows] = 0.0, 0
        self._lost.difference_update(rows)
        self._died_in_reset.difference_update(rows)
        self._starting.update(starting)
        due = [row for row in starting if self._begun[row] >= self._restart_after]
        if due:
            envs.restart(due)
        for row in due:
            self._begun[row] = 0
        plain = [row for row in starting if self._options[self._playing[row]] is None]
        if plain:
            envs.send_reset(plain, seed=[self._seeds[self._playing[row]] for row in plain])
        for row in starting:
            k = self._playing[row]
            options = copy.deepcopy(self._options[k])  # an environment may change its options
            if options is not None:
                envs.send_reset([row], seed=[self._seeds[k]], options=options)

    def _may_begin(self) -> bool:
        """Return whether there is a next episode that is not too far ahead."""
        if self._ahead is None or not self.waiting:
            return bool(self.waiting)
        unfinished = [k for k in self._playing if k != _IDLE]
        return not unfinished or self.waiting[0] < min(unfinished) + self._ahead

    def _finish(self, received: Transition, number: int) -> EpisodeResult:
        """Return the result of an episode, and leave its row idle."""
        row = int(received.env_ids[number])
        k = self._playing[row]
        self._playing[row] = _IDLE
        return EpisodeResult(
            k,
            self._seeds[k],
            float(self._totals[row]),
            int(self._lengths[row]),
            bool(received.terminations[number]),
            self._retries[k],
            numbers_of(received.infos, number),
        )

    def judge(self, error: WorkerDiedError | StepTimeoutError) -> None:
        """Count the loss of a worker for the episode that was running; raise after too many.

        If the running episode is unknown, the loss is counted for all episodes of the worker.
        """
        rows = [row for row in error.env_ids if self._playing[row] != _IDLE]
        self._lost.update(rows)
        for row in error.env_ids:
            self._begun[row] = 0  # the next worker has begun no episode
        if self._resetting:  # counted here, because not every row will report it
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
            names = " or ".join(map(self._name, lost))
            often = "once" if self._max_retries == 0 else f"{self._deaths[lost[0]]} times"
            alone = f"{self._caller}(..., episodes=1, seed=[{self._seeds[lost[0]]}]"
            if self._options[lost[0]] is not None:
                alone += f", options=[{reprlib.repr(self._options[lost[0]])}]"
            # The first line ends with advice; the others are the place of the environment.
            line, newline, place = str(error).partition("\n")
            told = copy.copy(error)
            told.args = (
                f"{names} lost its worker {often}, and max_retries is {self._max_retries}; "
                f"the last time {line.rpartition(': ')[0]}: {alone}) plays it alone"
                f"{newline}{place}",
            )
            told.__cause__ = error.__cause__  # `copy` drops the cause
            raise told

    def _name(self, k: int) -> str:
        options = self._options[k]
        told = "" if options is None else f" and options {reprlib.repr(options)}"
        return f"episode {k} with seed {self._seeds[k]}{told}"

    def _add_note(self, error: Exception) -> None:
        """Add a note that names the episodes of an environment's error."""
        if isinstance(error, WorkerDiedError):
            return
        is_named = isinstance(error, (WorkerError, StepTimeoutError))
        # The cause of an environment's own exception names it; errors of the policy have no names.
        rows: Sequence[int] = getattr(error if is_named else error.__cause__, "env_ids", ())
        playing = [self._playing[row] for row in rows if self._playing[row] != _IDLE]
        if playing:
            error.add_note(f"{self._caller} was playing {', '.join(map(self._name, playing))}")


def numbers_of(infos: dict[str, Any], row: int) -> dict[str, float]:
    """Return the numbers in one row of merged infos, as floats.

    Merging may turn an integer into a float or complex number, depending on the other rows.

    Example:
        >>> infos = {"n": np.array([0, 2]), "_n": np.array([False, True])}
        >>> numbers_of(infos, 1), numbers_of(infos, 0)
        ({'n': 2.0}, {})
    """
    numbers = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or isinstance(values, dict) or not mask[row]:
            continue
        try:
            value: Any = np.asarray(values[row])
        except Exception:  # a ragged list, or an object without conversion to an array
            continue
        if value.ndim == 0 and value.dtype.kind == "c" and value.imag == 0:
            value = value.real
        if value.ndim == 0 and value.dtype.kind in "biuf":
            numbers[str(key)] = float(value)
    return numbers
