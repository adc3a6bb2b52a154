"""evaluate in the actors of a cluster: the episodes that one environment plays alone."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.envs import Errand, Poisoned, assert_same, errand_policy
from vecspaces import Evaluation, evaluate
from vecspaces.errors import WorkerDiedError

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


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_actors_that_die_change_nothing_and_an_episode_that_kills_its_actor_is_named(
    expected: Evaluation, cluster: object, tmp_path: Path
) -> None:
    env = partial(Poisoned, tuple(expected.seeds[[0, 12]].tolist()), "step", tmp_path)
    result = play(env, 4)
    assert_same(result, expected)
    assert result.retries[[0, 12]].tolist() == [1, 1]
    seed = int(expected.seeds[5])
    with pytest.raises(WorkerDiedError, match=f"episode 5 with seed {seed} lost its worker 2"):
        play(partial(Poisoned, (seed,), "step"), 1, 1, max_retries=1)
