"""What an environment costs, and which settings step it fastest, found by trying."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces.cli.benchmark.backends import BATCHES, sample_actions
from vecspaces.interop import native_space
from vecspaces.layout import Layout
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.process.cores import count_usable_cores

# Of settings that are as fast as this, the simplest is the best.
_ALIKE = 0.97
# An environment that computes for less than this share of its step waits for something.
_WAITS = 0.5
_ROUNDS = 3
# Memory is told in pages: small environments show only in numbers.
_COPIES, _COPYING_SECONDS = 64, 0.5


@dataclass(frozen=True)
class Costs:
    """What one environment costs.

    Args:
        step_mean: Mean time of a step, in seconds.
        step_p99: 99th percentile of the time of a step, in seconds.
        step_spread: Standard deviation over mean.
        reset_mean: Mean time of a reset, in seconds.
        computing: Share of a step in which it uses the processor.
        observation_bytes: Bytes of one observation.
        memory_bytes: Memory of one environment; None where the system does not tell.
        build_seconds: The time that it takes to start a worker and to build one environment in it.
    """

    step_mean: float
    step_p99: float
    step_spread: float
    reset_mean: float
    computing: float
    observation_bytes: int
    memory_bytes: int | None
    build_seconds: float

    @property
    def waits(self) -> bool:
        """Whether it spends most of a step waiting."""
        return self.computing < _WAITS


def inspect(make: Callable[[], Any], seconds: float) -> Costs:
    """Measure one environment, in a worker, so that none is built in this process.

    Args:
        make: Its factory.
        seconds: How long to step it.

    Returns:
        Its costs.
    """
    began = time.perf_counter()
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv([make], num_workers=1)
    with envs:
        build_seconds = time.perf_counter() - began
        observation_bytes = Layout.compile(envs.single_observation_space).nbytes
        (found,) = envs.call(_exercise, seconds)
        (memory,) = envs.call(_memory_of_copies, make)
    steps = np.array(found["steps"])
    return Costs(
        step_mean=float(steps.mean()),
        step_p99=float(np.quantile(steps, 0.99)),
        step_spread=float(steps.std() / steps.mean()),
        reset_mean=statistics.fmean(found["resets"]),
        computing=found["computing"],
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
    ended, end, computed = True, clock() + seconds, time.process_time()
    turn = 0
    while not steps or clock() < end:
        began = clock()
        if ended:
            env.reset()
            ended = False
            resets.append(clock() - began)
        else:
            _, _, terminated, truncated, _ = env.step(actions[turn % len(actions)])
            steps.append(clock() - began)
            ended = bool(terminated or truncated)
            turn += 1
    computed = time.process_time() - computed
    return {
        "steps": steps,
        "resets": resets,
        "computing": min(1.0, computed / (sum(steps) + sum(resets))),
    }


def _memory_of_copies(env: Any, make: Callable[[], Any]) -> int | None:
    """The memory by which this process grows with each further environment."""
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

    Args:
        backend: `"sync"` or `"async"`.
        options: Arguments of the vector env.
        runs: Environment steps a second, one figure per run.
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
    def name(self) -> str:
        """The settings in a few words."""
        return ", ".join([self.backend, *(f"{key}={value}" for key, value in self.options.items())])

    def code(self, env: str, num_envs: int) -> str:
        """The line of Python that makes this vector env."""
        kwargs = f", vector_kwargs={self.options!r}" if self.options else ""
        return f"make_vec({env!r}, num_envs={num_envs}, backend={self.backend!r}{kwargs})"


def candidates(num_envs: int, costs: Costs) -> list[Candidate]:
    """The settings that make sense, the simplest first.

    Args:
        num_envs: The number of environments.
        costs: What one of them costs.

    Returns:
        Sync; Async with 1, 2, 4, ... workers up to the cores, and where environments wait up to
        eight times the cores; views in the place of copies; and, where steps differ or a policy
        takes time, batches of half of the environments.
    """
    cores = count_usable_cores()
    most = min(num_envs, cores * 8 if costs.waits else cores)
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    found = [Candidate("sync")]
    found += [Candidate("async", {"num_workers": count}) for count in counts]
    found.append(Candidate("async", {"num_workers": most, "copy": False}))
    if num_envs > 1:
        half = num_envs // 2
        found.append(Candidate("async", {"num_workers": most, "batch_size": half}))
    return found


def try_out(
    make: Callable[[], Any],
    num_envs: int,
    tried: Sequence[Candidate],
    seconds: float,
    agent_seconds: float = 0.0,
    advance: Callable[[str], None] = lambda what: None,
) -> None:
    """Measure candidates in turn, several rounds, and write the figures into them.

    Args:
        make: The factory of the environments.
        num_envs: How many of them.
        tried: The candidates.
        seconds: About how long it may take in all; candidates whose turn does not come are skipped.
        agent_seconds: What the policy takes to choose the actions of one batch.
        advance: Called with what comes next before each run.
    """
    end = time.perf_counter() + seconds
    slice_seconds = seconds / (len(tried) * (_ROUNDS + 1))
    for number in range(_ROUNDS):
        for candidate in tried:
            late = time.perf_counter() > end
            if late and not candidate.runs and candidate is not tried[0]:
                candidate.skipped = candidate.skipped or "no time was left for it"
            if candidate.skipped or (late and number):
                continue
            advance(candidate.name)
            try:
                _run(make, num_envs, candidate, slice_seconds, agent_seconds)
            except Exception as error:  # an environment may refuse to run in a daemon, for one
                candidate.skipped = f"{type(error).__name__}: {error}".splitlines()[0]


def best(tried: Sequence[Candidate]) -> Candidate | None:
    """The simplest of the fastest candidates; None if none could run."""
    fastest = max((candidate.steps_per_second for candidate in tried), default=0.0)
    fit = [one for one in tried if one.runs and one.steps_per_second >= _ALIKE * fastest]
    return fit[0] if fit else None


def _run(
    make: Callable[[], Any],
    num_envs: int,
    candidate: Candidate,
    seconds: float,
    agent_seconds: float,
) -> None:
    """Build the vector env, warm it up, and time it once."""
    kind: Any = SyncVectorEnv if candidate.backend == "sync" else AsyncVectorEnv
    with kind([make] * num_envs, **candidate.options) as envs:
        envs.reset(seed=0)
        per_batch = candidate.options.get("batch_size", num_envs)
        whole = sample_actions(envs.single_action_space, num_envs)
        actions = sample_actions(envs.single_action_space, per_batch)
        step = envs.step
        if per_batch < num_envs:
            envs.send(whole[0])

            def step(batch: Any) -> None:
                ready = envs.recv()
                envs.send(batch, ready.env_ids)

        for batch in actions[:2]:
            step(batch)
        began = now = time.perf_counter()
        batches = 0
        while now < began + seconds or not batches:
            if agent_seconds:
                time.sleep(agent_seconds)  # on another device; the processor is free for workers
            step(actions[batches % BATCHES])
            batches += 1
            now = time.perf_counter()
        candidate.runs.append(batches * per_batch / (now - began))
