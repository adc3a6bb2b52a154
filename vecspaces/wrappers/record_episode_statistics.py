"""RecordEpisodeStatistics: the return, length and duration of every episode."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.vector import AutoresetMode, Transition, VectorEnv, VectorWrapper
from vecspaces.vector.vector_env import ActType, ObsType, Seed, StepResult

Mask = npt.NDArray[np.bool_]


class RecordEpisodeStatistics(
    VectorWrapper[ObsType, ActType, ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]
):
    """Adds each episode's return, length and duration to the infos of the step that ends it.

    They stand in `infos["episode"]` as arrays of one entry per environment, zero where no episode
    ended: `"r"` (the sum of rewards, float64), `"l"` (steps, int64), `"t"` (seconds, float64); the
    mask `infos["_episode"]` says where one did. Names and values are those of
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
        # Environments whose first observation was not received yet: `recv` gives it, with no step.
        self._fresh: Mask = np.zeros(self.num_envs, dtype=np.bool_)
        self._resetting: Mask = np.ones(self.num_envs, dtype=np.bool_)
        self.return_queue: deque[float] = deque(maxlen=buffer_length)
        self.length_queue: deque[int] = deque(maxlen=buffer_length)
        self.time_queue: deque[float] = deque(maxlen=buffer_length)

    def reset(
        self, *, seed: Seed | None = None, options: Any = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Begin new episodes, in all environments or in those of a mask."""
        result = self.env.reset(seed=seed, options=options)
        mask = options.get("reset_mask") if isinstance(options, dict) else None
        self._begin(np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask)
        return result

    def reset_async(self, seed: Seed | None = None, options: Any = None) -> None:
        """Begin a `reset`; `reset_wait` ends it."""
        self.env.reset_async(seed=seed, options=options)  # type: ignore[attr-defined]  # not all have it
        mask = options.get("reset_mask") if isinstance(options, dict) else None
        self._resetting = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask.copy()

    def reset_wait(self, timeout: float | None = None) -> tuple[ObsType, dict[str, Any]]:
        """End a `reset` that `reset_async` began."""
        result: tuple[ObsType, dict[str, Any]] = self.env.reset_wait(timeout)  # type: ignore[attr-defined]  # as above
        self._begin(self._resetting)
        return result

    def step(self, actions: ActType) -> StepResult:
        """Take one action in every environment."""
        return self._record_all(self.env.step(actions))

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """End a `step` that `step_async` began."""
        return self._record_all(self.env.step_wait(timeout))  # type: ignore[attr-defined]  # as above

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Give actions to environments, and wait for none."""
        self.env.send(actions, env_ids)  # type: ignore[attr-defined]  # as above
        self._fresh[slice(None) if env_ids is None else list(env_ids)] = False

    def recv(self, timeout: float | None = None) -> Transition:
        """Receive the environments that are ready first; the statistics' rows follow `env_ids`."""
        result: Transition = self.env.recv(timeout)  # type: ignore[attr-defined]  # as above
        rows = result.env_ids
        stepped = ~self._fresh[rows]
        self._fresh[rows] = False
        self._record(rows, stepped, *result[1:5])
        return result

    def _begin(self, mask: Mask) -> None:
        """New episodes begin where `mask` is True."""
        self._restart(mask, time.perf_counter())
        self.prev_dones[mask] = False
        self._fresh[mask] = True

    def _record_all(self, result: StepResult) -> StepResult:
        """Take in a step of all environments."""
        self._fresh[:] = False
        self._record(np.arange(self.num_envs), True, *result[1:])
        return result

    def _record(
        self,
        rows: npt.NDArray[Any],
        stepped: Any,
        rewards: npt.NDArray[Any],
        terminations: Mask,
        truncations: Mask,
        infos: dict[str, Any],
    ) -> None:
        """Take in what some environments gave, and add to their infos.

        Args:
            rows: The environments.
            stepped: Whether each made a step; False for a first observation.
            rewards: One per row, as the rest.
            terminations: Where an episode ended.
            truncations: Where an episode was cut off.
            infos: Where the statistics go.
        """
        now = time.perf_counter()
        if not self._same_step:
            # The step after an end resets and counts for nothing.
            begun = self.prev_dones[rows] & stepped
            stepped = stepped & ~begun
            self._restart(rows[begun], now)
        self.episode_returns[rows] += np.where(stepped, rewards, 0.0)
        self.episode_lengths[rows] += stepped
        dones = (terminations | truncations) & stepped
        self.prev_dones[rows] = dones
        if not dones.any():
            return
        if self._stats_key in infos:
            raise ValueError(
                f"infos[{self._stats_key!r}] is there already: give RecordEpisodeStatistics "
                "another stats_key, or record in one place only"
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
        """Episodes begin in some environments."""
        self.episode_returns[rows] = 0.0
        self.episode_lengths[rows] = 0
        self.episode_start_times[rows] = now
