"""What the tests of evaluation compare with: forty errands, one after the other in one process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluation.envs import Errand, errand_policy, numbered
from vecspaces import Episode, Evaluation, collect, evaluate

ALONE: dict[str, Any] = {
    "episodes": 40, "seed": 3, "options": numbered, "backend": "sync", "num_envs": 1
}  # fmt: skip


@pytest.fixture(scope="session")
def expected() -> Evaluation:
    """The errands as `evaluate` returns them."""
    return evaluate(errand_policy, Errand, **ALONE)


@pytest.fixture(scope="session")
def episodes() -> list[Episode]:
    """The errands as `collect` yields them."""
    return list(collect(errand_policy, Errand, ordered=True, **ALONE))
