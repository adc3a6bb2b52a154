"""The adapter to Gymnasium: conversion of spaces, and vector envs with Gymnasium's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecspaces.interop import require_extra
from vecspaces.lazy import importing

require_extra("gymnasium", "gymnasium")  # before the modules below need it, with a clear message

if TYPE_CHECKING:
    from vecspaces.adapters.gymnasium.constructors import AsyncVectorEnv, SyncVectorEnv, make_vec
    from vecspaces.adapters.gymnasium.spaces import from_gymnasium, to_gymnasium
    from vecspaces.adapters.gymnasium.vector_env import GymnasiumVectorEnv, as_gymnasium
else:
    # Workers convert spaces, and need no vector env: the imports take 15 ms in each.
    __getattr__ = importing(
        __name__,
        {
            **dict.fromkeys(
                ("AsyncVectorEnv", "SyncVectorEnv", "make_vec"), f"{__name__}.constructors"
            ),
            **dict.fromkeys(("from_gymnasium", "to_gymnasium"), f"{__name__}.spaces"),
            **dict.fromkeys(("GymnasiumVectorEnv", "as_gymnasium"), f"{__name__}.vector_env"),
        },
    )

__all__ = [
    "AsyncVectorEnv",
    "GymnasiumVectorEnv",
    "SyncVectorEnv",
    "as_gymnasium",
    "from_gymnasium",
    "make_vec",
    "to_gymnasium",
]


def __dir__() -> list[str]:
    return __all__
