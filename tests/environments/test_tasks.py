"""Tasks: when environments are built and closed, with which seeds, and what a failure leaves."""

from __future__ import annotations

import copy
import os
import sys
import weakref
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.envs import Ledger
from tests.evaluation.envs import Errand, errand_policy, seeds_of
from vecspaces import evaluate, make_vec, spaces
from vecspaces.envs import ActionChunks, Tasks
from vecspaces.errors import ResetNeededError
from vecspaces.testing import check_env

posix = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")


def ledgers(**arguments: Any) -> Tasks:
    """Tasks "0", "1" and "2" of ledgers of these numbers."""
    return Tasks({str(number): partial(Ledger, number, **arguments) for number in range(3)})


def test_a_reset_that_names_another_task_builds_it_and_no_other_does() -> None:
    env = ledgers()
    first = env.unwrapped
    assert (env.task, env.tasks) == ("0", ("0", "1", "2"))
    for options in (None, {"time": 1}, {"task": "0"}, {"task": "0", "time": 2}):
        env.reset(options=options)
    assert env.unwrapped is first
    # The environment never sees the name, and with nothing else no options.
    assert first.options == [None, {"time": 1}, None, {"time": 2}]
    reset_options = {"task": "2", "time": 1}
    observation, _ = env.reset(seed=5, options=reset_options)
    assert observation[:3].tolist() == [2, 1, 1] and reset_options == {"task": "2", "time": 1}
    assert first.closed and env.unwrapped is not first
    for _ in range(2):
        assert env.reset()[0][0] == 2 and env.task == "2"
    assert env.step(1)[0][0] == 2


def test_the_former_environment_is_gone_before_the_next_is_built() -> None:
    alive: list[weakref.ref[Any]] = []

    class Heavy(Ledger):
        def __init__(self) -> None:
            super().__init__()
            assert all(env() is None for env in alive)
            self.itself = self  # only a collection frees it
            alive.append(weakref.ref(self))

    with make_vec(lambda: Tasks({"a": Heavy, "b": Heavy}), backend="sync") as envs:
        for task in "abab":
            envs.reset(options={"task": task})
            envs.step([1])
    assert len(alive) == 4


def test_seeds_of_new_environments_are_derived() -> None:
    def noises(seed: int | None) -> list[int]:
        env = ledgers()
        env.reset(seed=seed)
        numbers = [env.reset(options={"task": task})[0][4] for task in "121"]
        assert env.np_random is env.unwrapped.np_random
        return numbers

    assert noises(1) == noises(1) != noises(2)
    assert len(set(noises(1))) == 3
    assert noises(None) != noises(None)
    env = ledgers()
    env.reset(seed=7, options={"task": "1"})
    assert env.np_random_seed == 7 and env.unwrapped.seeds == [7]
    env.reset()
    assert env.unwrapped.seeds == [7, None]


def test_an_unknown_task_changes_nothing() -> None:
    env = ledgers()
    env.reset(options={"task": "1"})
    for task in ("3", 1, None, ["1"]):
        with pytest.raises(ValueError, match=r"options\['task'\]: expected one of '0', '1', '2'"):
            env.reset(options={"task": task})
    assert env.task == "1" and env.reset()[0][1] == 2 and not env.unwrapped.closed


def test_a_failing_factory_is_called_again_by_the_next_reset() -> None:
    errors = [OSError("no port"), None, OSError("no port"), None]

    def make() -> Any:
        error = errors.pop(0)
        if error is not None:
            raise error
        return Ledger(1)

    env = Tasks({"0": Ledger, "1": make})
    for then in ({}, {"options": {"task": "1"}}):
        env.reset(options={"task": "0"})
        with pytest.raises(OSError, match="no port"):
            env.reset(options={"task": "1"})
        assert env.task is None
        for use in (env.render, lambda: env.step(0), lambda: env.np_random):
            with pytest.raises(ResetNeededError, match="the task '1' has no environment"):
                use()
        env.close()
        copy.deepcopy(env).close()
        assert env.reset(**then)[0][0] == 1 and env.task == "1"
    assert env.reset(options={"task": "0"})[0][0] == 0 and errors == []


class Unclosed(Ledger):
    def close(self) -> None:
        raise OSError("stuck")


def test_an_error_in_close_is_raised_and_leaves_no_task() -> None:
    env = Tasks({"0": Unclosed, "1": Ledger})
    with pytest.raises(OSError, match="stuck"):
        env.reset(options={"task": "1"})
    assert env.task is None
    env.reset()
    assert env.task == "1"


class Other(Ledger):
    """A ledger with another space."""

    def __init__(self, name: str, space: Any) -> None:
        super().__init__()
        setattr(self, name, space)


@pytest.mark.parametrize(
    ("name", "space", "words"),
    [
        ("action_space", spaces.Discrete(6), "n 5, found 6"),
        ("observation_space", spaces.Box(0, 1, (5,), np.int64), "low"),
        ("info_space", spaces.Dict(cost=spaces.Discrete(2)), "'cost'"),
    ],
)
def test_other_spaces_are_an_error_with_the_difference(name: str, space: Any, words: str) -> None:
    made: list[Other] = []

    def make() -> Other:
        made.append(Other(name, space))
        return made[-1]

    env = Tasks({"0": Ledger, "1": make})
    for _ in range(2):
        with pytest.raises(ValueError, match=f"the {name} of '1' is not that of '0': .*{words}"):
            env.reset(options={"task": "1"})
        assert made[-1].closed and env.task is None
    env.reset(options={"task": "0"})
    assert len(made) == 2


def test_wrong_factories_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        Tasks({})
    for env_fns in ([Ledger], {"a": "CartPole-v1"}):
        with pytest.raises(TypeError, match="a dict of functions"):
            Tasks(env_fns)  # type: ignore[arg-type]


def test_wrappers_of_gymnasium_and_chunks_go_around_tasks(in_process: None) -> None:
    env_fns = {n: partial(gymnasium.make, "CartPole-v1", max_episode_steps=n) for n in (9, 3)}
    tasks = Tasks(env_fns)
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.OrderEnforcing(tasks))
    env.reset(seed=1, options={"task": 3})
    assert env.get_wrapper_attr("task") == env.spec.max_episode_steps == 3
    assert env.unwrapped is tasks.env.unwrapped
    chunked = ActionChunks(env, 5)
    assert chunked.step([0, 1, 0, 1, 0])[4]["episode"]["l"] == 3
    check_env(partial(Tasks, env_fns)).raise_for_findings("warning")


def test_each_environment_of_a_vector_env_has_its_task() -> None:
    tasks = [{"task": task} for task in ("1", "0", "2")]
    with make_vec(partial(ledgers, length=2), 3, num_workers=2, autoreset_mode="SameStep") as envs:
        observations, _ = envs.reset(seed=0, options=tasks)
        for _ in range(5):  # autoresets keep the tasks
            assert observations[:, 0].tolist() == [1, 0, 2]
            assert envs.get_attr("task") == ("1", "0", "2")
            observations, *_ = envs.step([1, 1, 1])
        mask = np.array([False, True, False])
        observations, _ = envs.reset(options={"reset_mask": mask, "task": "2"})
        assert observations[:, 0].tolist() == [1, 2, 2]


class Mortal(Ledger):
    def step(self, action: Any) -> Any:
        if action == 4:
            os._exit(3)
        return super().step(action)


@posix
def test_after_a_death_the_task_is_the_first_until_a_reset_names_another() -> None:
    env_fn = partial(Tasks, {number: partial(Mortal, number) for number in range(3)})
    options: Any = {"on_worker_death": "restart", "context": "fork"}
    with make_vec(env_fn, 2, num_workers=2, vector_kwargs=options) as envs:
        envs.reset(seed=0, options={"task": 2})
        assert envs.step([1, 4])[3].tolist() == [False, True]
        assert envs.step([1, 1])[0][:, 0].tolist() == [2, 0]
        assert envs.reset(options={"task": 1})[0][:, 0].tolist() == [1, 1]


TASKS = {"short": 2, "long": 7, "middle": 4}
EPISODES = 12


def errands() -> Tasks:
    """Tasks whose errands differ in their shortest length."""
    return Tasks({name: partial(Errand, shortest) for name, shortest in TASKS.items()})


def task_of(k: int) -> dict[str, str]:
    return {"task": list(TASKS)[k % 3]}


def test_evaluate_plays_each_episode_as_if_its_task_were_alone() -> None:
    way: Any = {"num_workers": 2, "num_envs": 5}
    mixed = evaluate(errand_policy, errands, episodes=EPISODES, seed=3, options=task_of, **way)
    for k, seed in enumerate(seeds_of(3, EPISODES)):
        errand = partial(Errand, TASKS[task_of(k)["task"]])
        alone = evaluate(errand_policy, errand, episodes=1, seed=[seed], backend="sync")
        assert (alone.returns[0], alone.lengths[0]) == (mixed.returns[k], mixed.lengths[k])
