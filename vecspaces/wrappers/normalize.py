"""Normalised observations and rewards: running statistics, discounted returns, RunningMeanStd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import Box
from vecspaces.vector import VectorEnv
from vecspaces.vector.utils import batch_space, concatenate
from vecspaces.vector.vector_env import ActType, ObsType, StepResult
from vecspaces.vector.vector_wrapper import ALL, RowChoice
from vecspaces.wrappers.episodes import EpisodeBounds, EpisodeWrapper

_Array = npt.NDArray[Any]
Moments = tuple[Any, Any, float]


class RunningMeanStd:
    """The mean and variance of all batches seen so far, in constant memory.

    The attributes are its complete state: pickle it, or save and assign them.

    Args:
        epsilon: The weight of the initial mean 0 and variance 1.
        shape: The shape of one value.
        dtype: The dtype of the initial mean and variance.

    Attributes:
        mean: The mean, of shape `shape`.
        var: The variance.
        count: The number of values, plus `epsilon`.

    Example:
        >>> statistics = RunningMeanStd(shape=(2,))
        >>> statistics.update(np.array([[1.0, 10.0], [3.0, 30.0]]))
        >>> statistics.mean.round(2), statistics.count
        (array([ 2., 20.]), 2.0001)
    """

    def __init__(
        self, epsilon: float = 1e-4, shape: Sequence[int] = (), dtype: npt.DTypeLike = np.float64
    ) -> None:
        self.mean: Any = np.zeros(shape, dtype)
        self.var: Any = np.ones(shape, dtype)
        self.count: float = epsilon

    def update(self, x: _Array) -> None:
        """Update the mean and variance with a batch of values.

        Args:
            x: Shape `(rows, *shape)`.
        """
        self.mean, self.var, self.count = moments_with(self, x, True)

    def __repr__(self) -> str:
        return f"RunningMeanStd(mean={self.mean}, var={self.var}, count={self.count})"


def moments_with(statistics: RunningMeanStd, x: _Array, update: bool) -> Moments:
    """Return the mean, variance and count after a batch (Chan, Golub and LeVeque).

    This is not a method, since users may assign Gymnasium's statistics to a wrapper.
    """
    if not (update and len(x)):
        return statistics.mean, statistics.var, statistics.count
    count, added = statistics.count, len(x)
    total = count + added
    delta = x.mean(axis=0) - statistics.mean
    mean = statistics.mean + delta * added / total
    squares = statistics.var * count + x.var(axis=0) * added
    squares = squares + np.square(delta) * count * added / total
    return mean, squares / total, total


class NormalizeObservation(EpisodeWrapper[_Array, ActType, _Array], Generic[ActType]):
    """Shifts and scales observations, so that each coordinate has mean 0 and variance 1.

    Every observation updates the statistics once and is normalised by the updated ones. This holds
    for the results of `reset` (with a mask, for the rows that were reset), `step` and `recv`, and
    in SAME_STEP mode for `infos["final_obs"]`.

    Args:
        env: The vector env to wrap.
        epsilon: A number that is added to the variance, to avoid a division by zero.

    Attributes:
        obs_rms: The statistics, a `RunningMeanStd`; save it with the policy, and assign it to the
            wrapper of an evaluation.
        update_running_mean: Whether observations update the statistics; False for an evaluation.
        epsilon: As given.

    Raises:
        ValueError: `epsilon` is not positive, or observations are not arrays of one shape.

    Example:
        >>> from vecspaces import make_vec
        >>> with NormalizeObservation(make_vec("CartPole-v1", 4, backend="sync")) as envs:
        ...     _ = envs.reset(seed=1), envs.action_space.seed(1)
        ...     for _ in range(50):
        ...         observations, *_ = envs.step(envs.action_space.sample())
        ...     envs.obs_rms.mean.shape, envs.obs_rms.count
        ((4,), 204.0001)
    """

    _changes = "observations"

    def __init__(self, env: VectorEnv[_Array, ActType, _Array], epsilon: float = 1e-8) -> None:
        super().__init__(env)
        self.epsilon = _positive("epsilon", epsilon)
        shape = env.single_observation_space.shape
        if shape is None:
            raise ValueError(
                "NormalizeObservation needs observations with a shape, found "
                f"{env.single_observation_space}: flatten or filter them first"
            )
        self.single_observation_space = Box(-np.inf, np.inf, shape, np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.obs_rms = RunningMeanStd(shape=shape, dtype=np.float32)
        self.update_running_mean = True

    def _begin(
        self, observations: _Array, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[_Array, dict[str, Any]]:
        alive = self._alive_after(infos, rows, np.zeros(len(self._numbers[rows]), np.bool_))
        gone = None if alive is None else ~alive
        counted = observations[rows]
        if gone is not None:
            counted = counted[~gone[rows]]
        moments = moments_with(self.obs_rms, counted, self.update_running_mean)
        changed = self._normalize(observations, moments, gone)
        self.obs_rms.mean, self.obs_rms.var, self.obs_rms.count = moments
        return changed, infos

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        counted, gone = observations, progress.gone
        if progress.fresh is not None:  # what reset returned was counted at that time
            new = ~(progress.fresh & self._shown[progress.rows])
            counted = observations[new if gone is None else new & ~gone]
        elif gone is not None:
            counted = observations[~gone]
        if "_final_obs" in infos and infos["_final_obs"].any():
            finals = list(infos["final_obs"][infos["_final_obs"]])
            finals = concatenate(self.env.single_observation_space, finals, None)
            counted = np.concatenate([finals, counted])
        moments = moments_with(self.obs_rms, counted, self.update_running_mean)
        if "_final_obs" in infos:
            infos = self._with_finals(infos, lambda batch, _: self._normalize(batch, moments))
        changed = self._normalize(observations, moments, gone)
        self.obs_rms.mean, self.obs_rms.var, self.obs_rms.count = moments
        return changed, rewards, terminations, truncations, infos

    def _normalize(self, observations: _Array, moments: Moments, gone: Any = None) -> _Array:
        mean, var, _ = moments
        changed: _Array = (observations - mean) / np.sqrt(var + self.epsilon)
        if gone is not None:
            changed[gone] = 0.0
        return changed.astype(np.float32)


class NormalizeReward(EpisodeWrapper[ObsType, ActType, ObsType], Generic[ObsType, ActType]):
    """Scales rewards so that the discounted sum of rewards has a variance of about 1.

    Rewards are divided by the standard deviation of the discounted sums of all environments so far.
    As in Gymnasium, a sum begins again when an episode terminates, after a reset, and in SAME_STEP
    mode after every end. In the other modes it continues after a truncated episode.

    Args:
        env: The vector env to wrap.
        gamma: The discount factor.
        epsilon: A number that is added to the variance, to avoid a division by zero.

    Attributes:
        return_rms: The statistics, a `RunningMeanStd`: save it with the policy, and assign it.
        accumulated_reward: The discounted sum of each environment, float32.
        update_running_mean: Whether rewards update the statistics; False for an evaluation.
        gamma: As given.
        epsilon: As given.

    Raises:
        ValueError: `gamma` is not between 0 and 1, or `epsilon` is not positive.

    Example:
        >>> from vecspaces import make_vec
        >>> with NormalizeReward(make_vec("CartPole-v1", 4, backend="sync")) as envs:
        ...     _ = envs.reset(seed=1), envs.action_space.seed(1)
        ...     for _ in range(50):
        ...         _, rewards, *_ = envs.step(envs.action_space.sample())
        ...     float(rewards.max()) < 1
        True
    """

    _changes = "rewards"

    def __init__(
        self, env: VectorEnv[ObsType, ActType, _Array], gamma: float = 0.99, epsilon: float = 1e-8
    ) -> None:
        super().__init__(env)
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma: expected a number from 0 to 1, found {gamma}")
        self.gamma = gamma
        self.epsilon = _positive("epsilon", epsilon)
        self.return_rms = RunningMeanStd()
        self.accumulated_reward: npt.NDArray[np.float32] = np.zeros(self.num_envs, np.float32)
        self.update_running_mean = True

    def _begin(
        self, observations: ObsType, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[ObsType, dict[str, Any]]:
        accumulated = self.accumulated_reward.copy()
        accumulated[rows] = 0
        self.accumulated_reward = accumulated
        return observations, infos

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        numbers = self._numbers[progress.rows]
        accumulated = self.accumulated_reward.copy()
        if progress.fresh is not None:
            accumulated[numbers[progress.fresh]] = 0
        active = ALL if progress.begun is None else ~progress.begun
        stepped = numbers[active]
        accumulated[stepped] = (
            accumulated[stepped] * self.gamma * (1 - terminations[active]) + rewards[active]
        )
        moments = moments_with(self.return_rms, accumulated[stepped], self.update_running_mean)
        if self._same_step:
            accumulated[numbers[progress.ended]] = 0
        changed = rewards / np.sqrt(moments[1] + self.epsilon)
        self.return_rms.mean, self.return_rms.var, self.return_rms.count = moments
        self.accumulated_reward = accumulated
        return observations, changed, terminations, truncations, infos


def _positive(name: str, value: float) -> float:
    """Check a number that has to be positive."""
    if not value > 0:
        raise ValueError(f"{name}: expected more than 0, found {value}")
    return value
