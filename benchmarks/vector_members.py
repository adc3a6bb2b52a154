"""Steps per second of a simulator that is vectorised in NumPy already, run in worker processes.

    python -m benchmarks.vector_members

Gymnasium's CartPoleVectorEnv with 1,024 environments: two of 512 in two bare processes, which step
them without communication (the limit); all in one process, without any transport; and as two
members of 512 in two workers. Rounds take turns, and the numbers are medians.
"""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from benchmarks.common import race, repeat, show
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class BareMembers:
    """Processes that each step a CartPoleVectorEnv; a message says for how long."""

    def __init__(self, workers: int, share: int) -> None:
        self.num_envs = workers * share
        self._processes, self._ends = [], []
        for _ in range(workers):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=_serve, args=(theirs, share), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._ends.append(ours)

    def speed(self, seconds: float) -> float:
        """Let all run at once; return environment steps per second."""
        for end in self._ends:
            end.send(seconds)
        return sum(end.recv() for end in self._ends)

    def close(self) -> None:
        """End the processes."""
        for process, end in zip(self._processes, self._ends, strict=True):
            end.send(0.0)
            process.join()
            end.close()


def _serve(end: Any, share: int) -> None:
    envs = CartPoleVectorEnv(num_envs=share)
    envs.reset(seed=0)
    actions = prepared_actions(share)
    while seconds := end.recv():
        end.send(share * repeat(lambda turn: envs.step(actions[turn % 64]), seconds))


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
    limit = BareMembers(workers, share)
    actions = prepared_actions(share * workers)

    def speed(envs: Any, seconds: float) -> float:
        envs.reset(seed=0)
        return envs.num_envs * repeat(lambda turn: envs.step(actions[turn % 64]), seconds)

    ways = {name: partial(speed, envs) for name, envs in opened.items()}
    show(race({"the limit": limit.speed, **ways}, rounds, seconds))
    for envs in (*opened.values(), limit):
        envs.close()


if __name__ == "__main__":
    typer.run(main)
