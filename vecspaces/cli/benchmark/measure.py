"""Interleaved timing: every backend in turn, several rounds, so that all see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from vecspaces.cli.benchmark.backends import Backend, Runner, Unsuitable
from vecspaces.cli.benchmark.environments import Workload
from vecspaces.vector.backends.process.cores import count_usable_cores

_FIRST_SECONDS = 0.02  # a timing shorter than this says little about how many batches to run
_WARM_UP = 5  # one part in so many of what is timed runs before it


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Args:
        workloads: The environments.
        num_envs: How many of them, each number by itself.
        backends: Who steps them.
        num_workers: Processes for the backends that choose; None: as many as usable cores, and
            eight times as many where environments wait.
        rounds: How often each backend is timed; the median counts.
        seconds: How long one timing takes.
        max_processes: Backends that would start more are left out.
    """

    workloads: Sequence[Workload]
    num_envs: Sequence[int]
    backends: Sequence[Backend]
    num_workers: int | None = None
    rounds: int = 5
    seconds: float = 0.25
    max_processes: int = 256

    @property
    def timings(self) -> int:
        """The number of timings, those of backends that turn out unsuitable included."""
        fields = sum(len(self.field(workload)) for workload in self.workloads)
        return fields * len(self.num_envs) * self.rounds

    def field(self, workload: Workload) -> list[Backend]:
        """The backends that step an environment."""
        return [backend for backend in self.backends if workload.waits or not backend.waiting_only]

    def workers(self, workload: Workload, num_envs: int) -> int:
        """The number of processes for the backends that choose."""
        wanted = self.num_workers
        if wanted is None:
            wanted = count_usable_cores() * (8 if workload.waits else 1)
        return min(wanted, num_envs)


@dataclass
class Measurement:
    """What one backend made of some environments.

    Args:
        workload: The name of the environment.
        num_envs: How many there were.
        backend: The name of the backend.
        num_workers: The processes that it used.
        runs: Environment steps a second, one figure per round.
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
    plan: Plan, advance: Callable[[str, int], None] = lambda what, timings: None
) -> list[Measurement]:
    """Measure.

    Args:
        plan: What.
        advance: Called with what comes next and the number of timings that are done since.

    Returns:
        One measurement per environment, number and backend, in that order.
    """
    found: list[Measurement] = []
    for workload in plan.workloads:
        for num_envs in plan.num_envs:
            found += _measure_field(plan, workload, num_envs, advance)
    return found


def _measure_field(
    plan: Plan, workload: Workload, num_envs: int, advance: Callable[[str, int], None]
) -> list[Measurement]:
    """Open every backend, time them in turn, and close them all."""
    workers = plan.workers(workload, num_envs)
    entries: list[tuple[Backend, Measurement]] = []
    runners: dict[str, tuple[Runner, int]] = {}
    try:
        for backend in plan.field(workload):
            advance(f"{workload.name} x {num_envs}: opening {backend.name}", 0)
            processes = backend.processes(num_envs, workers)
            entry = Measurement(workload.name, num_envs, backend.name, processes)
            entries.append((backend, entry))
            if processes > plan.max_processes:
                entry.skipped = f"starts {processes} processes"
                continue
            try:
                runner = backend.open(workload, num_envs, workers)
                runners[backend.name] = runner, _calibrate(runner, plan.seconds)
            except Unsuitable as finding:
                entry.skipped = str(finding)
            except Exception as error:  # other libraries refuse in many ways
                entry.skipped = _first_line(error)
            time.sleep(backend.cooldown)
        for _ in range(plan.rounds):
            for backend, entry in entries:
                advance(f"{workload.name} x {num_envs}: {backend.name}", 1)
                if backend.name in runners:
                    runner, batches = runners[backend.name]
                    entry.runs.append(_time(runner, batches))
                    time.sleep(backend.cooldown)
    finally:
        for runner, _ in runners.values():
            runner.close()
    return [entry for _, entry in entries]


def _time(runner: Runner, batches: int) -> float:
    """Steps a second, once caches are filled and cores awake that the one before left idle."""
    runner.run(-(-batches // _WARM_UP))
    began = time.perf_counter()
    steps = runner.run(batches)
    return steps / (time.perf_counter() - began)


def _calibrate(runner: Runner, seconds: float) -> int:
    """How many batches a runner makes in so many seconds, found by doubling; it warms up too."""
    batches = 1
    while True:
        began = time.perf_counter()
        runner.run(batches)
        took = time.perf_counter() - began
        if took >= min(_FIRST_SECONDS, seconds):
            return max(1, round(batches * seconds / took))
        batches *= 2


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
