"""What `bench` compares: vector envs of Gymnasium and vecspaces, and bare loops as their bound."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import select
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from math import inf
from statistics import stdev
from typing import Any

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
_SPIN_SECONDS = 0.02
_MOST_PROCESSES = 256  # of Gymnasium, which starts one per environment
_PATIENCE = 1000  # milliseconds without a reply, after which a loop may have failed

#: Steps for about some seconds; returns the number of environment steps, and the seconds.
Run = Callable[[float], tuple[float, float]]


@dataclass
class Contender:
    """A way of stepping environments, and how fast it was in each round."""

    name: str
    processes: int
    #: Opens the environments, which the end of the stack closes.
    open: Callable[[contextlib.ExitStack], Run]
    #: The arguments of `make_vec`; None if it is not of vecspaces.
    options: dict[str, Any] | None = None
    #: Environment steps and seconds of each round.
    rounds: list[tuple[float, float]] = field(default_factory=list)
    skipped: str = ""

    @property
    def line(self) -> str:
        """The name without the number of processes: a line in the plot."""
        return self.name.partition(", ")[0]

    @property
    def speed(self) -> float:
        """Environment steps per second over all rounds; 0 if there are none."""
        seconds = sum(took for _, took in self.rounds)
        return sum(steps for steps, _ in self.rounds) / seconds if seconds else 0.0

    @property
    def spread(self) -> float:
        """Two standard errors of the speed, as a share of it."""
        speeds = [steps / took for steps, took in self.rounds]
        if len(speeds) < 2:
            return inf
        return float(2 * stdev(speeds) * len(speeds) ** 0.5 / sum(speeds))

    @property
    def margin(self) -> float:
        """The spread in steps per second."""
        return self.spread * self.speed


def find_contenders(make: Factory, num_envs: int, counts: list[int]) -> list[Contender]:
    """Return Gymnasium's vector envs, if it is installed, and those of vecspaces."""
    contenders = []
    if importlib.util.find_spec("gymnasium") is not None:
        for name, kind, count in (
            ("gymnasium sync", "SyncVectorEnv", 1),
            ("gymnasium async", "AsyncVectorEnv", num_envs),
        ):
            if count <= _MOST_PROCESSES:
                opener = partial(_open_gymnasium, kind, make, num_envs)
                contenders.append(Contender(name, count, opener))
    settings: dict[str, dict[str, Any]] = {"sync": {"backend": "sync"}}
    settings |= {f"async, {count}": {"num_workers": count} for count in counts}
    for name, options in settings.items():
        opener = partial(_open_vecspaces, make, num_envs, options)
        contenders.append(Contender(name, options.get("num_workers", 1), opener, options))
    return contenders


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
    actions = cycle(_prepare_actions(envs.single_action_space, num_envs))
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
    options = {"context": "fork"} if kind[0] == "A" and system.has("fork") else {}
    with blocked():
        envs = getattr(vector, kind)([make] * num_envs, **options)
    stack.callback(_close_quietly, envs)
    envs.reset(seed=0)
    actions = cycle(_prepare_actions(envs.single_action_space, num_envs))
    return partial(_repeat, lambda: envs.step(next(actions)), num_envs)


def _close_quietly(envs: Any) -> None:
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs.close(terminate=True)  # without it, close waits for a step that was interrupted


def _prepare_actions(action_space: Any, num_envs: int) -> list[Any]:
    batched = batch_space(native_space(action_space), num_envs)
    batched.seed(0)
    return [batched.sample() for _ in range(_BATCHES)]


class _Loop(Env[Any, Any]):
    """Some environments of one process, which a bare loop steps in turn."""

    def __init__(self, make: Factory, number: int, count: int) -> None:
        self.number, self.envs = number, [make() for _ in range(count)]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.infos: list[Any] = [env.reset(seed=row)[1] for row, env in enumerate(self.envs)]
        self.space = native_space(self.action_space)
        self.space.seed(0)
        self.actions = cycle([self.space.sample() for _ in range(_BATCHES * count)])
        self.rows = cycle(range(count))

    def step_some(self, count: int) -> None:
        """Step, or reset if an episode has ended, as NEXT_STEP does."""
        envs, infos = self.envs, self.infos
        for row in islice(self.rows, count):
            info = infos[row]
            if info is None:
                infos[row] = envs[row].reset()[1]
                continue
            masked = MASK in info
            action = draw_action(self.space, info, "env") if masked else next(self.actions)
            _, _, terminated, truncated, info = envs[row].step(action)
            infos[row] = None if terminated or truncated else info

    def run(self, seconds: float) -> tuple[float, float, float]:
        """Step until the time is up; return steps, seconds, and those of the processor."""
        used, count = time.process_time(), len(self.envs)
        steps, elapsed = _repeat(partial(self.step_some, count), count, seconds)
        return steps, elapsed, time.process_time() - used

    def run_in_step(self, folder: str, count: int) -> None:
        """Step some environments for each byte of a pipe, and answer with a byte."""
        with (
            open(f"{folder}/{self.number}.commands", "rb", buffering=0) as commands,
            open(f"{folder}/{self.number}.replies", "wb", buffering=0) as replies,
        ):
            while commands.read(1) == b"s":
                self.step_some(count)
                replies.write(b"s")

    def spin(self) -> float:
        """Compute for a short time; return the share of a core that was granted."""
        began, used = time.perf_counter(), time.process_time()
        while time.perf_counter() < began + _SPIN_SECONDS:
            pass
        return (time.process_time() - used) / (time.perf_counter() - began)

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


class BareLoops:
    """Loops over the environments in processes of their own, as upper bounds of vector envs."""

    def __init__(self, make: Factory, num_envs: int, count: int, stack: contextlib.ExitStack):
        loops = [partial(_Loop, make, i, len(rows)) for i, rows in enumerate(cut(num_envs, count))]
        self._envs = stack.enter_context(AsyncVectorEnv(loops, num_workers=count))
        self._num_envs = num_envs
        self._folder = stack.enter_context(tempfile.TemporaryDirectory())
        #: The pipes of each loop, for its commands and its replies.
        self._pipes: list[list[int]] = []
        for number in range(count if system.has("fifo") else 0):
            names = [f"{self._folder}/{number}.{name}" for name in ("commands", "replies")]
            for name in names:
                os.mkfifo(name)
            # Opening for both directions waits for no other end.
            self._pipes.append([os.open(name, os.O_RDWR) for name in names])
            for pipe in self._pipes[-1]:
                # The end of its commands ends a loop, also after Ctrl-C.
                stack.callback(os.close, pipe)
        self._granted: list[float] = []
        self._used = self._elapsed = 0.0

    def contenders(self, counts: list[int]) -> list[Contender]:
        """Return loops that wait for each other, where there are named pipes, and that never do."""
        return [
            Contender(f"{line}, {count}", count, partial(self._open, run, count))
            for line, run in (("loops in step", self.run_in_step), ("bare loops", self.run))
            for count in counts
            if self._pipes or line == "bare loops"
        ]

    def _open(self, run: Callable[..., Any], count: int, stack: contextlib.ExitStack) -> Run:
        return partial(run, count)

    def run(self, count: int, seconds: float) -> tuple[float, float]:
        """Let some loops run that never wait for each other."""
        results = self._envs.call("run", seconds, env_ids=range(count))
        self._used += sum(used for _, _, used in results)
        self._elapsed += sum(elapsed for _, elapsed, _ in results)
        # The mean time, because the loops do not end at the same time.
        return sum(steps for steps, _, _ in results), sum(took for _, took, _ in results) / count

    def run_in_step(self, count: int, seconds: float) -> tuple[float, float]:
        """Let some loops run that wait for each other after each step of all environments."""
        share, pipes = -(-self._num_envs // count), self._pipes[:count]
        self._envs.call_async("run_in_step", self._folder, share, env_ids=range(count))

        polls = [select.poll() for _ in pipes]
        for (_, replies), poll in zip(pipes, polls, strict=True):
            poll.register(replies, select.POLLIN)

        def step() -> None:
            for commands, _ in pipes:
                os.write(commands, b"s")
            for (_, replies), poll in zip(pipes, polls, strict=True):
                while not poll.poll(_PATIENCE):
                    with contextlib.suppress(StepTimeoutError):  # as long as no loop has failed
                        self._envs.call_wait(timeout=0.0)
                os.read(replies, 1)

        measured = _repeat(step, share * count, seconds)
        for commands, _ in pipes:
            os.write(commands, b"e")
        self._envs.call_wait()
        return measured

    def look(self) -> tuple[float, float]:
        """Return which share of a core other programs leave to each loop, and loops compute."""
        self._granted.append(min(self._envs.call("spin")))
        granted = sum(self._granted) / len(self._granted)
        return granted, self._used / self._elapsed / granted
