"""`evaluate`: the returns of a policy in seeded episodes, and their statistics."""

from vecspaces.evaluation.result import Evaluation
from vecspaces.evaluation.run import evaluate

__all__ = ["Evaluation", "evaluate"]


def __dir__() -> list[str]:
    return __all__
