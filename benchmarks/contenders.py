"""What is compared: vector envs of vecspaces and Gymnasium, and the upper bounds.

The drivers of other libraries are in `benchmarks.peers`.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import BareLoops
from vecspaces.env import Env
from vecspaces.interop import native_space
from vecspaces.make import make_vec
from vecspaces.sampling import MASK, sample_next
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.interrupts import blocked
from vecspaces.vector.backends.worker_setup import cut
from vecspaces.vector.utils import batch_space

# Batches of actions that are drawn beforehand, so that sampling is not measured.
_BATCHES = 16


class Runner(NamedTuple):
    """Environments that were opened and reset."""

    #: Steps all environments a number of times; returns how many environment steps were made.
    run: Callable[[int], int]
    #: Closes them, with all their processes.
    close: Callable[[], Any]


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
    #: Seconds for which its workers are busy after a step, which disturbs other contenders.
    cooldown: float = 0.0

    @property
    def installed(self) -> bool:
        """Whether the module that it needs is installed."""
        return not self.module or importlib.util.find_spec(self.module) is not None


def make_runner(
    step: Callable[[Any], Any], actions: Sequence[Any], close: Callable[[], Any], num_envs: int
) -> Runner:
    """Return a runner that steps a vector env with prepared batches of actions in turn."""
    prepared = cycle(actions)

    def run(batches: int) -> int:
        for batch in islice(prepared, batches):
            step(batch)
        return batches * num_envs

    return Runner(run, close)


def prepare_actions(action_space: Any, num_envs: int) -> list[Any]:
    """Return batches of actions of one environment's space, the same in every call."""
    batched = batch_space(native_space(action_space), num_envs)
    batched.seed(0)
    return [batched.sample() for _ in range(_BATCHES)]


def open_vecspaces(
    backend: Any,
    make: Callable[[], Any],
    num_envs: int,
    num_workers: int | None = None,
    **options: Any,
) -> Runner:
    """Open a vector env of vecspaces."""
    arguments = {"num_workers": num_workers, **options}
    envs: Any = make_vec(make, num_envs, backend=backend, vector_kwargs=arguments)
    try:
        result: Any = envs.reset(seed=0)
        rng = np.random.default_rng(0)
        actions = prepare_actions(envs.single_action_space, num_envs)

        def step(batch: Any) -> None:
            nonlocal result
            result = envs.step(sample_next(envs, result, rng) if MASK in result[-1] else batch)

    except BaseException:
        envs.close()
        raise
    return make_runner(step, actions, envs.close, num_envs)


def start_fork_server() -> None:
    """Start multiprocessing's fork server, if it is the default, and block Ctrl-C in it.

    While it imports its modules, Ctrl-C would end it with a traceback. Processes that it starts
    inherit the block, which only suits those of Gymnasium, because these are terminated anyway.
    """
    if multiprocessing.get_start_method() == "forkserver":
        from multiprocessing import forkserver, resource_tracker

        resource_tracker.ensure_running()  # which would unblock Ctrl-C
        with blocked():
            forkserver.ensure_running()


def _open_gymnasium(kind: str, make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    vector = importlib.import_module("gymnasium.vector")
    if kind == "AsyncVectorEnv":
        start_fork_server()
    envs = getattr(vector, kind)([make] * num_envs)
    envs.reset(seed=0)
    actions = prepare_actions(envs.single_action_space, num_envs)
    # Without `terminate` it would wait, after Ctrl-C, for the step that was interrupted.
    return make_runner(envs.step, actions, partial(envs.close, terminate=True), num_envs)


class _Share(Env[Any, Any]):
    """Environments of one process, which a plain loop steps."""

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        self.envs = [make() for _ in range(count)]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        # Processes differ: otherwise all would reset the same environments in the same step.
        for number, env in enumerate(self.envs, start=os.getpid()):
            env.reset(seed=number)
        self.actions = cycle(map(list, prepare_actions(self.action_space, count)))
        self.ended = [False] * count

    def run(self, batches: int) -> None:
        """Step all of the environments a number of times."""
        for batch in islice(self.actions, batches):
            step_all(self.envs, batch, self.ended)

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _open_loops(make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    """Open an upper bound: processes that each step a share of the environments in a plain loop.

    They exchange no data, so no vector env with the same number of processes can be faster: it
    would have to step these environments in less time than a `for` loop.
    """
    shares = [partial(_Share, make, len(part)) for part in cut(num_envs, num_workers)]
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(shares, num_workers=num_workers)

    def run(batches: int) -> int:
        envs.call("run", batches)
        return batches * num_envs

    return Runner(run, envs.close)


def open_share(make: Callable[[], Any], count: int) -> tuple[Callable[[int], None], int]:
    """Open a share of `BareLoops`: environments of one process, which a plain loop steps."""
    share = _Share(make, count)
    return lambda _: share.run(1), count


def _open_loops_in_step(make: Callable[[], Any], num_envs: int, num_workers: int) -> Runner:
    """Open the bound of `step`: the same loops, which wait for each other after each step."""
    loops = BareLoops(partial(open_share, make), num_envs, num_workers)
    steps, step = loops.begin_steps()

    def run(batches: int) -> int:
        for number in range(batches):
            step(number)
        return batches * steps

    def close() -> None:
        loops.end_steps()
        loops.close()

    return Runner(run, close)


def step_all(envs: Sequence[Any], actions: Sequence[Any], ended: list[bool]) -> None:
    """Step or reset each environment once, as NEXT_STEP autoreset does."""
    for number, env in enumerate(envs):
        if ended[number]:
            env.reset()
            ended[number] = False
        else:
            _, _, terminated, truncated, _ = env.step(actions[number])
            ended[number] = terminated or truncated


OURS = [
    Contender("vecspaces sync", partial(open_vecspaces, "sync"), lambda num_envs, num_workers: 0),
    Contender("vecspaces async", partial(open_vecspaces, "async")),
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
LIMIT = Contender("the limit", _open_loops)
#: The limit of `step`; each process has the same number of environments.
LIMIT_IN_STEP = Contender("the limit in step", _open_loops_in_step)
CONTENDERS = (*OURS, *GYMNASIUM, LIMIT)
