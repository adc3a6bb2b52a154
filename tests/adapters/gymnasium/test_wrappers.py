"""Gymnasium's vector wrappers around ours: what they do around Gymnasium's own, in every mode."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.adapters.side_by_side import MODES, run
from tests.compare import assert_identical
from tests.crosses import diagonal
from vecspaces.adapters.gymnasium import AsyncVectorEnv, SyncVectorEnv

wrappers = gymnasium.wrappers.vector


def pendulum() -> Any:
    """An environment with continuous actions whose episodes end soon."""
    return gymnasium.make("Pendulum-v1", max_episode_steps=6)


def cart_pole() -> Any:
    return gymnasium.make("CartPole-v1")


def nested() -> Any:
    """An environment whose observations are a dict."""
    return _Nested(cart_pole())


class _Nested(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Dict(
            state=env.observation_space, sign=gymnasium.spaces.Discrete(2)
        )

    def observation(self, observation: Any) -> Any:
        return {"state": observation, "sign": np.int64(observation[2] > 0)}


WRAPPERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "RecordEpisodeStatistics": (cart_pole, wrappers.RecordEpisodeStatistics),
    "NormalizeObservation": (cart_pole, wrappers.NormalizeObservation),
    "NormalizeReward": (pendulum, wrappers.NormalizeReward),
    "FlattenObservation": (nested, wrappers.FlattenObservation),
    "TransformReward": (
        cart_pole,
        lambda envs: wrappers.TransformReward(envs, lambda rewards: rewards * 2 - 1),
    ),
    "DictInfoToList": (
        cart_pole,
        lambda envs: wrappers.DictInfoToList(wrappers.RecordEpisodeStatistics(envs)),
    ),
    "ClipAction": (pendulum, wrappers.ClipAction),
    "RescaleAction": (pendulum, lambda envs: wrappers.RescaleAction(envs, -1.0, 1.0)),
    "NumpyToTorch": (cart_pole, lambda envs: wrappers.NumpyToTorch(envs)),
}


CONSTRUCTORS: dict[str, Any] = {
    "sync": SyncVectorEnv,
    "async": partial(AsyncVectorEnv, num_workers=2),
}


@diagonal(
    constructor=list(CONSTRUCTORS), name=list(WRAPPERS), mode={mode.value: mode for mode in MODES}
)
def test_a_wrapper_does_what_it_does_around_gymnasiums_own(
    constructor: str, name: str, mode: Any
) -> None:
    if name == "NumpyToTorch" and None in map(
        importlib.util.find_spec, ("torch", "array_api_compat")
    ):
        pytest.skip("PyTorch and array-api-compat are not installed")
    env_fn, wrap = WRAPPERS[name]
    theirs = gymnasium.vector.SyncVectorEnv([env_fn] * 3, autoreset_mode=mode)
    with CONSTRUCTORS[constructor]([env_fn] * 3, autoreset_mode=mode) as ours:
        try:
            expected = run(_stepped(name, wrap(_KeepingMasks(theirs))), steps=40)
        except (ValueError, BufferError) as refusal:  # the wrapper does not support this mode
            with pytest.raises(type(refusal)) as caught:
                run(_stepped(name, wrap(ours)), steps=40)
            assert str(caught.value) == str(refusal)
            return
        finally:
            theirs.close()
        wrapped = wrap(ours)
        assert isinstance(wrapped.unwrapped, gymnasium.vector.VectorEnv)
        assert_identical(run(_stepped(name, wrapped), steps=40), expected)


class _KeepingMasks(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Gymnasium takes the mask out of the caller's dict, and its statistics then all begin anew."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=None if options is None else dict(options))


def _stepped(name: str, envs: Any) -> Any:
    """What `run` steps: with tensors as actions, where the wrapper wants them."""
    return _Tensors(envs) if name == "NumpyToTorch" else envs


class _Tensors(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    def step(self, actions: Any) -> Any:
        import torch

        return self.env.step(torch.as_tensor(actions))
