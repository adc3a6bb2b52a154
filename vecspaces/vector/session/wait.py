"""The wait of the session for replies: who owes one, until when, and what happens then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from vecspaces.log import log
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.backends.bounded_wait import Awaited, WaitBound, wait_once
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, overdue, without_advice
from vecspaces.vector.exchange.messages import Op, Reply
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.restarts import Late
from vecspaces.vector.session.row_queue import NEVER, RowQueue
from vecspaces.vector.session.workers import Workers

# After a first fault, how long others may take to report theirs, in seconds: then the lowest
# environment is named.
_FAULT_GRACE = 0.1

#: Takes in what came, of which each reply stays with the backend until it was.
TakeIn = Callable[[deque[Reply]], object]
#: What a wait for rows is over by: the rows, once they are ready.
Ready = Callable[[], "list[int] | None"]


class Wait:
    """The replies that are owed, to the last command and in the stream of rows, and their bounds.

    Each command has a number, which its replies carry. All commands to rows, until none is under
    way, are one stream with one number, beside which a call has its own.

    Attributes:
        op: The last command.
        number: The number of the last command or stream.
        stream: The number of the stream; -1: there is none.
        owing: The workers that owe a reply to the command.
        failures: What failed in the command or the stream, until it is raised.
        since: When the last wait began.
        slow: Notices slow environments.
    """

    def __init__(
        self, backend: Backend, settings: Settings, workers: Workers, queue: RowQueue
    ) -> None:
        self._backend, self._settings = backend, settings
        self._workers, self._queue = workers, queue
        self.op, self.number, self.stream = Op.RESET, 0, -1
        self.owing: set[int] = set()
        self.failures: list[Failure] = []
        self.since = 0.0
        self.slow = SlowWatch(settings.slow_warning, backend)
        self._for_rows = False
        # Whether no reset has ended yet: a renderer or a simulator often starts in the first.
        self._is_first = True
        budget = settings.budget
        self._restarts_late = budget is not None and budget.on_step_timeout != "raise"

    def begin(self, op: Op, workers: Iterable[int], is_first: bool) -> None:
        """Note that a command is sent to some workers, and whether no reset has ended yet."""
        self.number += 1
        self.op, self.owing, self.failures = op, set(workers), []
        self._is_first, self._for_rows = is_first, False

    def begin_stream(self) -> None:
        """Note that commands to rows begin."""
        self.number += 1
        self.stream, self.failures = self.number, []

    def row_deadline(self) -> Deadline:
        """Return until when a row may take that is sent a command now."""
        return Deadline(self._settings.step_timeout) if self._restarts_late else NEVER

    def busy(self, for_rows: bool) -> set[int]:
        """Return the workers that owe a reply: of rows that are under way, or to the command."""
        if not for_rows:
            return set(self.owing)
        rows = self._queue.under_way
        return set(self._workers.of_rows(rows)) if rows else set()

    def busy_rows(self, for_rows: bool) -> tuple[list[int], list[int]]:
        """Return the environments that are waited for, and those of them that are running now."""
        under_way = self._queue.under_way if for_rows else None
        return self._workers.busy_rows(self.busy(for_rows), under_way)

    @property
    def verb(self) -> str:
        """What is waited for, as errors name it."""
        return "step" if self._for_rows else self.op.verb

    def _awaited(self) -> Awaited:
        number = self.stream if self._for_rows else self.number
        return self.busy(self._for_rows), number, self.verb

    def run(self, ready: Ready | None, timeout: float | None, take_in: TakeIn) -> None:
        """Take in replies until no worker owes one, or `ready()` is not None, or one failed."""
        backend, workers, slow = self._backend, self._workers, self.slow
        self.since = time.monotonic()
        self._for_rows = for_rows = ready is not None
        if backend.replies or workers.deaths:  # of the caller's own group, or of an interrupt
            take_in(backend.replies)
            if ready is None and not (self.owing or self.failures):
                return
        advice: str | None = None  # late workers are restarted
        if timeout is not None or not self._restarts_late:
            advice = "wait again, call reset() (which kills and builds them again), or close()"
        # In a stream each row has a time of its own, which bounds the wait.
        by_row = self._restarts_late and for_rows
        if timeout is None and not by_row:
            timeout = self._settings.step_timeout
            if timeout is None and self.op is Op.RESET and self._is_first:
                timeout = self._settings.start_timeout
                advice = f"{advice} (start_timeout bounds the first reset){backend.hang_advice}"
        until = NEVER if timeout is None else Deadline(timeout)
        if for_rows and self.since >= slow.due:
            # Rows that answer at once end each wait before a look at slow ones is due. Those that
            # answered while the caller did something else are taken in first: they are not slow.
            take_in(backend.collect(0.0))
            slow.look(*self._awaited())
        while not self.failures:
            over = not self.owing if ready is None else ready() is not None
            bounds: list[WaitBound] = []
            on_part = None
            if by_row:
                late = self._queue.late_from(workers.building_rows())
                bounds.append((late, partial(self._restart_late_rows, take_in)))
                # The wait goes on for a row whose time is up, although others are ready: else one
                # that hangs would never be found while the others answer.
                in_grace = self._queue.is_grace(late)
                over = over and not (late.passed or (in_grace and not until.passed))
                on_part = self._queue.renew_grace if in_grace else None
            if over:
                return
            if workers.build_by:
                bounds.append((min(workers.build_by.values()), self._give_up_building))
                # The time of the command itself counts from when all workers are built.
                until = until if timeout is None else Deadline(timeout)
            elif timeout is not None:
                overrun = partial(self._overrun, ready, timeout, advice, take_in)
                bounds.append((until, overrun))
            wait_once(backend, slow, bounds, take_in, self._awaited, on_part)
        grace = Deadline(_FAULT_GRACE)
        while self.busy(for_rows) and not grace.passed:
            take_in(backend.collect(grace.left))

    def _overrun(
        self, ready: Ready | None, timeout: float, advice: str | None, take_in: TakeIn
    ) -> None:
        """Raise that a wait took too long; without advice, restart the workers that are late."""
        if not self.owing if ready is None else ready() is not None:
            return
        rows, running = self.busy_rows(self._for_rows)
        if advice is None:
            self._restart_late(rows, running, take_in)
            return
        # A wait of a moment, such as timeout=0, does not pay for a stack.
        where = self._workers.find_running(self.busy(self._for_rows), min(PATIENCE, timeout))
        error = overdue(self.verb, timeout, rows, running, advice, *where)
        # The bound of a single wait may be a way to look whether something is ready.
        if timeout in (self._settings.step_timeout, self._settings.start_timeout):
            log.warning("%s", without_advice(error))
        raise error

    def _restart_late_rows(self, take_in: TakeIn) -> None:
        """Restart the workers of rows under way that are late."""
        workers, queue = self._workers, self._queue
        exempt = workers.building_rows()
        if queue.late_from(exempt).passed:
            late = workers.of_rows(queue.late(exempt))
            self._restart_late(*workers.busy_rows(late, queue.under_way), take_in)

    def _restart_late(self, rows: Sequence[int], running: Sequence[int], take_in: TakeIn) -> None:
        """Treat the workers of rows that overran `step_timeout` as dead ones, in one restart."""
        workers = list(self._workers.of_rows(rows))
        timeout = self._settings.step_timeout or 0.0
        advice = "their workers are restarted, with all of their environments"
        where = self._workers.find_running(workers)
        error = overdue(self.verb, timeout, rows, running, advice, *where)
        error.env_ids = tuple(row for worker in workers for row in self._backend.slices[worker])
        # As one assignment, so that after an interrupt the next wait goes on.
        self._workers.deaths = dict.fromkeys(workers, Late(error))
        take_in(deque())

    def _give_up_building(self) -> None:
        """Note a failure for each worker that was not built in time."""
        failures = self._workers.give_up_building()
        self.owing.difference_update(failure.worker for failure in failures)
        self.failures += failures
