"""Steps per second of a simulator that is vectorised in NumPy already, run in worker processes.

    python -m benchmarks.vector_members

Gymnasium's CartPoleVectorEnv with 1,024 environments: alone in one process, without any transport,
and as two members of 512 in two workers. Rounds take turns, and the numbers are medians.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from benchmarks.common import race, repeat, show
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


def main(
    num_envs: int = 1024,
    num_workers: int = 2,
    rounds: int = 9,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 1.0,
) -> None:
    """Time every way in turns."""
    workers, share = num_workers, num_envs // num_workers
    members = [partial(CartPoleVectorEnv, num_envs=share)] * workers
    opened: dict[str, Any] = {
        "CartPoleVectorEnv alone": CartPoleVectorEnv(num_envs=share * workers),
        f"SyncVectorEnv of {workers} members": SyncVectorEnv(members),
        f"AsyncVectorEnv, {workers} workers": AsyncVectorEnv(members, num_workers=workers),
        f"AsyncVectorEnv, {workers} workers, copy=False": AsyncVectorEnv(
            members, num_workers=workers, copy=False
        ),
    }
    generator = np.random.default_rng(0)
    actions = [generator.integers(0, 2, share * workers) for _ in range(64)]

    def speed(envs: Any, seconds: float) -> float:
        envs.reset(seed=0)
        return envs.num_envs * repeat(lambda turn: envs.step(actions[turn % 64]), seconds)

    show(race({name: partial(speed, envs) for name, envs in opened.items()}, rounds, seconds))
    for envs in opened.values():
        envs.close()


if __name__ == "__main__":
    typer.run(main)
