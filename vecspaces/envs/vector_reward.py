"""VectorReward: the weighted sum of a vector reward, which infos keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import show_value
from vecspaces.envs.env_wrapper import EnvWrapper
from vecspaces.errors import InvalidRewardError
from vecspaces.spaces import Box, Dict
from vecspaces.vector.group.attributes import get_attribute

_KEY = "reward_vector"


class VectorReward(EnvWrapper):
    """Returns the weighted sum of the rewards of several objectives, in float64.

    The info of each step has the rewards under the key `"reward_vector"`, a float64 array of shape
    `(k,)`, which an `info_space` declares.

    Args:
        env: The environment; its rewards have shape `(k,)`.
        weights: The weight of each objective, shape `(k,)`; None: all 1, with the k of the
            environment's `reward_space`, as in MO-Gymnasium.

    Attributes:
        weights: The weights; `envs.set_attr("weights", array)` changes them.
        info_space: The keys of the environment's `info_space`, and `"reward_vector"`.

    Raises:
        ValueError: k is not known, or differs from `weights`, also when they are set later; the
            info is declared already.
        InvalidRewardError: In `step`: the reward is not k numbers.

    Example:
        >>> from vecspaces import Env
        >>> from vecspaces.spaces import Discrete
        >>> class Race(Env):
        ...     observation_space = action_space = Discrete(2)
        ...
        ...     def step(self, action):
        ...         return 0, np.array([1.0, -action / 4]), False, False, {}
        >>> _, reward, *_, info = VectorReward(Race(), [1.0, 2.0]).step(1)
        >>> reward, info["reward_vector"].tolist()
        (0.5, [1.0, -0.25])
    """

    def __init__(self, env: Any, weights: npt.ArrayLike | None = None) -> None:
        super().__init__(env)
        shape = np.shape(() if weights is None else weights)
        try:
            expected = tuple(get_attribute(env, "reward_space").shape)
        except AttributeError:
            if weights is None:
                raise ValueError(
                    f"VectorReward: {env} has no reward_space, which says how many rewards there "
                    "are: pass weights, one per reward"
                ) from None
            expected = shape
        if len(expected) != 1 or 0 in expected or (weights is not None and shape != expected):
            where = expected if len(expected) == 1 and expected != (0,) else "(k,)"
            raise ValueError(f"VectorReward: expected weights of shape {where}, found {weights!r}")
        inside = self._spaces["info_space"].spaces
        if _KEY in inside:
            raise ValueError(f"VectorReward: {env} has an info {_KEY!r} already: rename it inside")
        self._shape = expected
        self.weights = np.ones(expected) if weights is None else weights
        self.info_space = Dict({**inside, _KEY: Box(-np.inf, np.inf, expected, np.float64)})

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weight of each objective."""
        return self._weights

    @weights.setter
    def weights(self, value: npt.ArrayLike) -> None:
        weights = np.array(value)
        if weights.shape != self._shape or weights.dtype.kind not in "fiub":
            raise ValueError(
                f"VectorReward: expected weights, numbers of shape {self._shape}, found {value!r}"
            )
        self._weights = weights.astype(np.float64)

    def step(self, action: Any) -> Any:
        """Step the environment, and return the weighted sum of its rewards."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        rewards = np.asarray(reward)
        if rewards.shape != self._shape or rewards.dtype.kind not in "fiub":
            raise InvalidRewardError(
                f"the environment returned {show_value(reward)} as its reward: VectorReward "
                f"expected numbers of shape {self._shape}"
            )
        rewards = rewards.astype(np.float64)
        total = float(np.dot(self._weights, rewards))
        return observation, total, terminated, truncated, {**info, _KEY: rewards}
