"""The face of every vector env, for simulators of one's own, and the wrappers around it."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Drift, ledgers
from vecspaces import spaces
from vecspaces.errors import VecspacesError
from vecspaces.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorActionWrapper,
    VectorEnv,
    VectorObservationWrapper,
    VectorRewardWrapper,
    VectorWrapper,
)

PAIRS = [
    (VectorEnv, gymnasium.vector.VectorEnv),
    (VectorWrapper, gymnasium.vector.VectorWrapper),
    (VectorObservationWrapper, gymnasium.vector.VectorObservationWrapper),
    (VectorActionWrapper, gymnasium.vector.VectorActionWrapper),
    (VectorRewardWrapper, gymnasium.vector.VectorRewardWrapper),
    (SyncVectorEnv, gymnasium.vector.SyncVectorEnv),
    (AsyncVectorEnv, gymnasium.vector.AsyncVectorEnv),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_public_members_are_gymnasiums_and_more(ours: type, theirs: type) -> None:
    wanted = {name for name in dir(theirs) if not name.startswith("_")}
    assert wanted <= set(dir(ours)), wanted - set(dir(ours))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_arguments_come_in_gymnasiums_order_with_its_defaults(ours: type, theirs: type) -> None:
    for name in ("__init__", "reset", "step", "step_async", "step_wait", "reset_async", "call"):
        if not hasattr(theirs, name):
            continue
        found = list(inspect.signature(getattr(ours, name)).parameters.values())
        named = {parameter.name: parameter for parameter in found}
        expected = list(inspect.signature(getattr(theirs, name)).parameters.values())
        for place, parameter in enumerate(expected):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            assert parameter.name in named, f"{name}: {parameter.name}"
            if parameter.kind is not parameter.KEYWORD_ONLY:
                assert found[place].name == parameter.name, name
            default = named[parameter.name].default
            assert getattr(default, "value", default) == getattr(
                parameter.default, "value", parameter.default
            ), f"{name}({parameter.name})"


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_classes_are_generic_over_as_many_types(ours: type, theirs: type) -> None:
    # Sync and Async fix the type of arrays in both libraries.
    assert len(ours.__parameters__) == len(theirs.__parameters__)  # type: ignore[attr-defined]


# --- a vector env of one's own ----------------------------------------------------------------


def test_reset_of_the_base_seeds_the_generator() -> None:
    envs = Drift(2)
    first, _ = envs.reset(seed=np.int64(3))
    assert envs.np_random_seed == 3
    theirs = gymnasium.utils.seeding.np_random(3)[0]
    assert_identical(first, theirs.random((2, 2)))
    second, _ = envs.reset()
    assert_identical(second, theirs.random((2, 2)))


def test_a_generator_is_made_when_it_is_asked_for() -> None:
    envs = Drift(1)
    seed = envs.np_random_seed
    assert isinstance(seed, int) and seed >= 0
    assert isinstance(envs.np_random, np.random.Generator)
    assert envs.np_random is envs.np_random
    envs.np_random = np.random.default_rng(1)
    assert envs.np_random_seed == -1


def test_seeds_that_are_no_int_are_refused() -> None:
    for seed in ([1, 2], 1.5, "1", -1):
        with pytest.raises(VecspacesError, match="seed"):
            Drift(2).reset(seed=seed)


def test_what_is_not_defined_says_so() -> None:
    class Empty(VectorEnv[Any, Any, Any]):
        num_envs = 1

    envs = Empty()
    for use in (lambda: envs.step(0), envs.render):
        with pytest.raises(NotImplementedError, match="Empty"):
            use()
    assert envs.unwrapped is envs
    assert envs.spec is None and envs.render_mode is None and envs.closed is False
    assert envs.metadata == {}


def test_close_frees_once_and_with_its_arguments() -> None:
    class Door(Drift):
        def close_extras(self, **arguments: Any) -> None:
            super().close_extras()
            self.arguments = arguments

    envs = Door(2)
    envs.close(timeout=3)
    envs.close()
    assert (envs.closes, envs.arguments, envs.closed) == (1, {"timeout": 3}, True)


def test_a_close_that_raises_closes() -> None:
    class Stuck(Drift):
        def close_extras(self, **arguments: Any) -> None:
            super().close_extras()
            raise OSError("stuck")

    envs = Stuck(1)
    with pytest.raises(OSError, match="stuck"):
        envs.close()
    envs.close()
    assert envs.closed and envs.closes == 1


def test_the_context_manager_closes_whatever_happens() -> None:
    envs = Drift(1)
    with pytest.raises(KeyError), envs as same:
        assert same is envs
        raise KeyError
    assert envs.closed


def test_repr_tells_the_spec() -> None:
    envs = Drift(3)
    assert repr(envs) == "Drift(num_envs=3)"
    envs.spec = gymnasium.spec("CartPole-v1")
    assert repr(envs) == "Drift(CartPole-v1, num_envs=3)"


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_modes_are_understood_in_any_form(mode: AutoresetMode) -> None:
    theirs = gymnasium.vector.AutoresetMode(mode.value)
    assert mode.name == theirs.name
    for form in (mode, mode.value, theirs):
        assert AutoresetMode.of(form) is mode


# --- wrappers ---------------------------------------------------------------------------------


class Halved(VectorObservationWrapper[Any, Any, Any, Any]):
    def observations(self, observations: Any) -> Any:
        return observations / 2


class Shifted(VectorActionWrapper[Any, Any, Any, Any]):
    def actions(self, actions: Any) -> Any:
        return (actions + 1) % 5


class Negative(VectorRewardWrapper[Any, Any, Any]):
    def rewards(self, rewards: Any) -> Any:
        return -rewards


def test_a_wrapper_passes_everything_on() -> None:
    with VectorWrapper(AsyncVectorEnv(ledgers(3), num_workers=2, stats=True)) as envs:
        inner = envs.env
        assert envs.unwrapped is inner
        assert (envs.num_envs, envs.spec, envs.render_mode) == (3, None, None)
        for name in ("observation_space", "action_space", "metadata"):
            assert getattr(envs, name) is getattr(inner, name)
        assert envs.single_observation_space is inner.single_observation_space
        assert envs.single_action_space is inner.single_action_space
        observations, _ = envs.reset(seed=1, options={"time": 1})
        assert observations[:, 2].tolist() == [1, 1, 1]
        assert envs.np_random_seed == inner.np_random_seed == (1, 2, 3)
        assert envs.call("multiply", 2, env_ids=[2]) == (4,)
        assert envs.get_attr("number") == (0, 1, 2)
        envs.set_attr("length", 9, env_ids=[0])
        envs.step([0, 0, 0])
        assert [int(frame[0, 0, 0]) for frame in envs.render(env_ids=[1, 2])] == [1, 2]
        assert envs.stats().steps.tolist() == [1, 1, 1]
        envs.step_async([1, 2, 3])
        assert envs.step_wait()[0].shape == (3, 5)
        assert repr(envs) == f"<VectorWrapper, {inner!r}>"
        assert not envs.closed
    assert envs.closed and inner.closed


def test_a_wrapper_has_what_it_sets_itself() -> None:
    with VectorWrapper(SyncVectorEnv(ledgers(2))) as envs:
        box = spaces.Box(0, 1, (2,))
        for name in (
            "observation_space",
            "action_space",
            "single_observation_space",
            "single_action_space",
        ):
            setattr(envs, name, box)
            assert getattr(envs, name) is box
            assert getattr(envs.env, name) is not box
        envs.metadata = {"fps": 1}
        assert envs.metadata == {"fps": 1} != envs.env.metadata


def test_missing_attributes_are_missing() -> None:
    with VectorWrapper(SyncVectorEnv(ledgers(1))) as envs:
        for name in ("no_such_name", "_private"):
            with pytest.raises(AttributeError, match=name):
                getattr(envs, name)


@pytest.mark.parametrize("env", [None, 3, "CartPole-v1"])
def test_only_vector_envs_are_wrapped(env: Any) -> None:
    with pytest.raises(TypeError, match="VectorEnv"):
        VectorWrapper(env)


def test_an_observation_wrapper_changes_observations() -> None:
    with Halved(SyncVectorEnv(ledgers(2))) as envs, SyncVectorEnv(ledgers(2)) as bare:
        assert_identical(envs.reset(seed=0)[0], bare.reset(seed=0)[0] / 2)
        ours, theirs = envs.step([1, 2]), bare.step([1, 2])
        assert_identical(ours[0], theirs[0] / 2)
        assert_identical(ours[1], theirs[1])
        assert ours[4].keys() == theirs[4].keys()


def test_an_observation_wrapper_needs_to_see_all_observations() -> None:
    with (
        SyncVectorEnv(ledgers(2), autoreset_mode="SameStep") as envs,
        pytest.raises(ValueError, match="final_obs"),
    ):
        Halved(envs)


def test_an_observation_wrapper_asks_for_the_mode() -> None:
    envs = Drift(1)
    envs.metadata = {}
    with pytest.warns(UserWarning, match="autoreset_mode"):
        Halved(envs)


def test_an_action_wrapper_changes_actions() -> None:
    with Shifted(SyncVectorEnv(ledgers(2))) as envs:
        envs.reset(seed=0)
        assert envs.step(np.array([1, 4]))[0][:, 3].tolist() == [2, 0]


def test_a_reward_wrapper_changes_rewards() -> None:
    with Negative(Shifted(SyncVectorEnv(ledgers(2)))) as envs:
        envs.reset(seed=0)
        assert envs.step(np.array([0, 0]))[1].tolist() == [-0.125, -1.125]
        assert repr(envs) == "<Negative, <Shifted, SyncVectorEnv(num_envs=2)>>"


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        (VectorObservationWrapper, lambda envs: envs.reset()),
        (VectorActionWrapper, lambda envs: envs.step([0, 0])),
        (VectorRewardWrapper, lambda envs: envs.step([0, 0])),
    ],
)
def test_a_wrapper_without_its_method_says_so(kind: Any, use: Any) -> None:
    with SyncVectorEnv(ledgers(2)) as inner:
        inner.reset(seed=0)
        with pytest.raises(NotImplementedError, match=kind.__name__):
            use(kind(inner))
