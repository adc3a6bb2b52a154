"""Steps per second of `send` and `recv` against `step`, where environments differ in time.

    python -m benchmarks.streaming

Sixteen environments sleep 1 ms per step, and one time in ten 20 ms; each has a worker of its own.
`step` waits for the slowest of all; `recv` takes the first four that are ready. Rounds of both take
turns; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import race, repeat, show
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv

SHORT, LONG, RARELY = 0.001, 0.020, 0.1


class Sleeper(Env[Any, Any]):
    """Sleeps, mostly briefly."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._observation, {}

    def step(self, action: Any) -> Any:
        time.sleep(LONG if self.np_random.random() < RARELY else SHORT)
        return self._observation, 1.0, False, False, {}


def main(
    num_envs: int = 16,
    batch_size: int = 4,
    rounds: int = 7,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 2.0,
) -> None:
    """Time both ways in turns."""
    every, some = np.zeros(num_envs, np.int64), np.zeros(batch_size, np.int64)

    def step_all(seconds: float) -> float:
        envs.reset(seed=0)
        return num_envs * repeat(lambda turn: envs.step(every), seconds)

    def first_ready(seconds: float) -> float:
        envs.reset(seed=0)
        for _ in range(num_envs // batch_size):
            envs.send(some, envs.recv().env_ids)
        return batch_size * repeat(lambda turn: envs.send(some, envs.recv().env_ids), seconds)

    with AsyncVectorEnv([Sleeper] * num_envs, num_workers=num_envs, batch_size=batch_size) as envs:
        ways = {"step": step_all, f"send, recv (batch_size {batch_size})": first_ready}
        table = race(ways, rounds, seconds)
    mean = SHORT + RARELY * (LONG - SHORT)
    table.add_row("sleep alone", f"{num_envs / mean:,.0f}", "")
    show(table)


if __name__ == "__main__":
    typer.run(main)
