"""Environments that people train on: HalfCheetah, Breakout, MiniGrid and CarRacing.

    pip install "gymnasium[mujoco,box2d]" ale-py minigrid opencv-python-headless envpool
    python -m benchmarks.real

For each number of environments: steps per second (the median of rounds in turns), processor time
per step of all processes, the memory that the vector env and its workers add, and the time to the
first observation. What is not installed is skipped, with the reason. Linux alone, as memory and
processor time are read from /proc.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import typer

from benchmarks.common import make_table, show
from benchmarks.contenders import (
    GYMNASIUM,
    LIMIT,
    OURS,
    Contender,
    Runner,
    open_vecspaces,
)
from benchmarks.peers import envpool_task
from benchmarks.startup import descendants, proportional_memory
from benchmarks.timing import calibrate, first_line, time_batches

WORKERS = 2
_TICKS = os.sysconf("SC_CLK_TCK")


def _half_cheetah() -> Any:
    return gymnasium.make("HalfCheetah-v5")


def _breakout() -> Any:
    gymnasium.register_envs(importlib.import_module("ale_py"))
    env = gymnasium.make("ALE/Breakout-v5", frameskip=1)
    wrappers = gymnasium.wrappers
    return wrappers.FrameStackObservation(wrappers.AtariPreprocessing(env), 4)


def _minigrid() -> Any:
    minigrid = importlib.import_module("minigrid")
    gymnasium.register_envs(minigrid)
    wrappers = importlib.import_module("minigrid.wrappers")
    return wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0"))


def _car_racing() -> Any:
    return gymnasium.make("CarRacing-v3", continuous=False)


#: How each environment is made, and the name of the same task in EnvPool.
TASKS: dict[str, tuple[Callable[[], Any], str | None]] = {
    "HalfCheetah-v5": (_half_cheetah, "HalfCheetah-v5"),
    "Breakout": (_breakout, "Breakout-v5"),
    "MiniGrid-DoorKey-8x8": (_minigrid, None),
    "CarRacing-v3": (_car_racing, None),
}


def find_task(name: str) -> Callable[[], Any] | str:
    """Return the factory of one of `TASKS`, or the reason why it cannot be made here."""
    make, _ = TASKS[name]
    try:
        make().close()
    except Exception as error:  # libraries raise many types of errors for missing parts
        return first_line(error)
    return make


def _open_process_per_env(make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    return open_vecspaces("async", make, num_envs, num_envs)


PER_PROCESS = Contender("vecspaces async, one process each", _open_process_per_env)


def find_contenders(name: str) -> list[Contender]:
    """Return the contenders that step one of `TASKS`."""
    _, envpool_id = TASKS[name]
    envpool = [] if envpool_id is None else [envpool_task(envpool_id)]
    return [*OURS, PER_PROCESS, *GYMNASIUM, *envpool, LIMIT]


def family() -> Iterator[str]:
    """Yield this process and all that it started."""
    yield "self"
    yield from descendants()


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it started."""
    total = 0
    for pid in family():
        # The fields after the name, which may contain spaces and parentheses.
        parts = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += int(parts[11]) + int(parts[12])
    return total / _TICKS


@dataclass
class Result:
    """The result of one contender.

    Attributes:
        first: Seconds to the first observation.
        memory: Megabytes that it added.
        speeds: Environment steps per second, one figure per round.
        processor: Seconds of processor time, and environment steps, over all rounds.
        skipped: Why it was left out.
    """

    first: float = 0.0
    memory: float = 0.0
    speeds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=lambda: [0.0, 0.0])
    skipped: str = ""


def measure(
    make: Callable[[], Any],
    num_envs: int,
    contenders: Sequence[Contender],
    rounds: int,
    seconds: float,
) -> dict[str, Result]:
    """Open every contender, let them run in turns, and close them."""
    results: dict[str, Result] = {}
    runners: dict[str, tuple[Runner, int]] = {}
    try:
        for contender in contenders:
            entry = results[contender.name] = Result()
            if not contender.installed:
                entry.skipped = f"{contender.module} is not installed"
                continue
            before, began = proportional_memory(family()), time.perf_counter()
            try:
                runner = contender.open(make, num_envs, min(WORKERS, num_envs))
            except Exception as error:  # other libraries refuse in many ways
                entry.skipped = first_line(error)
                continue
            entry.first = time.perf_counter() - began
            entry.memory = proportional_memory(family()) - before
            runners[contender.name] = runner, 0
            runners[contender.name] = runner, calibrate(runner, seconds)
        for _ in range(rounds):
            for name, (runner, batches) in runners.items():
                entry, before = results[name], processor_seconds()
                entry.speeds.append(time_batches(runner, batches))
                entry.processor[0] += processor_seconds() - before
                # The batches of the warm-up count too.
                entry.processor[1] += num_envs * (batches - (-batches // 5))
    finally:
        for runner, _ in runners.values():
            runner.close()
    return results


def _table(task: str, num_envs: int, results: dict[str, Result]) -> Any:
    columns = ("steps/s", "processor us/step", "memory MB", "first observation s")
    table = make_table(f"{num_envs} x {task}", "", *columns)
    for name, entry in results.items():
        if entry.skipped:
            table.add_row(f"{name}: {entry.skipped}", "", "", "", "")
            continue
        seconds, steps = entry.processor
        table.add_row(
            name,
            f"{statistics.median(entry.speeds):,.0f}",
            f"{1e6 * seconds / steps:,.0f}",
            f"{entry.memory:,.0f}",
            f"{entry.first:.2f}",
        )
    return table


def main(
    tasks: Annotated[str, typer.Option(metavar="NAME,NAME,...")] = ",".join(TASKS),
    num_envs: Annotated[str, typer.Option(metavar="N,N,...")] = "16,64",
    rounds: Annotated[int, typer.Option(help="How often each contender is timed.")] = 5,
    seconds: Annotated[float, typer.Option(help="How long one timing takes.")] = 0.5,
) -> None:
    """Print one table per environment and number."""
    for name in tasks.split(","):
        make = find_task(name)
        if isinstance(make, str):
            print(f"{name} is skipped: {make}")
            continue
        for count in map(int, num_envs.split(",")):
            show(_table(name, count, measure(make, count, find_contenders(name), rounds, seconds)))


if __name__ == "__main__":
    typer.run(main)
