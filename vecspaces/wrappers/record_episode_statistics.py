"""RecordEpisodeStatistics: the return, length and duration of every episode."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count
from vecspaces.vector import VectorEnv
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import RowChoice
from vecspaces.wrappers.episodes import EpisodeBounds, EpisodeWrapper


class RecordEpisodeStatistics(EpisodeWrapper[ObsType, ActType, ObsType], Generic[ObsType, ActType]):
    """Adds each episode's return, length and duration to the infos of the step that ends it.

    `infos["episode"]` has arrays with one entry per environment, zero if no episode ended: `"r"`
    (the sum of rewards, float64), `"l"` (steps, int64), `"t"` (seconds, float64). The mask
    `infos["_episode"]` is True where an episode ended. Names and values are those of
    `gymnasium.wrappers.vector.RecordEpisodeStatistics`. They are added by `step`, `step_wait` and
    `recv`, in every autoreset mode.

    Args:
        env: The vector env to wrap.
        buffer_length: The number of episodes in the queues.
        stats_key: The key in the infos.

    Attributes:
        episode_count: The episodes that have ended.
        episode_returns: The sum of rewards of each running episode; shape `(num_envs,)`, float64.
        episode_lengths: The steps of each running episode; shape `(num_envs,)`, int64.
        episode_start_times: When each running episode began, by `time.perf_counter`.
        prev_dones: Whether each environment's last step ended its episode.
        return_queue: The returns of the last episodes.
        length_queue: Their lengths.
        time_queue: Their durations, in seconds.

    Example:
        >>> from vecspaces import make_vec
        >>> with RecordEpisodeStatistics(make_vec("CartPole-v1", 2, backend="sync")) as envs:
        ...     _ = envs.reset(seed=1), envs.action_space.seed(1)
        ...     while envs.episode_count < 3:
        ...         *_, infos = envs.step(envs.action_space.sample())
        >>> list(envs.length_queue), infos["episode"]["r"], infos["_episode"]
        ([28, 15, 59], array([ 0., 59.]), array([False,  True]))
    """

    saved_state = (
        ("prev_dones", "episode_returns", "episode_lengths", "episode_start_times"),
        ("episode_count", "return_queue", "length_queue", "time_queue"),
    )

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, npt.NDArray[Any]],
        buffer_length: int = 100,
        stats_key: str = "episode",
    ) -> None:
        super().__init__(env)
        check_count("buffer_length", buffer_length, least=0)
        if stats_key in list(env.info_space or ()):
            raise ValueError(
                f"the info_space of {env} has the key {stats_key!r}: use another stats_key for "
                "RecordEpisodeStatistics, or record in one place only"
            )
        self._stats_key = stats_key
        self.episode_count = 0
        self.episode_returns = np.zeros(self.num_envs)
        self.episode_lengths = np.zeros(self.num_envs, dtype=np.int64)
        self.episode_start_times = np.full(self.num_envs, time.perf_counter())
        self.return_queue: deque[float] = deque(maxlen=buffer_length)
        self.length_queue: deque[int] = deque(maxlen=buffer_length)
        self.time_queue: deque[float] = deque(maxlen=buffer_length)

    def _save_rows(self, env_ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        saved = super()._save_rows(env_ids)  # durations: the clock of another process differs
        return {**saved, "episode_start_times": time.perf_counter() - saved["episode_start_times"]}

    def _load_rows(self, saved: dict[str, Any], env_ids: npt.NDArray[np.int64]) -> None:
        times = time.perf_counter() - saved["episode_start_times"]
        super()._load_rows({**saved, "episode_start_times": times}, env_ids)

    def _begin(
        self, observations: ObsType, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[ObsType, dict[str, Any]]:
        self._restart(rows, time.perf_counter())
        return observations, infos

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        rows, begun, _, ended, _ = progress
        key, has_ended = self._stats_key, np.count_nonzero(ended) > 0
        if has_ended and key in infos:
            raise ValueError(
                f"infos[{key!r}] is there already: use another stats_key for "
                "RecordEpisodeStatistics, or record in one place only"
            )
        now = time.perf_counter()
        returns, lengths = self.episode_returns, self.episode_lengths
        if begun is None:
            returns[rows] += rewards
            lengths[rows] += 1
        else:
            self._restart(self._numbers[rows][begun], now)
            returns[rows] += np.where(begun, 0.0, rewards)
            lengths[rows] += ~begun
        if has_ended:
            times = np.round(now - self.episode_start_times[rows], 6)
            episode = {
                "r": np.where(ended, returns[rows], 0.0),
                "l": np.where(ended, lengths[rows], 0),
                "t": np.where(ended, times, 0.0),
            }
            infos = {**infos, key: episode, f"_{key}": ended.copy()}
            numbers = self._numbers[rows][ended]
            self.episode_count += len(numbers)
            self.return_queue += returns[numbers].tolist()
            self.length_queue += lengths[numbers].tolist()
            self.time_queue += times[ended].tolist()
            if self._same_step:
                self._restart(numbers, now)
        return observations, rewards, terminations, truncations, infos

    def _restart(self, rows: RowChoice, now: float) -> None:
        """Begin the counts of some environments anew."""
        self.episode_returns[rows], self.episode_lengths[rows] = 0.0, 0
        self.episode_start_times[rows] = now
