"""What `bench` compares: vector envs of Gymnasium and vecspaces, and bare loops as their bounds."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vecspaces import system
from vecspaces.env import Env
from vecspaces.errors import StepTimeoutError
from vecspaces.interop import native_space
from vecspaces.make import Factory, make_vec
from vecspaces.sampling import MASK, draw_action, sample_next
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.interrupts import blocked
from vecspaces.vector.backends.worker_setup import cut
from vecspaces.vector.utils import batch_space

# Batches of actions that are drawn beforehand, so that sampling is not measured.
_BATCHES = 16
_SAMPLES = 4  # of a turn, from which the spread is computed
_WIDE = 0.05  # figures that spread less are told apart although their intervals overlap
_MOST_WORKERS = 256  # of Gymnasium, which starts a process per environment, and of threads
_PIPES = ("commands", "replies")  # of a loop in step
_PATIENCE = 1000  # milliseconds without a reply, after which a loop may have failed

#: Steps for about some seconds; returns the number of environment steps, and the seconds.
Run = Callable[[float], tuple[float, float]]


@dataclass
class Contender:
    """A way of stepping environments, and how fast it was."""

    name: str
    #: How many environments it steps at the same time.
    workers: int
    #: Opens the environments, which the end of the stack closes.
    open: Callable[[contextlib.ExitStack], Run]
    #: The arguments of `make_vec`; None if it is not of vecspaces.
    options: dict[str, Any] | None = None
    #: Environment steps and seconds of each sample.
    samples: list[tuple[float, float]] = field(default_factory=list)
    skipped: str = ""

    def take_turn(self, seconds: float) -> None:
        """Measure for some seconds; the environments are open only during this turn."""
        with contextlib.ExitStack() as stack:
            run = self.open(stack)
            first = run(0.0)
            if first[1] > seconds:  # the first batch alone took so long
                self.samples.append(first)
                return
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                self.samples.append(run(seconds / _SAMPLES))

    @property
    def speed(self) -> float:
        """Environment steps per second over all samples; 0 if there are none."""
        seconds = sum(took for _, took in self.samples)
        return sum(steps for steps, _ in self.samples) / seconds if seconds else 0.0

    @property
    def spread(self) -> float:
        """Two standard errors of the speed, as a share of it; samples may be of unequal length."""
        count = len(self.samples)
        if count < 2:
            return inf
        steps, seconds = np.array(self.samples).T
        residuals = seconds - steps / self.speed
        deviation = np.sqrt(count / (count - 1) * np.sum(residuals**2))
        return float(2 * deviation / seconds.sum())

    def resembles(self, other: Contender) -> bool:
        """Return whether the speeds of two contenders cannot be told apart."""
        margin = self.spread * self.speed + other.spread * other.speed
        is_wide = max(self.spread, other.spread) > _WIDE
        return other is not self and is_wide and abs(self.speed - other.speed) < margin


class Cost(NamedTuple):
    """Seconds to build and reset an environment, seconds of a step, and its share of computing."""

    ready: float = 0.0
    step: float = 0.0
    computing: float = 1.0


def measure_cost(make: Factory, count: int, seconds: float, granted: list[float]) -> Cost:
    """Step some environments in a process for some seconds; return the cost per environment."""
    with AsyncVectorEnv([partial(_Loop, make, count, "")], num_workers=1) as envs:
        ((steps, elapsed, used, waited),) = envs.call("measure", seconds)
        granted.append(used / (used + waited))
        return Cost(envs.get_attr("ready")[0], elapsed / steps, (used + waited) / elapsed)


def find_contenders(
    make: Factory, num_envs: int, counts: list[int], granted: list[float], *, threads: bool
) -> list[Contender]:
    """Return Gymnasium's vector envs, if it is installed, those of vecspaces, and bare loops.

    The loops note in `granted` which share they got of the time in which they needed a core.
    """
    contenders = []
    if importlib.util.find_spec("gymnasium") is not None:
        kinds = {"gymnasium sync": ("SyncVectorEnv", 1)}
        if num_envs <= _MOST_WORKERS:
            kinds["gymnasium async"] = "AsyncVectorEnv", num_envs
        for name, (kind, workers) in kinds.items():
            opener = partial(_open_gymnasium, kind, make, num_envs)
            contenders.append(Contender(name, workers, opener))
    settings: dict[str, dict[str, Any]] = {"sync": {"backend": "sync"}}
    if threads:
        count = min(num_envs, _MOST_WORKERS)
        settings[f"threads, {count}"] = {"backend": "thread", "num_workers": count}
    settings |= {f"async, {count}": {"num_workers": count} for count in counts}
    for name, options in settings.items():
        opener = partial(_open_vecspaces, make, num_envs, options)
        contenders.append(Contender(name, options.get("num_workers", 1), opener, options))
    bounds: dict[str, Any] = {"bare loops": partial(_open_bare_loops, granted)}
    if system.FIFO:
        bounds = {"loops in step": _open_loops_in_step, **bounds}
    return contenders + [
        Contender(f"{line}, {count}", count, partial(opener, make, num_envs, count))
        for line, opener in bounds.items()
        for count in counts
    ]


def _repeat(step: Callable[[], Any], num_envs: int, seconds: float) -> tuple[float, float]:
    """Step all environments until the time is up, at least once."""
    began, count, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds or not count:
        step()
        count += num_envs
        elapsed = time.perf_counter() - began
    return count, elapsed


def _open_vecspaces(
    make: Factory, num_envs: int, options: dict[str, Any], stack: contextlib.ExitStack
) -> Run:
    envs: Any = stack.enter_context(make_vec(make, num_envs, **options))
    if envs.num_envs != num_envs:
        raise ValueError(
            "env: bench needs a factory of single environments, found one that makes vector envs "
            f"of {envs.num_envs // num_envs}"
        )
    result: Any = envs.reset(seed=0)
    actions = _prepare_actions(envs.single_action_space, num_envs)
    rng = np.random.default_rng(0)

    def step() -> None:
        nonlocal result
        is_masked = MASK in result[-1]
        result = envs.step(sample_next(envs, result, rng) if is_masked else next(actions))

    return partial(_repeat, step, num_envs)


def _open_gymnasium(kind: str, make: Factory, num_envs: int, stack: contextlib.ExitStack) -> Run:
    vector = importlib.import_module("gymnasium.vector")
    # Workers inherit the block: otherwise each prints a traceback after Ctrl-C. A fork server does
    # not, so they are forked where that is usual.
    options = {"context": "fork"} if kind[0] == "A" and system.SAFE_FORK else {}
    with blocked():
        envs = getattr(vector, kind)([make] * num_envs, **options)
    stack.callback(_close_quietly, envs)
    envs.reset(seed=0)
    actions = _prepare_actions(envs.single_action_space, num_envs)
    return partial(_repeat, lambda: envs.step(next(actions)), num_envs)


def _close_quietly(envs: Any) -> None:
    with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
        envs.close(terminate=True)  # without it, close waits for a step that was interrupted


def _prepare_actions(action_space: Any, num_envs: int) -> Iterator[Any]:
    batched = batch_space(native_space(action_space), num_envs)
    batched.seed(0)
    return cycle([batched.sample() for _ in range(_BATCHES)])


class _Loop(Env[Any, Any]):
    """Some environments of one process, which a bare loop steps in turn."""

    def __init__(self, make: Factory, count: int, folder: str) -> None:
        self.folder = folder  # of its pipes
        self.envs: list[Any] = []
        self.infos: list[Any] = []
        times = [time.perf_counter()]
        for row in range(count):
            self.envs.append(make())
            self.infos.append(self.envs[-1].reset(seed=row)[1])
            times.append(time.perf_counter())
        #: The least, because the first environment imports modules.
        self.ready = min(after - before for before, after in pairwise(times))
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.space = native_space(self.action_space)
        self.space.seed(0)
        self.actions = cycle([self.space.sample() for _ in range(_BATCHES * count)])

    def step_all(self) -> None:
        """Step each environment, or reset it if its episode has ended, as NEXT_STEP does."""
        for row, (env, info) in enumerate(zip(self.envs, self.infos, strict=True)):
            if info is None:
                self.infos[row] = env.reset()[1]
                continue
            masked = MASK in info
            action = draw_action(self.space, info, "env") if masked else next(self.actions)
            _, _, terminated, truncated, info = env.step(action)
            self.infos[row] = None if terminated or truncated else info

    def run_in_step(self) -> None:
        """Step the environments for each byte of a pipe, and answer with a byte."""
        with (
            open(f"{self.folder}/{_PIPES[0]}", "rb", buffering=0) as commands,
            open(f"{self.folder}/{_PIPES[1]}", "wb", buffering=0) as replies,
        ):
            while commands.read(1) == b"s":
                self.step_all()
                replies.write(b"s")

    def measure(self, seconds: float) -> tuple[float, float, float, float]:
        """Step until the time is up; return steps, seconds, and those of `_processor_times`."""
        used, waited = _processor_times()
        steps, elapsed = _repeat(self.step_all, len(self.envs), seconds)
        used_after, waited_after = _processor_times()
        return steps, elapsed, used_after - used, waited_after - waited

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _processor_times() -> tuple[float, float]:
    """Return the seconds of a core that this process used, and waited for (on Linux; else 0)."""
    waited = 0
    if system.PROC:
        with contextlib.suppress(OSError):  # some kernels do not count them
            waited = int(Path("/proc/self/schedstat").read_text().split()[1])
    return time.process_time(), waited / 1e9


def _open_loops(make: Factory, num_envs: int, folders: list[str], stack: Any) -> Any:
    """Open one loop per folder; each has an equal share of the environments."""
    shares = zip(cut(num_envs, len(folders)), folders, strict=True)
    loops = [partial(_Loop, make, len(rows), folder) for rows, folder in shares]
    return stack.enter_context(AsyncVectorEnv(loops, num_workers=len(loops)))


def _open_bare_loops(
    granted: list[float], make: Factory, num_envs: int, count: int, stack: contextlib.ExitStack
) -> Run:
    """Open loops that never wait for each other: the bound of any vector env."""
    envs = _open_loops(make, num_envs, [""] * count, stack)

    def run(seconds: float) -> tuple[float, float]:
        steps, took, used, waited = zip(*envs.call("measure", seconds), strict=True)
        granted.append(sum(used) / (sum(used) + sum(waited)))
        return sum(steps), sum(took) / count  # the mean, as the loops do not end together

    return run


def _open_loops_in_step(
    make: Factory, num_envs: int, count: int, stack: contextlib.ExitStack
) -> Run:
    """Open loops that wait for each other after each step: the bound of a vector env's `step`."""
    folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(count)]
    envs = _open_loops(make, num_envs, folders, stack)
    pipes: list[tuple[int, int, Any]] = []
    for folder in folders:
        ends = []
        for name in _PIPES:
            os.mkfifo(f"{folder}/{name}")
            ends.append(os.open(f"{folder}/{name}", os.O_RDWR))  # waits for no other end
            # The end of its commands ends a loop, also after Ctrl-C.
            stack.callback(os.close, ends[-1])
        poll = system.make_poll()
        poll.register(ends[1], system.POLLIN)
        pipes.append((ends[0], ends[1], poll))
    envs.call_async("run_in_step")

    def step() -> None:
        for commands, _, _ in pipes:
            os.write(commands, b"s")
        for _, replies, poll in pipes:
            while not poll.poll(_PATIENCE):
                with contextlib.suppress(StepTimeoutError):  # as long as no loop has failed
                    envs.call_wait(timeout=0.0)
            os.read(replies, 1)

    return partial(_repeat, step, num_envs)
