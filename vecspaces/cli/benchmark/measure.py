"""Interleaved timing: every contender in turn, several rounds, so that all see the same machine."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from vecspaces.cli.benchmark.contenders import Contender, Runner
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.backends.process.interrupts import blocked
from vecspaces.vector.exchange.failures import Failure

_FIRST_SECONDS = 0.02  # a timing shorter than this says little about how many batches to run
_WARM_UP = 5  # one part in so many of what is timed runs before it


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        envs: Factories of environments by their names.
        num_envs: How many environments, each number by itself.
        contenders: What steps them.
        num_workers: Processes for the contenders that choose; None: as many as usable cores.
        rounds: How often each contender is timed; the median counts.
        seconds: How long one timing takes.
        max_processes: Contenders that would start more are left out.
    """

    envs: Mapping[str, Callable[[], Any]]
    num_envs: Sequence[int]
    contenders: Sequence[Contender]
    num_workers: int | None = None
    rounds: int = 5
    seconds: float = 0.25
    max_processes: int = 256

    @property
    def timings(self) -> int:
        """The number of timings, those of contenders that are left out included."""
        return len(self.envs) * len(self.num_envs) * len(self.contenders) * self.rounds

    def __str__(self) -> str:
        """What the plan takes, in words."""
        cooldown = sum(one.cooldown for one in self.contenders) / len(self.contenders)
        seconds = self.timings * (self.seconds * (1 + 1 / _WARM_UP) + cooldown)
        seconds *= 1 + 1 / self.rounds  # each contender is tried before the first round
        about = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{max(2, seconds):.0f} seconds"
        return f"{self.timings:,} timings, about {about}."


@dataclass
class Measurement:
    """How fast one contender stepped some environments.

    Attributes:
        workload: The name of the environment.
        num_envs: How many there were.
        backend: The name of the contender.
        num_workers: The processes that it used.
        runs: Environment steps per second, one figure per round.
        skipped: Why there are none; "" if there are.
    """

    workload: str
    num_envs: int
    backend: str
    num_workers: int
    runs: list[float] = field(default_factory=list)
    skipped: str = ""

    @property
    def steps_per_second(self) -> float | None:
        """The median of the runs."""
        return median(self.runs) if self.runs else None


def measure(
    plan: Plan, found: list[Measurement], show: Callable[..., None] = lambda **shown: None
) -> None:
    """Add one measurement per environment, number and contender, in that order.

    `found` grows during the run, so that it holds what was measured before Ctrl-C. `show` is a
    progress bar's update: it gets `description` and `advance` before each timing.
    """
    for name in plan.envs:
        for num_envs in plan.num_envs:
            _measure_field(plan, name, num_envs, found, show)


def _measure_field(
    plan: Plan, name: str, num_envs: int, found: list[Measurement], show: Callable[..., None]
) -> None:
    """Open every contender, time them in turn, and close them all."""
    workers = min(plan.num_workers or count_usable_cores(), num_envs)
    entries: list[tuple[Contender, Measurement]] = []
    runners: dict[str, tuple[Runner, int]] = {}
    with contextlib.ExitStack() as opened:  # closes all of them, even if Ctrl-C comes meanwhile
        for contender in plan.contenders:
            show(description=f"{name} x {num_envs}: opening {contender.name}")
            processes = contender.processes(num_envs, workers)
            entry = Measurement(name, num_envs, contender.name, processes)
            entries.append((contender, entry))
            found.append(entry)
            if processes > plan.max_processes:
                entry.skipped = f"starts {processes} processes"
                continue
            try:
                # Processes of others would each print a traceback after Ctrl-C; ours ignore it, and
                # the environment itself may take long.
                with blocked() if contender.module else contextlib.nullcontext():
                    runner = contender.open(plan.envs[name], num_envs, workers)
                    opened.callback(_close, runner)
                runners[contender.name] = runner, calibrate(runner, plan.seconds)
            except Exception as error:  # other libraries refuse in many ways
                if isinstance(error.__cause__, Failure):
                    raise  # an environment that fails does so under every contender
                entry.skipped = first_line(error)
            time.sleep(contender.cooldown)
        for _ in range(plan.rounds):
            for contender, entry in entries:
                show(description=f"{name} x {num_envs}: {contender.name}", advance=1)
                if contender.name in runners:
                    runner, batches = runners[contender.name]
                    entry.runs.append(time_batches(runner, batches))
                    time.sleep(contender.cooldown)


def _close(runner: Runner) -> None:
    """Close a contender, whatever its library says to that."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner.close()


def time_batches(runner: Runner, batches: int) -> float:
    """Return steps per second, once caches are filled and cores awake that were idle before."""
    runner.run(-(-batches // _WARM_UP))
    began = time.perf_counter()
    steps = runner.run(batches)
    return steps / (time.perf_counter() - began)


def calibrate(runner: Runner, seconds: float) -> int:
    """Return how many batches a runner makes in so many seconds, found by doubling."""
    batches = 1
    while True:
        began = time.perf_counter()
        runner.run(batches)
        took = time.perf_counter() - began
        if took >= min(_FIRST_SECONDS, seconds):
            return max(1, round(batches * seconds / took))
        batches *= 2


def first_line(error: Exception) -> str:
    """Return the type and the first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
