"""VectorReward: the weighted sum of several rewards, and their vector in the infos."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.envs import Ledger, rewarding
from vecspaces import make_vec
from vecspaces.envs import ActionChunks, VectorReward
from vecspaces.errors import InvalidRewardError
from vecspaces.spaces import Box, Dict
from vecspaces.vector import AutoresetMode

WEIGHTS = [0.5, -2.0]


class Objectives(Ledger):
    """A Ledger with two rewards, the time and the episode."""

    reward_space = Box(0, 100, (2,))

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, np.array([self.time, self.episode], np.float32), *rest


class Foreign(gymnasium.Env[Any, Any]):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    reward_space = gymnasium.spaces.Box(-1, 1, (3,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, [1, 0, -1], False, False, {}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("backend", ["sync", "thread", "async"])
def test_vector_reward_is_in_infos_and_rollouts(mode: AutoresetMode, backend: Any) -> None:
    wrap = partial(VectorReward, weights=WEIGHTS)
    options = {"autoreset_mode": mode, "backend": backend, "wrappers": [wrap], "buffers": 3}
    with make_vec(Objectives, 3, **options, copy=False) as envs:
        _, infos = envs.reset(seed=0)
        assert "reward_vector" not in infos
        for time in (1, 2):
            _, rewards, _, _, infos = envs.step([0, 1, 2])
            np.testing.assert_array_equal(infos["reward_vector"], [[time, 1]] * 3)
            assert rewards.tolist() == [time / 2 - 2] * 3
        rollout = envs.rollout_view()
        assert rollout.infos["reward_vector"].dtype == np.float64
        np.testing.assert_array_equal(rollout.infos["reward_vector"][1:, 2], [[1, 1], [2, 1]])
        *_, infos = envs.step([0, 1, 2])
        final = infos.get("final_info", infos)
        np.testing.assert_array_equal(final["reward_vector"], [[3, 1]] * 3)


def test_vector_reward_has_weights_of_each_environment_that_can_be_set() -> None:
    with make_vec(Objectives, 2, backend="sync", wrappers=[VectorReward]) as envs:
        envs.reset(seed=0)
        assert envs.step([0, 0])[1].tolist() == [2, 2]
        envs.set_attr("weights", [np.array([1, 0]), np.array([0, 10])])
        assert envs.step([0, 0])[1].tolist() == [2, 10]
        for wrong in ([1.0], [[1.0, 2.0]], None, ["a", "b"]):
            with pytest.raises(ValueError, match=r"VectorReward: expected weights, .* \(2,\), f"):
                envs.set_attr("weights", [wrong, wrong])
        assert envs.step([0, 0])[1].tolist() == [3, 10]


def test_vector_reward_of_a_gymnasium_environment_is_one() -> None:
    env = VectorReward(Foreign(), [1, 5, 3])
    assert isinstance(env, gymnasium.Env)
    env = ActionChunks(gymnasium.wrappers.TimeLimit(env, 4), 3)
    env.reset(seed=0)
    assert env.step([0, 0, 0])[1] == 3 * (1 - 3)


@pytest.mark.parametrize(
    ("env", "weights", "shape"),
    [
        (Ledger(), 1.0, "(k,)"),
        (Ledger(), [], "(k,)"),
        (Ledger(), [[1.0, 2.0]], "(k,)"),
        (Objectives(), [1.0], "(2,)"),
    ],
)
def test_vector_reward_refuses_weights_of_another_shape(env: Any, weights: Any, shape: str) -> None:
    with pytest.raises(ValueError, match="expected weights of shape") as error:
        VectorReward(env, weights)
    assert shape in str(error.value)


def test_vector_reward_without_a_reward_space_asks_for_weights() -> None:
    with pytest.raises(ValueError, match="has no reward_space"):
        VectorReward(Ledger())


def test_vector_reward_refuses_an_info_of_the_same_name() -> None:
    env = Ledger()
    env.info_space = Dict(reward_vector=Box(0, 1, (2,)))
    with pytest.raises(ValueError, match="already"):
        VectorReward(env, [1.0])


@pytest.mark.parametrize("reward", [1.0, None, "ab", [1.0], [[1.0, 2.0]], ["a", "b"]])
def test_vector_reward_refuses_other_rewards(reward: Any) -> None:
    env = VectorReward(rewarding(reward), WEIGHTS)
    with pytest.raises(InvalidRewardError, match=r"expected numbers of shape \(2,\)"):
        env.step(0)


@pytest.mark.parametrize("reward", [np.ones(2), [1.0, 2.0], (1, 2)])
def test_step_of_a_vector_reward_without_the_wrapper_names_it(reward: Any) -> None:
    with make_vec(partial(rewarding, reward), 2, backend="sync") as envs:
        envs.reset()
        with pytest.raises(InvalidRewardError, match=r"vecspaces\.envs\.VectorReward\(env, wei"):
            envs.step([0, 0])
