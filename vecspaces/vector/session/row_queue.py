"""The rows of `send` and `recv`: under way, ready to be received, or late."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from vecspaces.vector.exchange.deadline import Deadline

#: The info of an environment, as the environment returned it.
Info = dict[str, Any]

NEVER = Deadline(None)
# How long to continue reading for a row whose time is over, in seconds: its answer may have come
# while the caller did something else.
_LATE_GRACE = 0.1


class RowQueue:
    """The rows of `send` and `recv`, in the order in which they can be received.

    Only the session changes it. Every change can be made twice with the same result, since an
    interrupt may come before a reply is marked as processed.

    Attributes:
        under_way: Rows that were sent a command and have not answered, in the order of sending, and
            the time limit of each.
        ready: Rows that wait to be received, in order, and the info of each.
        fresh: The ready rows whose result is the first observation after a reset, not a step.
        begun: Rows that were reset, and sent no action since then in a stream.
    """

    def __init__(self) -> None:
        self.under_way: dict[int, Deadline] = {}
        self.ready: dict[int, Info] = {}
        self.fresh: set[int] = set()
        self.begun: set[int] = set()
        # The time limit of the first row, after it has passed, and the end of its grace period.
        self._grace = NEVER, NEVER

    @property
    def streams(self) -> bool:
        """Whether rows are under way, or have results that were not received."""
        return bool(self.under_way) or not self.fresh.issuperset(self.ready)

    def first(self, count: int, at_least: int | None = None) -> list[int] | None:
        """Return the `count` rows that `recv` receives next; None if fewer are ready.

        With `at_least`, as many of them as are ready.
        """
        needed = count if at_least is None else at_least
        return list(islice(self.ready, count)) if len(self.ready) >= needed else None

    def each(self, rows: list[int]) -> list[int] | None:
        """Return these rows; None if one of them is not ready."""
        return rows if self.ready.keys() >= set(rows) else None

    def send(self, rows: Sequence[int], until: Deadline, starts: Iterable[int] = ()) -> None:
        """Note that rows were sent an action, or a reset if they are in `starts`.

        A first observation is then not received any more.
        """
        self.under_way.update(dict.fromkeys(rows, until))
        self.fresh.difference_update(rows)
        for row in rows if self.ready else ():
            self.ready.pop(row, None)
        self.begun.difference_update(rows)
        self.begun.update(starts)

    def send_again(self, rows: Iterable[int], until: Deadline) -> None:
        """Note that a new worker was sent the commands that its predecessor had not answered."""
        again = {row: until for row in rows if row in self.under_way}
        others = {row: at for row, at in self.under_way.items() if row not in again}
        self.under_way = {**others, **again}

    def answer(self, infos: Mapping[int, Info]) -> None:
        """Add the rows that have answered, with the info of each."""
        under_way = self.under_way
        if not under_way.keys() >= infos.keys():  # some were added before
            infos = {row: infos[row] for row in infos if row in under_way}
        self.ready.update(infos)
        for row in infos:
            del under_way[row]

    def refill(self, infos: Mapping[int, Info]) -> None:
        """Add the rows that were reset: their first observations can be received."""
        for row, info in infos.items():
            self.under_way.pop(row, None)
            self.ready.pop(row, None)
            self.fresh.add(row)
            self.begun.add(row)
            self.ready[row] = info

    def without(self, rows: Iterable[int]) -> tuple[dict[int, Info], set[int]]:
        """Return `ready` and `fresh` without some rows."""
        taken = set(rows)
        rest = {row: info for row, info in self.ready.items() if row not in taken}
        return rest, self.fresh - taken

    # ------------------------------------------------------------------ late rows

    def late_from(self, exempt: Container[int]) -> Deadline:
        """Return when the first row under way is late: after its time limit and its grace period.

        Rows that are `exempt` are never late.
        """
        first = next((by for row, by in self.under_way.items() if row not in exempt), NEVER)
        if not first.passed:
            return first
        if self._grace[0] is not first:
            self._grace = first, Deadline(_LATE_GRACE)
        return self._grace[1]

    def is_grace(self, late: Deadline) -> bool:
        """Whether `late_from` returned the end of a grace period."""
        return late is not NEVER and late is self._grace[1]

    def renew_grace(self) -> None:
        """Restart the grace period, since data arrived: the rest of a long message may follow."""
        self._grace = self._grace[0], Deadline(_LATE_GRACE)

    def late(self, exempt: Container[int]) -> list[int]:
        """Return the rows whose time is over."""
        return [row for row, by in self.under_way.items() if by.passed and row not in exempt]
