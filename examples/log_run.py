"""Logs to TensorBoard how fast a run is, the returns of its episodes, and what it lost to crashes.

Needs TensorBoard and PyTorch: pip install tensorboard torch. Run: python examples/log_run.py
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from torch.utils.tensorboard import SummaryWriter

from vecspaces import make_vec
from vecspaces.wrappers import RecordEpisodeStatistics


class Crashing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Kills its process at one of so many steps, as a simulator in native code may do."""

    def __init__(self, env: gymnasium.Env[Any, Any], every: int) -> None:
        super().__init__(env)
        self.every = every

    def step(self, action: Any) -> Any:
        if np.random.randint(self.every) == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.env.step(action)


def read_values(envs: Any, steps: int, seconds: float) -> dict[str, float]:
    """Return what is logged: the speed since the last time, and all else since the beginning."""
    stats = envs.stats()
    values = {
        "throughput/steps_per_second": steps * envs.num_envs / seconds,
        "throughput/worker_busy": stats.worker_busy.mean(),
        "throughput/caller_outside": stats.caller_outside,
        "throughput/caller_waiting": stats.caller_waiting,
        "throughput/restarts": stats.restarts.sum(),
        "throughput/lost_episodes": stats.lost_episodes.sum(),
    }
    if envs.return_queue:  # the returns of the last 100 episodes
        values["throughput/episode_return"] = np.mean(envs.return_queue)
    return values


def run(envs: Any, steps: int, every: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Step with random actions; after each so many, yield the number of steps and the values."""
    envs.reset(seed=0)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        envs.step(envs.action_space.sample())
        if step % every == 0:
            now = time.perf_counter()
            yield step * envs.num_envs, read_values(envs, every, now - began)
            began = now


def main() -> None:
    parser = argparse.ArgumentParser(description="Log a run to TensorBoard.")
    parser.add_argument("--folder", default="runs/cart_pole")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--crash-every", type=int, default=20_000)
    options = parser.parse_args()

    envs = make_vec(
        "CartPole-v1",
        options.num_envs,
        num_workers=2,
        wrappers=[partial(Crashing, every=options.crash_every)],
        on_worker_death="restart",
        max_restarts=100,
        stats=True,
    )
    with RecordEpisodeStatistics(envs) as recorded, SummaryWriter(options.folder) as writer:
        for step, values in run(recorded, options.steps, options.every):
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            print(
                f"step {step:7,}", *(f"{name[11:]} {value:.1f}" for name, value in values.items())
            )


if __name__ == "__main__":
    main()
