"""What a caller hears of dead and late workers, and how often dead ones are replaced."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vecspaces.errors import StepTimeoutError, WorkerDiedError, describe_exit


def name_rows(rows: Sequence[int]) -> str:
    """Name environments in a message.

    Example:
        >>> name_rows([3]), name_rows([1, 4]), name_rows(range(32, 64))
        ('environment 3', 'environments 1, 4', 'environments 32 to 63')
    """
    if len(rows) == 1:
        return f"environment {rows[0]}"
    if len(rows) > 2 and rows[-1] - rows[0] == len(rows) - 1:
        return f"environments {rows[0]} to {rows[-1]}"
    return f"environments {', '.join(map(str, rows))}"


_NAMED_ROWS = re.compile(r"\benvironments? (?:\d+(?:, | to )?)+|\benv_fns\[\d+\]")


def renumber(message: str, by: int) -> str:
    """Add a number to the environments that `name_rows` named in a message.

    Example:
        >>> renumber("worker 1 (environments 2, 3) died while environment 3 was running", 4)
        'worker 1 (environments 6, 7) died while environment 7 was running'
    """

    def shift(named: re.Match[str]) -> str:
        return re.sub(r"\d+", lambda number: str(int(number[0]) + by), named[0])

    return _NAMED_ROWS.sub(shift, message)


class Death(NamedTuple):
    """How a worker ended.

    Attributes:
        exitcode: As multiprocessing says it; None if nobody knows.
        node: The machine of a cluster that it ran on; None for this one.
        cause: What the cluster says of it.
    """

    exitcode: int | None
    node: str | None = None
    cause: Exception | None = None


def died(
    worker: int, rows: Sequence[int], command: str, death: Death, busy: int, advice: str
) -> WorkerDiedError:
    """Make the error for a dead worker.

    Args:
        worker: Its index.
        rows: Its environments.
        command: What it was doing.
        death: How it ended.
        busy: The environment that was running when it died; -1 if none was.
        advice: What to do next.

    Returns:
        The error, to be raised.
    """
    phrase, signal = describe_exit(death.exitcode)
    if death.cause is not None:
        phrase = "was lost"
    where = f" on node {death.node}" if death.node else ""
    running = f" while environment {busy} was running" if busy in rows else ""
    error = WorkerDiedError(
        f"worker {worker}{where} ({name_rows(rows)}) {phrase} during {command}{running}: {advice}",
        rows,
        worker,
        command,
        death.exitcode,
        signal,
        death.node,
    )
    error.__cause__ = death.cause
    return error


def died_within(worker: int, node: str, error: WorkerDiedError) -> WorkerDiedError:
    """Say of a process that died in an actor in which actor it was.

    Args:
        worker: The index of the actor.
        node: The machine that it runs on.
        error: What the vector env in the actor said of its own worker.

    Returns:
        The error, to be raised.

    Example:
        >>> inner = died(1, [5], "step", Death(3), -1, "reset")
        >>> str(died_within(0, "n7", inner))
        'worker 0 on node n7: process 1 (environment 5) exited with code 3 during step: reset'
    """
    told = re.sub(r"\bworker (?=\d)", "process ", str(error))
    return WorkerDiedError(
        f"worker {worker} on node {node}: {told}",
        error.env_ids,
        worker,
        error.command,
        error.exitcode,
        error.signal,
        node,
    )


def overdue(
    command: str, timeout: float, rows: Sequence[int], running: Sequence[int]
) -> StepTimeoutError:
    """Make the error for a wait that took too long.

    Args:
        command: What was waited for.
        timeout: The bound, in seconds.
        rows: The environments that have not finished.
        running: Those of them that are running now.

    Returns:
        The error, to be raised.
    """
    now = f" ({name_rows(running)} running now)" if running and len(running) < len(rows) else ""
    return StepTimeoutError(
        f"{command} did not end within {timeout:g} s: {name_rows(rows)} still busy{now}: "
        "wait again, call reset() (which kills and builds them again), or close()",
        rows,
    )


@dataclass
class RestartBudget:
    """How many dead workers are replaced before a run counts as a crash loop.

    Args:
        max_restarts: The most restarts within the window.
        window: Its length, in seconds.
    """

    max_restarts: int
    window: float
    _history: list[tuple[float, str]] = field(default_factory=list)

    def spend(self, error: WorkerDiedError) -> None:
        """Count one restart.

        Args:
            error: The death that makes it necessary.

        Raises:
            WorkerDiedError: There were too many; the message tells the history.
        """
        now = time.monotonic()
        self._history = [(when, what) for when, what in self._history if now - when <= self.window]
        self._history.append((now, str(error).partition(": ")[0]))
        if len(self._history) <= self.max_restarts:
            return
        told = "; ".join(f"{now - when:.1f} s ago: {what}" for when, what in self._history)
        raise WorkerDiedError(
            f"workers died {len(self._history)} times within {self.window:g} s, and max_restarts "
            f"is {self.max_restarts}: mend the environment, or raise max_restarts. History: {told}",
            error.env_ids,
            error.worker,
            error.command,
            error.exitcode,
            error.signal,
            error.node,
        )


def choose_budget(
    on_worker_death: str, max_restarts: int, restart_window: float
) -> RestartBudget | None:
    """Understand what a constructor was told about dead workers.

    Args:
        on_worker_death: `"raise"` or `"restart"`.
        max_restarts: How many restarts within the window are taken for bad luck.
        restart_window: In seconds.

    Returns:
        The budget; None for `"raise"`.

    Raises:
        ValueError: It is neither, or a number is negative.
    """
    if on_worker_death not in ("raise", "restart"):
        raise ValueError(f"on_worker_death must be 'raise' or 'restart', found {on_worker_death!r}")
    for name, value in (("max_restarts", max_restarts), ("restart_window", restart_window)):
        if value < 0:
            raise ValueError(f"{name} must be at least 0, found {value}")
    return RestartBudget(max_restarts, restart_window) if on_worker_death == "restart" else None


def restart_seed(seed: int | None, count: int) -> int | None:
    """Derive the seed with which an environment goes on after its worker died.

    Args:
        seed: The seed of its last seeded reset; None if there was none.
        count: Which of its restarts this is, from 1 on.

    Returns:
        A seed of its own (`numpy.random.SeedSequence` with `spawn_key=(count,)`), or None.
    """
    if seed is None:
        return None
    return int(np.random.SeedSequence(seed, spawn_key=(count,)).generate_state(1)[0])
