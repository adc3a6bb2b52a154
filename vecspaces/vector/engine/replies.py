"""Replies: the open tickets, what each reply changes, and the losses of workers.

A reply is classified by the number of its ticket; without an open ticket it is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from vecspaces.errors import ClosedEnvironmentError, ResetNeededError, StepTimeoutError
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.engine.arguments import Settings
from vecspaces.vector.engine.ring import SlotRing
from vecspaces.vector.engine.rows import BUSY, RowTable
from vecspaces.vector.engine.supervisor import Loss, Supervisor, WorkerState
from vecspaces.vector.engine.tickets import NEVER, Ticket
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import Part, as_columns
from vecspaces.vector.exchange.messages import Op, Reply, StepRows, Written, make_written
from vecspaces.vector.exchange.snapshots import snapshot

_BOUND, _DIED, _DONE, _FAILED, _PART = Op.BOUND, Op.DIED, Op.DONE, Op.FAILED, Op.PART
_STEP, _STEPPED, _STEP_ROWS = Op.STEP, Op.STEPPED, Op.STEP_ROWS


class Replies:
    """The open tickets of a vector env, and what their replies change.

    Attributes:
        tickets: The open tickets, by their numbers.
        pending: The ticket of a reset, step or call that was begun and has not ended.
        losses: The workers that died or are late, until `handle_losses`.
        failures: The failures that the next wait raises.
        call: The last call, as messages name it.
        by_row: Whether the loss of a worker is a failure of its rows, instead of one of the wait.
        closed: Whether everything was freed.
        inside: Whether rows and workers are being changed: if a call begins while this is True, an
            interrupt has ended the last change.
    """

    def __init__(self, links: Backend, settings: Settings, rows: RowTable, ring: SlotRing) -> None:
        self._links, self._settings, self._rows, self._ring = links, settings, rows, ring
        self.supervisor = Supervisor(links, settings, rows)
        self.slow = SlowWatch(settings.slow_warning, links)
        self.tickets: dict[int, Ticket] = {}
        self.pending: Ticket | None = None
        self.losses: dict[int, Loss] = {}
        self.failures: list[Failure] = []
        self.call = "reset"
        self.by_row = self.closed = self.inside = False

    @property
    def verb(self) -> str:
        """The awaited command, as errors name it."""
        return "step" if self.pending is None else self.pending.op.verb

    @property
    def owing(self) -> set[int]:
        """The workers whose replies a wait needs."""
        if self.pending is not None:
            return self.pending.owing
        return {worker for ticket in self.tickets.values() for worker in ticket.owing}

    def check_open(self) -> None:
        """Raise if a signal handler, another thread or a callback has called `close` meanwhile."""
        if self.closed:
            raise ClosedEnvironmentError(
                f"close() was called during {self.call}, which has no result: make a new vector env"
            ) from None

    def end_nested(self, name: str) -> NoReturn:
        """Raise that another call has closed the ticket of a call that has not ended."""
        self.check_open()
        self.inside = True
        self.drop()
        self._rows.lose()
        self.inside = False
        raise ResetNeededError(
            f"{name}: an environment, a signal handler or another thread called another method "
            f"before {name} had ended, so its results are lost: reset() first"
        )

    # ------------------------------------------------------------------ the end of tickets

    def drop(self) -> None:
        """Close all tickets, so that late replies are dropped."""
        self.tickets.clear()
        self.losses.clear()
        self.failures.clear()
        self.pending = None

    def forget(self, workers: Iterable[int], rows: Collection[int]) -> None:
        """Drop the commands of some rows of workers, and their replies."""
        for worker in workers:
            self.losses.pop(worker, None)
            for ticket in list(self.tickets.values()):
                if worker in ticket.owing:
                    ticket.awaited.difference_update(rows)
                    self._note_answers(ticket, worker)

    # ------------------------------------------------------------------ replies

    def take(self, came: Any) -> None:
        """Process the replies that `wait` returned."""
        if self.closed:  # workers reply to the close command
            self.check_open()
        self.inside = True
        for reply in self._links.read(came):
            worker, op, number, payload = reply
            ticket = self.tickets.get(number)
            if op is _STEPPED:
                if ticket is not None:
                    ticket.owing.difference_update(payload)
            elif op is not _DONE:
                self._take_other(reply, ticket)
            elif ticket is None:
                continue  # too late
            elif ticket.call == "send":
                if ticket.op is _STEP_ROWS:
                    self._answer(ticket, worker, payload or _whole(ticket, worker))
                else:
                    self._answer_call(ticket, worker, payload)
            else:
                ticket.owing.discard(worker)
                if payload:
                    ticket.results[worker] = payload
                    if self._rows.restarted and ticket.op is _STEP:
                        self._show_known(ticket.slot, self._ring.current, payload)
        if self.closed:
            self.check_open()
        self.inside = False
        if self.losses:
            self.handle_losses()

    def _take_other(self, reply: Reply, ticket: Ticket | None) -> None:
        """Process a reply other than the end of a command."""
        worker, op, _, payload = reply
        supervisor = self.supervisor
        if op is _PART:
            if ticket is not None:
                self._answer(ticket, worker, payload)
        elif op is _BOUND:
            if supervisor.states[worker] is not WorkerState.STARTING:
                return  # too late, or its start was interrupted: a reset replaces it
            supervisor.note_built(worker)
            for late in self.tickets.values():
                if worker in late.owing and late.until is not NEVER:
                    late.until = Deadline(self._settings.step_timeout)
        elif op is _DIED:
            if supervisor.states[worker] is not WorkerState.DEAD:
                self.losses[worker] = payload
        elif op is _FAILED and (ticket is not None or worker in supervisor.build_by):
            # In a stream, it is unknown which rows can still answer.
            if worker in supervisor.build_by or (ticket is not None and ticket.op is _STEP_ROWS):
                self.fail_worker(worker, payload)
            elif ticket is not None and ticket.call == "send":
                rows = ticket.payloads[worker].rows
                # What cannot be unpickled is reported for all rows of the worker.
                payload.env_ids = tuple(row for row in payload.env_ids if row in rows)
                self._answer_call(ticket, worker, dict.fromkeys(rows, payload))
            elif ticket is not None:
                self.failures.append(payload)
                ticket.owing.discard(worker)

    def _answer_call(self, ticket: Ticket, worker: int, results: Mapping[int, Any]) -> None:
        """Process the results of a call of some rows, or its failure for each row."""
        for row in ticket.awaited.intersection(results):
            self._rows.results[row] = results[row]
            self._rows.answer([row])
        ticket.awaited.clear()
        self._note_answers(ticket, worker)

    def _answer(self, ticket: Ticket, worker: int, written: Written) -> None:
        """Process some rows of a worker's stream, which have answered or failed."""
        rows, infos, failures = written
        table, ring, awaited = self._rows, self._ring, ticket.awaited
        if infos and table.restarted:
            self._show_known(ring.current, ring.after[ring.current], infos)
        if self.supervisor.hung:
            self.supervisor.hung.discard(worker)
        if self.slow.seen:
            self.slow.note_answer(worker)
        if not awaited.issuperset(rows):  # a restart has dropped some rows
            rows = [row for row in rows if row in awaited]
        if infos and self._links.shares_objects:
            infos = snapshot(infos)
        table.answer(rows, infos)
        awaited.difference_update(rows)
        for failed, failure in failures:
            for row in [row for row in failed if row in awaited]:
                table.fail(row, failure)
            awaited.difference_update(failed)
        self._note_answers(ticket, worker)

    def _note_answers(self, ticket: Ticket, worker: int) -> None:
        """Note that a worker owes no reply to a ticket, unless some of its rows are awaited."""
        if not ticket.awaited:
            ticket.owing.discard(worker)
            if ticket.call == "send":
                del self.tickets[ticket.number]
        elif ticket.awaited.isdisjoint(self._links.slices[worker]):
            ticket.owing.discard(worker)

    def _show_known(self, slot: int, known: int, infos: Sequence[Part]) -> None:
        """Write the last known observations, for rows whose step reports a loss."""
        key, table = "worker_restarted", self._rows
        parts = map(as_columns, infos)
        reported = {row for part in parts if key in part for row in part[key].rows}
        # An environment may itself use the key.
        rows = sorted(reported & table.restarted)
        if not rows:
            return
        buffers, numbers = self._links.buffers, np.array(rows, dtype=np.intp)
        shown = buffers.observations[slot] if buffers.finals is None else buffers.finals
        shown.copy_rows(buffers.observations[known], numbers)
        table.restarted.difference_update(rows)
        table.lost_episodes[numbers] += 1

    # ------------------------------------------------------------------ losses

    def handle_losses(self) -> None:
        """Restart the workers that died or are late, or note their failures."""
        supervisor = self.supervisor
        while self.losses:
            worker = min(self.losses)
            loss, verb = self.losses[worker], self.verb
            supervisor.build_by.pop(worker, None)
            fault = supervisor.judge(worker, loss, verb)  # it may call a function of the user
            self.check_open()
            self.inside = True
            if fault is None:
                self._restart(worker)
                del self.losses[worker]
            else:
                # Workers that are late together have one loss.
                for lost in [other for other, why in self.losses.items() if why is loss]:
                    self._note_failure(lost, fault, verb)
            self.inside = False

    def _note_failure(self, worker: int, fault: Exception, verb: str) -> None:
        """Note the failure of a worker that is not restarted."""
        if isinstance(self.losses.pop(worker), StepTimeoutError):
            self._links.end(worker)  # so that `close` does not wait for it
        rows = tuple(self._links.slices[worker])
        self.fail_worker(worker, Failure(rows, verb, fault, "", worker))

    def fail_worker(self, worker: int, failure: Failure) -> None:
        """Note that a worker cannot be used, as a failure of its rows or of the wait."""
        self.supervisor.note_dead(worker)
        self.forget([worker], self._links.slices[worker])
        if self.by_row and self.pending is None:
            for row in self._links.slices[worker]:
                self._rows.fail(row, failure)
        else:
            self.failures.append(failure)

    def _restart(self, worker: int) -> None:
        """Start a new worker, and send it the commands that its predecessor has not answered."""
        self.supervisor.restart(worker)
        for ticket in self.tickets.values():
            if worker not in ticket.owing:
                continue
            payload = ticket.payloads[worker]
            if ticket.op is _STEP_ROWS:
                # Episodes that had been sent a reset are lost too, and their rows report this.
                rows = [row for row in self._links.slices[worker] if row in ticket.awaited]
                self._rows.lose_starts(rows)
                payload = StepRows(rows, {}, [], 1)
            self._links.issue(ticket.op, ticket.slot, ticket.number, {worker: payload})

    def busy_rows(self, workers: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the awaited environments of workers, and those that are running now."""
        awaited = self._rows.having(BUSY) if self.pending is None else None
        return self.supervisor.busy_rows(workers, awaited)


def _whole(ticket: Ticket, worker: int) -> Written:
    """Return the meaning of a reply without a payload: all rows of a worker, without infos."""
    return make_written((sorted(ticket.payloads[worker].rows), (), ()))


def results_of(ticket: Ticket) -> dict[int, Any]:
    """Return the results in the replies to a call, by row."""
    return {row: value for part in ticket.results.values() for row, value in part.items()}


def parts_of(ticket: Ticket) -> Sequence[Part]:
    """Return the infos in the replies to a reset or step, in the order of the workers."""
    results = ticket.results
    if len(results) == 1:
        parts: Sequence[Part]
        (parts,) = results.values()
        return parts
    return [part for worker in sorted(results) for part in results[worker]]
