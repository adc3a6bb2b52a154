"""Environments of `vecspaces.envs` around a `gymnasium.Env`, which Gymnasium's wrappers accept."""

from __future__ import annotations

import gymnasium

from vecspaces import envs


class ActionChunks(envs.ActionChunks, gymnasium.Env):  # type: ignore[misc]
    """`vecspaces.envs.ActionChunks` as a `gymnasium.Env`."""


class Tasks(envs.Tasks, gymnasium.Env):  # type: ignore[misc]
    """`vecspaces.envs.Tasks` as a `gymnasium.Env`."""


class VectorReward(envs.VectorReward, gymnasium.Env):  # type: ignore[misc]
    """`vecspaces.envs.VectorReward` as a `gymnasium.Env`."""


#: The class that is a `gymnasium.Env`, for each class that is not.
KINDS: dict[type, type] = {
    envs.ActionChunks: ActionChunks,
    envs.Tasks: Tasks,
    envs.VectorReward: VectorReward,
}
