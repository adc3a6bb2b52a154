"""make_vec: every way to name environments, and what it refuses."""

from __future__ import annotations

import inspect
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Ledger
from vecspaces import make, make_vec
from vecspaces.make import find_factory
from vecspaces.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    RayVectorEnv,
    SyncVectorEnv,
    ThreadVectorEnv,
)

BACKENDS = ["sync", "async", "thread"]


class Settings(Ledger):
    """Takes any argument, also of the names of a vector env's."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings


def limit_to_two_steps(env: Any) -> Any:
    return gymnasium.wrappers.TimeLimit(env, max_episode_steps=2)


def test_a_factory_may_have_any_name_and_a_list_makes_one_environment_of_each_entry() -> None:
    named = "tests.envs:Ledger"
    assert find_factory("tests:envs.Ledger") is Ledger
    for env in (named, Ledger, lambda number=0: Ledger(number)):
        with make_vec(env, 2, backend="sync", number=7) as envs:
            assert envs.get_attr("number") == (7, 7)
    for num_envs in (1, 3):
        env_fns = [named, partial(Ledger, 5), partial(Ledger, 7)]
        with make_vec(env_fns, num_envs, backend="sync") as envs:
            assert envs.get_attr("number") == (0, 5, 7)


def test_wrappers_are_applied_first_one_innermost() -> None:
    def tracing(letter: str, env: Any) -> Any:
        env.trace = [*getattr(env, "trace", ""), letter]
        return env

    around = [partial(tracing, "a"), partial(tracing, "b")]
    with make_vec(Ledger, backend="sync", wrappers=around) as envs:
        assert envs.get_attr("trace") == (["a", "b"],)


def test_the_callers_arguments_are_left_alone() -> None:
    vector_kwargs: dict[str, Any] = {}
    spec = gymnasium.spec("CartPole-v1")
    before = repr(spec)
    with make_vec(spec, 2, backend="sync", vector_kwargs=vector_kwargs, render_mode=None):
        assert vector_kwargs == {}
        assert repr(spec) == before == repr(gymnasium.spec("CartPole-v1"))


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_an_id_registered_here_runs_in_a_worker_that_does_not_know_it(
    context: str, registrations: dict[str, Any]
) -> None:
    offset = 11

    class Registered(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Discrete(100)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return offset, {}

    gymnasium.register("Registered-v0", Registered)
    with make_vec("Registered-v0", vector_kwargs={"context": context}) as envs:
        assert envs.reset()[0].tolist() == [offset]


def test_a_module_is_imported_for_the_id_that_it_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registrations: dict[str, Any]
) -> None:
    (tmp_path / "registers.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Late-v2', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    latest = {
        "registers:Late-v2": "Late-v2",
        "registers:Late": "Late-v2",
        "CartPole": "CartPole-v1",
    }
    for name, completed in latest.items():
        with make_vec(name, 2, backend="sync") as envs:
            assert envs.spec is not None and envs.spec.id == completed


def test_the_spec_is_what_gymnasium_would_say() -> None:
    arguments = {"max_episode_steps": 9, "wrappers": [limit_to_two_steps]}
    theirs = gymnasium.make_vec("CartPole-v1", 3, "sync", **arguments)
    with closing(theirs), make_vec("CartPole-v1", 3, backend="sync", **arguments) as ours:
        assert ours.spec == theirs.spec


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_spec_makes_the_same_again(backend: str) -> None:
    made = make_vec(
        "CartPole-v1",
        3,
        backend=backend,
        wrappers=[limit_to_two_steps],
        vector_kwargs={"autoreset_mode": "SameStep"},
        sutton_barto_reward=True,
        max_episode_steps=4,
        disable_env_checker=True,
    )
    with made, make_vec(made.spec) as again:
        assert type(again) is type(made)
        assert again.spec == made.spec
        assert_identical(again.reset(seed=1), made.reset(seed=1))
        for _ in range(5):
            actions = np.zeros(3, np.int64)
            assert_identical(again.step(actions), made.step(actions))


def test_arguments_of_the_vector_env_are_taken_directly() -> None:
    with make_vec(Ledger) as default:
        assert type(default) is AsyncVectorEnv
        assert default.num_envs == 1
    with make_vec(
        "CartPole-v1",
        2,
        num_workers=2,
        autoreset_mode="SAME_STEP",
        copy=True,
        vector_kwargs={"copy": False},
    ) as envs:
        assert envs.autoreset_mode is AutoresetMode.SAME_STEP
        assert (envs.num_workers, envs.copy) == (2, False)
        with make_vec(envs.spec) as again:
            assert (again.num_workers, again.copy) == (2, False)


@pytest.mark.parametrize(
    "vector_env", [SyncVectorEnv, AsyncVectorEnv, RayVectorEnv, ThreadVectorEnv]
)
def test_make_vec_passes_every_argument_of_a_constructor_on(
    vector_env: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    signature = inspect.signature(vector_env)

    def record(env_fns: Any, **arguments: Any) -> None:
        made.append(arguments)

    vars(record)["__signature__"] = signature
    monkeypatch.setitem(make._BACKENDS, "recorded", record)
    arguments = {name: object() for name in signature.parameters if name != "env_fns"}
    arguments["autoreset_mode"] = "SameStep"
    make.make_vec(Ledger, backend="recorded", **arguments)
    make.make_vec(Ledger, backend="recorded", vector_kwargs=arguments)
    assert made == [arguments, arguments]


def test_arguments_of_processes_have_no_effect_in_one_process() -> None:
    assert {"num_workers", "context", "step_timeout"} <= make.PROCESS_ARGUMENTS
    ignored: dict[str, Any] = dict.fromkeys(sorted(make.PROCESS_ARGUMENTS), 1)
    with make_vec(Settings, 2, backend="sync", note="kept", buffers=2, **ignored) as envs:
        assert envs.get_attr("settings") == ({"note": "kept"},) * 2
    for arguments in (ignored, {"vector_kwargs": ignored}):
        with make_vec("CartPole-v1", 2, backend="sync", **arguments) as envs:
            assert "vector_kwargs" not in envs.spec.kwargs
            with make_vec(envs.spec) as again:
                assert again.reset(seed=1)[0].shape == (2, 4)


def test_env_kwargs_reach_the_environment_whatever_their_names() -> None:
    arguments = {"copy": "yes", "start": 5}
    with make_vec(Settings, 2, backend="sync", copy=False, start=4, env_kwargs=arguments) as envs:
        assert envs.copy is False
        assert envs.get_attr("settings") == (arguments,) * 2
