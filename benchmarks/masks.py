"""Sampling speed of sb3-contrib's MaskablePPO, as a share of that of PPO.

    python -m benchmarks.masks

Both sample from the same environments, in turns. The environments are busy for a
given time per step. What MaskablePPO does more: it gets the masks, and torch makes two more
distributions per step, whatever the environments cost. Needs sb3-contrib.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3 import PPO

from benchmarks.common import make_table, show, time_in_turns
from benchmarks.infos import Masked
from vecspaces.adapters.stable_baselines3 import as_vec_env
from vecspaces.vector import AsyncVectorEnv


class BusyMasked(Masked):
    """Has masks, and is busy for some microseconds in each step."""

    def __init__(self, work: int) -> None:
        super().__init__(informs=True, declares=True)
        self.work = work * 1e-6

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.work
        while time.perf_counter() < end:
            pass
        return super().step(action)


def sample(algorithm: type[Any], vec_env: Any, steps: int) -> float:
    """Collect one rollout; return the median time of a step, in milliseconds."""
    learning = {"n_epochs": 1, "batch_size": steps * vec_env.num_envs, "device": "cpu"}
    model = algorithm("MlpPolicy", vec_env, n_steps=steps, **learning)
    times: list[float] = []

    def note(*_: Any) -> bool:
        times.append(time.perf_counter())
        return True

    model.learn(steps * vec_env.num_envs, callback=note)
    return float(np.median(np.diff(times[steps // 5 :]))) * 1e3


def main(
    num_envs: int = 64,
    num_workers: int = 2,
    steps: int = 150,
    rounds: int = 5,
    work: Annotated[str, typer.Option(metavar="US,US,...")] = "0,50,100,200",
) -> None:
    """Measure for some times of the environments' steps."""
    torch.set_num_threads(1)
    columns = ("us per step of an environment", "PPO ms", "MaskablePPO ms", "share", "masks us")
    table = make_table(f"{num_envs} environments, {num_workers} workers", *columns, left=0)
    for busy in map(int, work.split(",")):
        env_fns = [partial(BusyMasked, busy)] * num_envs
        envs = AsyncVectorEnv(env_fns, num_workers=num_workers, autoreset_mode="SameStep")
        vec_env = as_vec_env(envs)
        found = [
            [sample(algorithm, vec_env, steps) for algorithm in (PPO, MaskablePPO)]
            for _ in range(rounds)
        ]
        (masks,) = time_in_turns([partial(get_action_masks, vec_env)], 50)
        vec_env.close()
        ours, masked = (statistics.median(each) for each in zip(*found, strict=True))
        share = statistics.median(plain / other for plain, other in found)
        table.add_row(
            str(busy), f"{ours:.2f}", f"{masked:.2f}", f"{share * 100:.0f} %", f"{masks:.0f}"
        )
    show(table)


if __name__ == "__main__":
    typer.run(main)
