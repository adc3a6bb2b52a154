"""`send` and `recv` keep all workers busy when steps take unequal time.

Environments here take 1 ms per step, but one step in twenty takes 20 ms. `step` waits for the
slowest environment; `recv` returns the first half of them that is ready.

Run: python examples/async_rollout.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics


class Uneven(Env[np.ndarray, int]):
    """A random walk between -1 and 1 whose steps take unequal time."""

    observation_space = spaces.Box(-2.0, 2.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.zeros(1, np.float32)
        return self.position, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.02 if self.np_random.random() < 0.05 else 0.001)
        self.position = self.position + (0.1 if action else -0.1)
        over = bool(abs(self.position[0]) > 1.0)
        return self.position, float(over and self.position[0] > 0), over, False, {}


def policy(observations: np.ndarray) -> np.ndarray:
    """Return actions that mostly move to the right."""
    return (np.random.default_rng().random(len(observations)) < 0.7).astype(np.int64)


def rollout_in_step(num_envs: int, steps: int) -> float:
    """Step all environments together; return steps per second."""
    with AsyncVectorEnv([Uneven] * num_envs, num_workers=num_envs) as envs:
        observations, _ = envs.reset(seed=0)
        started = time.perf_counter()
        for _ in range(steps // num_envs):
            observations, *_ = envs.step(policy(observations))
        return steps / (time.perf_counter() - started)


def rollout_as_ready(num_envs: int, steps: int) -> float:
    """Step the half of the environments that is ready first; return steps per second."""
    half = num_envs // 2
    inner = AsyncVectorEnv([Uneven] * num_envs, num_workers=num_envs, batch_size=half)
    with RecordEpisodeStatistics(inner) as envs:
        envs.reset(seed=0)
        started = time.perf_counter()
        for _ in range(steps // half):
            transition = envs.recv()  # `half` rows, of the environments in `env_ids`
            envs.send(policy(transition.observations), transition.env_ids)
        speed = steps / (time.perf_counter() - started)
        print(f"{envs.episode_count} episodes, mean return {np.mean(envs.return_queue):.2f}")
        return speed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8000, help="summed over the environments")
    arguments = parser.parse_args()
    together = rollout_in_step(**vars(arguments))
    ready = rollout_as_ready(**vars(arguments))
    print(f"step      {together:7,.0f} steps/s")
    print(f"send/recv {ready:7,.0f} steps/s ({ready / together:.1f} times)")
