"""evaluate(tasks=...): one environment after the other in the same workers."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.evaluation.envs import Errand, Poisoned, Raising, Turns, assert_same, errand_policy
from vecspaces import Evaluation, evaluate, make_vec, spaces

EPISODES = 12


class Placed(Errand):
    """An errand whose infos say in which process it is."""

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        return *result, {**info, "pid": os.getpid()}


class Wider(Errand):
    action_space = spaces.Discrete(4)


def alone(env: Any, policy: Any = errand_policy, **arguments: Any) -> Evaluation:
    return evaluate(policy, env, episodes=EPISODES, seed=3, backend="sync", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"backend": "sync"},
        {"num_workers": 2},
        {"num_workers": 2, "num_envs": 3, "vector_kwargs": {"recycle_after": 4}},
        pytest.param(
            {"num_workers": 1, "vector_kwargs": {"context": "spawn"}}, marks=pytest.mark.full
        ),
    ],
)
def test_each_result_is_that_of_the_task_by_itself(arguments: Any) -> None:
    tasks = {str(shortest): partial(Errand, shortest) for shortest in (4, 2, 7)}
    seen: list[tuple[int, int]] = []
    results = evaluate(
        errand_policy,
        tasks=tasks,
        episodes=EPISODES,
        seed=3,
        progress=lambda *counts: seen.append(counts),
        **arguments,
    )
    assert list(results) == list(tasks)
    for name, env in tasks.items():
        assert_same(results[name], alone(env))
        assert results[name].seconds > 0
    assert seen == [(count, 3 * EPISODES) for count in range(3 * EPISODES + 1)]


@pytest.mark.parametrize("names", [("cut", "whole"), ("whole", "cut"), ("cut", "shorter")])
def test_each_task_has_the_wrappers_of_its_own_spec(names: tuple[str, str]) -> None:
    tasks: dict[str, Any] = {"whole": "CartPole-v1"}
    for name, limit in (("cut", 10), ("shorter", 9)):
        cut = partial(gymnasium.wrappers.TimeLimit, max_episode_steps=limit)
        with make_vec("CartPole-v1", wrappers=[cut], backend="sync") as envs:
            tasks[name] = envs.spec
    play = partial(evaluate, "random", episodes=EPISODES, seed=3, backend="sync")
    results = play(tasks={name: tasks[name] for name in names})
    for name in names:
        assert_same(results[name], play(tasks[name]))
    assert results["cut"].lengths.max() == 10


def test_a_policy_with_a_state_begins_anew_with_each_task() -> None:
    tasks = {"short": partial(Errand, 2), "long": partial(Errand, 3)}
    options: Any = {"episodes": EPISODES, "seed": 3, "num_envs": 4, "backend": "sync"}
    results = evaluate(Turns(), tasks=tasks, **options)
    for name, env in tasks.items():
        assert_same(results[name], alone(env, Turns(), num_envs=4))


def test_the_workers_are_not_restarted() -> None:
    results = evaluate(
        errand_policy,
        tasks={name: partial(Placed, n) for n, name in enumerate("abc", 2)},
        episodes=EPISODES,
        num_workers=2,
        num_envs=4,
    )
    pids = [set(result.infos["pid"].tolist()) for result in results.values()]
    assert len(pids[0]) == 2 and pids == [pids[0]] * 3


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_a_worker_that_dies_builds_the_task_that_is_played(tmp_path: Path) -> None:
    expected, lost = alone(Errand), {"first": 5, "second": 7}
    tasks = {
        name: partial(Poisoned, (int(expected.seeds[at]),), "step", tmp_path)
        for name, at in lost.items()
    }
    # Each worker has one environment, so that no other episode is lost.
    options: Any = {"episodes": EPISODES, "seed": 3, "num_workers": 2, "num_envs": 2}
    for name, result in evaluate(errand_policy, tasks=tasks, **options).items():
        assert_same(result, expected)
        assert np.flatnonzero(result.retries).tolist() == [lost[name]]


def test_an_error_names_the_task() -> None:
    play = partial(evaluate, errand_policy, episodes=EPISODES, seed=3, backend="sync")
    bad = int(alone(Errand).seeds[5])
    with pytest.raises(FloatingPointError, match="burst") as caught:
        play(tasks={"well": Errand, "ill": partial(Raising, bad)})
    assert caught.value.__notes__ == [
        f"evaluate was playing episode 5 with seed {bad}",
        "evaluate was playing the task 'ill'",
    ]
    with pytest.raises(RuntimeError, match="Discrete") as differs:
        play(tasks={"well": Errand, "wide": Wider})
    assert differs.value.__notes__[-1] == "evaluate was playing the task 'wide'"
