"""The wait of the session for replies: from which workers, until when, and what happens then."""

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
from vecspaces.vector.exchange.failures import Failure, name_envs, overdue, without_advice
from vecspaces.vector.exchange.messages import Op, Reply
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.row_queue import NEVER, RowQueue
from vecspaces.vector.session.workers import Workers

# After a first fault, how long to wait for faults of other workers, in seconds; the error then
# names the lowest environment.
_FAULT_GRACE = 0.1

_RESET = Op.RESET

#: Processes the replies that came; each stays with the backend until it was processed.
TakeIn = Callable[[deque[Reply]], object]
#: Ends a wait for rows: returns the rows when they are ready.
Ready = Callable[[], "list[int] | None"]


class Wait:
    """The missing replies, to the last command and in the stream of rows, and their time limits.

    Attributes:
        op: The last command.
        number: The number of the last command or stream.
        stream: The number of the stream; -1: there is none.
        owing: The workers that have not replied to the command.
        failures: The failures in the command or the stream, until they are raised.
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
        # Whether no reset has ended yet: renderers and simulators often start in the first.
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
        self.stream, self.failures, self._for_rows = self.number, [], True

    def row_deadline(self) -> Deadline:
        """Return the time limit of a row that is sent a command now."""
        return Deadline(self._settings.step_timeout) if self._restarts_late else NEVER

    def busy(self, for_rows: bool) -> set[int]:
        """Return the workers that have not replied: of rows under way, or to the command."""
        if not for_rows:
            return set(self.owing)
        rows = self._queue.under_way
        return set(self._workers.of_rows(rows)) if rows else set()

    def busy_rows(self, for_rows: bool) -> tuple[list[int], list[int]]:
        """Return the awaited environments, and those of them that are running now."""
        under_way = self._queue.under_way if for_rows else None
        return self._workers.busy_rows(self.busy(for_rows), under_way)

    @property
    def verb(self) -> str:
        """The awaited command, as errors name it."""
        return "step" if self._for_rows else self.op.verb

    def _awaited(self) -> Awaited:
        number = self.stream if self._for_rows else self.number
        return self.busy(self._for_rows), number, self.verb

    def look(self) -> None:
        """Warn of slow environments among the awaited ones."""
        self.slow.look(*self._awaited())

    def run(
        self,
        ready: Ready | None,
        timeout: float | None,
        take_in: TakeIn,
        enough: Ready | None = None,
    ) -> list[int]:
        """Process replies until none is missing, or `ready()` returns rows, or one is a failure.

        After its time limit, the wait also ends if `enough()` returns rows. Returns these rows; []
        without `ready`, and after a failure.
        """
        backend, workers, slow = self._backend, self._workers, self.slow
        self.since = time.monotonic()
        self._for_rows = for_rows = ready is not None
        if backend.replies or workers.deaths:  # of the caller's own group, or of an interrupt
            take_in(backend.replies)
            if ready is None and not (self.owing or self.failures):
                return []
        # In a stream each row has its own time limit, which bounds the wait.
        by_row = for_rows and self._restarts_late
        requested = timeout
        if timeout is None and not by_row:
            timeout = self._settings.step_timeout
            if timeout is None and self.op is _RESET and self._is_first:
                timeout = self._settings.start_timeout
        until = NEVER if timeout is None else Deadline(timeout)
        if enough is not None and timeout == 0:
            take_in(backend.collect(0.0))  # what has already come
        if for_rows and self.since >= slow.due:
            # Rows that answer at once end each wait before slow rows are checked. Rows that
            # answered while the caller did something else are processed first, because they are not
            # slow.
            take_in(backend.collect(0.0))
            self.look()
        while not self.failures:
            if ready is None and not self.owing:
                return []
            bounds: list[WaitBound] = []
            on_part = None
            if ready is not None:
                rows = ready()
                if enough is not None and until.passed:
                    rows = enough()
                if by_row:
                    late = self._queue.late_from(workers.building_rows())
                    bounds.append((late, partial(self._restart_late_rows, take_in)))
                    # The wait continues for a row whose time is over, although others are ready;
                    # otherwise a row that hangs would not be found while others answer.
                    in_grace = self._queue.is_grace(late)
                    if late.passed or (in_grace and not until.passed):
                        rows = None
                    on_part = self._queue.renew_grace if in_grace else None
                if rows is not None:
                    return rows
            if workers.build_by:
                bounds.append((min(workers.build_by.values()), self.give_up_building))
            if workers.build_by and requested is None:
                # `step_timeout` begins when all workers are built.
                until = until if timeout is None else Deadline(timeout)
            elif timeout is not None:
                overrun = partial(self._overrun, enough or ready, timeout, requested, take_in)
                bounds.append((until, overrun))
            wait_once(backend, slow, bounds, take_in, self._awaited, on_part)
        grace = Deadline(_FAULT_GRACE)
        while self.busy(for_rows) and not grace.passed:
            take_in(backend.collect(grace.left))
        return []

    def _overrun(
        self, ready: Ready | None, timeout: float, requested: float | None, take_in: TakeIn
    ) -> None:
        """Raise that a wait took too long, or restart the workers that are late.

        They are restarted only if the time is that of the settings, and none was `requested`.
        """
        if not self.owing if ready is None else ready() is not None:
            return
        rows, running = self.busy_rows(self._for_rows)
        if requested is None and self._restarts_late:
            self._restart_late(rows, running, take_in)
            return
        advice = f"wait again, {self._backend.reset_advice}or close()"
        if requested is None and self._settings.step_timeout is None:
            hint = self._backend.hang_advice
            advice = f"{advice} (start_timeout bounds the first reset){hint}"
        # A very short wait, such as timeout=0, does not read a stack.
        where = self._workers.find_running(self.busy(self._for_rows), min(PATIENCE, timeout))
        error = overdue(self.verb, timeout, rows, running, advice, *where)
        # The timeout of a single wait may be used to check whether something is ready.
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
        """Treat the workers of rows that exceeded `step_timeout` like dead ones, in one restart."""
        workers = list(self._workers.of_rows(rows))
        timeout = self._settings.step_timeout or 0.0
        advice = "their workers are restarted, with all of their environments"
        where = self._workers.find_running(workers)
        error = overdue(self.verb, timeout, rows, running, advice, *where)
        error.env_ids = tuple(row for worker in workers for row in self._backend.slices[worker])
        # As one assignment, so that after an interrupt the next wait continues.
        self._workers.deaths = dict.fromkeys(workers, error)
        take_in(deque())

    def give_up_building(self) -> None:
        """Note a failure for each worker that was not built in time."""
        workers, backend, limit = self._workers, self._backend, self._settings.start_timeout
        for worker in [worker for worker, by in workers.build_by.items() if by.passed]:
            del workers.build_by[worker]
            workers.gone.add(worker)
            self.owing.discard(worker)
            rows, error = backend.slices[worker], backend.give_up_building(worker, limit)
            self.failures.append(Failure(tuple(rows), "build", error, "", worker))
            log.warning("%s: not built again within start_timeout", name_envs(rows))
