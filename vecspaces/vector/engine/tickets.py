"""Ticket: a command that was sent, and the replies that it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.messages import Op

NEVER = Deadline(None)


class Ticket(SimpleNamespace):
    """A command and its progress; the base's constructor takes less time than a dataclass's.

    Attributes:
        number: Repeated by every reply; a reply whose number has no open ticket is dropped.
        op: The command.
        call: The wait that ends it: "reset", "step" or "call"; "send" stands for `recv`.
        payloads: By worker, the arguments.
        owing: The workers that have not replied.
        rows: The rows that an interrupt loses; None: all.
        slot: The slot of the ring that it writes.
        steps: The number of steps of the rollout after it.
        results: By worker, the payload of its reply, for replies with a payload.
        awaited: Its rows that have not answered; none if workers answer, not rows.
        renewed: The rows that were restarted after they had answered; they need a reset afterwards.
        until: When its rows are late, if rows have their own time limits.
        is_overdue: Whether a wait for it ended early, by a timeout or an interrupt.
    """

    number: int
    op: Op
    call: str
    payloads: Mapping[int, Any]
    owing: set[int]
    rows: Sequence[int] | None
    slot: int
    steps: int
    results: dict[int, Any]
    awaited: set[int]
    renewed: Sequence[int] = ()
    until: Deadline = NEVER
    is_overdue: bool = False
