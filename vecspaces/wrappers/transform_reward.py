"""Wrappers that change rewards and have no state: a function of the rewards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.vector import VectorEnv, VectorRewardWrapper
from vecspaces.vector.vector_env import ActType, ObsType
from vecspaces.wrappers.transform_spaces import call_func

_Array = npt.NDArray[Any]


class TransformReward(VectorRewardWrapper[ObsType, ActType, _Array], Generic[ObsType, ActType]):
    """Changes rewards by a function.

    Args:
        env: The vector env to wrap.
        func: A function that takes an array of rewards, one per row, and returns an array of the
            same shape. For `recv` and `step(env_ids=...)`, these are the rows of some environments.

    Example:
        >>> from vecspaces import make_vec
        >>> envs = make_vec("CartPole-v1", 2, backend="sync")
        >>> with TransformReward(envs, lambda rewards: rewards / 10) as envs:
        ...     _ = envs.reset(seed=1)
        ...     envs.step(np.array([0, 1]))[1].tolist()
        [0.1, 0.1]
    """

    saved_state = (), ()

    def __init__(
        self, env: VectorEnv[ObsType, ActType, _Array], func: Callable[[_Array], _Array]
    ) -> None:
        super().__init__(env)
        self.func = func

    def rewards(self, rewards: _Array) -> _Array:
        """Change an array of rewards."""
        changed: _Array = call_func(self, rewards)
        return changed


class ClipReward(TransformReward[ObsType, ActType], Generic[ObsType, ActType]):
    """Clips rewards.

    Args:
        env: The vector env to wrap.
        min_reward: The smallest reward; None: no bound.
        max_reward: The largest reward; None: no bound.

    Raises:
        ValueError: Both are None, `min_reward` is larger than `max_reward`, or one is an array of
            several numbers.

    Example:
        >>> from vecspaces import make_vec
        >>> with ClipReward(make_vec("CartPole-v1", 2, backend="sync"), max_reward=0.5) as envs:
        ...     _ = envs.reset(seed=1)
        ...     envs.step(np.array([0, 1]))[1].tolist()
        [0.5, 0.5]
    """

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, _Array],
        min_reward: float | _Array | None = None,
        max_reward: float | _Array | None = None,
    ) -> None:
        if min_reward is None and max_reward is None:
            raise ValueError("ClipReward needs min_reward, max_reward, or both; found neither")
        for name, bound in (("min_reward", min_reward), ("max_reward", max_reward)):
            if bound is not None and np.size(bound) != 1:
                raise ValueError(
                    f"{name}: expected one number for all environments, found {bound!r}"
                )
        if min_reward is not None and max_reward is not None and np.any(max_reward < min_reward):
            raise ValueError(
                f"min_reward: expected at most max_reward={max_reward}, found {min_reward}"
            )
        low, high = (
            None if bound is None else np.reshape(bound, ()) for bound in (min_reward, max_reward)
        )
        super().__init__(env, partial(np.clip, a_min=low, a_max=high))
