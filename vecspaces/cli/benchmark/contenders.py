"""Contenders: what steps many environments, of vecspaces and of other libraries.

Other libraries are imported when they are opened.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from vecspaces.cli.benchmark.workloads import Workload
from vecspaces.interop import native_space
from vecspaces.sampling import MASK, sample_next
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.utils import batch_space

#: Number of prepared batches of actions; sampling is no part of what is measured.
BATCHES = 16


class UnsuitableError(Exception):
    """A contender cannot step an environment; the message says why."""


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
        self._step, self._actions, self._num_envs = step, actions, num_envs
        self._turn = 0
        self.close = close

    def run(self, batches: int) -> int:
        """Step `batches` times."""
        step, actions = self._step, self._actions
        for turn in range(self._turn, self._turn + batches):
            step(actions[turn % BATCHES])
        self._turn += batches
        return batches * self._num_envs


def prepare_actions(action_space: Any, num_envs: int) -> list[Any]:
    """Return `BATCHES` batches of actions of one environment's space, the same in every call."""
    batched = batch_space(native_space(action_space), num_envs)
    batched.seed(0)
    return [batched.sample() for _ in range(BATCHES)]


def no_process(num_envs: int, num_workers: int) -> int:
    """Return the number of processes of a contender that starts none."""
    return 0


def one_process_each(num_envs: int, num_workers: int) -> int:
    """Return the number of processes of a contender that starts one per environment."""
    return num_envs


@dataclass(frozen=True)
class Contender:
    """One way of stepping many environments.

    Attributes:
        name: Its name in tables.
        open: Called as `open(workload, num_envs, num_workers)`; returns a `Runner`, reset and
            ready. Raises UnsuitableError, or anything, if it cannot.
        module: The module that it needs; "" for none.
        processes: Called as `processes(num_envs, num_workers)`: how many processes it starts.
        cooldown: Seconds for which its workers stay busy after a step, and disturb the others.
        waiting_only: Whether it is of interest only where environments wait.
    """

    name: str
    open: Callable[[Workload, int, int], Runner]
    module: str = ""
    processes: Callable[[int, int], int] = lambda num_envs, num_workers: num_workers
    cooldown: float = 0.0
    waiting_only: bool = False

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
        masked, rng = MASK in result[-1], np.random.default_rng(0)
        batch_size = options.get("batch_size", num_envs)
        actions = prepare_actions(envs.single_action_space, batch_size)
        step = envs.step
        if batch_size < num_envs:
            first = prepare_actions(envs.single_action_space, num_envs)[0]
            envs.send(sample_next(envs, result, rng) if masked else first)

            def step(batch: Any) -> None:
                *result, env_ids = envs.recv()
                envs.send(sample_next(envs, result, rng) if masked else batch, env_ids)

        elif masked:

            def step(batch: Any) -> None:
                nonlocal result
                result = envs.step(sample_next(envs, result, rng))

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


def _sync(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    return open_vecspaces(workload.make, num_envs, "sync")


def _async(workload: Workload, num_envs: int, num_workers: int, **options: Any) -> Runner:
    return open_vecspaces(workload.make, num_envs, "async", num_workers=num_workers, **options)


def _first_ready(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    return _async(workload, num_envs, num_workers, batch_size=max(1, num_envs // 2))


OURS = [
    Contender("vecspaces sync", _sync, processes=no_process),
    Contender("vecspaces async", _async),
    Contender("vecspaces async, copy=False", partial(_async, copy=False)),
    Contender("vecspaces async, first ready", _first_ready, waiting_only=True),
]


def _gymnasium(name: str, workload: Workload, num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("gymnasium.vector")
    envs = getattr(vector, name)([workload.make] * num_envs)
    envs.reset(seed=0)
    actions = prepare_actions(envs.single_action_space, num_envs)
    # Without `terminate` it would wait, after Ctrl-C, for the step that was interrupted.
    return Stepper(envs.step, actions, partial(envs.close, terminate=True), num_envs)


def _stable_baselines3(name: str, workload: Workload, num_envs: int, num_workers: int) -> Runner:
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    # Forked: its default, a fork server, imports PyTorch once per environment.
    options = {"start_method": "fork"} if name == "SubprocVecEnv" else {}
    envs = getattr(vec_env, name)([workload.make] * num_envs, **options)
    envs.reset()
    actions = prepare_actions(envs.action_space, num_envs)

    def close() -> None:
        if getattr(envs, "waiting", False):  # after Ctrl-C: it would wait for replies that it has
            for process in envs.processes:
                process.terminate()
        envs.close()

    return Stepper(envs.step, actions, close, num_envs)


def _tianshou(name: str, workload: Workload, num_envs: int, num_workers: int) -> Runner:
    env = importlib.import_module("tianshou.env")
    envs = getattr(env, name)([workload.make] * num_envs)
    envs.reset()
    actions = prepare_actions(envs.action_space[0], num_envs)

    def step(batch: Any) -> None:
        _, _, terminated, truncated, _ = envs.step(batch)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):  # its users, or its collector, reset what has ended
            envs.reset(ended)

    return Stepper(step, actions, envs.close, num_envs)


def _pufferlib(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("pufferlib.vector")
    emulation = importlib.import_module("pufferlib.emulation")
    if num_envs % num_workers:
        raise UnsuitableError("needs as many environments in every worker")

    def make() -> Any:
        return emulation.GymnasiumPufferEnv(env=workload.make())

    envs = vector.make(
        make, backend=vector.Multiprocessing, num_envs=num_envs, num_workers=num_workers
    )
    envs.reset(seed=0)
    actions = prepare_actions(envs.single_action_space, num_envs)
    return Stepper(envs.step, actions, envs.close, num_envs)


def _envpool(workload: Workload, num_envs: int, num_workers: int) -> Runner:
    envpool = importlib.import_module("envpool")
    if workload.gymnasium_id not in envpool.list_all_envs():
        raise UnsuitableError("has no such environment: its own are written in C++")
    envs = envpool.make_gymnasium(workload.gymnasium_id, num_envs=num_envs, num_threads=num_workers)
    envs.reset()
    actions = prepare_actions(envs.action_space, num_envs)
    return Stepper(envs.step, actions, envs.close, num_envs)


def _peer(
    name: str,
    module: str,
    open_peer: Callable[..., Runner],
    processes: Callable[[int, int], int],
    cooldown: float = 0.0,
) -> Contender:
    """Return a contender that opens without the greetings and warnings that some print."""

    def open_quietly(*arguments: Any) -> Runner:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            return open_peer(*arguments)

    return Contender(name, open_quietly, module, processes, cooldown)


_SB3 = "stable_baselines3"
PEERS = [
    _peer("gymnasium sync", "gymnasium", partial(_gymnasium, "SyncVectorEnv"), no_process),
    _peer("gymnasium async", "gymnasium", partial(_gymnasium, "AsyncVectorEnv"), one_process_each),
    _peer("sb3 dummy", _SB3, partial(_stable_baselines3, "DummyVecEnv"), no_process),
    _peer("sb3 subproc", _SB3, partial(_stable_baselines3, "SubprocVecEnv"), one_process_each),
    _peer("tianshou dummy", "tianshou", partial(_tianshou, "DummyVectorEnv"), no_process),
    _peer("tianshou subproc", "tianshou", partial(_tianshou, "SubprocVectorEnv"), one_process_each),
    _peer("tianshou shmem", "tianshou", partial(_tianshou, "ShmemVectorEnv"), one_process_each),
    # Its workers busy-poll for half a second after a step before they sleep.
    _peer("pufferlib", "pufferlib", _pufferlib, lambda n, workers: workers, cooldown=0.7),
    _peer("envpool (C++)", "envpool", _envpool, no_process),
]
