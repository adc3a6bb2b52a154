"""Which rows still have to answer an action, and which wait to be received, first ready first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vecspaces.vector.exchange.deadline import Deadline

#: The info of an environment, as it returned it.
Info = dict[str, Any]


class RowQueue:
    """The rows of `send` and `recv`; the session alone changes it.

    Every change can be made twice with the same result: an interrupt may come between the arrival
    of a reply and the note that it was taken in.

    Attributes:
        outstanding: Rows that were sent an action and have not answered, in the order in which
            they were sent, and until when each may take.
        ready: Rows that wait to be received, in order, and the info of each.
        fresh: Those of them that hold the first observation after a reset, and no step.
    """

    def __init__(self) -> None:
        self.outstanding: dict[int, Deadline] = {}
        self.ready: dict[int, Info] = {}
        self.fresh: set[int] = set()

    def send(self, rows: Sequence[int], until: Deadline) -> None:
        """Note that rows were sent an action: what they had ready has been seen, or never will."""
        self.outstanding.update(dict.fromkeys(rows, until))
        self.fresh.difference_update(rows)
        for row in rows if self.ready else ():
            self.ready.pop(row, None)

    def send_again(self, rows: Iterable[int], until: Deadline) -> None:
        """Note that a new worker was sent what its predecessor had not answered."""
        again = {row: until for row in rows if row in self.outstanding}
        others = {row: at for row, at in self.outstanding.items() if row not in again}
        self.outstanding = {**others, **again}

    def answer(self, infos: Mapping[int, Info]) -> None:
        """Take in the rows that have answered a step, and the info of each."""
        if not self.outstanding.keys() >= infos.keys():  # some were taken in before
            infos = {row: infos[row] for row in infos if row in self.outstanding}
        self.ready.update(infos)
        for row in infos:
            self.outstanding.pop(row)

    def refill(self, infos: Mapping[int, Info]) -> None:
        """Take in the rows that were reset: their first observations can be received."""
        for row, info in infos.items():
            self.outstanding.pop(row, None)
            self.ready.pop(row, None)
            self.fresh.add(row)
            self.ready[row] = info

    def without(self, rows: Iterable[int]) -> dict[int, Info]:
        """Return what is ready but for some rows."""
        taken = set(rows)
        return {row: info for row, info in self.ready.items() if row not in taken}

    def clear(self) -> None:
        """Forget everything: all environments step together."""
        self.outstanding.clear()
        self.ready.clear()
        self.fresh.clear()
