"""evaluate in the actors of a cluster: the episodes that one environment plays alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evaluation.envs import Errand, assert_same, errand_policy
from vecspaces import Evaluation, evaluate

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture(scope="module")
def expected() -> Evaluation:
    return evaluate(errand_policy, Errand, episodes=20, seed=3, backend="sync")


def play(env: object, num_envs: int, num_workers: int = 2, **arguments: Any) -> Evaluation:
    """Evaluate in actors, 20 episodes as those of `expected`."""
    return evaluate(
        errand_policy,
        env,  # type: ignore[arg-type]  # one of the factories below
        episodes=20,
        seed=3,
        backend="ray",
        num_workers=num_workers,
        num_envs=num_envs,
        **arguments,
    )


@pytest.mark.usefixtures("lent_actors")
@pytest.mark.parametrize("num_envs", [2, 7])
def test_the_result_is_that_of_one_process(expected: Evaluation, num_envs: int) -> None:
    assert_same(play(Errand, num_envs), expected)
