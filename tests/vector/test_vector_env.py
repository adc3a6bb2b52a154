"""The public interface of every vector env, for vectorised simulators that derive from it."""

from __future__ import annotations

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
def test_classes_are_generic_over_as_many_types(ours: type, theirs: type) -> None:
    # Sync and Async fix the type of arrays in both libraries.
    assert len(ours.__parameters__) == len(theirs.__parameters__)  # type: ignore[attr-defined]


def test_reset_of_the_base_seeds_the_generator() -> None:
    envs = Drift(2)
    first, _ = envs.reset(seed=np.int64(3))
    assert envs.np_random_seed == 3
    theirs = gymnasium.utils.seeding.np_random(3)[0]
    assert_identical(first, theirs.random((2, 2)))
    second, _ = envs.reset()
    assert_identical(second, theirs.random((2, 2)))


def test_vector_env_has_defaults() -> None:
    envs = Drift(3)
    seed = envs.np_random_seed
    assert isinstance(seed, int) and seed >= 0
    assert isinstance(envs.np_random, np.random.Generator)
    assert envs.np_random is envs.np_random
    envs.np_random = np.random.default_rng(1)
    assert envs.np_random_seed == -1
    for wrong in ([1, 2], 1.5, "1", -1):
        with pytest.raises(VecspacesError, match="seed"):
            envs.reset(seed=wrong)
    assert repr(envs) == "Drift(num_envs=3)"
    envs.spec = gymnasium.spec("CartPole-v1")
    assert repr(envs) == "Drift(CartPole-v1, num_envs=3)"
    bare: VectorEnv[Any, Any, Any] = VectorEnv()
    assert bare.unwrapped is bare
    assert (bare.spec, bare.render_mode, bare.closed, bare.metadata) == (None, None, False, {})


def test_close_frees_once_whatever_happens() -> None:
    class Stuck(Drift):
        def close_extras(self, **arguments: Any) -> None:
            super().close_extras()
            self.arguments = arguments
            raise OSError("stuck")

    envs = Stuck(1)
    with pytest.raises(OSError, match="stuck"):
        envs.close(timeout=3)
    envs.close()
    assert (envs.closes, envs.arguments, envs.closed) == (1, {"timeout": 3}, True)
    with pytest.raises(KeyError), Drift(1) as other:
        raise KeyError
    assert other.closed


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_autoreset_mode_is_understood_in_any_form(mode: AutoresetMode) -> None:
    theirs = gymnasium.vector.AutoresetMode(mode.value)
    assert mode.name == theirs.name
    texts = (mode.value, mode.name)
    for form in (mode, theirs, *texts, *map(str.lower, texts)):
        assert AutoresetMode.of(form) is mode
