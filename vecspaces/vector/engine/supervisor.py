"""Supervisor: the state of each worker, and the consequences of deaths, delays and restarts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import groupby

from vecspaces.errors import ClosedEnvironmentError, StepTimeoutError, WorkerDiedError
from vecspaces.log import log
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.engine.arguments import Settings
from vecspaces.vector.engine.rows import RowTable
from vecspaces.vector.engine.seeds import restart_seed
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, Message, died, name_envs
from vecspaces.vector.exchange.messages import Starts

Loss = Death | StepTimeoutError


class WorkerState(Enum):
    """The state of a worker; the open tickets say which workers are busy."""

    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"
    CLOSED = "closed"


_S = WorkerState
#: The events of each state, and the state after it. After `close` nothing is started.
TRANSITIONS: Mapping[tuple[WorkerState, str], WorkerState] = {
    (_S.STARTING, "start"): _S.STARTING,
    (_S.STARTING, "built"): _S.READY,
    (_S.STARTING, "end"): _S.DEAD,
    (_S.STARTING, "close"): _S.CLOSED,
    (_S.READY, "start"): _S.STARTING,
    (_S.READY, "end"): _S.DEAD,
    (_S.READY, "close"): _S.CLOSED,
    (_S.DEAD, "start"): _S.STARTING,
    (_S.DEAD, "end"): _S.DEAD,
    (_S.DEAD, "close"): _S.CLOSED,
    (_S.CLOSED, "end"): _S.CLOSED,
    (_S.CLOSED, "close"): _S.CLOSED,
}


class Supervisor:
    """The workers of a vector env.

    Attributes:
        states: The state of each worker.
        of: The worker of each row.
        hung: The workers of rows that failed because they were late, and that have not answered.
        build_by: The time limit of each worker that is starting.
        restarts: How often each worker was restarted in the middle of a run.
    """

    def __init__(self, links: Backend, settings: Settings, rows: RowTable) -> None:
        self._links, self._slices, self._rows = links, links.slices, rows
        self._limit, self._budget = settings.start_timeout, settings.budget
        self.states = [WorkerState.READY] * len(self._slices)
        self.of = [worker for worker, part in enumerate(self._slices) for _ in part]
        self.hung: set[int] = set()
        self.build_by: dict[int, Deadline] = {}
        self.restarts = [0] * len(self._slices)
        self._to_log: dict[int, str] = {}
        self._has_closed = False

    def move(self, worker: int, event: str) -> None:
        """Change the state of a worker by an event of `TRANSITIONS`."""
        state = TRANSITIONS.get((self.states[worker], event))
        if state is None:
            raise ClosedEnvironmentError("close() was called: no worker is started any more")
        self.states[worker] = state
        if self._has_closed:  # perhaps in the middle of this, by a signal handler or another thread
            self.states[worker] = WorkerState.CLOSED

    def is_closed(self, worker: int) -> bool:
        """Whether a worker is closed; another thread or a signal handler may have closed it."""
        return self.states[worker] is WorkerState.CLOSED

    def of_rows(self, rows: Iterable[int]) -> dict[int, list[int]]:
        """Sort rows by their workers, which are in ascending order."""
        if len(self._slices) == 1:
            return {0: list(rows)}
        parts: dict[int, list[int]] = {}
        for worker, run in groupby(rows, self.of.__getitem__):
            parts.setdefault(worker, []).extend(run)
        return dict(sorted(parts.items()))

    @property
    def unusable(self) -> set[int]:
        """The workers that answer no command until they are replaced."""
        states = enumerate(self.states)
        return self.hung.union(worker for worker, state in states if state is WorkerState.DEAD)

    # ------------------------------------------------------------------ events

    def start(self, worker: int, restart: Starts | None = None) -> None:
        """Replace a worker; its next command waits until it is built."""
        if not self.is_closed(worker):
            self.note_dead(worker)  # stays so if an interrupt prevents the start
            try:
                self._links.start(worker, restart)
            except Exception:
                # Another thread may close the vector env during the start.
                if not self.is_closed(worker):
                    raise
        if self.is_closed(worker):  # by a signal handler or another thread
            self._links.end(worker)
        # Before `move`: a worker that is STARTING has a time limit, even after an interrupt.
        self.build_by[worker] = Deadline(self._limit)
        self.move(worker, "start")

    def restart(self, worker: int) -> None:
        """Replace a worker in the middle of a run; its rows begin with derived seeds."""
        rows, table, count = self._slices[worker], self._rows, self.restarts[worker] + 1
        starts = {row: (restart_seed(table.seeds[row], count), table.options[row]) for row in rows}
        table.restarted.update(rows)
        self.start(worker, starts)
        self.restarts[worker] = count
        text = self._to_log.pop(worker, "")
        if text:
            log.warning("%s", text)

    def note_built(self, worker: int) -> None:
        """Note that a worker has built its environments."""
        self.build_by.pop(worker, None)
        self.move(worker, "built")

    def note_dead(self, worker: int) -> None:
        """Note that a worker is dead, or cannot be used: a reset replaces it."""
        self.build_by.pop(worker, None)
        self.hung.discard(worker)
        self.move(worker, "end")

    def late_builds(self) -> list[Failure]:
        """Return a failure for each worker that was not built in time, which is then dead."""
        failures = []
        for worker in [worker for worker, by in self.build_by.items() if by.passed]:
            if self.states[worker] is not WorkerState.STARTING:  # `start` was interrupted
                del self.build_by[worker]
                continue
            rows, error = self._slices[worker], self._links.late_build_error(worker, self._limit)
            self.note_dead(worker)
            failures.append(Failure(tuple(rows), "build", error, "", worker))
            log.warning("%s: not built again within start_timeout", name_envs(rows))
        return failures

    def close(self) -> None:
        """Note that all workers are closed: none is started any more."""
        self._has_closed = True
        for worker in range(len(self.states)):
            self.move(worker, "close")

    # ------------------------------------------------------------------ losses

    def judge(self, worker: int, loss: Loss, verb: str) -> Exception | None:
        """Return the error for the loss of a worker; None if the worker is to be restarted."""
        budget = self._budget
        error: StepTimeoutError | WorkerDiedError
        if isinstance(loss, StepTimeoutError):
            error, restarts = loss, True
        else:
            restarts = budget is not None and budget.on_worker_death != "raise"
            error = loss.error or self._died(worker, loss, verb, restarts)
        if budget is None or not restarts:
            return error
        try:
            self._to_log[worker] = budget.spend(error, loss)
        except Exception as fault:  # too many restarts, or an exception of the user's function
            return fault
        return None

    def _died(self, worker: int, death: Death, verb: str, restarts: bool) -> WorkerDiedError:
        """Return the error for a worker that died."""
        links = self._links
        advice = (
            "its environments are built again"
            if restarts
            else "call reset() to build its environments again, or close(); "
            'on_worker_death="restart" goes on by itself'
        )
        (running, *_), text, *_ = links.locate(worker)
        return died(
            worker, self._slices[worker], verb, death, running if text else -1, advice, text
        )

    # ------------------------------------------------------------------ busy workers

    def busy_rows(
        self, workers: Iterable[int], awaited: Collection[int] | None
    ) -> tuple[list[int], list[int]]:
        """Return the unfinished environments of workers, and those that are running now.

        In a stream, these are among the `awaited` rows; otherwise a worker steps its rows in order.
        """
        unfinished: list[int] = []
        running: list[int] = []
        for worker in sorted(workers):
            running.extend(sorted(self._links.running(worker)))
            if awaited is not None:
                unfinished.extend(row for row in self._slices[worker] if row in awaited)
            else:
                unfinished.extend(self._links.unfinished(worker))
        return unfinished, running

    def find_running(
        self, workers: Collection[int], patience: float = PATIENCE
    ) -> tuple[Message | str, str | None]:
        """Return the position, as text, and the stack of the first environment that is running.

        Only the first environment, since its worker may need `patience` seconds to answer.
        """
        running = [worker for worker in workers if self._links.running(worker)]
        if not workers:
            return "", None
        return self._links.find(min(running or workers), patience)
