"""Who steps them: what each way of stepping many environments offers to the benchmark."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vecspaces.cli.benchmark.environments import Workload
from vecspaces.interop import native_space
from vecspaces.vector.utils import batch_space

#: Prepared batches of actions, so that sampling is no part of what is measured.
BATCHES = 16


class Unsuitable(Exception):  # noqa: N818 (a finding, which the table shows)
    """A backend that cannot step an environment; the message says why."""


class Runner(Protocol):
    """Environments that were opened and reset."""

    def run(self, batches: int) -> int:
        """Step.

        Args:
            batches: How often to step all environments.

        Returns:
            The environment steps that were made.
        """

    def close(self) -> None:
        """End it, with all its processes."""


class Stepper:
    """Steps a vector env with prepared actions.

    Args:
        step: Called with a batch of actions.
        actions: Batches of actions, taken in turn.
        close: Ends the vector env.
        num_envs: How many environments there are.
    """

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
        """Step all environments `batches` times."""
        step, actions = self._step, self._actions
        for turn in range(self._turn, self._turn + batches):
            step(actions[turn % BATCHES])
        self._turn += batches
        return batches * self._num_envs


@dataclass(frozen=True)
class Backend:
    """One way of stepping many environments.

    Args:
        name: What the tables call it.
        open: Called as `open(workload, num_envs, num_workers)`; gives a `Runner`, reset and ready.
            Raises Unsuitable, or anything, if it cannot.
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


def sample_actions(action_space: Any, num_envs: int) -> list[Any]:
    """Prepare batches of actions; the same ones for every backend.

    Args:
        action_space: The action space of one environment.
        num_envs: The number of actions in a batch.

    Returns:
        `BATCHES` batches.
    """
    batched = batch_space(native_space(action_space), num_envs)
    batched.seed(0)
    return [batched.sample() for _ in range(BATCHES)]


def no_process(num_envs: int, num_workers: int) -> int:
    """The processes of a backend that starts none."""
    return 0


def one_process_each(num_envs: int, num_workers: int) -> int:
    """The processes of a backend that starts one for each environment."""
    return num_envs
