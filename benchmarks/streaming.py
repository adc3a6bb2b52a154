"""Steps a second of `send` and `recv` against `step`, where environments take their time unevenly.

    python -m benchmarks.streaming

Sixteen environments sleep 1 ms a step, and one time in ten 20 ms; each has a worker of its own.
`step` waits for the slowest of all; `recv` takes the first four that are ready. Rounds of both take
turns; the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv

SHORT, LONG, RARELY = 0.001, 0.020, 0.1


class Sleeper(Env[Any, Any]):
    """Sleeps, mostly a little."""

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


def step_all(envs: AsyncVectorEnv[Any, Any], seconds: float) -> float:
    """Steps of environments a second with `step`."""
    actions = np.zeros(envs.num_envs, np.int64)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        envs.step(actions)
        count += envs.num_envs
    return count / (time.perf_counter() - began)


def first_ready(envs: AsyncVectorEnv[Any, Any], seconds: float) -> float:
    """Steps of environments a second with `send` and `recv`."""
    actions = np.zeros(envs.batch_size, np.int64)
    envs.reset(seed=0)
    for _ in range(envs.num_envs // envs.batch_size):
        envs.send(actions, envs.recv().env_ids)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        transition = envs.recv()
        envs.send(actions, transition.env_ids)
        count += envs.batch_size
    elapsed = time.perf_counter() - began
    envs.reset()
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round, for each way")
    arguments = parser.parse_args()

    env_fns = [partial(Sleeper)] * arguments.num_envs
    sizes = {"num_workers": arguments.num_envs, "batch_size": arguments.batch_size}
    with AsyncVectorEnv(env_fns, **sizes) as envs:
        envs.reset(seed=0)
        rounds = []
        for _ in range(arguments.rounds):
            rounds.append((step_all(envs, arguments.seconds), first_ready(envs, arguments.seconds)))

    all_at_once, streamed = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(second / first for first, second in rounds)
    mean = SHORT + RARELY * (LONG - SHORT)
    table = Table(
        title=f"{arguments.num_envs} workers of one environment that sleeps {SHORT * 1e3:g} ms, "
        f"one time in {1 / RARELY:g} {LONG * 1e3:g} ms (Python {platform.python_version()}, NumPy "
        f"{version('numpy')})"
    )
    for column in ("", "steps/s", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("step", f"{all_at_once:,.0f}", "1.00")
    table.add_row(
        f"send, recv (batch_size {arguments.batch_size})", f"{streamed:,.0f}", f"{ratio:.2f}"
    )
    table.add_row("sleep alone", f"{arguments.num_envs / mean:,.0f}", "")
    Console().print(table)


if __name__ == "__main__":
    main()
