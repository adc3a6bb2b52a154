"""Environments made of environments: chunks of actions, and several tasks."""

from vecspaces.envs.action_chunks import ActionChunks
from vecspaces.envs.tasks import Tasks

__all__ = ["ActionChunks", "Tasks"]


def __dir__() -> list[str]:
    return __all__
