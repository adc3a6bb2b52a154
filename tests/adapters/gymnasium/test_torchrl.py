"""TorchRL's GymWrapper around the Gymnasium interface: what it gives for Gymnasium's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import pytest

from vecspaces.adapters.gymnasium import AsyncVectorEnv, SyncVectorEnv

pytest.importorskip("torchrl", reason="TorchRL is not installed")
import torch
from torchrl.envs import GymWrapper, check_env_specs

CART_POLES = [partial(gymnasium.make, "CartPole-v1")] * 3
MODE = gymnasium.vector.AutoresetMode
# TorchRL makes spawn the default start method, under which each worker would import it anew.
KINDS = {"sync": SyncVectorEnv, "async": partial(AsyncVectorEnv, num_workers=2, context="fork")}

pytestmark = pytest.mark.timeout(120)


def rollout(envs: Any) -> Any:
    env = GymWrapper(envs)
    env.set_seed(3)
    torch.manual_seed(3)
    result = env.rollout(60, break_when_any_done=False)
    env.close()
    return result.exclude("info", ("next", "info"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [MODE.SAME_STEP, MODE.DISABLED])
def test_rollouts_are_those_of_gymnasium(kind: str, mode: Any) -> None:
    ours = rollout(KINDS[kind](CART_POLES, autoreset_mode=mode))
    theirs = rollout(gymnasium.vector.SyncVectorEnv(CART_POLES, autoreset_mode=mode))
    assert ours["next", "done"].sum() >= 3  # over the ends of episodes
    keys = ours.keys(include_nested=True, leaves_only=True)
    assert set(keys) == set(theirs.keys(include_nested=True, leaves_only=True))
    for key in keys:
        assert ours[key].dtype == theirs[key].dtype and torch.equal(ours[key], theirs[key]), key


@pytest.mark.parametrize("mode", [MODE.SAME_STEP, MODE.DISABLED])
def test_its_own_checks_pass(mode: Any) -> None:
    env = GymWrapper(SyncVectorEnv(CART_POLES, autoreset_mode=mode))
    check_env_specs(env)
    env.close()


@pytest.mark.parametrize("kind", [gymnasium.vector.SyncVectorEnv, SyncVectorEnv])
def test_next_step_is_refused_by_torchrl(kind: Any) -> None:
    envs = kind(CART_POLES)
    with pytest.raises(RuntimeError, match="must be one of SAME_STEP or DISABLED"):
        GymWrapper(envs)
    envs.close()


class Drawing(gymnasium.Env[Any, Any]):
    """Renders without a screen."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}

    def render(self) -> Any:
        import numpy as np

        return np.full((4, 6, 3), 7, np.uint8)


@pytest.mark.parametrize("kind", [gymnasium.vector.SyncVectorEnv, SyncVectorEnv])
def test_from_pixels_fails_with_any_vector_env_and_a_wrapper_inside_does_it(kind: Any) -> None:
    envs = kind([Drawing] * 2, autoreset_mode=MODE.DISABLED)
    # Raised by gymnasium.wrappers.AddRenderObservation; which one depends on its version.
    with pytest.raises((AssertionError, TypeError)):
        GymWrapper(envs, from_pixels=True, pixels_only=False)
    envs.close()

    def with_pixels() -> Any:
        return gymnasium.wrappers.AddRenderObservation(Drawing(), render_only=False)

    env = GymWrapper(kind([with_pixels] * 2, autoreset_mode=MODE.DISABLED))
    assert env.rollout(3)["pixels"].shape == (2, 3, 4, 6, 3)
    env.close()
