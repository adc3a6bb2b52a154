"""Timing in turns, and tables titled with the versions in use, for all benchmarks."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

from vecspaces.cli import console

Call = Callable[[], Any]
ROUND_SECONDS = 0.0005  # below a scheduler's time slice, so that few rounds are interrupted


def cart_pole() -> Any:
    return gymnasium.make("CartPole-v1")


def versions() -> str:
    return (
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"Gymnasium {version('gymnasium')}"
    )


def make_table(title: str, *columns: str, left: int = 1) -> Table:
    """Return a table whose first columns are aligned to the left, the others to the right."""
    return console.make_table(f"{title} ({versions()})", *columns, left=left)


def time_in_turns(calls: Sequence[Call], rounds: int) -> list[float]:
    """Return the median time of each call, in microseconds; a busy machine slows all of them."""
    loops = [1] * len(calls)
    times: list[list[float]] = [[] for _ in calls]
    for i, call in enumerate(calls):
        while _seconds(call, loops[i]) < ROUND_SECONDS:
            loops[i] *= 2
    for _ in range(rounds):
        for i, call in enumerate(calls):
            times[i].append(_seconds(call, loops[i]) / loops[i] * 1e6)
    return [statistics.median(durations) for durations in times]


def _seconds(call: Call, loops: int) -> float:
    began = time.perf_counter()
    for _ in range(loops):
        call()
    return time.perf_counter() - began


def repeat(step: Callable[[int], Any], seconds: float) -> float:
    """Return how often per second `step` could be called with 0, 1, 2, ..."""
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        step(count)
        count += 1
    return count / elapsed


def race(ways: Mapping[str, Callable[[float], float]], rounds: int, seconds: float) -> Table:
    """Let each way run for some seconds in each of several rounds, and return a table of medians.

    Args:
        ways: Functions of the seconds that return steps per second.
        rounds: How often each one runs.
        seconds: For how long.

    Returns:
        Medians of the rounds, and medians of the rounds' ratios to the first way.
    """
    samples = [[way(seconds) for way in ways.values()] for _ in range(rounds)]
    table = make_table(f"{rounds} rounds", "", "steps/s", "ratio")
    for name, speeds in zip(ways, zip(*samples, strict=True), strict=True):
        ratio = statistics.median(
            speed / row[0] for speed, row in zip(speeds, samples, strict=True)
        )
        table.add_row(name, f"{statistics.median(speeds):,.0f}", f"{ratio:.2f}")
    return table


#: Builds a number of environments; returns what steps all of them, called with 0, 1, 2, ..., and
#: how many environment steps that makes. It is pickled where processes are not forked.
OpenShare = Callable[[int], tuple[Callable[[int], Any], int]]


class BareLoops:
    """Both limits: processes that step a share of the environments each, and exchange nothing.

    Args:
        open_share: Opens the environments of a process.
        num_envs: The number of environments of all processes.
        num_workers: The number of processes.
    """

    def __init__(self, open_share: OpenShare, num_envs: int, num_workers: int) -> None:
        self._processes, self._ends = [], []
        for _ in range(num_workers):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=_serve, args=(theirs, open_share, num_envs // num_workers), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._ends.append(ours)

    def speed(self, seconds: float) -> float:
        """Let all run at once, which never wait for each other; return steps per second."""
        for end in self._ends:
            end.send(seconds)
        return sum(end.recv() for end in self._ends)

    def speed_in_step(self, seconds: float) -> float:
        """Let all wait for each other after each step, by one byte each way; return the same."""
        steps, step = self.begin_steps()
        speed = repeat(step, seconds)
        self.end_steps()
        return steps * speed

    def begin_steps(self) -> tuple[int, Callable[[int], None]]:
        """Return how many environment steps a step of all makes, and what makes it."""
        for end in self._ends:
            end.send(_IN_STEP)
        steps = sum(end.recv() for end in self._ends)
        descriptors = [end.fileno() for end in self._ends]

        def step(_: int) -> None:
            for descriptor in descriptors:
                os.write(descriptor, b"s")
            for descriptor in descriptors:
                os.read(descriptor, 1)

        return steps, step

    def end_steps(self) -> None:
        """Let the processes wait for other commands than steps."""
        for end in self._ends:
            os.write(end.fileno(), b"e")

    def close(self) -> None:
        """End the processes."""
        for process, end in zip(self._processes, self._ends, strict=True):
            end.send(0.0)
            process.join()
            end.close()


_IN_STEP = -1.0


def _serve(end: Any, open_share: OpenShare, share: int) -> None:
    step, steps = open_share(share)
    turns = itertools.count()
    while seconds := end.recv():
        if seconds != _IN_STEP:
            end.send(steps * repeat(step, seconds))
            continue
        end.send(steps)
        while os.read(end.fileno(), 1) == b"s":
            step(next(turns))
            os.write(end.fileno(), b"s")


def show(table: Table) -> None:
    # In a file, tables are as wide as necessary.
    Console(highlight=False, width=None if sys.stdout.isatty() else 150).print(table)
