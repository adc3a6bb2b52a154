"""What the tests of evaluation compare with."""

from __future__ import annotations

import pytest

from tests.evaluation.envs import Errand, errand_policy
from vecspaces import Evaluation, evaluate


@pytest.fixture(scope="session")
def expected() -> Evaluation:
    """Forty errands, one after the other in one environment."""
    return evaluate(errand_policy, Errand, episodes=40, seed=3, backend="sync", num_envs=1)
