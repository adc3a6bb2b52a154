"""Steps a second of a simulator that is vectorised in NumPy already, run in worker processes.

    python -m benchmarks.vector_members

Gymnasium's CartPoleVectorEnv with 1,024 environments: alone in one process, without any transport,
and as two members of 512 in two workers. Rounds take turns, and the numbers are medians.
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
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from rich.console import Console
from rich.table import Table

from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


def speed(envs: Any, actions: list[Any], seconds: float) -> float:
    """Steps of environments a second."""
    envs.reset(seed=0)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for batch in actions:
            envs.step(batch)
        count += len(actions)
    return count * envs.num_envs / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round, for each way")
    arguments = parser.parse_args()

    workers = arguments.num_workers
    share = arguments.num_envs // workers
    members = [partial(CartPoleVectorEnv, num_envs=share)] * workers
    ways: dict[str, Any] = {
        "CartPoleVectorEnv alone": CartPoleVectorEnv(num_envs=arguments.num_envs),
        f"SyncVectorEnv of {workers} members": SyncVectorEnv(members),
        f"AsyncVectorEnv, {workers} workers": AsyncVectorEnv(members, num_workers=workers),
        f"AsyncVectorEnv, {workers} workers, copy=False": AsyncVectorEnv(
            members, num_workers=workers, copy=False
        ),
    }
    generator = np.random.default_rng(0)
    actions = [generator.integers(0, 2, share * workers) for _ in range(64)]
    rounds: list[list[float]] = []
    for _ in range(arguments.rounds):
        rounds.append([speed(envs, actions, arguments.seconds) for envs in ways.values()])
    for envs in ways.values():
        envs.close()

    table = Table(
        title=f"{share * workers:,} CartPoles vectorised in NumPy (Python "
        f"{platform.python_version()}, NumPy {version('numpy')})"
    )
    for column in ("", "steps/s", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for name, found in zip(ways, zip(*rounds, strict=True), strict=True):
        ratio = statistics.median(one / row[0] for one, row in zip(found, rounds, strict=True))
        table.add_row(name, f"{statistics.median(found):,.0f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
