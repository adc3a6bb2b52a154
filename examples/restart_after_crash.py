"""A simulator that crashes now and then: the run goes on and reports which steps were lost.

Run: python examples/restart_after_crash.py
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from vecspaces import Env
from vecspaces.spaces import Box, Discrete
from vecspaces.vector import AsyncVectorEnv


class FragileWalk(Env[np.ndarray, int]):
    """A random walk that crashes once in 2,000 steps, as native code would."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0.0
        return np.array([self.place]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.np_random.random() < 0.0005:
            os._exit(1)  # no exception: as after a segmentation fault
        self.place += (2 * int(action) - 1) * self.np_random.random()
        return np.array([self.place]), -abs(self.place), abs(self.place) > 8, False, {}


def main(steps: int = 2_000) -> None:
    envs = AsyncVectorEnv(
        [FragileWalk] * 8,
        num_workers=4,
        on_worker_death="restart",
        max_restarts=100,  # more than this within restart_window seconds is an error
    )
    with envs:
        envs.reset(seed=1)
        policy = np.random.default_rng(1)
        used = lost = 0
        for _ in range(steps):
            actions = policy.integers(2, size=8)
            _, _, _, truncations, infos = envs.step(actions)
            restarted = infos.get("worker_restarted", np.zeros(8, dtype=bool))
            # A lost step is a truncation with reward 0: bootstrap from it, or leave it out.
            assert truncations[restarted].all()
            lost += int(restarted.sum())
            used += int((~restarted).sum())
        print(f"{used} steps to learn from, {lost} lost with crashed workers")


if __name__ == "__main__":
    main()
