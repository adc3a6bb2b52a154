"""The budget of restarts: how many workers may be replaced within a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from vecspaces.checks import check_count, check_seconds
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.exchange.failures import Death, Message, reworded, without_advice

#: `on_worker_death` as a function: called with each death, in the caller's process.
OnDeath: TypeAlias = Callable[[WorkerDiedError], object]
OnWorkerDeath: TypeAlias = Literal["raise", "restart"] | OnDeath
#: The same for `on_step_timeout`.
OnStepTimeout: TypeAlias = Literal["raise", "restart"] | Callable[[StepTimeoutError], object]


class _Loss(NamedTuple):
    """A loss that the budget counts."""

    loss: Death | StepTimeoutError
    when: float  # time.monotonic()
    did: str  # what happened to the worker
    what: Message  # the whole message


@dataclass
class RestartBudget:
    """The losses that are answered by a restart, and the maximum number of restarts."""

    max_restarts: int  # within the window
    window: float  # in seconds
    on_worker_death: OnWorkerDeath = "restart"
    on_step_timeout: OnStepTimeout = "raise"
    _history: list[_Loss] = field(default_factory=list)

    def spend(
        self, error: WorkerDiedError | StepTimeoutError, loss: Death | StepTimeoutError
    ) -> str:
        """Count a loss, once even if an interrupt repeats the call; raise the error if too many.

        Returns the line to log when the worker is restarted; empty if it was returned before.
        """
        now = time.monotonic()
        is_new = all(entry.loss is not loss for entry in self._history)
        if is_new:
            did = "overran step_timeout"
            decide: Any = self.on_step_timeout
            if isinstance(error, WorkerDiedError):
                did, decide = "died", self.on_worker_death
            if callable(decide):
                decide(error)
            self._history.append(_Loss(loss, now, did, without_advice(error)))
        self._history = [entry for entry in self._history if now - entry.when <= self.window]
        spent = len(self._history)
        if spent <= self.max_restarts:
            left = f"{self.max_restarts - spent} of {self.max_restarts}"
            text = f"{without_advice(error)}: restarted; restarts left{self._within()}: {left}"
            return text if is_new else ""
        history = Message(
            "; ".join(["{}"] * spent),
            *(
                Message("{} s ago: {}", f"{now - entry.when:.1f}", entry.what)
                for entry in self._history
            ),
        )
        what = Message(
            "workers {} {}{}, and max_restarts is {}",
            " or ".join(sorted({entry.did for entry in self._history})),
            "once" if spent == 1 else f"{spent} times",
            self._within(),
            self.max_restarts,
        )
        advice = Message("fix the environment, or raise max_restarts. History: {}", history)
        raise reworded(error, what, advice)

    def _within(self) -> str:
        """Return the text about the length of the window, if it is finite."""
        return "" if math.isinf(self.window) else f" within {self.window:g} s"


def choose_budget(
    on_worker_death: OnWorkerDeath,
    on_step_timeout: OnStepTimeout,
    step_timeout: Any,
    max_restarts: Any,
    restart_window: Any,
    **others: Any,
) -> RestartBudget | None:
    """Return the budget that constructor arguments request; None if both are `"raise"`."""
    for name, chosen, kind in (
        ("on_worker_death", on_worker_death, WorkerDiedError),
        ("on_step_timeout", on_step_timeout, StepTimeoutError),
    ):
        if chosen not in ("raise", "restart") and not callable(chosen):
            raise ValueError(
                f"{name} must be 'raise' or 'restart', or a function of a {kind.__name__}, "
                f"found {chosen!r}"
            )
    check_count("max_restarts", max_restarts, least=0)
    window = check_seconds("restart_window", restart_window, zero=True)
    if on_step_timeout != "raise" and step_timeout is None:
        raise ValueError(
            f"on_step_timeout={on_step_timeout!r} needs a bound, but step_timeout is None: pass "
            "the longest time that a step may take, in seconds, such as step_timeout=60"
        )
    if on_worker_death == on_step_timeout == "raise":
        return None
    return RestartBudget(int(max_restarts), window, on_worker_death, on_step_timeout)
