"""`evaluate`: the returns of a policy in seeded episodes; `collect`: the episodes."""

from vecspaces.evaluation.collecting import collect
from vecspaces.evaluation.result import Evaluation
from vecspaces.evaluation.run import evaluate
from vecspaces.evaluation.tracks import Episode

__all__ = ["Episode", "Evaluation", "collect", "evaluate"]


def __dir__() -> list[str]:
    return __all__
