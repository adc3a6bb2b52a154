"""Contenders: what steps many environments, of vecspaces and of Gymnasium.

The drivers of other libraries are in the repository's `benchmarks/peers.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, Protocol

import numpy as np

from vecspaces.interop import native_space
from vecspaces.sampling import MASK, sample_next
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.utils import batch_space

# Actions are prepared in so many batches: sampling is no part of what is measured.
_BATCHES = 16


class Runner(Protocol):
    """Environments that were opened and reset."""

    def run(self, batches: int) -> int:
        """Step all environments `batches` times; return how many environment steps were made."""

    def close(self) -> None:
        """Close them, with all their processes."""


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


@dataclass(frozen=True)
class Contender:
    """One way of stepping many environments.

    Attributes:
        name: Its name in tables.
        open: Called as `open(make, num_envs, num_workers)`; returns a `Runner`, reset and ready.
        processes: Called as `processes(num_envs, num_workers)`: how many processes it starts.
        module: The module that it needs; "" for none.
        cooldown: Seconds for which its workers stay busy after a step, and disturb the others.
    """

    name: str
    open: Callable[[Callable[[], Any], int, int], Runner]
    processes: Callable[[int, int], int] = lambda num_envs, num_workers: num_workers
    module: str = ""
    cooldown: float = 0.0

    @property
    def installed(self) -> bool:
        """Whether the module that it needs is there."""
        return not self.module or importlib.util.find_spec(self.module) is not None


def open_vecspaces(
    make: Callable[[], Any], num_envs: int, backend: str, agent_seconds: float = 0.0, **options: Any
) -> Runner:
    """Open a vector env of vecspaces; with a `batch_size` it is stepped by `send` and `recv`."""
    kind: Any = SyncVectorEnv if backend == "sync" else AsyncVectorEnv
    envs = kind([make] * num_envs, **options)
    try:
        result: Any = envs.reset(seed=0)
        rng = np.random.default_rng(0)
        batch_size = options.get("batch_size", num_envs)
        actions = prepare_actions(envs.single_action_space, batch_size)

        def choose(result: Any, batch: Any) -> Any:
            return sample_next(envs, result, rng) if MASK in result[-1] else batch

        if batch_size < num_envs:
            first = prepare_actions(envs.single_action_space, num_envs)[0]
            envs.send(choose(result, first))

            def step(batch: Any) -> None:
                *result, env_ids = envs.recv()
                envs.send(choose(result, batch), env_ids)

        else:

            def step(batch: Any) -> None:
                nonlocal result
                result = envs.step(choose(result, batch))

        if agent_seconds:
            step = partial(_step_after, agent_seconds, step)
    except BaseException:
        envs.close()
        raise
    return Stepper(step, actions, envs.close, batch_size)


def _step_after(seconds: float, step: Callable[[Any], Any], batch: Any) -> None:
    """Step once a policy has chosen the actions on another device, while workers may compute."""
    time.sleep(seconds)
    step(batch)


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
