"""Steps per second of a simulator that is vectorised in NumPy already, run in worker processes.

    python -m benchmarks.vector_members

Gymnasium's CartPoleVectorEnv with 1,024 environments: two of 512 in two bare processes, which step
them without communication (the limit); all in one process, without any transport; and as two
members of 512 in two workers. Rounds take turns, and the numbers are medians.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from benchmarks.common import BareLoops, race, repeat, show
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


def open_members(share: int) -> tuple[Callable[[int], Any], int]:
    """Return what steps one CartPoleVectorEnv."""
    envs, actions = CartPoleVectorEnv(num_envs=share), prepared_actions(share)
    envs.reset(seed=0)
    return lambda turn: envs.step(actions[turn % 64]), share


def prepared_actions(count: int) -> list[Any]:
    """Return 64 batches of random actions."""
    generator = np.random.default_rng(0)
    return [generator.integers(0, 2, count) for _ in range(64)]


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
    limit = BareLoops(open_members, share * workers, workers)
    actions = prepared_actions(share * workers)

    def speed(envs: Any, seconds: float) -> float:
        envs.reset(seed=0)
        return envs.num_envs * repeat(lambda turn: envs.step(actions[turn % 64]), seconds)

    ways = {name: partial(speed, envs) for name, envs in opened.items()}
    show(race({"the limit": limit.speed, "in step": limit.speed_in_step, **ways}, rounds, seconds))
    for envs in (*opened.values(), limit):
        envs.close()


if __name__ == "__main__":
    typer.run(main)
