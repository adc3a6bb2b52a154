"""Environments made of environments: chunks of actions, tasks, several objectives."""

from vecspaces.envs.action_chunks import ActionChunks
from vecspaces.envs.tasks import Tasks
from vecspaces.envs.vector_reward import VectorReward

__all__ = ["ActionChunks", "Tasks", "VectorReward"]


def __dir__() -> list[str]:
    return __all__
