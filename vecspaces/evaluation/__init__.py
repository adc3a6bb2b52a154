"""Evaluation of a policy: episodes with seeds of their own, whichever environment plays them."""

from vecspaces.evaluation.result import Evaluation
from vecspaces.evaluation.run import evaluate

__all__ = ["Evaluation", "evaluate"]


def __dir__() -> list[str]:
    return __all__
