"""Tuning: what an environment costs, and which settings step it fastest, found by trying."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces.cli.benchmark.contenders import open_vecspaces
from vecspaces.cli.benchmark.measure import calibrate, first_line, time_batches
from vecspaces.interop import native_space
from vecspaces.layout import Layout
from vecspaces.sampling import fit_mask
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.options import PROCESS_ARGUMENTS

#: How often each candidate is timed.
ROUNDS = 3
# Of settings that are as fast as this, the simplest is the best.
_ALIKE = 0.97
# An environment that computes for less than this share of its step waits for something.
_WAITS = 0.5
# What a quiet machine leaves, of a core and of all cores.
_QUIET = 0.75
# How often, and for how long, the machine is looked at between steps, in seconds.
_LOOK_EVERY, _LOOK_SECONDS = 0.03, 0.005
# Memory is counted in pages: small environments show only in numbers.
_COPIES, _COPYING_SECONDS = 64, 0.5


@dataclass(frozen=True)
class Costs:
    """What one environment costs.

    Attributes:
        step_mean: Mean time of a step, in seconds.
        step_p99: 99th percentile of the time of a step, in seconds.
        step_spread: Standard deviation over mean.
        reset_mean: Mean time of a reset, in seconds.
        computing: Share of a step in which it uses the processor, or would on a quiet machine.
        granted: Share of a core that a loop got which only computes; 1 on a quiet machine.
        cores: The usable cores.
        idle_cores: How many of them were idle meanwhile; None where the system does not report it.
        observation_bytes: Bytes of one observation.
        memory_bytes: Memory of one environment; None where the system does not report it.
        build_seconds: The time to start a worker and to build one environment in it.
    """

    step_mean: float
    step_p99: float
    step_spread: float
    reset_mean: float
    computing: float
    granted: float
    cores: int
    idle_cores: float | None
    observation_bytes: int
    memory_bytes: int | None
    build_seconds: float

    @property
    def waits(self) -> bool:
        """Whether it spends most of a step waiting."""
        return self.computing < _WAITS

    @property
    def is_busy(self) -> bool:
        """Whether other programs take much of the cores."""
        # One core was the environment's.
        left = self.cores if self.idle_cores is None else self.idle_cores + 1
        return self.granted < _QUIET or left < _QUIET * self.cores


def inspect(
    make: Callable[[], Any], seconds: float, options: Mapping[str, Any] | None = None
) -> Costs:
    """Measure one environment, in a worker, so that none is built in this process.

    `options` are arguments of the vector env.
    """
    given = dict(options or {})
    if "step_timeout" in given:  # it bounds a whole call here
        given["step_timeout"] += seconds + _COPYING_SECONDS
    began = time.perf_counter()
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv([make], num_workers=1, **given)
    with envs:
        build_seconds = time.perf_counter() - began
        if envs.num_envs > 1:
            raise ValueError(
                "env: tune needs a factory of single environments, found one that makes vector "
                f"envs of {envs.num_envs}: give each worker one of them"
            )
        observation_bytes = Layout.compile(envs.single_observation_space).nbytes
        idle, looked = _idle_seconds(), time.perf_counter()
        (found,) = envs.call(_exercise, seconds)
        if idle is not None:
            idle = ((_idle_seconds() or 0.0) - idle) / (time.perf_counter() - looked)
        (memory,) = envs.call(_memory_of_copies, make)
    steps = np.array(found["steps"])
    return Costs(
        step_mean=float(steps.mean()),
        step_p99=float(np.quantile(steps, 0.99)),
        step_spread=float(steps.std() / steps.mean()),
        reset_mean=statistics.fmean(found["resets"]),
        computing=found["computing"],
        granted=found["granted"],
        cores=count_usable_cores(),
        idle_cores=idle,
        observation_bytes=observation_bytes,
        memory_bytes=memory,
        build_seconds=build_seconds,
    )


def _exercise(env: Any, seconds: float) -> dict[str, Any]:
    """Step an environment with random actions where it runs, and time every call."""
    clock = time.perf_counter
    action_space = native_space(env.action_space)
    action_space.seed(0)
    actions = [action_space.sample() for _ in range(256)]
    steps: list[float] = []
    resets: list[float] = []
    ended, end = True, clock() + seconds
    # Beside the environment, a loop that only computes: what it lacks of a core, others have.
    computed, looked, used, look_at = time.process_time(), 0.0, 0.0, 0.0
    turn, mask = 0, None
    while not steps or clock() < end:
        action = actions[turn % len(actions)] if mask is None else action_space.sample(mask=mask)
        began = clock()
        if began > look_at:
            before = time.process_time()
            while clock() < began + _LOOK_SECONDS:
                pass
            used += time.process_time() - before
            look_at = clock()
            looked += look_at - began
            began, look_at = look_at, look_at + _LOOK_EVERY
        if ended:
            _, info = env.reset()
            ended = False
            resets.append(clock() - began)
        else:
            _, _, terminated, truncated, info = env.step(action)
            steps.append(clock() - began)
            ended = bool(terminated or truncated)
            turn += 1
        mask = None if ended else fit_mask(action_space, info)
    computed = time.process_time() - computed - used
    granted = min(1.0, used / looked)
    return {
        "steps": steps,
        "resets": resets,
        "granted": granted,
        "computing": min(1.0, computed / granted / (sum(steps) + sum(resets))),
    }


def _idle_seconds() -> float | None:
    """Return for how long the cores that this process may use have been idle, summed."""
    if sys.platform != "linux":
        return None
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = map(str.split, Path("/proc/stat").read_text(encoding="ascii").splitlines())
    idle = [int(parts[4]) + int(parts[5]) for parts in lines if parts[0] in names]
    return sum(idle) / os.sysconf("SC_CLK_TCK") if idle else None


def _memory_of_copies(env: Any, make: Callable[[], Any]) -> int | None:
    """Return the memory by which this process grows with each further environment."""
    before = _resident_bytes()
    if before is None:
        return None
    copies: list[Any] = []
    end = time.perf_counter() + _COPYING_SECONDS
    while len(copies) < _COPIES and (not copies or time.perf_counter() < end):
        copies.append(make())
        copies[-1].reset()
    after = _resident_bytes()
    for copy in copies:
        copy.close()
    return None if after is None else max(0, after - before) // len(copies)


def _resident_bytes() -> int | None:
    if sys.platform != "linux":
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Candidate:
    """Settings to try.

    Attributes:
        backend: `"sync"` or `"async"`.
        options: Arguments of the vector env.
        runs: Environment steps per second, one figure per run.
        skipped: Why there is none.
    """

    backend: str
    options: dict[str, Any] = field(default_factory=dict)
    runs: list[float] = field(default_factory=list)
    skipped: str = ""

    @property
    def steps_per_second(self) -> float:
        """The median of the runs; 0 if there are none."""
        return statistics.median(self.runs) if self.runs else 0.0

    @property
    def spread(self) -> float:
        """How far the runs lie from the middle between them, as a share of it."""
        least, most = (min(self.runs), max(self.runs)) if self.runs else (0.0, 0.0)
        return (most - least) / (most + least) if most else 0.0

    @property
    def name(self) -> str:
        """The settings in a few words."""
        return ", ".join([self.backend, *(f"{key}={value}" for key, value in self.options.items())])

    def code(self, env: str, num_envs: int, env_kwargs: Mapping[str, Any] | None = None) -> str:
        """Return the line of Python that makes this vector env."""
        given: dict[str, Any] = {"num_envs": num_envs}
        if self.backend != "async":  # which is the default
            given["backend"] = self.backend
        given.update(self.options)
        if env_kwargs:
            given["env_kwargs"] = dict(env_kwargs)
        arguments = ", ".join(f"{name}={_as_code(value)}" for name, value in given.items())
        return f"make_vec({_as_code(env)}, {arguments})"


def _as_code(value: Any) -> str:
    """Return a value as Python, strings in double quotes."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def candidates(
    num_envs: int, costs: Costs, common: Mapping[str, Any] | None = None
) -> list[Candidate]:
    """Return the settings that make sense, the simplest first; `common` are in all of them.

    They are Sync; Async with 1, 2, 4, ... workers up to the cores, and where environments wait up
    to eight times the cores; views instead of copies; and, where steps differ or a policy takes
    time, batches of half of the environments.
    """
    cores = count_usable_cores()
    most = min(num_envs, cores * 8 if costs.waits else cores)
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    tried: list[dict[str, Any]] = [{"num_workers": count} for count in counts]
    tried.append({"num_workers": most, "copy": False})
    if num_envs > 1:
        tried.append({"num_workers": most, "batch_size": num_envs // 2})
    common = common or {}
    here = {name: value for name, value in common.items() if name not in PROCESS_ARGUMENTS}
    return [Candidate("sync", here), *(Candidate("async", {**one, **common}) for one in tried)]


def try_out(
    make: Callable[[], Any],
    num_envs: int,
    tried: Sequence[Candidate],
    seconds: float,
    agent_seconds: float = 0.0,
    show: Callable[..., None] = lambda **shown: None,
) -> None:
    """Time candidates in turn, and write the figures into them.

    It takes about `seconds` in all; candidates whose turn does not come are skipped. A policy takes
    `agent_seconds` per batch. `show` is a progress bar's update.
    """
    end = time.perf_counter() + seconds
    slice_seconds = seconds / (len(tried) * (ROUNDS + 1))
    for number in range(ROUNDS):
        for candidate in tried:
            late = time.perf_counter() > end
            if late and not candidate.runs and candidate is not tried[0]:
                candidate.skipped = candidate.skipped or "no time was left for it"
            if candidate.skipped or (late and number):
                continue
            show(description=candidate.name, advance=1)
            try:
                runner = open_vecspaces(
                    make, num_envs, candidate.backend, agent_seconds, **candidate.options
                )
                try:
                    candidate.runs.append(time_batches(runner, calibrate(runner, slice_seconds)))
                finally:
                    runner.close()
            except Exception as error:  # an environment may refuse to run in a daemon, for one
                candidate.skipped = first_line(error)


def best(tried: Sequence[Candidate]) -> Candidate | None:
    """Return the simplest of the fastest candidates; None if none could run."""
    fastest = max((candidate.steps_per_second for candidate in tried), default=0.0)
    fit = [one for one in tried if one.runs and one.steps_per_second >= _ALIKE * fastest]
    return fit[0] if fit else None
