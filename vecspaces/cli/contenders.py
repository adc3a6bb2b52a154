"""What `bench` and `tune` compare: vector envs of vecspaces and Gymnasium, and the upper bound.

The drivers of other libraries are in the repository's `benchmarks/peers.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from vecspaces.interop import native_space
from vecspaces.sampling import MASK, sample_next
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.process.interrupts import blocked
from vecspaces.vector.utils import CloudpickleWrapper, batch_space

# Batches of actions that are drawn beforehand, so that sampling is not measured.
_BATCHES = 16
_JOIN_SECONDS = 5.0


class Runner(Protocol):
    """Environments that were opened and reset."""

    def run(self, batches: int) -> int:
        """Step all environments `batches` times; return how many environment steps were made."""

    def close(self) -> None:
        """Close them, with all their processes."""


@dataclass(frozen=True)
class Contender:
    """One way of stepping many environments."""

    name: str
    #: Called as `open(make, num_envs, num_workers)`; returns a `Runner`, reset and ready.
    open: Callable[[Callable[[], Any], int, int], Runner]
    #: Called as `processes(num_envs, num_workers)`: how many processes it starts.
    processes: Callable[[int, int], int] = lambda num_envs, num_workers: num_workers
    #: The module that it needs; "" for none.
    module: str = ""
    #: Seconds for which its workers stay busy after a step, and disturb the others.
    cooldown: float = 0.0

    @property
    def installed(self) -> bool:
        """Whether the module that it needs is there."""
        return not self.module or importlib.util.find_spec(self.module) is not None


class Stepper:
    """Steps a vector env with prepared batches of actions, `num_envs` environments per batch."""

    def __init__(
        self,
        step: Callable[[Any], Any],
        actions: Sequence[Any],
        close: Callable[[], Any],
        num_envs: int,
    ) -> None:
        self._step, self._actions, self._num_envs = step, cycle(actions), num_envs
        self.close = close

    def run(self, batches: int) -> int:
        """Step `batches` times."""
        step = self._step
        for actions in islice(self._actions, batches):
            step(actions)
        return batches * self._num_envs


def prepare_actions(action_space: Any, num_envs: int) -> list[Any]:
    """Return batches of actions of one environment's space, the same in every call."""
    batched = batch_space(native_space(action_space), num_envs)
    batched.seed(0)
    return [batched.sample() for _ in range(_BATCHES)]


def open_vecspaces(
    make: Callable[[], Any], num_envs: int, backend: str, agent_seconds: float = 0.0, **options: Any
) -> Runner:
    """Open a vector env of vecspaces; with a `batch_size` it is stepped by `send` and `recv`.

    Each batch of actions takes a policy on another device `agent_seconds`, during which workers may
    compute.
    """
    kind: Any = SyncVectorEnv if backend == "sync" else AsyncVectorEnv
    envs = kind([make] * num_envs, **options)
    try:
        result: Any = envs.reset(seed=0)
        rng = np.random.default_rng(0)
        batch_size = options.get("batch_size", num_envs)
        actions = prepare_actions(envs.single_action_space, batch_size)

        def choose(result: Any, batch: Any) -> Any:
            return sample_next(envs, result, rng) if MASK in result[-1] else batch

        def step(batch: Any) -> None:
            nonlocal result
            if agent_seconds:
                time.sleep(agent_seconds)
            if batch_size < num_envs:
                *received, env_ids = envs.recv()
                envs.send(choose(received, batch), env_ids)
            else:
                result = envs.step(choose(result, batch))

        if batch_size < num_envs:
            envs.send(choose(result, prepare_actions(envs.single_action_space, num_envs)[0]))
    except BaseException:
        envs.close()
        raise
    return Stepper(step, actions, envs.close, batch_size)


def _open_sync(make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    return open_vecspaces(make, num_envs, "sync")


def _open_async(make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    return open_vecspaces(make, num_envs, "async", num_workers=num_workers)


def _open_gymnasium(kind: str, make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("gymnasium.vector")
    envs = getattr(vector, kind)([make] * num_envs)
    envs.reset(seed=0)
    actions = prepare_actions(envs.single_action_space, num_envs)
    # Without `terminate` it would wait, after Ctrl-C, for the step that was interrupted.
    return Stepper(envs.step, actions, partial(envs.close, terminate=True), num_envs)


class PlainLoops:
    """Processes that each step a share of the environments in a plain loop, and exchange no data.

    No vector env can be faster with these environments in as many processes: it would have to step
    them in less time than a `for` loop does.
    """

    def __init__(self, make: Callable[[], Any], num_envs: int, num_workers: int) -> None:
        self._num_envs = num_envs
        self._ends: list[Connection[Any, Any]] = []
        self._processes = []
        for index in range(num_workers):
            low, high = (num_envs * i // num_workers for i in (index, index + 1))
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=_serve, args=(theirs, CloudpickleWrapper(make), high - low), daemon=True
            )
            with blocked():  # or each prints a traceback after Ctrl-C
                process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)
        try:
            self.run(1)
        except BaseException:
            self.close()
            raise

    def run(self, batches: int) -> int:
        """Let every process step all of its environments `batches` times, and wait for the last."""
        for end in self._ends:
            end.send(batches)
        for end in self._ends:
            end.recv()
        return batches * self._num_envs

    def close(self) -> None:
        """End the processes."""
        for end in self._ends:
            end.send(0)
        for process, end in zip(self._processes, self._ends, strict=True):
            process.join(_JOIN_SECONDS)
            process.kill()
            process.join()
            process.close()
            end.close()


def _serve(end: Connection[Any, Any], make: CloudpickleWrapper[Any], count: int) -> None:
    """Build environments, and step them as often as each message says; 0 ends it."""
    envs = [make.fn() for _ in range(count)]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    actions = cycle([list(batch) for batch in prepare_actions(envs[0].action_space, count)])
    ended = [False] * count
    while batches := end.recv():
        for batch in islice(actions, batches):
            step_all(envs, batch, ended)
        end.send(batches)
    for env in envs:
        env.close()


def step_all(envs: Sequence[Any], actions: Sequence[Any], ended: list[bool]) -> None:
    """Step or reset each environment once: what NEXT_STEP autoreset does, and no more."""
    for number, env in enumerate(envs):
        if ended[number]:
            env.reset()
            ended[number] = False
        else:
            _, _, terminated, truncated, _ = env.step(actions[number])
            ended[number] = terminated or truncated


OURS = [
    Contender("vecspaces sync", _open_sync, lambda num_envs, num_workers: 0),
    Contender("vecspaces async", _open_async),
]
GYMNASIUM = [
    Contender(
        "gymnasium sync",
        partial(_open_gymnasium, "SyncVectorEnv"),
        lambda num_envs, num_workers: 0,
        module="gymnasium",
    ),
    Contender(
        "gymnasium async",
        partial(_open_gymnasium, "AsyncVectorEnv"),
        lambda num_envs, num_workers: num_envs,
        module="gymnasium",
    ),
]
LIMIT = Contender("the limit", PlainLoops)
CONTENDERS = (*OURS, *GYMNASIUM, LIMIT)
