"""Timing in turns: every contender once per round, so that a busy machine slows all of them."""

from __future__ import annotations

import contextlib
import math
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contenders import Contender, Runner
from vecspaces.cli.console import Show
from vecspaces.cores import count_usable_cores
from vecspaces.vector.backends.process.interrupts import blocked
from vecspaces.vector.exchange.failures import Failure

_FIRST_SECONDS = 0.02  # shorter timings vary too much to derive a number of batches from
_WARM_UP = 5  # before each timing, a fifth of its batches are run


@dataclass(kw_only=True)
class SpeedRuns:
    """Environment steps per second, one figure per round, or why there are none."""

    runs: list[float] = field(default_factory=list)
    skipped: str = ""

    @property
    def steps_per_second(self) -> float | None:
        """The median of the runs."""
        return median(self.runs) if self.runs else None


@dataclass
class Measurement(SpeedRuns):
    """How fast one contender stepped a number of environments."""

    workload: str
    num_envs: int
    backend: str
    num_workers: int

    @property
    def key(self) -> tuple[str, int, str]:
        """The key, which is unique within a benchmark."""
        return self.workload, self.num_envs, self.backend


@dataclass(frozen=True)
class Plan:
    """The contenders and environments that `measure_plan` compares, and the times."""

    #: Factories of environments by their names.
    envs: Mapping[str, Callable[[], Any]]
    #: The numbers of environments; each is measured separately.
    num_envs: Sequence[int]
    contenders: Sequence[Contender]
    #: Processes for the contenders that choose; None: as many as usable cores.
    num_workers: int | None = None
    rounds: int = 5
    #: The duration of one timing.
    seconds: float = 0.25
    #: Contenders that would start more are left out.
    max_processes: int = 256

    @property
    def timings(self) -> int:
        """The number of timings, those of contenders that are left out included."""
        return len(self.envs) * len(self.num_envs) * len(self.contenders) * self.rounds

    def __str__(self) -> str:
        cooldown = sum(contender.cooldown for contender in self.contenders) / len(self.contenders)
        seconds = self.timings * (self.seconds * (1 + 1 / _WARM_UP) + cooldown)
        seconds *= 1 + 1 / self.rounds  # each contender is tried before its first timing
        about = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{max(2, seconds):.0f} seconds"
        return f"{self.timings:,} timings, about {about}."


def measure_plan(
    plan: Plan, measurements: list[Measurement], show: Show = lambda done, text: None
) -> None:
    """Add one measurement per environment, number and contender, in that order.

    `measurements` grows during the run, so that it holds what was measured before Ctrl-C.
    """
    for name, make in plan.envs.items():
        for num_envs in plan.num_envs:
            workers = min(plan.num_workers or count_usable_cores(), num_envs)
            entries = []
            for contender in plan.contenders:
                processes = contender.processes(num_envs, workers)
                entry = Measurement(name, num_envs, contender.name, processes)
                if processes > plan.max_processes:
                    entry.skipped = f"starts {processes} processes"
                entries.append((contender, entry))
                measurements.append(entry)

            def show_field(contender: str, about: str = f"{name} x {num_envs}") -> None:
                done = sum(len(entry.runs) for entry in measurements)
                show(done, f"{about}: {contender}")

            arguments = make, num_envs, workers
            time_in_turns(entries, arguments, plan.rounds, plan.seconds, show_field)


def time_in_turns(
    entries: Sequence[tuple[Contender, SpeedRuns]],
    arguments: tuple[Any, ...],
    rounds: int,
    seconds: float,
    show: Callable[[str], None],
    *,
    keep_open: bool = True,
    end: float = math.inf,
) -> None:
    """Open each contender with these arguments, and time it once per round.

    With `keep_open`, all stay open to the end; otherwise each is open only during its turn, and is
    skipped if an environment fails. After the time `end`, by `perf_counter`, only the first
    contender is still timed, once.
    """
    opened: dict[str, tuple[Runner, int]] = {}
    with contextlib.ExitStack() as stack:  # closes all of them, even after Ctrl-C
        for number in range(rounds):
            for contender, entry in entries:
                late = time.perf_counter() > end
                if late and number == 0 and entry is not entries[0][1]:
                    entry.skipped = entry.skipped or "no time was left for it"
                if entry.skipped or (late and number > 0):
                    continue
                show(contender.name)
                try:
                    if contender.name not in opened:
                        # Each process of another library would print a traceback after Ctrl-C;
                        # ours ignore it, and may take long to build environments.
                        with blocked() if contender.module else contextlib.nullcontext():
                            runner = contender.open(*arguments)
                            stack.callback(_close, runner)
                        opened[contender.name] = runner, calibrate(runner, seconds)
                        time.sleep(contender.cooldown)
                    entry.runs.append(time_batches(*opened[contender.name]))
                    time.sleep(contender.cooldown)
                except Exception as error:  # other libraries raise many kinds of errors
                    if keep_open and isinstance(error.__cause__, Failure):
                        raise  # an environment that fails does so under every contender
                    entry.skipped = first_line(error)
                if not keep_open:
                    opened.clear()
                    stack.close()


def _close(runner: Runner) -> None:
    """Close a contender, and ignore its errors and warnings."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner.close()


def time_batches(runner: Runner, batches: int) -> float:
    """Return steps per second, after a warm-up that fills caches and wakes idle cores."""
    runner.run(-(-batches // _WARM_UP))
    began = time.perf_counter()
    steps = runner.run(batches)
    return steps / (time.perf_counter() - began)


def calibrate(runner: Runner, seconds: float) -> int:
    """Return the number of batches that a runner makes in some seconds, found by doubling."""
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


def describe_machine() -> dict[str, Any]:
    """Return the machine and the versions of the measurement."""
    versions = {}
    for library in ("vecspaces", "numpy", "gymnasium"):
        with contextlib.suppress(metadata.PackageNotFoundError):  # Gymnasium need not be installed
            versions[library] = metadata.version(library)
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "usable_cores": count_usable_cores(),
        "python": platform.python_version(),
        "libraries": versions,
    }


def _processor() -> str:
    """Return the processor's name, if the system reports it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
