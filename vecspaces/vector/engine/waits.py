"""Waits: how the caller waits for the replies of commands, and what ends a wait.

Every wait has a time limit, or looks for slow and dead workers at intervals. An interrupt in
`links.wait` changes nothing, so the wait can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from vecspaces.errors import StepTimeoutError
from vecspaces.log import log
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.engine.arguments import Settings
from vecspaces.vector.engine.replies import Replies
from vecspaces.vector.engine.rows import FRESH, NEW, RowTable
from vecspaces.vector.engine.supervisor import WorkerState
from vecspaces.vector.engine.tickets import NEVER, Ticket
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, overdue, waited, without_advice
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.exchange.stats import COMPUTING

_RESET = Op.RESET
# After a first fault, how long to wait for faults of other workers, in seconds; the error then
# names the lowest environment.
_FAULT_GRACE = 0.1
# How long to continue reading for a row that is late, after its last data, in seconds: its answer
# may have come while the caller did something else.
_LATE_GRACE = 0.1
# The longest time to wait for the stack of a row that is late, in seconds.
_STACK_SECONDS = 0.05


class Waits:
    """The waits of an engine.

    Attributes:
        interrupted: Whether an interrupt ended the last wait.
        first_resets: Whether rows of a stream may be in a first reset, which start_timeout bounds.
    """

    def __init__(
        self, links: Backend, settings: Settings, rows: RowTable, replies: Replies
    ) -> None:
        self._links, self._settings, self._rows, self._replies = links, settings, rows, replies
        self._supervisor, self._clock = replies.supervisor, links.clock
        self.interrupted = self.first_resets = False
        budget = settings.budget
        self._restarts_late = budget is not None and budget.on_step_timeout != "raise"

    def look(self) -> None:
        """Warn of slow environments among the awaited ones."""
        replies = self._replies
        tickets = replies.tickets.values()

        def number_of(row: int) -> int:
            if replies.pending is not None:
                return replies.pending.number
            return next((ticket.number for ticket in tickets if row in ticket.awaited), 0)

        replies.slow.look(replies.owing, number_of, replies.verb)

    def for_command(self, ticket: Ticket, timeout: float | None) -> None:
        """Wait until all workers have replied to a command."""
        replies, owing, since = self._replies, ticket.owing, time.monotonic()
        limit = self._settings.step_timeout if timeout is None else timeout
        if limit is None and ticket.op is _RESET:
            # Renderers and simulators often start, or hang, in the first reset.
            is_first = any(self._rows.state[row] & NEW for row in ticket.rows or ())
            limit = self._settings.start_timeout if is_first else None
        until = NEVER if limit is None else Deadline(limit)
        try:
            if replies.losses:
                replies.handle_losses()
            build_by = self._supervisor.build_by
            while owing and not replies.failures:
                if until is NEVER and not build_by:
                    came = self._links.wait(replies.slow.interval)
                else:
                    came = self._wait_until(until)
                if came:
                    replies.take(came)
                else:
                    self._look_around()
                if until is NEVER:
                    continue
                if build_by and timeout is None and limit is not None:
                    until = Deadline(limit)  # it begins when all workers are built
                elif until.passed and owing and not replies.failures:
                    self._overrun(limit, timeout)
                    until = Deadline(limit)  # new workers may be built before the next look
            if replies.failures:
                self.raise_failure()
        except BaseException as error:
            self._end_early(error, since, (ticket,))
            raise

    def for_rows(
        self, count: int, rows: Sequence[int] | None, timeout: float | None, at_least: int | None
    ) -> None:
        """Wait until rows of a stream are ready."""
        replies, table, since = self._replies, self._rows, time.monotonic()
        # If late workers are restarted, the time limits of the rows bound the wait.
        limit = timeout
        if limit is None and not self._restarts_late:
            limit = self._settings.step_timeout
        by_ticket = self._restarts_late or replies.by_row
        is_first = self.first_resets and limit is None and rows is None and not by_ticket
        if is_first:
            tickets = replies.tickets.values()
            is_first = self.first_resets = any(ticket.until < NEVER for ticket in tickets)
            limit = self._settings.start_timeout if is_first else None
        until = NEVER if limit is None else Deadline(limit)
        try:
            if replies.losses:
                replies.handle_losses()
            if since >= replies.slow.due or timeout == 0:
                # Rows that answered while the caller did something else are not slow.
                came = self._links.wait(0.0)
                if came:
                    replies.take(came)
                if since >= replies.slow.due:
                    self.look()
            while not replies.failures:
                if is_first and self._supervisor.build_by:
                    until = Deadline(limit)  # it begins when all workers are built
                if by_ticket and self._end_late_rows():
                    continue  # rows that failed are ready
                if rows is None:
                    needed = at_least if at_least is not None and until.passed else count
                    is_done = len(table.ready) >= needed
                else:
                    is_done = table.ready.keys() >= set(rows)
                if is_done:
                    return
                if until.passed:
                    self._overrun(limit, timeout)
                came = self._wait_until(min(until, self._row_deadline()) if by_ticket else until)
                if came:
                    replies.take(came)
                else:
                    self._look_around()
            self.raise_failure()
        except BaseException as error:
            is_poll = timeout == 0 and issubclass(type(error), StepTimeoutError)
            self._end_early(error, since, () if is_poll else replies.tickets.values())
            raise

    def _wait_until(self, until: Deadline) -> Any:
        """Wait until a time limit, or that of workers that are starting; return what came."""
        building = self._supervisor.build_by.values()
        if building:
            until = min(until, *building)
        slow = self._replies.slow
        return self._links.wait(slow.interval if until is NEVER else slow.shorten(until.left))

    def _look_around(self) -> None:
        """If nothing came, look for slow environments, and workers that are not built in time."""
        if not self._replies.tickets:
            self._replies.end_nested(self._replies.call)
        self.look()
        if self._supervisor.build_by:
            self.fail_late_builds()

    def fail_late_builds(self) -> None:
        """Note a failure for each worker that was not built in time."""
        for failure in self._supervisor.late_builds():
            self._replies.fail_worker(failure.worker, failure)

    def _row_deadline(self) -> Deadline:
        """Return the first time limit of rows in a stream whose workers are built."""
        building = self._supervisor.build_by.keys()
        tickets = self._replies.tickets.values()
        return min(
            (ticket.until for ticket in tickets if not ticket.owing <= building), default=NEVER
        )

    def _end_late_rows(self) -> bool:
        """Restart the workers of late rows, or let the rows fail; return whether a row is late."""
        if not self._row_deadline().passed:
            return False
        replies, links = self._replies, self._links
        # Answers may have come while the caller did other things.
        came, grace = links.wait(0.0), NEVER
        while came or (any(map(links.is_answering, replies.owing)) and not grace.passed):
            if came:
                grace = Deadline(_LATE_GRACE)
                replies.take(came)
            came = links.wait(grace.left if any(map(links.is_answering, replies.owing)) else 0.0)
        building = self._supervisor.build_by.keys()
        tickets = replies.tickets.values()
        late = [
            ticket for ticket in tickets if ticket.until.passed and not ticket.owing <= building
        ]
        workers = {worker for ticket in late for worker in ticket.owing} - building
        if self._restarts_late:
            self._restart_late(workers)
        else:
            for ticket in late:
                self._fail_late(ticket)
        return bool(workers)

    def _fail_late(self, ticket: Ticket) -> None:
        """Let the rows of a ticket that have not answered fail, with their stacks."""
        replies, table = self._replies, self._rows
        seconds = self._settings.step_timeout or self._settings.start_timeout
        building = self._supervisor.build_by
        # The time limit of a row begins when its worker is built.
        for row in [row for row in ticket.rows or () if row in ticket.awaited]:
            worker = self._supervisor.of[row]
            if worker in building:
                continue
            running = self._links.running(worker)
            where = self._links.find(worker, _STACK_SECONDS)
            advice = "restart or reset it"
            verb = "reset" if table.state[row] & FRESH else ticket.op.verb
            error = overdue(verb, seconds, [row], running, advice, *where)
            log.warning("%s", without_advice(error))
            table.fail(row, Failure((row,), "step", error, "", worker))
            self._supervisor.hung.add(worker)
            ticket.awaited.discard(row)
            ticket.owing.discard(worker)
        if not ticket.awaited:
            del replies.tickets[ticket.number]

    def _overrun(self, limit: float | None, timeout: float | None) -> None:
        """Raise that a wait took too long, or restart the workers that are late.

        They are restarted only if the limit is `step_timeout`, not the call's `timeout`.
        """
        replies, settings, seconds = self._replies, self._settings, limit or 0.0
        if timeout is None and self._restarts_late:
            self._restart_late(set(replies.owing))
            return
        rows, running = replies.busy_rows(replies.owing)
        advice = f"wait again, {self._links.reset_advice}or close()"
        if timeout is None and settings.step_timeout is None:
            advice += " (start_timeout bounds the first reset)"
        # A wait with timeout=0 reads no stack, since reading takes longer.
        where = self._supervisor.find_running(replies.owing, min(PATIENCE, seconds))
        error = overdue(replies.verb, seconds, rows, running, advice, *where)
        # The timeout of a single wait may be used to check whether something is ready.
        if limit in (settings.step_timeout, settings.start_timeout):
            log.warning("%s", without_advice(error))
        raise error

    def _restart_late(self, workers: Collection[int]) -> None:
        """Treat workers that exceeded `step_timeout` like dead ones, in one restart."""
        if not workers:
            return
        replies, slices = self._replies, self._links.slices
        rows, running = replies.busy_rows(workers)
        advice = "their workers are restarted, with all of their environments"
        where = self._supervisor.find_running(workers)
        timeout = self._settings.step_timeout or 0.0
        error = overdue(replies.verb, timeout, rows, running, advice, *where)
        error.env_ids = tuple(row for worker in sorted(workers) for row in slices[worker])
        replies.losses.update(dict.fromkeys(workers, error))
        replies.handle_losses()
        for ticket in replies.tickets.values():
            if ticket.until.passed:
                ticket.until = Deadline(timeout)

    def _end_early(self, error: BaseException, since: float, awaited: Iterable[Ticket]) -> None:
        """Note that a wait ended early, and add to a KeyboardInterrupt what was awaited."""
        replies = self._replies
        if self._clock is not None:
            self._clock.note(COMPUTING)
        if replies.closed:
            if isinstance(error, Exception):
                replies.check_open()
            return
        for ticket in awaited:
            ticket.is_overdue = True
        # isinstance would read the exception's __class__, which may raise.
        self.interrupted = not issubclass(type(error), Exception)
        if issubclass(type(error), KeyboardInterrupt) and not replies.inside and replies.owing:
            rows, _ = replies.busy_rows(replies.owing)
            where, _ = self._supervisor.find_running(replies.owing)
            error.add_note(waited(replies.verb, since, rows, where))

    def raise_failure(self) -> NoReturn:
        """Raise the failure of the lowest environment; a step or reset loses all of its rows."""
        replies, table, grace = self._replies, self._rows, Deadline(_FAULT_GRACE)
        while replies.owing and not grace.passed:
            came = self._links.wait(grace.left)
            if came:
                replies.take(came)
        failures = sorted(replies.failures, key=lambda failure: failure.env_ids[:1])
        replies.inside = True
        pending, states = replies.pending, self._supervisor.states
        workers = [failure.worker for failure in failures if failure.worker >= 0]
        is_dead = any(states[worker] is WorkerState.DEAD for worker in workers)
        if pending is not None and pending.call == "call" and not is_dead:
            # After an exception in a method the rows are usable; late replies are dropped.
            del replies.tickets[pending.number]
            replies.pending, replies.failures = None, []
        else:
            for failure in failures:
                table.failures.update(dict.fromkeys(failure.env_ids, failure))
            replies.drop()
            table.lose()
        replies.inside = False
        failures[0].throw()
