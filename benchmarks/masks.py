"""Sampling speed of sb3-contrib's MaskablePPO beside PPO, and what causes the difference.

    python -m benchmarks.masks

These take turns, for several durations of an environment's step:

- PPO on vecspaces' adapter, as the baseline.
- MaskablePPO on the adapter, which answers from the infos of the last step.
- MaskablePPO on the adapter with environments that have no infos, and one list of masks that never
  changes: the cost of MaskablePPO itself, with any vector env.
- MaskablePPO on Stable-Baselines3's SubprocVecEnv.

Of the second, as a share of the third, is what masks cost in vecspaces. Needs sb3-contrib.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.common import make_table, show
from benchmarks.infos import Masked
from vecspaces.adapters.stable_baselines3 import VecspacesVecEnv
from vecspaces.vector import AsyncVectorEnv


class BusyMasked(Masked):
    """Has masks, and is busy for some microseconds in each step."""

    def __init__(self, work: int, informs: bool = True) -> None:
        super().__init__(informs=informs, declares=informs)
        self.work = work * 1e-6

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.work
        while time.perf_counter() < end:
            pass
        return super().step(action)

    def action_masks(self) -> Any:
        """Return the mask, as SubprocVecEnv asks for it."""
        return self.mask


class ConstantMasks(VecspacesVecEnv):
    """Has masks without any environment."""

    def _wrap(self, vector_env: Any) -> None:
        super()._wrap(vector_env)
        self._constant = [np.ones(16, np.bool_) for _ in range(self.num_envs)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether there is an attribute: the masks are."""
        return attr_name == "action_masks" or super().has_attr(attr_name)

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the masks."""
        if method_name == "action_masks":
            return self._constant
        return super().env_method(method_name, *args, **kwargs)


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
    steps: int = 60,
    rounds: int = 5,
    work: Annotated[str, typer.Option(metavar="US,US,...")] = "0,300,1000",
) -> None:
    """Measure for some times of the environments' steps."""
    torch.set_num_threads(1)
    columns = ("PPO ms", "MaskablePPO ms", "constant masks ms", "SubprocVecEnv ms")
    shares = ("of PPO", "of constant masks", "of SubprocVecEnv")
    title = f"{num_envs} environments, {num_workers} workers; speeds as shares of others'"
    table = make_table(title, "us per step of an environment", *columns, *shares, left=0)
    for busy in map(int, work.split(",")):

        def ours(informs: bool, busy: int = busy) -> Any:
            env_fns = [partial(BusyMasked, busy, informs)] * num_envs
            return AsyncVectorEnv(env_fns, num_workers=num_workers, autoreset_mode="SameStep")

        masked = VecspacesVecEnv(ours(True))
        contenders: list[tuple[Callable[..., Any], Any]] = [
            (PPO, masked),
            (MaskablePPO, masked),
            (MaskablePPO, ConstantMasks(ours(False))),
            (MaskablePPO, SubprocVecEnv([partial(BusyMasked, busy)] * num_envs, "fork")),
        ]
        samples = [
            [sample(algorithm, vec_env, steps) for algorithm, vec_env in contenders]
            for _ in range(rounds)
        ]
        for _, vec_env in contenders[1:]:
            vec_env.close()
        cells = [f"{statistics.median(column):.2f}" for column in zip(*samples, strict=True)]
        for other in (0, 2, 3):
            share = statistics.median(row[other] / row[1] for row in samples)
            cells.append(f"{share * 100:.0f} %")
        table.add_row(str(busy), *cells)
    show(table)


if __name__ == "__main__":
    typer.run(main)
