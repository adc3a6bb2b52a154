"""Environments made of environments in actors: the same chunks and tasks as in one process."""

from __future__ import annotations

import pytest

from tests.environments.test_action_chunks import assert_equals_single_steps
from tests.environments.test_tasks import EPISODES, errands, task_of
from tests.evaluation.envs import assert_same, errand_policy
from vecspaces import evaluate
from vecspaces.vector import AutoresetMode

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.mark.usefixtures("lent_actors")
@pytest.mark.parametrize("mode", AutoresetMode)
def test_chunks_equal_single_steps(mode: AutoresetMode) -> None:
    assert_equals_single_steps(mode, backend="ray", num_workers=2)


@pytest.mark.usefixtures("lent_actors")
def test_evaluate_plays_tasks_as_in_one_process() -> None:
    results = [
        evaluate(errand_policy, errands, episodes=EPISODES, seed=3, options=task_of, **way)
        for way in ({"backend": "sync"}, {"backend": "ray", "num_workers": 2, "num_envs": 5})
    ]
    assert_same(results[1], results[0])
