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
