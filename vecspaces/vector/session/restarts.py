"""Restarts of dead workers: how many, and with which seeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from vecspaces.checks import check_count, check_seconds
from vecspaces.errors import WorkerDiedError
from vecspaces.seeding import derive_seed
from vecspaces.vector.exchange.failures import Message, with_message, without_advice

#: What `on_worker_death` may be besides a word: called with each death, in the caller's process.
OnDeath: TypeAlias = Callable[[WorkerDiedError], object]
OnWorkerDeath: TypeAlias = Literal["raise", "restart"] | OnDeath


@dataclass
class RestartBudget:
    """How many dead workers are replaced before a run counts as a crash loop.

    Args:
        max_restarts: The most restarts within the window.
        window: Its length, in seconds.
        judge: Called with each death; may raise an exception instead of a restart.
    """

    max_restarts: int
    window: float
    judge: OnDeath | None = None
    _history: dict[tuple[int, int], tuple[float, Message]] = field(default_factory=dict)

    def spend(self, error: WorkerDiedError, count: int) -> None:
        """Count the restart number `count` of a worker, once; too many raise WorkerDiedError."""
        now = time.monotonic()
        if (error.worker, count) not in self._history:
            if self.judge is not None:
                self.judge(error)
            self._history[error.worker, count] = now, without_advice(error)
        self._history = {
            key: death for key, death in self._history.items() if now - death[0] <= self.window
        }
        if len(self._history) <= self.max_restarts:
            return
        deaths = [
            Message("{} s ago: {}", f"{now - when:.1f}", what)
            for when, what in self._history.values()
        ]
        what = Message(
            "workers died {} within {} s, and max_restarts is {}",
            "once" if len(deaths) == 1 else f"{len(deaths)} times",
            f"{self.window:g}",
            self.max_restarts,
        )
        history = Message("; ".join(["{}"] * len(deaths)), *deaths)
        advice = "fix the environment, or raise max_restarts. History: {}"
        raise with_message(error, Message(f"{{}}: {advice}", what, history))


def choose_budget(
    on_worker_death: OnWorkerDeath, max_restarts: Any, restart_window: Any
) -> RestartBudget | None:
    """Return the budget that constructor arguments request; None for `"raise"`."""
    judge = None if isinstance(on_worker_death, str) else on_worker_death
    if on_worker_death not in ("raise", "restart") and not callable(judge):
        raise ValueError(
            "on_worker_death must be 'raise' or 'restart', or a function of a WorkerDiedError, "
            f"found {on_worker_death!r}"
        )
    check_count("max_restarts", max_restarts, least=0)
    window = check_seconds("restart_window", restart_window, zero=True)
    if on_worker_death == "raise":
        return None
    return RestartBudget(int(max_restarts), window, judge)


def restart_seed(seed: int | None, count: int) -> int | None:
    """Return the seed of an environment's restart number `count`, counted from 1."""
    if seed is None:
        return None
    return derive_seed(np.random.SeedSequence(seed, spawn_key=(count,)))
