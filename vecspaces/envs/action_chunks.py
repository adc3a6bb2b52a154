"""ActionChunks: an environment whose action is a chunk of k actions."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from vecspaces.checks import check_count
from vecspaces.envs.env_wrapper import EnvWrapper
from vecspaces.interop import foreign_space
from vecspaces.layout import Layout
from vecspaces.spaces import Box, Dict
from vecspaces.spaces.array_space import ArraySpace
from vecspaces.vector.group.form import InvalidResult, as_reward
from vecspaces.vector.utils import batch_space, iterate


class ActionChunks(EnvWrapper):
    """Takes up to k actions in one step, without observing in between.

    A step ends early if the episode does, so no action is taken that was planned for another
    episode. Its observation, flags and info are those of the last action that was taken, and its
    reward is the sum of their rewards. The info also has the keys `"rewards"`, a float64 array of
    shape `(k,)` with 0 for actions that were not taken, and `"steps"`, the number of those that
    were; an `info_space` declares both. `reset` returns what the environment returns.

    Wrappers inside count steps, and wrappers outside count chunks; so do `evaluate` and `stats()`.

    Args:
        env: The environment; its infos must not have the keys `"rewards"` and `"steps"`.
        k: The number of actions in a chunk.

    Attributes:
        action_space: `batch_space(env.action_space, k)`.
        info_space: The keys of the environment's `info_space`, and the two above.

    Raises:
        ValueError: The environment declares infos with one of the keys above.

    Example:
        >>> import gymnasium
        >>> import numpy as np
        >>> with ActionChunks(gymnasium.make("Pendulum-v1"), 4) as env:
        ...     observation, info = env.reset(seed=0)
        ...     *_, info = env.step(np.zeros((4, 1), np.float32))
        >>> info["steps"], info["rewards"].round(1).tolist()
        (4, [-0.8, -0.8, -0.9, -1.1])
    """

    def __init__(self, env: Any, k: int) -> None:
        super().__init__(env)
        self.k = check_count("k", k)
        chunk = batch_space(self._spaces["action_space"], self.k)
        self.action_space = foreign_space(env.action_space, chunk)
        layout = Layout.compile(chunk, 0)
        if layout.fixed and not layout.leaves:  # such as an empty Dict
            self._split: Any = partial(repeat, times=self.k)
        else:  # rows of an array need no look-up
            self._split = iter if isinstance(chunk, ArraySpace) else partial(iterate, chunk)
        declared = Dict(
            rewards=Box(-np.inf, np.inf, (self.k,), np.float64), steps=Box(1, self.k, (), np.int64)
        )
        inside = self._spaces["info_space"].spaces
        _refuse_keys(inside, "info_space")
        self.info_space = Dict({**inside, **declared.spaces})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode of the environment; return its first observation and its info."""
        observation, info = super().reset(seed=seed, options=options)
        if info:
            _refuse_keys(info, "info")
        return observation, info

    def step(self, action: Any) -> Any:
        """Take the actions of a chunk, until the episode ends."""
        step, k = self.env.step, self.k
        rewards: list[float] = []
        total = 0.0
        for single in self._split(action):
            observation, reward, terminated, truncated, info = step(single)
            if type(reward) is not float:
                reward = _as_float(reward)
            rewards.append(reward)
            # Not Python's `sum`, which is more exact than a loop from 3.12 on.
            total += reward
            if terminated or truncated:
                break
        else:
            if len(rewards) != k:
                raise ValueError(f"action: expected a chunk of {k} actions, found {len(rewards)}")
        steps = len(rewards)
        if steps != k:
            rewards += [0.0] * (k - steps)
        if info:
            _refuse_keys(info, "info")
        info = {**info, "rewards": np.array(rewards), "steps": steps}
        return observation, total, terminated, truncated, info


def _as_float(reward: Any) -> float:
    """Convert a reward as vector envs do; the error is that of a single step."""
    try:
        return as_reward(reward)
    except InvalidResult as error:
        raise error.kind(f"the environment{error.text}") from None


def _refuse_keys(infos: Any, place: str) -> None:
    if "rewards" in infos or "steps" in infos:
        raise ValueError(
            f"ActionChunks: the environment's {place} has the key 'rewards' or 'steps', under "
            "which chunks report: rename it in a wrapper inside"
        )
