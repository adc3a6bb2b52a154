"""Few workers over words, as many are: the threshold is one worker while a vector env is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import words


def over_words(make: Callable[..., Any], least: int = 1) -> Callable[..., Any]:
    """Return `make`, for vector envs of which so few workers use words."""

    def made(*args: Any, **arguments: Any) -> Any:
        with mock.patch.object(words, "LEAST_WORKERS", least):
            return make(*args, **arguments)

    return made


over_pipes = partial(over_words, least=10**9)


def backend_of(envs: AsyncVectorEnv[Any, Any]) -> Any:
    """Return the backend of a vector env, to look at its words."""
    return envs._backend
