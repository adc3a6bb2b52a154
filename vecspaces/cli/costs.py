"""The cost of one environment, measured in a worker, and the load of the machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces.interop import native_space
from vecspaces.layout import Layout
from vecspaces.sampling import fit_mask
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.cores import count_usable_cores

# An environment that computes for a smaller share of its step waits for something.
_WAITS = 0.5
# A quiet machine leaves at least this share of a core, and of all cores.
_QUIET = 0.75
# The interval and duration, in seconds, of loops that measure what other programs leave.
_LOOK_EVERY, _LOOK_SECONDS = 0.03, 0.005
# Memory is counted in pages, so a small environment must be copied many times.
_COPIES, _COPYING_SECONDS = 64, 0.5


@dataclass(frozen=True)
class Costs:
    """The cost of one environment; times in seconds, None if the system does not report a value."""

    step_mean: float
    step_p99: float
    #: Standard deviation over mean.
    step_spread: float
    reset_mean: float
    #: Share of a step in which it uses the processor, or would on a quiet machine.
    computing: float
    #: Share of a core that a loop which only computes got; 1 on a quiet machine.
    granted: float
    #: The usable cores, and how many of them were idle meanwhile.
    cores: int
    idle_cores: float | None
    observation_bytes: int
    memory_bytes: int | None
    #: The time to start a worker and to build one environment in it.
    build_seconds: float

    @property
    def waits(self) -> bool:
        """Whether it waits for more than half of a step."""
        return self.computing < _WAITS

    @property
    def is_busy(self) -> bool:
        """Whether other programs take much of the cores."""
        # One core was the environment's.
        left = self.cores if self.idle_cores is None else self.idle_cores + 1
        return self.granted < _QUIET or left < _QUIET * self.cores


def measure_costs(
    make: Callable[[], Any], seconds: float, options: Mapping[str, Any] | None = None
) -> Costs:
    """Measure one environment in a worker, so that none is built in this process.

    `options` are arguments of the vector env.
    """
    # Both would bound the call that makes many steps.
    given = {**(options or {}), "slow_warning": None}
    if "step_timeout" in given:
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
    return Costs(
        **found,
        cores=count_usable_cores(),
        idle_cores=idle,
        observation_bytes=observation_bytes,
        memory_bytes=memory,
        build_seconds=build_seconds,
    )


def _exercise(env: Any, seconds: float) -> dict[str, float]:
    """Step an environment with random actions in its worker, and time every call."""
    clock = time.perf_counter
    action_space = native_space(env.action_space)
    action_space.seed(0)
    actions = [action_space.sample() for _ in range(256)]
    steps: list[float] = []
    resets: list[float] = []
    ended, end = True, clock() + seconds
    # A loop that only computes, between steps, shows which share of a core other programs leave.
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
    mean = float(np.mean(steps))
    return {
        "step_mean": mean,
        "step_p99": float(np.quantile(steps, 0.99)),
        "step_spread": float(np.std(steps)) / mean,
        "reset_mean": float(np.mean(resets)),
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
    if sys.platform != "linux":
        return None
    before = _resident_bytes()
    copies: list[Any] = []
    end = time.perf_counter() + _COPYING_SECONDS
    while len(copies) < _COPIES and (not copies or time.perf_counter() < end):
        copies.append(make())
        copies[-1].reset()
    grown = _resident_bytes() - before
    for copy in copies:
        copy.close()
    return max(0, grown) // len(copies)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
