"""Vectorised reinforcement-learning environments in worker processes, through shared memory."""

from __future__ import annotations

from vecspaces import envs, errors, spaces, vector, wrappers
from vecspaces.env import Env
from vecspaces.evaluation import Episode, Evaluation, collect, evaluate
from vecspaces.make import make_vec
from vecspaces.sampling import sample_actions
from vecspaces.spaces import Space

__version__ = "0.4.0"

__all__ = [
    "Env",
    "Episode",
    "Evaluation",
    "Space",
    "__version__",
    "collect",
    "envs",
    "errors",
    "evaluate",
    "make_vec",
    "sample_actions",
    "spaces",
    "vector",
    "wrappers",
]


def __dir__() -> list[str]:
    return __all__
