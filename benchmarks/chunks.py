"""Chunks of actions: `step_chunk` beside `step`, and beside bare loops in as many processes.

    python -m benchmarks.chunks

64 environments that do nothing in two workers, and CartPole-v1. The limit is bare loops over the
environments, without any exchange.
"""

from __future__ import annotations

import multiprocessing
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import cart_pole, race, repeat, show
from vecspaces import Env, make_vec, spaces


class Nothing(Env[Any, Any]):
    """An environment to which nothing happens."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.observation = np.zeros(4, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.observation, {}

    def step(self, action: Any) -> Any:
        return self.observation, 0.0, False, False, {}


FACTORIES: dict[str, Any] = {"nothing": Nothing, "CartPole-v1": cart_pole}


def serve(end: Any, make: Any, share: int, length: int) -> None:
    """Step environments in bare loops for as long as each message says."""
    envs = [make() for _ in range(share)]
    for env in envs:
        env.reset(seed=0)

    def step(turn: int) -> None:
        for env in envs:
            for number in range(length):
                if any(env.step(number % 2)[2:4]):
                    env.reset()
                    break

    while seconds := end.recv():
        end.send(share * length * repeat(step, seconds))


def compare(
    name: str, num_envs: int, length: int, workers: int, rounds: int, seconds: float
) -> Any:
    make = FACTORIES[name]
    pipes = [multiprocessing.Pipe() for _ in range(workers)]
    shares = [(theirs, make, num_envs // workers, length) for _, theirs in pipes]
    bare = [multiprocessing.Process(target=serve, args=share, daemon=True) for share in shares]
    for process in bare:
        process.start()
    actions = np.tile(np.arange(length) % 2, (num_envs, 1))

    def in_loops(seconds: float) -> float:
        for ours, _ in pipes:
            ours.send(seconds)
        return float(sum(ours.recv() for ours, _ in pipes))

    with make_vec(make, num_envs, num_workers=workers) as envs:
        envs.reset(seed=0)
        ways = {
            "step": lambda seconds: num_envs * repeat(lambda _: envs.step(actions[:, 0]), seconds),
            "step_chunk": lambda seconds: (
                num_envs * length * repeat(lambda _: envs.step_chunk(actions), seconds)
            ),
            "bare loops": in_loops,
        }
        try:
            return race(ways, rounds, seconds)
        finally:
            for (ours, _), process in zip(pipes, bare, strict=True):
                ours.send(0.0)
                process.join()


def main(
    num_envs: Annotated[int, typer.Option(min=2)] = 64,
    length: Annotated[int, typer.Option(min=1)] = 8,
    num_workers: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    seconds: Annotated[float, typer.Option(min=0.01)] = 0.5,
) -> None:
    """Environment steps per second; the ratios are those to `step`."""
    for name in FACTORIES:
        print(f"{num_envs} {name}, {num_workers} workers, chunks of {length}")
        show(compare(name, num_envs, length, num_workers, rounds, seconds))


if __name__ == "__main__":
    typer.run(main)
