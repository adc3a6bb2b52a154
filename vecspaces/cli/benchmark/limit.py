"""The limit: the same environments in bare loops, in as many processes, without communication.

No vector env can be faster with these environments in these processes: it would have to step them
in less time than a `for` loop does.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Any

from vecspaces.cli.benchmark.contenders import GYMNASIUM, OURS, Contender, prepare_actions
from vecspaces.vector.backends.process.interrupts import blocked
from vecspaces.vector.utils import CloudpickleWrapper

_JOIN_SECONDS = 5.0


class BareLoops:
    """Processes that each step a share of the environments, as often as a message says."""

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


LIMIT = Contender("the limit", BareLoops)
CONTENDERS = (*OURS, *GYMNASIUM, LIMIT)
