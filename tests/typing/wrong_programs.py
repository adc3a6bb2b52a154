"""Programs that a type checker must refuse: those lines end in `# error`, and no other line may fail.

`.ci/types` runs mypy and pyright over this file; it is never imported.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from vecspaces import Env, collect, evaluate, make_vec
from vecspaces.spaces import Box, Discrete
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics


class Walk(Env[int, int]):
    observation_space = Discrete(3)
    action_space = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return action, 0.0, False, False, {}


class Misspelt(Env[int, int]):
    observation_space = 3  # error

    def step(self, action: str) -> tuple[int, float, bool, bool, dict[str, Any]]:  # error
        return 0, 0.0, False, False, {}


class Bare(Env):  # without parameters: of any values
    observation_space = Box(-1, 1, (2,))
    action_space = Discrete(2)


# What infers without an annotation.
envs = AsyncVectorEnv([Walk] * 4)
sync = SyncVectorEnv([Walk, Bare])
made = make_vec("CartPole-v1", 4, num_workers=2, autoreset_mode="SAME_STEP")
made_sync = make_vec(Walk, 4, backend="sync", buffers=3, render_mode="rgb_array")
debugged = make_vec(Walk, 4, backend="sync", num_workers=2, step_timeout=9.0, context="spawn")
of_gymnasium = make_vec("CartPole-v1", autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED)
counted = RecordEpisodeStatistics(made)
rewards: npt.NDArray[np.float64] = made.step(made.action_space.sample())[1]
ended: npt.NDArray[np.bool_] = made.step(made.action_space.sample())[2]
made.send(made.action_space.sample(), [0])
_ = made.recv(1).rewards.sum(), made.rollout_view().observations, made.stats().steps
_ = envs.processes, made_sync.envs, debugged.envs, made_sync.recv().env_ids

# Misspelt names and values.
make_vec("CartPole-v1", 4, backend="asynk")  # error
make_vec("CartPole-v1", 4, num_worker=2)  # error
make_vec("CartPole-v1", 4, backend="sync", num_worker=2)  # error
make_vec("CartPole-v1", "4")  # error
make_vec("CartPole-v1", 4, autoreset_mode="SameStepp")  # error
make_vec("CartPole-v1", 4, on_worker_death="restrat")  # error
make_vec("CartPole-v1", 4, context="forks")  # error
make_vec("CartPole-v1", 4, observation_mode="equal")  # error
AsyncVectorEnv([Walk] * 4, num_worker=2)  # error
AsyncVectorEnv([Walk()] * 4)  # error
AsyncVectorEnv([Walk] * 4, autoreset_mode="Never")  # error
SyncVectorEnv([Walk] * 4, num_workers=2)  # error
evaluate("random", "CartPole-v1", episodes=1, backend="asynk")  # error
evaluate("random", "CartPole-v1", episodes="1")  # error
collect("random", "CartPole-v1", episodes=1, backend="asynk")  # error
collect("random", "CartPole-v1", episodes=1, num_env=3)  # error
next(collect("random", "CartPole-v1", episodes=1)).reward  # error

# Results that are used as what they are not.
words: npt.NDArray[np.str_] = made.step(made.action_space.sample())[1]  # error
made_sync.processes  # error
made.envs  # error
made.rolloutview()  # error
AutoresetMode.SAMESTEP  # error
Box(0, 1, (2,), seed="1")  # error
