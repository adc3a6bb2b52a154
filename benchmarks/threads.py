"""Threads against processes against Sync: environments that wait, compute, or do nothing.

    python -m benchmarks.threads

`waiting` sleeps for 50 ms; `python` computes for about 200 us in pure Python. Figures are medians
of the time of a step of all environments, in milliseconds.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import Any

import typer

from benchmarks.common import cart_pole, make_table, show
from benchmarks.environments import Nothing
from vecspaces import make_vec

WAYS: dict[str, dict[str, Any]] = {
    "Sync": {"backend": "sync"},
    "a thread each": {"backend": "thread"},
    "2 threads": {"backend": "thread", "num_workers": 2},
    "2 processes": {"num_workers": 2},
}


class Waiting(Nothing):
    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)


class Python(Nothing):
    def step(self, action: Any) -> Any:
        sum(number * number for number in range(4000))
        return super().step(action)


ENVS = {"waiting": Waiting, "python": Python, "CartPole": cart_pole, "idle": Nothing}


def step_seconds(envs: Any, seconds: float) -> float:
    """Return the median time of at least three steps."""
    envs.reset(seed=0)
    actions, times = envs.action_space.sample(), list[float]()
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        envs.step(actions)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main(num_envs: int = 64, rounds: int = 5, seconds: float = 0.3) -> None:
    """Time every way for every environment, in turns."""
    table = make_table(f"ms per step of {num_envs}", "environment", *WAYS)
    for name, env_fn in ENVS.items():
        with ExitStack() as stack:
            ways = [stack.enter_context(make_vec(env_fn, num_envs, **way)) for way in WAYS.values()]
            times = [[step_seconds(envs, seconds) for envs in ways] for _ in range(rounds)]
        table.add_row(name, *(f"{statistics.median(way) * 1e3:.3f}" for way in zip(*times)))  # noqa: B905
    show(table)


if __name__ == "__main__":
    typer.run(main)
