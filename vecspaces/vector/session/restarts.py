"""Restarts of dead workers: how many, and with which seeds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from vecspaces.errors import WorkerDiedError
from vecspaces.vector.exchange.failures import Message, without_advice


@dataclass
class RestartBudget:
    """How many dead workers are replaced before a run counts as a crash loop.

    Args:
        max_restarts: The most restarts within the window.
        window: Its length, in seconds.
    """

    max_restarts: int
    window: float
    _history: list[tuple[float, Message]] = field(default_factory=list)

    def spend(self, error: WorkerDiedError) -> None:
        """Count one restart.

        Args:
            error: The death that makes it necessary.

        Raises:
            WorkerDiedError: There were too many; the message tells the history.
        """
        now = time.monotonic()
        self._history = [(when, what) for when, what in self._history if now - when <= self.window]
        self._history.append((now, without_advice(error)))
        if len(self._history) <= self.max_restarts:
            return
        deaths = [
            Message("{} s ago: {}", f"{now - when:.1f}", what) for when, what in self._history
        ]
        raise WorkerDiedError(
            Message(
                "workers died {} times within {} s, and max_restarts is {}: fix the environment, "
                "or raise max_restarts. History: {}",
                len(deaths),
                f"{self.window:g}",
                self.max_restarts,
                Message("; ".join(["{}"] * len(deaths)), *deaths),
            ),
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
