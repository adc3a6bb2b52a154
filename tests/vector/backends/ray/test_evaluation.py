"""evaluate in the actors of a cluster: the episodes that one environment plays alone."""

from __future__ import annotations

from functools import partial

import pytest

from tests.evaluation.envs import Errand, assert_same, errand_policy
from vecspaces import evaluate

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.mark.usefixtures("lent_actors")
@pytest.mark.parametrize("num_envs", [2, 7])
def test_the_result_is_that_of_one_process(num_envs: int) -> None:
    play = partial(evaluate, errand_policy, Errand, episodes=20, seed=3)
    assert_same(play(backend="ray", num_workers=2, num_envs=num_envs), play(backend="sync"))
