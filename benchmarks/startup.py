"""Memory and start: 256 CartPoles, also in Gymnasium, and 4,096 environments in two workers.

Before, 64 and 128 workers of one CartPole each, and 4,096 and 20,000 CartPoles in two workers, by
each start method; `--methods` measures these alone. Then 4,096 environments that do nothing, of
equal spaces and of different ones, beside Gymnasium's `SyncVectorEnv`: what it takes to compare and
batch spaces.

    python -m benchmarks.startup

Memory is the proportional set size of all worker processes (PSS, in which a page that k processes
share counts for 1/k), which Linux alone reports.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import cart_pole, make_table, show
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

NUM_ENVS = 256
MANY, MOST = 4096, 20_000
METHODS = ("fork", "forkserver", "spawn")
#: What the fork server imports, and this module, which each process imports as its main module.
PRELOADED = ["vecspaces.vector.backends.process.worker", "vecspaces.adapters.gymnasium.spaces"]


def descendants(pid: int | str = "self") -> Iterator[str]:
    """Yield the processes that a process started, and those that they started."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text(encoding="ascii").split():
            yield child
            yield from descendants(child)


def proportional_memory(pids: Iterable[str]) -> float:
    """Return the proportional memory of processes, in MB."""
    total = 0
    for pid in pids:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        line = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
        total += int(line.split()[1])
    return total / 1e3


def start(make: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds to the first observation, and the memory of the workers then."""
    began = time.perf_counter()
    envs = make()
    envs.reset(seed=0)
    seconds = time.perf_counter() - began
    memory = proportional_memory(descendants())
    envs.close()
    return seconds, memory


class Idle:
    """An environment of Gymnasium's spaces that does nothing."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None

    def __init__(self, spaces: Any, bound: float) -> None:
        self.observation_space = spaces.Box(-bound, bound, (4,))
        self.action_space = spaces.Discrete(2)
        self.unwrapped = self

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Return the first observation."""
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        """Return another one."""
        return np.zeros(4, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        """Free nothing."""


def start_idle(rounds: int) -> None:
    """Print how long many environments take to start that do almost nothing themselves."""
    spaces = importlib.import_module("gymnasium.spaces")
    vector = importlib.import_module("gymnasium.vector")
    title = f"{MANY:,} environments that do nothing, seconds to the first observation (median)"
    table = make_table(title, "spaces", "Gymnasium sync", "sync", "async, 2 workers")
    for mode in ("same", "different"):
        env_fns = [
            partial(Idle, spaces, 1.0 if mode == "same" else 1.0 + number) for number in range(MANY)
        ]
        makers = [
            partial(vector.SyncVectorEnv, env_fns, observation_mode=mode),
            partial(SyncVectorEnv, env_fns, observation_mode=mode),
            partial(AsyncVectorEnv, env_fns, observation_mode=mode, num_workers=2, context="fork"),
        ]
        samples: list[list[float]] = [[] for _ in makers]
        for _ in range(rounds):
            for seconds, make in zip(samples, makers, strict=True):
                seconds.append(start(make)[0])
        name = "equal" if mode == "same" else mode
        table.add_row(name, *(f"{statistics.median(seconds):.2f}" for seconds in samples))
    show(table)


def start_by_method(rounds: int) -> None:
    """Print how long workers and environments take to start under each start method."""
    title = (
        f"CartPoles, seconds to the first observation (least of {rounds}; in parentheses the first)"
    )
    table = make_table(title, "environments", "workers", *METHODS, left=1)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    multiprocessing.set_forkserver_preload([*PRELOADED, "benchmarks.startup"])
    for num_envs, num_workers in ((64, 64), (128, 128), (MANY, 2), (MOST, 2)):
        cells = []
        for method in METHODS:
            make = partial(
                AsyncVectorEnv, [cart_pole] * num_envs, num_workers=num_workers, context=method
            )
            seconds = [start(make)[0] for _ in range(rounds)]
            cells.append(f"{min(seconds):.2f} ({seconds[0]:.2f})")
        table.add_row(f"{num_envs:,}", f"{num_workers}", *cells)
    show(table)


def main(
    rounds: Annotated[int, typer.Option(help="How often each is started.")] = 5,
    spawn_rounds: Annotated[int, typer.Option(help="The same under spawn, which is slow.")] = 1,
    methods: Annotated[bool, typer.Option(help="Measure the start methods alone.")] = False,
) -> None:
    """Print the tables."""
    start_by_method(rounds)
    if methods:
        return
    vector = importlib.import_module("gymnasium.vector")
    title = f"{NUM_ENVS} CartPoles, from construction to the first observation"
    table = make_table(title, "start method", "", "seconds", "workers' memory (PSS)", left=2)
    for context, count in (("fork", rounds), ("spawn", spawn_rounds)):
        makers = {
            "vecspaces": partial(AsyncVectorEnv, [cart_pole] * NUM_ENVS, context=context),
            "gymnasium": partial(vector.AsyncVectorEnv, [cart_pole] * NUM_ENVS, context=context),
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
        for _ in range(count):
            for name, make in makers.items():
                samples[name].append(start(make))
        medians = {
            name: [statistics.median(column) for column in zip(*runs, strict=True)]
            for name, runs in samples.items()
        }
        for name, (seconds, memory) in medians.items():
            table.add_row(context, name, f"{seconds:.2f}", f"{memory:,.0f} MB")
        ratios = [
            theirs / ours
            for ours, theirs in zip(medians["vecspaces"], medians["gymnasium"], strict=True)
        ]
        table.add_row(context, "ratio", f"{ratios[0]:.1f}x", f"{ratios[1]:.1f}x", style="bold")
    show(table)

    began = time.perf_counter()
    with AsyncVectorEnv([cart_pole] * MANY, num_workers=2) as envs:
        envs.reset(seed=0)
        seconds = time.perf_counter() - began
        stepping = time.perf_counter()
        for _ in range(20):
            envs.step(envs.action_space.sample())
        rate = 20 * MANY / (time.perf_counter() - stepping)
        memory = proportional_memory(descendants())
    print(
        f"{MANY:,} CartPoles in two workers: first observation after {seconds:.2f} s, "
        f"{rate:,.0f} steps/s, {memory:,.0f} MB"
    )
    start_idle(rounds)


if __name__ == "__main__":
    typer.run(main)
