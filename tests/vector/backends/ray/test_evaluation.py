"""evaluate in the actors of a cluster: the episodes that one environment plays alone."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.evaluation.envs import Errand, Poisoned, assert_same, errand_policy
from vecspaces import Evaluation, evaluate
from vecspaces.errors import WorkerDiedError

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture(scope="module")
def expected() -> Evaluation:
    return evaluate(errand_policy, Errand, episodes=20, seed=3, backend="sync")


@pytest.mark.usefixtures("lent_actors")
@pytest.mark.parametrize("num_envs", [2, 7])
def test_the_result_is_that_of_one_process(expected: Evaluation, num_envs: int) -> None:
    result = evaluate(
        errand_policy,
        Errand,
        episodes=20,
        seed=3,
        backend="ray",
        num_workers=2,
        num_envs=num_envs,
    )
    assert_same(result, expected)


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_actors_that_die_change_nothing(
    expected: Evaluation, cluster: object, tmp_path: Path
) -> None:
    env = partial(Poisoned, tuple(expected.seeds[[0, 12]].tolist()), "step", tmp_path)
    result = evaluate(
        errand_policy,
        env,
        episodes=20,
        seed=3,
        backend="ray",
        num_workers=2,
        num_envs=4,
    )
    assert_same(result, expected)
    assert result.retries[0] == 1
    assert result.retries[12] == 1


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_an_episode_that_kills_its_actor_is_named(expected: Evaluation, cluster: object) -> None:
    seed = int(expected.seeds[5])
    with pytest.raises(WorkerDiedError, match=f"episode 5 with seed {seed} lost its worker 2"):
        evaluate(
            errand_policy,
            partial(Poisoned, (seed,), "step"),
            episodes=20,
            seed=3,
            backend="ray",
            num_workers=1,
            num_envs=1,
            max_retries=1,
        )
