"""Which rows still have to answer an action, and which wait to be received, first ready first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vecspaces.vector.exchange.infos import Columns


class RowQueue:
    """The rows of `send` and `recv`; the session alone changes it.

    Every change can be made twice with the same result: an interrupt may come between the arrival
    of a reply and the note that it was taken in.

    Attributes:
        outstanding: Rows that were sent an action and have not answered.
        ready: Rows that wait to be received, in order, and the infos of each.
        fresh: Those of them that hold the first observation after a reset, and no step.
    """

    def __init__(self) -> None:
        self.outstanding: set[int] = set()
        self.ready: dict[int, Columns] = {}
        self.fresh: set[int] = set()

    def send(self, rows: Sequence[int]) -> None:
        """Note that rows were sent an action: what they had ready has been seen, or never will."""
        self.outstanding.update(rows)
        self.fresh.difference_update(rows)
        for row in rows if self.ready else ():
            self.ready.pop(row, None)

    def answer(self, infos: Mapping[int, Columns]) -> None:
        """Take in the rows that have answered a step, and the infos of each."""
        if not self.outstanding.issuperset(infos):  # some were taken in before
            infos = {row: infos[row] for row in infos if row in self.outstanding}
        self.ready.update(infos)
        self.outstanding.difference_update(infos)

    def refill(self, infos: Mapping[int, Columns]) -> None:
        """Take in the rows that were reset: their first observations can be received."""
        for row, columns in infos.items():
            self.outstanding.discard(row)
            self.ready.pop(row, None)
            self.fresh.add(row)
            self.ready[row] = columns

    def without(self, rows: Iterable[int]) -> dict[int, Columns]:
        """Return what is ready but for some rows."""
        taken = set(rows)
        return {row: columns for row, columns in self.ready.items() if row not in taken}

    def clear(self) -> None:
        """Forget everything: all environments step together."""
        self.outstanding.clear()
        self.ready.clear()
        self.fresh.clear()
