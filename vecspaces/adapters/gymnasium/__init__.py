"""The adapter to Gymnasium: conversion of spaces, and vector envs with Gymnasium's interface."""

from __future__ import annotations

from vecspaces.interop import require_extra

require_extra("gymnasium", "gymnasium")  # before the modules below need it, with a clear message

from vecspaces.adapters.gymnasium.constructors import (  # noqa: E402
    AsyncVectorEnv,
    SyncVectorEnv,
    make_vec,
)
from vecspaces.adapters.gymnasium.spaces import from_gymnasium, to_gymnasium  # noqa: E402
from vecspaces.adapters.gymnasium.vector_env import (  # noqa: E402
    GymnasiumVectorEnv,
    as_gymnasium,
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
