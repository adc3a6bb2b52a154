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
from vecspaces.vector.vector_wrapper import ALL, EnvIds, Mask, RowChoice
from vecspaces.wrappers.episodes import EpisodeBounds, EpisodeWrapper

_Array = npt.NDArray[Any]


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
        if not len(x):
            return
        added, total = len(x), self.count + len(x)
        delta = x.mean(axis=0) - self.mean
        # As Chan, Golub and LeVeque.
        squares = self.var * self.count + x.var(axis=0) * added
        squares = squares + np.square(delta) * self.count * added / total
        # One assignment, which no signal handler interrupts.
        vars(self).update(mean=self.mean + delta * added / total, var=squares / total, count=total)

    def __repr__(self) -> str:
        return f"RunningMeanStd(mean={self.mean}, var={self.var}, count={self.count})"


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
        epsilon: The argument.

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

    saved_state = ("prev_dones", "_shown"), ("obs_rms", "update_running_mean")
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
        # The environments whose last reset has returned their first observation, before `recv`.
        self._shown: Mask = np.zeros(self.num_envs, np.bool_)

    def send_reset(self, env_ids: EnvIds | None = None, **arguments: Any) -> None:
        """Send environments a reset without waiting for results."""
        super().send_reset(env_ids, **arguments)
        self._shown[ALL if env_ids is None else np.array(env_ids, np.int64)] = False

    def _begin(
        self, observations: _Array, infos: dict[str, Any], rows: RowChoice
    ) -> tuple[_Array, dict[str, Any]]:
        gone = None if self._alive is None else ~self._alive
        counted = observations[rows]
        if gone is not None:
            counted = counted[~gone[rows]]
        self._shown[rows] = True
        self._count(counted)
        return self._normalize(observations, gone), infos

    def _after_load(self, observations: _Array, env_ids: npt.NDArray[np.int64]) -> _Array:
        return self._normalize(observations, None if self._alive is None else ~self._alive[env_ids])

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        counted, gone = observations, progress.gone
        if progress.reset is not None:  # the observations of `reset` were counted by `reset`
            new = ~(progress.reset & self._shown[progress.rows])
            counted = observations[new if gone is None else new & ~gone]
        elif gone is not None:
            counted = observations[~gone]
        if "_final_obs" in infos and infos["_final_obs"].any():
            finals = list(infos["final_obs"][infos["_final_obs"]])
            finals = concatenate(self.env.single_observation_space, finals, None)
            counted = np.concatenate([finals, counted])
        self._count(counted)
        if "_final_obs" in infos:
            infos = self._with_finals(infos, lambda batch, _: self._normalize(batch))
        changed = self._normalize(observations, gone)
        return changed, rewards, terminations, truncations, infos

    def _count(self, observations: _Array) -> None:
        if self.update_running_mean and len(observations):
            self.obs_rms.update(observations)

    def _normalize(self, observations: _Array, gone: Any = None) -> _Array:
        rms = self.obs_rms
        changed: _Array = (observations - rms.mean) / np.sqrt(rms.var + self.epsilon)
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
        gamma: The argument.
        epsilon: The argument.

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

    saved_state = (("prev_dones", "accumulated_reward"), ("return_rms", "update_running_mean"))
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
        self.accumulated_reward[rows] = 0
        return observations, infos

    def _follow(self, result: StepResult, progress: EpisodeBounds) -> StepResult:
        observations, rewards, terminations, truncations, infos = result
        numbers = self._numbers[progress.rows]
        accumulated = self.accumulated_reward
        if progress.reset is not None:
            accumulated[numbers[progress.reset]] = 0
        active = ALL if progress.begun is None else ~progress.begun
        stepped = numbers[active]
        accumulated[stepped] = (
            accumulated[stepped] * self.gamma * (1 - terminations[active]) + rewards[active]
        )
        if self.update_running_mean and len(stepped):
            self.return_rms.update(accumulated[stepped])
        if self._same_step:
            accumulated[numbers[progress.ended]] = 0
        changed = rewards / np.sqrt(self.return_rms.var + self.epsilon)
        return observations, changed, terminations, truncations, infos


def _positive(name: str, value: float) -> float:
    """Check a number that has to be positive."""
    if not value > 0:
        raise ValueError(f"{name}: expected more than 0, found {value}")
    return value
