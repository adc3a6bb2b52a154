"""Programs that make, measure or train on a Gymnasium vector env take ours as it is."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import gymnasium.utils.performance
import numpy as np
import pytest

from vecspaces import vector
from vecspaces.adapters.gymnasium import AsyncVectorEnv, SyncVectorEnv, as_gymnasium
from vecspaces.wrappers import RecordEpisodeStatistics

ID = "vecspaces-tests/Vectorized-v0"


def vectorized(num_envs: int = 1, max_episode_steps: int = 500, gain: float = 1.0) -> Any:
    """What a package gives Gymnasium as its `vector_entry_point`."""
    env_fn = partial(gymnasium.make, "CartPole-v1", max_episode_steps=max_episode_steps)
    envs = SyncVectorEnv([env_fn] * num_envs)
    envs.gain = gain
    return envs


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register(ID, vector_entry_point=vectorized, max_episode_steps=7)
    yield ID
    del gymnasium.registry[ID]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_make_vec_of_gymnasium_makes_ours(registered: str, num_envs: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = gymnasium.make_vec(registered, num_envs, gain=0.5)
    assert isinstance(envs, SyncVectorEnv)
    assert envs.spec is not None and envs.spec.id == registered
    assert envs.vector_env.spec is envs.spec
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    assert wrapped.spec.id == registered  # type: ignore[union-attr]  # it has one
    assert f"{envs}".startswith(f"SyncVectorEnv({registered}, num_envs={num_envs}")
    assert envs.gain == 0.5  # type: ignore[attr-defined]  # as `vectorized` sets it
    envs.reset(seed=1)
    for _ in range(7):
        *_, truncations, _ = envs.step(np.tile([0, 1], num_envs)[:num_envs])
    assert truncations.any()  # after max_episode_steps
    assert copy.deepcopy(envs.spec) == envs.spec
    again = gymnasium.make_vec(envs.spec)
    assert (again.num_envs, again.spec.kwargs) == (num_envs, envs.spec.kwargs)  # type: ignore[union-attr]  # it has one
    again.close()
    envs.close()


def test_what_a_wrapper_of_ours_is_given_reaches_the_vector_env_below() -> None:
    env_fns = [partial(gymnasium.make, "CartPole-v1")]
    envs = as_gymnasium(RecordEpisodeStatistics(vector.SyncVectorEnv(env_fns)))
    envs.spec = spec = gymnasium.spec("CartPole-v1")
    envs.render_mode = "ansi"
    assert envs.spec is spec and envs.render_mode == "ansi"
    envs.close()
    assert envs.closed


@pytest.mark.parametrize("kind", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_skrl_recognises_ours(kind: Any) -> None:
    pytest.importorskip("skrl", reason="skrl is not installed")
    import torch
    from skrl.envs.wrappers.torch import wrap_env

    wrapped = wrap_env(kind([partial(gymnasium.make, "CartPole-v1")] * 3))
    assert wrapped.num_envs == 3
    observations, _ = wrapped.reset()
    for _ in range(20):
        observations, rewards, *_ = wrapped.step(torch.ones((3, 1), dtype=torch.int64))
    assert (observations.shape, rewards.shape) == ((3, 4), (3, 1))
    wrapped.close()
