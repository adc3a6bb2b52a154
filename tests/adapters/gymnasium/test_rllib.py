"""RLlib's env runner on the Gymnasium interface, by way of `vector_entry_point`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces.adapters.gymnasium import GymnasiumVectorEnv, make_vec

pytest.importorskip("ray.rllib", reason="RLlib is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune.registry import register_env


def create(config: dict[str, Any]) -> Any:
    """Return a vector env where RLlib asks for one, as docs/training_libraries.md has it."""
    if "num_envs" in config:
        return make_vec("CartPole-v1", config["num_envs"], num_workers=2, context="fork")
    return gymnasium.make("CartPole-v1")


def sample(name: str, mode: Any) -> tuple[Any, list[Any]]:
    """Return what the runner steps, and the episodes that it samples."""
    torch.manual_seed(0)
    np.random.seed(0)
    config = (
        PPOConfig()
        .environment(name)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4, gym_env_vectorize_mode=mode)
        .debugging(seed=7, log_level="ERROR")
    )
    runner = SingleAgentEnvRunner(config=config)
    episodes = [
        (e.get_observations(), e.get_actions(), e.get_rewards(), e.is_terminated)
        for e in runner.sample(num_timesteps=300)
    ]
    envs = runner.env.unwrapped
    runner.stop()
    return envs, episodes


def test_an_env_runner_samples_what_it_samples_of_gymnasium() -> None:
    register_env("cart_pole", create)
    envs, ours = sample("cart_pole", gymnasium.VectorizeMode.VECTOR_ENTRY_POINT)
    assert isinstance(envs, GymnasiumVectorEnv) and envs.closed
    _, theirs = sample("CartPole-v1", gymnasium.VectorizeMode.SYNC)
    assert len(ours) > 8
    assert_identical(ours, theirs)
