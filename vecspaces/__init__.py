"""Vectorised reinforcement-learning environments in worker processes, through shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vecspaces.lazy import importing

if TYPE_CHECKING:
    from vecspaces import envs, errors, spaces, vector, wrappers
    from vecspaces.env import Env
    from vecspaces.evaluation import Episode, Evaluation, collect, evaluate
    from vecspaces.make import make_vec
    from vecspaces.sampling import sample_actions
    from vecspaces.spaces import Space
else:
    # A program pays only for what it uses: everything together takes as long as NumPy.
    __getattr__ = importing(
        __name__,
        {
            **dict.fromkeys(("envs", "errors", "spaces", "vector", "wrappers"), ""),
            **dict.fromkeys(
                ("Episode", "Evaluation", "collect", "evaluate"), "vecspaces.evaluation"
            ),
            "Env": "vecspaces.env",
            "Space": "vecspaces.spaces",
            "make_vec": "vecspaces.make",
            "sample_actions": "vecspaces.sampling",
        },
    )

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
