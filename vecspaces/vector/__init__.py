"""Vector envs: many environments stepped together, as batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecspaces.lazy import importing
from vecspaces.vector import utils
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.engine.ring import Rollout
from vecspaces.vector.exchange.infos import infos_as_list, merge_infos
from vecspaces.vector.exchange.stats import Stats
from vecspaces.vector.send_recv import Transition
from vecspaces.vector.states import VectorState
from vecspaces.vector.sync_vector_env import SyncVectorEnv
from vecspaces.vector.vector_env import VectorEnv
from vecspaces.vector.vector_wrapper import (
    VectorActionWrapper,
    VectorObservationWrapper,
    VectorRewardWrapper,
    VectorWrapper,
)

if TYPE_CHECKING:
    from vecspaces.vector.async_vector_env import AsyncVectorEnv
    from vecspaces.vector.ray_vector_env import RayVectorEnv
    from vecspaces.vector.thread_vector_env import ThreadVectorEnv
else:
    # Users of SyncVectorEnv need neither processes, threads nor actors.
    __getattr__ = importing(
        __name__,
        {
            "AsyncVectorEnv": "vecspaces.vector.async_vector_env",
            "RayVectorEnv": "vecspaces.vector.ray_vector_env",
            "ThreadVectorEnv": "vecspaces.vector.thread_vector_env",
        },
    )

__all__ = [
    "AsyncVectorEnv",
    "AutoresetMode",
    "RayVectorEnv",
    "Rollout",
    "Stats",
    "SyncVectorEnv",
    "ThreadVectorEnv",
    "Transition",
    "VectorActionWrapper",
    "VectorEnv",
    "VectorObservationWrapper",
    "VectorRewardWrapper",
    "VectorState",
    "VectorWrapper",
    "infos_as_list",
    "merge_infos",
    "utils",
]


def __dir__() -> list[str]:
    return __all__
