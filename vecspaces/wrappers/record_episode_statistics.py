"""RecordEpisodeStatistics: the return, length and duration of every episode."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.vector import AutoresetMode, VectorEnv, VectorWrapper
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.wrappers import EnvIds, Mask


class RecordEpisodeStatistics(
    VectorWrapper[ObsType, ActType, ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]
):
    """Adds each episode's return, length and duration to the infos of the step that ends it.

    They stand in `infos["episode"]` as arrays of one entry per environment, zero where no episode
    ended: `"r"` (the sum of rewards, float64), `"l"` (steps, int64), `"t"` (seconds, float64); the
    mask `infos["_episode"]` is True where one did. Names and values are those of
    `gymnasium.wrappers.vector.RecordEpisodeStatistics`. It follows `step`, `step_wait` and `recv`,
    in every autoreset mode.

    Args:
        env: The vector env to wrap.
        buffer_length: How many episodes the queues keep.
        stats_key: The key in the infos.

    Attributes:
        episode_count: The episodes that have ended.
        episode_returns: The sum of rewards of each running episode; shape `(num_envs,)`, float64.
        episode_lengths: The steps of each running episode; shape `(num_envs,)`, int64.
        episode_start_times: When each running episode began, as `time.perf_counter` has it.
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

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, npt.NDArray[Any]],
        buffer_length: int = 100,
        stats_key: str = "episode",
    ) -> None:
        super().__init__(env)
        self._stats_key = stats_key
        mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._same_step = AutoresetMode.of(mode) is AutoresetMode.SAME_STEP
        self.episode_count = 0
        self.episode_returns = np.zeros(self.num_envs)
        self.episode_lengths = np.zeros(self.num_envs, dtype=np.int64)
        self.episode_start_times = np.full(self.num_envs, time.perf_counter())
        self.prev_dones: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        # Environments whose first observation was not received yet: `recv` returns it, and no step.
        self._fresh: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        self._rows = np.arange(self.num_envs)
        self.return_queue: deque[float] = deque(maxlen=buffer_length)
        self.length_queue: deque[int] = deque(maxlen=buffer_length)
        self.time_queue: deque[float] = deque(maxlen=buffer_length)

    def send(self, actions: Any, env_ids: EnvIds | None = None) -> None:
        """Give actions to environments without waiting for them."""
        super().send(actions, env_ids)
        self._fresh[slice(None) if env_ids is None else list(env_ids)] = False

    def send_reset(
        self,
        env_ids: EnvIds | None = None,
        *,
        seed: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Send environments a reset without waiting for them."""
        super().send_reset(env_ids, seed=seed, options=options)
        self._note_reset(self._rows if env_ids is None else np.asarray(env_ids))

    def _after_reset(
        self, observations: ObsType, infos: dict[str, Any], mask: Mask | None
    ) -> tuple[ObsType, dict[str, Any]]:
        self._note_reset(self._rows if mask is None else np.flatnonzero(mask))
        return observations, infos

    def _note_reset(self, rows: npt.NDArray[Any]) -> None:
        """Begin to count episodes whose first observations `recv` may return."""
        self._restart(rows, time.perf_counter())
        self.prev_dones[rows] = False
        self._fresh[rows] = True

    def _after_step(self, result: StepResult, env_ids: npt.NDArray[np.int64] | None) -> StepResult:
        self._count(result, slice(None) if env_ids is None else env_ids, None)
        return result

    def _after_recv(self, result: StepResult, env_ids: npt.NDArray[np.int64]) -> StepResult:
        self._count(result, env_ids, self._fresh[env_ids])
        return result

    def _count(self, result: StepResult, rows: Any, idle: Mask | None) -> None:
        """Count what some environments returned; those that are idle were only reset."""
        _, rewards, terminations, truncations, infos = result
        now = time.perf_counter()
        dones = terminations | truncations
        self._fresh[rows] = False
        if not self._same_step:  # the step after an end resets, and counts for nothing
            begun = self.prev_dones[rows] if idle is None else self.prev_dones[rows] & ~idle
            if np.count_nonzero(begun):
                self._restart(self._rows[rows][begun], now)
                idle = begun.copy() if idle is None else idle | begun
        if idle is None:
            self.episode_returns[rows] += rewards
            self.episode_lengths[rows] += 1
        else:
            self.episode_returns[rows] += np.where(idle, 0.0, rewards)
            self.episode_lengths[rows] += ~idle
            dones &= ~idle
        self.prev_dones[rows] = dones
        if np.count_nonzero(dones):
            self._record(self._rows[rows], dones, now, infos)

    def _record(
        self, rows: npt.NDArray[Any], dones: Mask, now: float, infos: dict[str, Any]
    ) -> None:
        """Add the episodes that ended to the infos and to the queues."""
        if self._stats_key in infos:
            raise ValueError(
                f"infos[{self._stats_key!r}] is there already: use another stats_key for "
                "RecordEpisodeStatistics, or record in one place only"
            )
        ended = rows[dones]
        times = np.round(now - self.episode_start_times[rows], 6)
        infos[self._stats_key] = {
            "r": np.where(dones, self.episode_returns[rows], 0.0),
            "l": np.where(dones, self.episode_lengths[rows], 0),
            "t": np.where(dones, times, 0.0),
        }
        infos[f"_{self._stats_key}"] = dones
        self.episode_count += len(ended)
        self.return_queue.extend(self.episode_returns[ended].tolist())
        self.length_queue.extend(self.episode_lengths[ended].tolist())
        self.time_queue.extend(times[dones].tolist())
        if self._same_step:
            self._restart(ended, now)

    def _restart(self, rows: npt.NDArray[Any], now: float) -> None:
        """Set the counts of some environments to zero."""
        self.episode_returns[rows] = 0.0
        self.episode_lengths[rows] = 0
        self.episode_start_times[rows] = now
