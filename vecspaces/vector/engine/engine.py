"""Engine: issues commands as tickets, waits for their replies, and returns their results.

`check` refuses calls that are not legal now; `issue_*` send a command; `wait` and `receive` (see
`waits.py`) wait until its results can be read, and `finish` closes its ticket.

An interrupt in `links.wait` changes nothing, so the wait can be repeated. Rows and workers are
changed while `replies.inside` is True. If it is True when a call begins, an interrupt ended the
last change: the rows of the open tickets are lost, and a reset replaces their workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from vecspaces.checks import check_seconds
from vecspaces.errors import InvalidInfoError, ResetNeededError, VecspacesError
from vecspaces.log import log
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.engine.arguments import ResetPlan, Settings
from vecspaces.vector.engine.legality import (
    REFUSED_BY_ANY,
    allows,
    refuse,
    refuse_closed,
    refuse_rows,
    refusing,
)
from vecspaces.vector.engine.replies import Replies, parts_of
from vecspaces.vector.engine.ring import Rollout, SlotRing
from vecspaces.vector.engine.rows import BUSY, NEW, READY, RowTable, WatchedRows
from vecspaces.vector.engine.supervisor import WorkerState
from vecspaces.vector.engine.tickets import Ticket
from vecspaces.vector.engine.waits import Waits
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, Message, died
from vecspaces.vector.exchange.infos import Part, find_endless, merge, split
from vecspaces.vector.exchange.messages import (
    Call,
    CallRows,
    CannotSend,
    Op,
    ResetRows,
    Starts,
    StepRows,
)
from vecspaces.vector.exchange.snapshots import snapshot
from vecspaces.vector.exchange.stats import COMPUTING, OUTSIDE

T = TypeVar("T")

_RESET, _STEP, _STEP_ROWS = Op.RESET, Op.STEP, Op.STEP_ROWS
# The time in which a worker that is restarted on request must close its environments, in seconds.
_CLOSE_SECONDS = 4.0


class Engine:
    """The commands of a vector env.

    Attributes:
        rows: The state of each row.
        replies: The open tickets, and what their replies change.
        ring: Which slot the next step writes.
        everyone: All workers, with the payload of a command without arguments.
        waits: The waits for replies.
        masked_rows: The rows of the last reset if it had a mask, and wrote into the current slot.
        loaded: The rows of the last reset that got a state, and whether the episode of each ended.
    """

    def __init__(self, links: Backend, settings: Settings) -> None:
        self._links, self._settings = links, settings
        plan = links.buffers.plan
        self.rows = RowTable(plan.num_envs)
        self.ring = SlotRing(settings.buffers, plan.slots)
        self.replies = Replies(links, settings, self.rows, self.ring)
        self.supervisor = self.replies.supervisor
        self.waits = Waits(links, settings, self.rows, self.replies)
        self.everyone: dict[int, None] = dict.fromkeys(range(len(links.slices)))
        self.masked_rows: list[int] | None = None
        self.loaded: Mapping[int, bool] = {}
        self._is_foreign = False
        self._clock = links.clock
        links.open_tickets = self.replies.tickets
        self._number = 0
        # The ticket of a step that the link answered at once: the next step uses it again, since no
        # reply to it can come, and a new ticket takes a tenth of a step of `SyncVectorEnv`.
        self._answered: Ticket | None = None
        # The number of rows of the last `recv`, which is probably that of the next `recv`.
        self._wanted = 1

    # ------------------------------------------------------------------ what is legal

    def check(self, call: str, name: str) -> None:
        """Raise if a call is not allowed; `name` is the method that the user called."""
        replies, table = self.replies, self.rows
        if replies.inside:
            self._lose()
        # If nothing is pending and no row has a flag, which is usual, each of these is allowed.
        is_idle = replies.pending is None and not table.is_new and table.state == table.all_idle
        is_allowed = (is_idle and call in REFUSED_BY_ANY) or allows(call, replies.pending, table)
        if replies.closed or not is_allowed:
            raise self._refuse(call, name)
        if self._clock is not None:
            self._clock.note(OUTSIDE)

    def check_rows(self, rows: Collection[int], call: str, name: str) -> None:
        """Raise if a row refuses a call of `REFUSED_BY_NAMED` now."""
        refused = refusing(call, rows, self.rows)
        if refused:
            raise refuse_rows(name, refused, self.rows)

    def _refuse(self, call: str, name: str) -> VecspacesError:
        """Return the error of a call that is not allowed."""
        replies = self.replies
        if replies.closed:
            return refuse_closed(name, self._is_foreign)
        late = f"{replies.call} that {'was interrupted' if self.waits.interrupted else 'timed out'}"
        return refuse(call, name, replies.pending, self.rows, late)

    def check_open(self, name: str) -> None:
        """Raise if the vector env is closed; every other state allows the call."""
        if self.replies.inside:
            self._lose()
        if self.replies.closed:
            raise refuse_closed(name, self._is_foreign)

    def disown(self) -> None:
        """In a process that was forked from the caller's: allow only `close`."""
        self.replies.closed = self._is_foreign = True

    def _lose(self) -> None:
        """Give up the commands that were interrupted outside of a wait."""
        replies, links, table = self.replies, self._links, self.rows
        self.waits.interrupted = True
        rows = {*table.having(BUSY), *table.having(READY), *table.ready}
        for ticket in replies.tickets.values():
            rows.update(range(len(table.state)) if ticket.rows is None else ticket.rows)
        busy = {worker for ticket in replies.tickets.values() for worker in ticket.owing}
        for worker in busy.union(links.unknown):
            self.supervisor.note_dead(worker)
            if links.builds_again:
                rows.update(links.slices[worker])
        table.outdated.update(links.interrupted_rows())
        table.lose(rows)
        replies.drop()
        replies.inside = False  # last: another interrupt repeats all of this

    # ------------------------------------------------------------------ issuing

    def _issue(
        self,
        op: Op,
        call: str,
        name: str,
        payloads: Mapping[int, Any],
        rows: Sequence[int] | None,
        slot: int,
        steps: int,
    ) -> Ticket:
        """Send a command; return its ticket. If it cannot be pickled, no row or worker changes."""
        self._number = number = self._number + 1
        replies = self.replies
        replies.tickets[number] = ticket = Ticket(
            number=number,
            op=op,
            call=call,
            payloads=payloads,
            owing=set(payloads),
            rows=rows,
            slot=slot,
            steps=steps,
            results={},
            # A pending call without "_async" was interrupted, if another call comes.
            is_overdue=call != "send" and not name.endswith("_async"),
            awaited=set(rows) if rows and call == "send" else set(),
        )
        replies.call, replies.inside, self.waits.interrupted = name, True, False
        try:
            done = self._links.issue(op, slot, number, payloads)
        except CannotSend as error:
            del replies.tickets[number]
            replies.inside = False
            raise error.reason from error.__cause__
        except Exception:
            replies.check_open()
            raise
        if not replies.inside or replies.closed:
            replies.end_nested(name)
        if self._clock is not None:
            self._clock.note(COMPUTING)
        if done is not None:
            ticket.owing.clear()
            ticket.results = {0: done} if done else {}
            self._answered = ticket
        return ticket

    def issue_call(self, name: str, op: Op, payloads: Mapping[int, Any]) -> None:
        """Send a call, which does not write rows."""
        self._start_dead(payloads)
        ring = self.ring
        ticket = self._issue(op, "call", name, payloads, (), ring.current, ring.steps)
        self.replies.pending, self.replies.inside = ticket, False

    def _send_step(self, name: str) -> Ticket:
        """Send a step of all environments, into the next slot of the ring; return its ticket."""
        ring, replies, ticket = self.ring, self.replies, self._answered
        if ring.begins_rollout:
            ring.begin_rollout(self._links.buffers)
        slot, steps = ring.after[ring.current], ring.steps + 1
        if ticket is None:
            return self._issue(_STEP, "step", name, self.everyone, None, slot, steps)
        ticket.number = self._number = number = self._number + 1
        ticket.slot, ticket.steps = slot, steps
        replies.tickets[number] = ticket
        replies.call, replies.inside, self.waits.interrupted = name, True, False
        try:
            infos = self._links.issue(_STEP, slot, number, self.everyone)
        except Exception:
            replies.check_open()
            raise
        ticket.results = {0: infos} if infos else {}
        if infos is None:  # a failure, which `wait` reads
            self._answered, ticket.owing = None, {0}
        return ticket

    def issue_step(self, name: str) -> None:
        """Send a step of all environments."""
        ticket, table, replies = self._send_step(name), self.rows, self.replies
        ticket.is_overdue = False  # as it may be after a `step` with the same ticket
        table.memory[:] = table.all_busy
        table.ready.clear()
        replies.pending, replies.inside = ticket, False

    def step(self, name: str) -> Ticket:
        """Step all environments, and wait; return the ticket, to be read and given to `finish`."""
        ticket, table, ring = self._send_step(name), self.rows, self.ring
        if table.ready:
            table.ready.clear()
        if ticket.owing:
            table.memory[:] = table.all_busy
            self.replies.pending, self.replies.inside = ticket, False
            return self.wait("step", name, None)
        table.memory[:] = table.all_idle
        ring.current, ring.steps = ticket.slot, ticket.steps
        return ticket

    def issue_reset(self, plan: ResetPlan, name: str) -> None:
        """Send a reset, after replacing workers that are dead, or busy with a command that is late.

        A reset with a mask writes into the current slot: it is not a step, even if it chooses all
        rows. Any other reset, and the first reset, begins again with the first slot.
        """
        table, replies, rows = self.rows, self.replies, plan.rows.tolist()
        goes_on = plan.is_masked and allows("masked reset", replies.pending, table)
        replies.call, replies.inside = name, True
        self._replace_unusable()
        if not goes_on:
            replies.drop()
        payloads: dict[int, Any] = {}
        for worker, chosen in self.supervisor.of_rows(rows).items():
            starts = {row: (plan.seeds[row], plan.options[row]) for row in chosen}
            broken = table.needs_building(chosen)
            states = {row: plan.states[row] for row in chosen if row in plan.states}
            payloads[worker] = ResetRows(starts, plan.keep_options, broken, states)
        for row in rows:
            table.note_start(row, plan.seeds[row], plan.options[row] if plan.keep_options else None)
        slot, steps = (self.ring.current, self.ring.steps) if goes_on else (0, 0)
        ticket = self._issue(_RESET, "reset", name, payloads, rows, slot, steps)
        self.masked_rows = rows if goes_on else None
        self.loaded = {row: state.has_ended for row, state in plan.states.items()}
        replies.pending, replies.inside = ticket, False

    def issue_rows(
        self, rows: Sequence[int], name: str, starts: Starts, wanted: int | None = None
    ) -> None:
        """Send a step of some rows; a reply comes as soon as some of these rows are ready.

        The step of a row in `starts` begins an episode, in an environment that is built again if it
        failed. Workers report their share of the `wanted` rows together; None: the number of the
        last `recv`. If the caller shares its core with workers, a worker loses nothing while it
        waits for the caller, and all `wanted` rows of one worker take half of the messages of two.
        """
        if not rows:
            return  # no reply would end the ticket
        table, wanted = self.rows, self._wanted if wanted is None else wanted
        share = max(1, wanted // len(self._links.slices)) if self._links.has_spare_core else wanted
        payloads: dict[int, StepRows] = {}
        if starts:
            self._start_dead(self.supervisor.of_rows(starts))
        for worker, chosen in self.supervisor.of_rows(rows).items():
            begun, broken = starts, list[int]()
            if starts:
                begun = {row: starts[row] for row in chosen if row in starts}
                broken = table.needs_building(chosen)
            payloads[worker] = StepRows(chosen, begun, broken, share)
        for row, (seed, _) in starts.items():
            table.note_start(row, seed, None)
        ring = self.ring
        if self._settings.budget is not None:
            # A worker that dies while it writes leaves incomplete rows: the copies replace them.
            numbers = np.array(rows, dtype=np.intp)
            observations = self._links.buffers.observations
            observations[ring.after[ring.current]].copy_rows(observations[ring.current], numbers)
        seconds = self._settings.step_timeout
        if seconds is None and any(table.state[row] & NEW for row in starts):
            seconds, self.waits.first_resets = self._settings.start_timeout, True
        ticket = self._issue(_STEP_ROWS, "send", name, payloads, rows, ring.current, ring.steps)
        ticket.until = Deadline(seconds)
        table.is_new = table.is_new and not starts
        ring.is_mixed = True
        table.send(rows, starts)
        self.replies.inside = False

    def send_call(self, rows: Sequence[int], call: Call, name: str) -> None:
        """Send a call of some rows, whose results are received as those of steps are.

        Each row gets a separate command, so that an exception concerns this row alone.
        """
        self._start_dead(self.supervisor.of_rows(rows))
        for row in rows:
            payloads = {self.supervisor.of[row]: CallRows(call, [row])}
            ring = self.ring
            ticket = self._issue(Op.CALL, "send", name, payloads, [row], ring.current, ring.steps)
            ticket.until = Deadline(self._settings.step_timeout)
            self.rows.is_new = False
            self.rows.call(row)
            self.replies.inside = False

    def _replace_unusable(self) -> None:
        """Replace dead workers, and workers busy with a late command, before a reset.

        After an interrupt or an error, the next reset repeats this.
        """
        supervisor = self.supervisor
        for ticket in self.replies.tickets.values():
            if ticket.is_overdue:
                for worker in ticket.owing:
                    supervisor.note_dead(worker)
        for worker in {*self.replies.losses, *supervisor.hung}:
            supervisor.note_dead(worker)
        self._start_dead(self.everyone)

    def _start_dead(self, workers: Iterable[int]) -> None:
        """Replace dead workers, before a command is sent to them."""
        for worker in workers:
            if self.supervisor.states[worker] is WorkerState.DEAD:
                self._start(worker)

    def _start(self, worker: int) -> None:
        """Replace a worker; its rows need a reset. Unread failures stay."""
        self.supervisor.start(worker)
        if self._links.builds_again:
            for row in self._links.slices[worker]:
                if row not in self.rows.ready:
                    self.rows.renew(row)

    def restart(self, rows: Sequence[int], terminate: bool) -> list[int]:
        """Replace the workers of some rows; return all rows of these workers, which need a reset.

        A pending reset, step or call that these workers have not answered fails.
        """
        replies, slices = self.replies, self._links.slices
        workers = list(self.supervisor.of_rows(rows))
        if not self._links.builds_again:
            renewed = list(rows)
        else:
            renewed = [row for worker in workers for row in slices[worker]]
        replies.call, replies.inside = "restart", True
        pending = replies.pending
        if pending is not None:
            call = pending.call
            if self._links.builds_again and pending.owing.isdisjoint(workers):
                pending.renewed = [*pending.renewed, *renewed]
            else:
                text = Message("{}: restart built {:envs} again: reset first", call, renewed)
                replies.failures.append(Failure(renewed, call, ResetNeededError(text), ""))
        replies.forget(workers, renewed)
        for row in renewed:
            self._renew(row)
        if self._links.builds_again:
            for worker in workers:
                self.supervisor.note_dead(worker)  # an interrupt may leave it half closed
            if not terminate:
                try:
                    self._retire(workers)
                except Exception:
                    replies.check_open()
                    raise
            for worker in workers:
                self.supervisor.start(worker)
        replies.inside = False
        return renewed

    def _renew(self, row: int) -> None:
        """Note that the environment of a row was restarted, or will be by its next reset."""
        self.rows.renew(row)
        if not self._links.builds_again:
            self.rows.outdated.add(row)

    def _retire(self, workers: Sequence[int]) -> None:
        """Let workers close their environments; log what goes wrong."""
        for worker, op, _, failure in self._links.retire(workers, _CLOSE_SECONDS):
            what = f"did not close within {_CLOSE_SECONDS:g} s"
            if op is Op.DIED:
                what = "ended before its environments were closed"
            elif op is Op.FAILED:
                what = f"raised while it closed: {failure.last_line}"
            rows, text = self._links.slices[worker], "{:worker} ({:envs}) {}; it is replaced"
            log.warning("%s", Message(text, worker, rows, what))

    # ------------------------------------------------------------------ the ends of commands

    def wait(self, kind: str, name: str, timeout: float | None) -> Ticket:
        """Wait for the pending command; return its ticket, to be read and given to `finish`."""
        replies = self.replies
        ticket = replies.pending
        if ticket is None or ticket.call != kind or replies.inside:
            self.check(f"{kind}_wait", name)
            ticket = replies.pending
            assert ticket is not None
        if self._clock is not None:
            self._clock.note(OUTSIDE)
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        if ticket.owing or replies.failures or replies.losses:
            self.waits.for_command(ticket, timeout)
        replies.inside = True
        if kind != "call":
            self.ring.current, self.ring.steps = ticket.slot, ticket.steps
            if kind == "step":
                self.rows.memory[:] = self.rows.all_idle
            else:
                self._settle_reset(ticket)
        return ticket

    def merged_infos(self, ticket: Ticket) -> dict[str, Any]:
        """Return the infos of a reset or step."""
        num_envs = len(self.rows.state)
        try:
            return merge(parts_of(ticket), num_envs)
        except RecursionError:
            self._raise_endless(parts_of(ticket), range(num_envs))
            raise

    def finish(self, ticket: Ticket) -> None:
        """Close the ticket of a command whose results were read."""
        replies = self.replies
        if replies.closed:
            replies.check_open()
        for row in ticket.renewed:
            self._renew(row)
        try:
            del replies.tickets[ticket.number]
        except KeyError:
            replies.end_nested(ticket.call)
        ticket.results = {}
        if self._clock is not None:
            self._clock.note(COMPUTING)
        replies.pending, replies.inside = None, False

    def _settle_reset(self, ticket: Ticket) -> None:
        """Note that rows were reset: they are usable again, and can be received."""
        if self.masked_rows is None:
            self.ring.begins_rollout = self.ring.is_mixed = False
        if self._clock is not None:
            self._clock.begin()
        assert ticket.rows is not None
        infos = snapshot(parts_of(ticket)) if self._links.shares_objects else parts_of(ticket)
        self.rows.finish_reset(ticket.rows, infos)
        self.rows.finish_load(self.loaded)

    def end_rollout(self) -> Rollout:
        """Return the steps of a complete rollout; the next step begins another."""
        self.check("step", "rollout_view")
        buffers, steps = self._links.buffers, self.ring.rollout_steps
        infos, observations = buffers.plan.infos, buffers.plan.observations
        if not observations.fixed:
            raise ValueError(
                "rollout_view() needs observations that are arrays, alone or in Dicts and Tuples, "
                f"found {observations.space}: keep what step returns"
            )
        rollout = Rollout(
            observations.ring(buffers.arena, steps + 1),
            buffers.rewards[1 : steps + 1].copy(),
            buffers.terminations[1 : steps + 1].copy(),
            buffers.truncations[1 : steps + 1].copy(),
            {key: layout.ring(buffers.arena, steps + 1) for key, layout in infos.items()},
        )
        self.ring.begins_rollout = True
        return rollout

    def receive(
        self,
        read: Callable[[list[int]], T],
        count: int,
        timeout: float | None,
        rows: Sequence[int] | None = None,
        at_least: int | None = None,
        by_row: bool = False,
    ) -> T:
        """Wait until `count` rows, or all of `rows`, are ready; return the result of `read`.

        After `timeout`, the ready rows are received if there are `at_least` so many. The exception
        of a failed row is raised, once, and the other rows stay ready; with `by_row`, `read` gets
        the failed rows too.
        """
        table, replies = self.rows, self.replies
        self._wanted = count
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        replies.by_row = by_row
        self.waits.for_rows(count, rows, timeout, at_least)
        chosen = table.first(count) if rows is None else list(rows)
        if table.failures and not by_row:
            for row in chosen:
                if row in table.failures:
                    self._raise_row(table.failures[row])
        if table.results and not by_row:
            for row in chosen:
                if isinstance(table.results.get(row), Failure):
                    failure = table.results[row]
                    table.receive([row])
                    failure.throw()
        replies.inside = True
        try:
            result = read(chosen)
        except RecursionError:
            replies.inside = False
            self._raise_endless([part for row in chosen for part in table.ready[row]], chosen)
            if not by_row or table.failures.keys().isdisjoint(chosen):
                raise
            # `_raise_endless` let the row fail; the other rows can be read.
            return self.receive(read, len(chosen), 0.0, chosen, by_row=True)
        except Exception:
            replies.check_open()  # `close` has freed the memory meanwhile
            raise
        if replies.closed:
            replies.check_open()
        table.receive(chosen)
        if self._clock is not None:
            self._clock.note(COMPUTING)
            self._clock.begin()  # the first reset may be that of a stream
        replies.inside = False
        return result

    def fileno(self) -> int:
        """Return a descriptor that is readable while `receive` would return rows at once."""
        descriptor = self._links.fileno()
        self.rows.ready = WatchedRows(self.rows.ready, self._links.ring)
        return descriptor

    def _raise_row(self, failure: Failure) -> NoReturn:
        """Raise the failure of rows, which are then received."""
        table = self.rows
        table.receive([row for row in table.ready if table.failures.get(row) is failure])
        failure.throw()

    def _raise_endless(self, infos: Sequence[Part], rows: Iterable[int]) -> None:
        """Raise for the first of some rows whose info contains itself, and cannot be merged."""
        endless = find_endless(split(infos, rows))
        if endless is None:
            return
        row, key = endless
        text = "{:envs}: info[{}] holds itself, or is nested too deeply: leave the key out"
        error = InvalidInfoError(Message(text, [row], repr(key)))
        failure = Failure((row,), self.replies.verb, error, "", self.supervisor.of[row])
        if self.replies.pending is None:
            self.rows.fail(row, failure)
            if self.replies.by_row:
                return
            self._raise_row(failure)
        self.replies.failures.append(failure)
        self.waits.raise_failure()

    # ------------------------------------------------------------------ the end

    def close(self, seconds: float, terminate: bool) -> list[int]:
        """End every worker; return the environments that had to be killed.

        Exceptions of environments in closing are raised after everything is freed.
        """
        self.replies.closed = True
        dead = [state is WorkerState.DEAD for state in self.supervisor.states]
        self.supervisor.close()
        late: list[int] = []
        replies = self._links.close(seconds, terminate)
        for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
            rows = self._links.slices[worker]
            if op is Op.CLOSE:
                late.extend(rows if payload is None else payload)
            elif op is Op.DIED:
                if not dead[worker]:
                    advice, running = "everything is freed", self._links.running(worker) or [-1]
                    raise died(worker, rows, "close", payload, running[0], advice)
            elif self.rows.failures.keys().isdisjoint(payload.env_ids):
                # An error in closing a failed environment would hide the first error.
                payload.throw()
        return late
