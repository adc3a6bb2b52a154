"""Wrappers around vector envs: what passes through, and what each kind changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.envs import ledgers
from vecspaces import spaces
from vecspaces.vector import (
    AsyncVectorEnv,
    SyncVectorEnv,
    VectorActionWrapper,
    VectorObservationWrapper,
    VectorRewardWrapper,
    VectorWrapper,
)


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


def test_a_wrapper_may_set_spaces_and_metadata() -> None:
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


def test_a_reward_wrapper_changes_rewards() -> None:
    with Negative(Shifted(SyncVectorEnv(ledgers(2)))) as envs:
        envs.reset(seed=0)
        assert envs.step(np.array([0, 0]))[1].tolist() == [-0.125, -1.125]
        assert repr(envs) == (
            "<Negative, <Shifted, SyncVectorEnv(num_envs=2, autoreset_mode='NextStep')>>"
        )
