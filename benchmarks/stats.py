"""What `stats=True` adds to a step of CartPole.

    python -m benchmarks.stats

Two equal SyncVectorEnvs, one of them with `stats=True`, take turns with the same actions. What is
compared is processor time, of which a busy machine disturbs less; the overhead is the median of the
differences over the median of a step.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

from vecspaces.vector import SyncVectorEnv


def cart_pole() -> Any:
    """What every row steps."""
    return gymnasium.make("CartPole-v1")


def nanoseconds(envs: Any, actions: list[Any]) -> float:
    """Processor time of one step of one environment."""
    began = time.thread_time_ns()
    for batch in actions:
        envs.step(batch)
    return (time.thread_time_ns() - began) / len(actions) / envs.num_envs


def measure(num_envs: int, rounds: int) -> tuple[float, float]:
    """A step without statistics, and what they add, in nanoseconds."""
    generator = np.random.default_rng(0)
    steps = max(1, 512 // num_envs)
    plain: list[float] = []
    added: list[float] = []
    env_fns = [cart_pole] * num_envs
    with SyncVectorEnv(env_fns) as without, SyncVectorEnv(env_fns, stats=True) as with_stats:
        for number in range(rounds):
            if number % 50 == 0:
                without.reset(seed=number)
                with_stats.reset(seed=number)
            actions = [generator.integers(0, 2, num_envs) for _ in range(steps)]
            found = {}
            for envs in (without, with_stats) if number % 2 else (with_stats, without):
                found[envs] = nanoseconds(envs, actions)
            plain.append(found[without])
            added.append(found[with_stats] - found[without])
    return statistics.median(plain), statistics.median(added)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args()
    table = Table(
        title=f"CartPole-v1 with stats=True (Python {platform.python_version()}, NumPy "
        f"{version('numpy')}, Gymnasium {version('gymnasium')})"
    )
    for column in ("environments", "ns a step", "ns added", "overhead"):
        table.add_column(column, justify="right")
    for num_envs in arguments.num_envs:
        plain, added = measure(num_envs, arguments.rounds)
        table.add_row(
            str(num_envs), f"{plain:,.0f}", f"{added:,.0f}", f"{added / plain * 100:.2f} %"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
