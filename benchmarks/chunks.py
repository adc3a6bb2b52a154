"""Chunks of actions: `vecspaces.envs.ActionChunks` beside single steps, and beside bare loops.

    python -m benchmarks.chunks

64 environments that do nothing in two workers, and CartPole-v1. The limit is bare loops over the
environments in as many processes, without any exchange.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import BareLoops, race, repeat, show
from benchmarks.environments import find_environment
from vecspaces import make_vec
from vecspaces.envs import ActionChunks

NAMES = ("nothing", "CartPole-v1")


def open_loops(make: Any, length: int, share: int) -> tuple[Callable[[int], None], int]:
    """Return what takes `length` steps of each environment, one after the other."""
    envs = [make() for _ in range(share)]
    for env in envs:
        env.reset(seed=0)

    def step(turn: int) -> None:
        for env in envs:
            for number in range(length):
                if any(env.step(number % 2)[2:4]):
                    env.reset()
                    break

    return step, share * length


def compare(
    name: str, num_envs: int, length: int, workers: int, rounds: int, seconds: float
) -> Any:
    make = find_environment(name)
    actions = np.tile(np.arange(length) % 2, (num_envs, 1))
    with contextlib.ExitStack() as stack:
        bare = BareLoops(partial(open_loops, make, length), num_envs, workers)
        stack.callback(bare.close)
        envs = stack.enter_context(make_vec(make, num_envs, num_workers=workers))
        chunked = stack.enter_context(
            make_vec(lambda: ActionChunks(make(), length), num_envs, num_workers=workers)
        )
        envs.reset(seed=0)
        chunked.reset(seed=0)
        ways = {
            "step": lambda seconds: num_envs * repeat(lambda _: envs.step(actions[:, 0]), seconds),
            "ActionChunks": lambda seconds: (
                num_envs * length * repeat(lambda _: chunked.step(actions), seconds)
            ),
            "loops in step": bare.speed_in_step,
            "bare loops": bare.speed,
        }
        return race(ways, rounds, seconds)


def main(
    num_envs: Annotated[int, typer.Option(min=2)] = 64,
    length: Annotated[int, typer.Option(min=1)] = 8,
    num_workers: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    seconds: Annotated[float, typer.Option(min=0.01)] = 0.5,
) -> None:
    """Environment steps per second; the ratios are those to `step`."""
    for name in NAMES:
        print(f"{num_envs} {name}, {num_workers} workers, chunks of {length}")
        show(compare(name, num_envs, length, num_workers, rounds, seconds))


if __name__ == "__main__":
    typer.run(main)
