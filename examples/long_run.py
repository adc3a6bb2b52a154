"""A long run: one table for all workers, several tasks, new workers before memory runs out, a log.

Run: python examples/long_run.py --tasks 4 --steps 100
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces import Env, make_vec
from vecspaces.spaces import Box, Discrete


class Hike(Env[np.ndarray, int]):
    """Walks over a large map, from a start that depends on the task, and likes to go downhill.

    Like some simulators, it never frees the memory of an episode.
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = Discrete(4)

    def __init__(self, path: Path) -> None:
        # Not read, but mapped: the processes share the pages that they use.
        self.heights = np.load(path, mmap_mode="r")
        self.leaked: list[bytes] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if options is not None:
            self.task = options["task"]
        self.leaked.append(bytes(1_000_000))
        side = len(self.heights)
        self.place = self.np_random.integers(side // 8, size=2) + side * self.task // 16
        self.time = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self.heights[tuple(self.place)]
        self.place[action // 2] += 2 * (action % 2) - 1
        self.place %= len(self.heights)
        self.time += 1
        reward = float(before - self.heights[tuple(self.place)])
        return self.observe(), reward, False, self.time == 50, {}

    def observe(self) -> np.ndarray:
        return np.array([*self.place, self.heights[tuple(self.place)]])


def write_map(path: Path) -> None:
    """Write a map of 32 MB."""
    np.save(path, np.add.outer(*[np.sin(np.arange(2_000) / 90)] * 2))


def main() -> None:
    parser = argparse.ArgumentParser(description="Play several tasks in the same workers.")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--restart-after", type=int, default=3, help="so many tasks")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heights.npy"
        write_map(path)
        with make_vec(Hike, 8, num_workers=2, env_kwargs={"path": path}) as envs:
            policy, most = np.random.default_rng(0), 0
            for task in range(options.tasks):
                if task and task % options.restart_after == 0:
                    envs.restart()
                envs.reset(seed=task, options={"task": task})
                total = 0.0
                for _ in range(options.steps):
                    _, rewards, _, _, _ = envs.step(policy.integers(4, size=8))
                    total += rewards.sum()
                print(f"task {task}: went down by {total / 8:.2f} per environment")
                most = max(most, sum(map(len, envs.get_attr("leaked"))))
            print(f"leaked at most {most} MB")


if __name__ == "__main__":
    main()
