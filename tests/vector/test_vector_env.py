"""The public interface of every vector env, for vectorised simulators that derive from it."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Drift
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
