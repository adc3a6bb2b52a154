"""The session: commands to the workers, their replies, faults and restarts.

`begin` sends a command, `finish` waits for its replies; both, and nothing else, change the state.
Every worker that a command went to owes one reply. Every wait is bounded, a late reply is never
taken for another command's, and the command of a dead worker is sent again to its successor.

An interrupt (Ctrl-C, or any exception from a signal handler) may come at any moment. What has come
from the workers stays with the backend until it was taken in, taking it in twice changes nothing,
and the end of a call is a few plain assignments, between which Python runs no signal handler. So a
wait can be repeated and gives the right answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_seconds
from vecspaces.errors import (
    ClosedEnvironmentError,
    InvalidInfoError,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import (
    Death,
    Failure,
    Message,
    died,
    overdue,
    waited,
)
from vecspaces.vector.exchange.infos import Columns, find_endless, snapshot, split
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply
from vecspaces.vector.group.members import Starts
from vecspaces.vector.session.arguments import ResetPlan, Settings
from vecspaces.vector.session.restarts import Late
from vecspaces.vector.session.ring import Rollout, SlotRing
from vecspaces.vector.session.row_queue import RowQueue
from vecspaces.vector.session.seeds import restart_seed
from vecspaces.vector.session.states import TRANSITIONS, Event, State, next_state

T = TypeVar("T")

# After a first fault, how long others may take to report theirs: then the lowest environment is
# named. And how long a row of a stream whose time is up may take to be heard: it may have answered
# while the caller did not listen.
_GRACE = 0.1
_NEVER = Deadline(None)

_CALLS = (Op.CALL, Op.SET_ATTR, Op.FLUSH)
_DONE, _STEP = Op.DONE, Op.STEP
_CLOSED = State.CLOSED


class Session:
    """The state of a vector env, and the only thing that changes it.

    Attributes:
        state: What the vector env is doing.
        ring: The slots of observations.
        queue: The rows of `send` and `recv`.
        results: By worker, the payload of its reply to the last command.
        lost: Rows whose episode died with their worker, until a step has reported it.
        finished: The rows whose episode ended in their last step; shape `(num_envs,)`. In NEXT_STEP
            mode steps of all rows are not noted, unless actions are checked.
        interrupted: Whether an interrupt ended the last wait.
        is_masked: Whether the last reset had a mask, and wrote into the current slot.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings
        self._replies = backend.replies
        plan = backend.buffers.plan
        self.state = State.NEW
        self.ring = SlotRing(settings.buffers, plan.slots)
        self.queue = RowQueue()
        self.results: dict[int, Any] = {}
        self.lost: set[int] = set()
        self.finished: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.interrupted = self.is_masked = False
        self._was_reset = False
        self._inherited = False
        # The last command: enough to repeat it for a worker that had to be replaced, the call that
        # the user made, and the slot and the steps of the rollout once it is done.
        self._op, self._call = Op.RESET, "reset"
        self._payloads: Mapping[int, Any] = {}
        self._slot = self._steps = 0
        self._seq = 0
        self._waiting: set[int] = set()
        # Of those that owe a reply, the ones whose caller gave up waiting.
        self._late: set[int] = set()
        # How many rows the last `recv` waited for, as the next one probably will.
        self._wanted = 1
        self._failures: list[Failure] = []
        # Environments that must be built again, and workers that are gone or must not be used.
        self._broken: set[int] = set()
        self._gone: set[int] = set()
        # Whether workers that overrun `step_timeout` are restarted, and, of a stream, the time of
        # a row that is up, and until when it may be heard all the same.
        budget = settings.budget
        self._restarts_late = budget is not None and budget.on_step_timeout != "raise"
        self._unheard = _NEVER, _NEVER
        self._slow = SlowWatch(settings.slow_warning, backend)
        self._since = 0.0  # when the last wait began
        # Deaths that were noticed and not yet dealt with, workers that are being built again and
        # until when, and how often each was restarted.
        self._deaths: dict[int, Death | Late] = {}
        self._build_by: dict[int, Deadline] = {}
        self._restarts = [0] * len(backend.slices)
        self._worker_of = [worker for worker, rows in enumerate(backend.slices) for _ in rows]
        self._seeds: list[int | None] = [None] * plan.num_envs
        self._options: list[Mapping[str, Any] | None] = [None] * plan.num_envs

    def check(self, event: Event, call: str = "") -> State:
        """Return the state that an event leads to, or raise what makes it illegal."""
        state = TRANSITIONS[self.state].get(event)
        if state is not None and not self._inherited:
            return state
        if self._inherited and event is not Event.CLOSE:
            raise ClosedEnvironmentError(
                f"{call} was called in a process that was forked from the one that made the vector "
                "env, which alone can use it: make another one here"
            )
        pending = ""
        if self.state.value.startswith("overdue"):
            what = "was interrupted" if self.interrupted else "timed out"
            pending = f"{self._call} that {what}"
        return next_state(self.state, event, call, pending)

    def disown(self) -> None:
        """In a process that was forked from the caller's: what was inherited can only be closed."""
        self.state, self._inherited = _CLOSED, True

    # ------------------------------------------------------------------ commands

    def begin_call(self, call: str, op: Op, payloads: Mapping[int, Any]) -> None:
        """Send a call, which writes no rows."""
        self._begin(Event.CALL_ASYNC, call, op, self.ring.current, self.ring.steps, payloads)

    def _begin(
        self,
        event: Event,
        call: str,
        op: Op,
        slot: int,
        steps: int,
        payloads: Mapping[int, Any],
        rows: Sequence[int] = (),
    ) -> None:
        """Send a command to some workers; one that cannot be pickled leaves the state as it is.

        Of a stream, `rows` are those whose replies can be received.
        """
        state = TRANSITIONS[self.state].get(event) or self.check(event, call)
        self._seq += 1
        self._waiting = set(payloads)
        self._late = set()
        self._failures = []
        self.results = {}
        self.interrupted = False
        self._op, self._call, self._payloads = op, call, payloads
        self._slot, self._steps = slot, steps
        try:
            self._backend.submit(op, slot, self._seq, payloads)
            if rows:
                self.queue.send(rows, self._row_deadline())
            if self.state is _CLOSED:
                self._check_open()
            self.state = state
        except CannotSend as error:
            self._waiting = set()
            raise error.reason from None
        except BaseException as error:
            # Some workers may have received it: only new ones can begin together again.
            self._break(payloads)
            self.interrupted = isinstance(error, KeyboardInterrupt)
            self._check_open(error)
            raise

    def begin_reset(self, plan: ResetPlan, call: str) -> None:
        """Send a reset, after replacing workers that are gone or busy with a call that is late.

        One with a mask writes into the current slot: it takes no step, even if it chooses all rows.
        Any other, and the first one, begins anew with the first slot.
        """
        self.check(Event.RESET_ASYNC, call)
        goes_on = self.is_masked = plan.is_masked and self.state is State.IDLE
        self._replace_unusable()
        payloads: dict[int, Any] = {}
        for worker, rows in self.by_worker(plan.rows.tolist()).items():
            payloads[worker] = (
                rows,
                [plan.seeds[row] for row in rows],
                [plan.options[row] for row in rows],
                plan.keep_options,
                [row for row in self._backend.slices[worker] if row in self._broken],
            )
        ring = self.ring
        slot, steps = (ring.current, ring.steps) if goes_on else (0, 0)
        if not goes_on:
            ring.begins_rollout = ring.is_mixed = False
        for row in plan.rows:
            if plan.seeds[row] is not None:
                self._seeds[row] = plan.seeds[row]
            self._options[row] = plan.options[row] if plan.keep_options else None
        self._begin(Event.RESET_ASYNC, call, Op.RESET, slot, steps, payloads)

    def begin_step(self, call: str, payloads: Mapping[int, None]) -> None:
        """Send a step of all environments, into the next slot of the ring."""
        ring = self.ring
        if ring.begins_rollout:
            # The bootstrap observation becomes the first of the next rollout.
            self._backend.buffers.copy_slot(0, ring.current)
            ring.current, ring.steps = 0, 0
            ring.begins_rollout = ring.is_mixed = False
        if self.queue.ready:
            self.queue.clear()
        self._begin(Event.STEP_ASYNC, call, _STEP, ring.next, ring.steps + 1, payloads)

    def end_rollout(self) -> Rollout:
        """Return the steps of a complete rollout; the next step begins another."""
        self.check(Event.STEP_ASYNC, "rollout_view")
        buffers, steps = self._backend.buffers, self.ring.rollout_steps
        declared = buffers.plan.infos
        rollout = Rollout(
            buffers.plan.observations.ring(buffers.arena, steps + 1),
            buffers.rewards[1 : steps + 1].copy(),
            buffers.terminations[1 : steps + 1].copy(),
            buffers.truncations[1 : steps + 1].copy(),
            {} if declared is None else declared.ring(buffers.arena, steps + 1),
        )
        self.ring.begins_rollout = True
        return rollout

    def send_rows(
        self, rows: Sequence[int], call: str, starts: Starts, wanted: int | None = None
    ) -> None:
        """Send a step of some rows; the replies are theirs alone, and come as they are ready.

        The step of a row that `starts` names begins an episode. Workers report their share of the
        `wanted` rows together; None: of as many as the last `recv` waited for.
        """
        if not rows:
            return  # nothing would be there to receive
        wanted = self._wanted if wanted is None else wanted
        share = max(1, wanted // len(self._backend.slices))
        payloads = {
            worker: (chosen, {row: starts[row] for row in chosen if row in starts}, share)
            for worker, chosen in self.by_worker(rows).items()
        }
        for row, (seed, _) in starts.items():
            if seed is not None:
                self._seeds[row] = seed
            self._options[row] = None
        slot, streaming = self.ring.current, self.state is State.STREAMING
        self.ring.is_mixed = True
        if self._settings.budget is not None:
            # The other slot keeps what was known, in case a worker dies while it writes.
            observations, at = self._backend.buffers.observations, np.array(rows, dtype=np.intp)
            observations[self.ring.next].copy_rows(observations[slot], at)
        if not streaming:
            self._begin(Event.SEND, call, Op.STEP_ROWS, slot, self.ring.steps, payloads, rows)
            return
        try:
            # Under the number with which the stream began, since all of it is one command.
            self._backend.submit(Op.STEP_ROWS, slot, self._seq, payloads)
            self.queue.send(rows, self._row_deadline())
            self._waiting.update(payloads)
        except CannotSend as error:
            raise error.reason from None
        except BaseException:
            self._break(self._waiting | set(payloads))
            raise

    def note_ends(self, rows: Any, ended: npt.NDArray[np.bool_]) -> None:
        """Note which of some rows ended their episode in the last step."""
        self.finished[rows] = ended

    def by_worker(self, rows: Iterable[int]) -> dict[int, list[int]]:
        """Sort rows by the worker that holds them; workers in ascending order."""
        if len(self._backend.slices) == 1:
            return {0: list(rows)}
        found: dict[int, list[int]] = {}
        worker_of = self._worker_of
        for row in rows:
            worker = worker_of[row]
            if worker in found:
                found[worker].append(row)
            else:
                found[worker] = [row]
        return dict(sorted(found.items()))

    def _break(self, workers: Iterable[int]) -> None:
        """Note that workers may be in any state: a reset replaces them."""
        self._gone.update(workers)
        self._move(State.BROKEN)

    def _move(self, state: State) -> None:
        """Change the state, unless `close` came in between: it is the end."""
        if self.state is not _CLOSED:
            self.state = state

    def _check_open(self, error: BaseException | None = None) -> None:
        """End a call during which a signal handler, another thread or a callback called `close`.

        What such a call raised, since memory and workers are gone, says less.
        """
        if self.state is not _CLOSED or isinstance(error, ClosedEnvironmentError):
            return
        if error is None or isinstance(error, Exception):
            raise ClosedEnvironmentError(
                f"close() was called during {self._call}, which has no result: make a new "
                "vector env"
            ) from None

    def _replace_unusable(self) -> None:
        """Before a reset, replace workers that are gone, or still busy with a call that is late."""
        unusable = self._gone | self._deaths.keys() | (self._late & self._waiting)
        if not unusable:
            return
        # What is interrupted from here on begins anew at the next reset.
        self._gone |= unusable
        self._waiting = set()
        self._move(State.BROKEN)
        for worker in sorted(unusable):
            self._build(worker, None)
            self._broken.difference_update(self._backend.slices[worker])
            self._deaths.pop(worker, None)
            self._gone.discard(worker)

    def _build(self, worker: int, lost: Mapping[int, Any] | None) -> None:
        """Start a worker in place of another; its next command waits until it is built."""
        self._build_by.pop(worker, None)
        self._backend.submit(Op.BUILD, 0, 0, {worker: lost})
        self._build_by[worker] = Deadline(self._settings.start_timeout)

    # ------------------------------------------------------------------ waiting

    def finish(self, event: Event, call: str, timeout: float | None, read: Callable[[int], T]) -> T:
        """Wait for the last command, and return what `read` makes of its slot.

        `read` may be called again after an interrupt, so it must change nothing that lasts.
        """
        state = TRANSITIONS[self.state].get(event) or self.check(event, call)
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            self._wait(None, timeout)
            result = read(self._slot)
        except BaseException as error:
            self._suspend(error)
            self._annotate(error)
            raise
        ring = self.ring
        if self.state is _CLOSED:
            self._check_open()
        # Plain assignments alone: an interrupt comes before all of them or after all of them.
        self.state, ring.current, ring.steps = state, self._slot, self._steps
        return result

    def finish_reset(
        self, call: str, timeout: float | None, read: Callable[[int, list[int]], T]
    ) -> T:
        """Wait for the end of a reset; its rows are then in order again, and can be received."""

        def settle(slot: int) -> T:
            rows = [row for payload in self._payloads.values() for row in payload[0]]
            self._was_reset = True
            self._broken.difference_update(rows)
            self.lost.difference_update(rows)
            self.finished[rows] = False
            parts = [part for infos in self.results.values() for part in infos or ()]
            self.queue.refill(snapshot(split(parts, rows)))
            return read(slot, rows)

        return self.finish(Event.RESET_WAIT, call, timeout, settle)

    def receive_rows(
        self,
        call: str,
        count: int,
        timeout: float | None,
        ready: Callable[[], list[int] | None],
        read: Callable[[list[int]], T],
    ) -> T:
        """Wait until `ready()` returns `count` rows, and return what `read` makes of them."""
        state, queue = self.check(Event.RECV, call), self.queue
        self._wanted = count
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            self._wait(ready, timeout)
            rows = ready() or []
            result = read(rows)
            rest = queue.without(rows)
            fresh = queue.fresh.difference(rows)
            if state is State.STREAMING and not (queue.outstanding or rest.keys() - fresh):
                state = self.check(Event.DRAINED)
        except BaseException as error:
            self._suspend(error)
            self._annotate(error)
            raise
        # As in `finish`.
        if self.state is _CLOSED:
            self._check_open()
        self.state, queue.ready, queue.fresh = state, rest, fresh
        return result

    def interrupt(self, error: BaseException) -> None:
        """Note that a call was interrupted between its two halves: what it began is pending."""
        if not isinstance(error, Exception):
            self._suspend(error)
        self._check_open(error)

    def _suspend(self, error: BaseException) -> None:
        """Note that a wait ended early: what is pending stays so, unless a fault ended it."""
        self._check_open(error)
        overdue_state = TRANSITIONS[self.state].get(Event.SUSPEND)
        if overdue_state is None:
            return
        self._late = set(self._waiting)
        self.interrupted = not isinstance(error, StepTimeoutError)
        self.state = overdue_state

    def _annotate(self, error: BaseException) -> None:
        """Let a Ctrl-C that ended a wait say what was waited for."""
        # isinstance would read the exception's __class__, which may raise.
        if not issubclass(type(error), KeyboardInterrupt) or self.state is _CLOSED:
            return
        if self._waiting:
            rows, _ = self._busy_rows(self._waiting)
            where, _ = self._find_running(self._waiting, PATIENCE)
            error.add_note(waited(self._op.verb, self._since, rows, where))

    def _find_running(
        self, workers: Collection[int], patience: float
    ) -> tuple[Message | str, str | None]:
        """Say where the first environment that is running is, and return its stack.

        One alone, since asking may take `patience` seconds.
        """
        running = [worker for worker in workers if self._running(worker) >= 0]
        if not workers:
            return "", None
        return self._backend.find(min(running or workers), patience, patience >= PATIENCE)

    def _wait(self, ready: Callable[[], Any] | None, timeout: float | None) -> None:
        """Take in replies until no worker owes one, or `ready()` is not None; raise failures."""
        waiting, self._since = self._waiting, time.monotonic()
        if self._replies or self._deaths:  # of the caller's own group, or left by an interrupt
            self._take_in(self._replies)
            if ready is None and not (waiting or self._failures):
                return
        advice = "wait again, call reset() (which kills and builds them again), or close()"
        restarts_late = self._restarts_late and timeout is None
        # In a stream each row has a time of its own, which bounds the wait.
        by_row = self._restarts_late and ready is not None
        if timeout is None and not by_row:
            timeout = self._settings.step_timeout
            if timeout is None and self._op is Op.RESET and not self._was_reset:
                # Where a renderer or a simulator starts at last, and may hang.
                timeout = self._settings.start_timeout
                advice += f" (start_timeout bounds the first reset){self._backend.hang_advice}"
        deadline, slow = _NEVER if timeout is None else Deadline(timeout), self._slow
        if ready is not None and time.monotonic() >= slow.due:
            # What others answer at once leaves no time to look while waiting; what has answered
            # while the caller did something else is not slow.
            self._take_in(self._backend.collect(0.0))
            slow.look(waiting, self._seq, self._op.verb)
        while not self._failures:
            unfinished = waiting if ready is None else ready() is None
            # A row whose time is up is listened to, and dealt with, although others are ready.
            due = self._row_is_due() if by_row else _NEVER
            is_up = due is not _NEVER and due is self._unheard[1]
            if not unfinished and (
                due is _NEVER or not (due.passed or (is_up and not deadline.passed))
            ):
                break
            building = bool(self._build_by)
            # While a worker is being built, start_timeout bounds the wait instead.
            bound = min(self._build_by.values()) if building else deadline
            if due is not _NEVER:
                bound = min(bound, due)
            left = slow.interval if bound is _NEVER else slow.shorten(bound.left)
            listened = Deadline(left) if is_up else _NEVER
            replies = self._backend.collect(left)
            if not replies:
                slow.look(waiting, self._seq, self._op.verb)
            heard = is_up and (bool(replies) or not listened.passed)
            self._take_in(replies)
            if heard:
                # An answer came, or a part of one; the rest, or the next, may take its time.
                self._unheard = self._unheard[0], Deadline(_GRACE)
            if by_row and self._row_is_due().passed:
                self._restart_late(*self._late_rows())
            if building:
                self._give_up_building()
                deadline = Deadline(timeout)
            elif (
                deadline is not _NEVER
                and deadline.passed
                and (waiting if ready is None else ready() is None)
            ):
                late = self._busy_rows(waiting)
                if not restarts_late:
                    # Who looks in for a moment waits for no answer, and disturbs no one.
                    where = self._find_running(waiting, min(PATIENCE, timeout or 0.0))
                    raise overdue(self._op.verb, timeout or 0.0, *late, advice, *where)
                self._restart_late(*late)
                deadline = Deadline(timeout)
        if self._failures:
            grace = Deadline(_GRACE)
            while waiting and not grace.passed:
                self._take_in(self._backend.collect(grace.left))
            self._raise_failure()

    def _take_in(self, replies: Any) -> None:
        """Take in what has come; each reply stays with the backend until it was."""
        if self.state is _CLOSED:
            self._check_open()
        while replies:
            self._receive(replies[0])
            replies.popleft()
        while self._deaths:
            worker = min(self._deaths)
            self._handle_death(worker, self._deaths[worker])

    def _receive(self, reply: Reply) -> None:
        """Take in one reply; a late one is recognised by its number, and dropped."""
        worker, op, seq, payload = reply
        if op is _DONE:
            if seq == self._seq:
                if self.lost and payload and self._op is _STEP:
                    self._show_known(self._slot, self.ring.current, payload)
                self.results[worker] = payload
                self._waiting.discard(worker)
        elif op is Op.PART:
            if seq == self._seq:
                self._take_part(worker, *payload)
        elif op is Op.BOUND:
            self._build_by.pop(worker, None)
            self.queue.send_again(self._backend.slices[worker], self._row_deadline())
        elif op is Op.DIED:
            if worker not in self._gone:
                self._deaths[worker] = payload
        elif op is Op.FAILED:
            unbuilt = self._build_by.pop(worker, None) is not None
            if unbuilt:
                self._gone.add(worker)
            if unbuilt or seq == self._seq:
                self._waiting.discard(worker)
                self._failures.append(payload)

    def _take_part(self, worker: int, rows: Sequence[int], infos: list[Columns]) -> None:
        """Take in rows of a stream, which have answered before others of their worker."""
        if self.lost and infos:
            self._show_known(self.ring.current, self.ring.next, infos)
        self._slow.seen.pop(worker, None)
        # A group in this process reports the environments' own objects. To split and to copy
        # nothing takes a sixth of the time in which rows without infos are sent and received.
        self.queue.answer(snapshot(split(infos, rows)) if infos else {row: {} for row in rows})
        if self.queue.outstanding.keys().isdisjoint(self._backend.slices[worker]):
            self._waiting.discard(worker)

    def _show_known(self, slot: int, known: int, infos: list[Columns]) -> None:
        """Where a step reports lost episodes, show the last observations that were known."""
        key = "worker_restarted"
        restarted = {row for columns in infos if key in columns for row in columns[key].rows}
        # An environment may use the key for something of its own.
        rows = sorted(restarted & self.lost)
        if not rows:
            return
        buffers, at = self._backend.buffers, np.array(rows, dtype=np.intp)
        shown = buffers.observations[slot] if buffers.finals is None else buffers.finals
        shown.copy_rows(buffers.observations[known], at)
        self.lost.difference_update(rows)

    # ------------------------------------------------------------------ faults

    def _row_deadline(self) -> Deadline:
        """Return until when a row may take that is sent an action now."""
        return Deadline(self._settings.step_timeout) if self._restarts_late else _NEVER

    def _row_is_due(self) -> Deadline:
        """Return when a row of the stream is next taken for late, if it is not heard until then."""
        building, worker_of = self._build_by, self._worker_of
        outstanding = self.queue.outstanding.items()
        first = next((by for row, by in outstanding if worker_of[row] not in building), _NEVER)
        if not first.passed:
            return first
        if self._unheard[0] is not first:
            self._unheard = first, Deadline(_GRACE)
        return self._unheard[1]

    def _late_rows(self) -> tuple[list[int], list[int]]:
        """Return the rows of the stream whose time is up, and those of them that run now."""
        late = {
            self._worker_of[row]
            for row, until in self.queue.outstanding.items()
            if until.passed and self._worker_of[row] not in self._build_by
        }
        return self._busy_rows(late)

    def _restart_late(self, rows: Sequence[int], running: Sequence[int]) -> None:
        """Treat the workers of rows that overran `step_timeout` as dead ones, in one restart."""
        workers = list(self.by_worker(rows))
        timeout = self._settings.step_timeout or 0.0
        advice = "their workers are restarted, with all of their environments"
        where = self._find_running(workers, PATIENCE)
        error = overdue(self._op.verb, timeout, rows, running, advice, *where)
        error.env_ids = tuple(row for worker in workers for row in self._backend.slices[worker])
        # As one assignment, so that after an interrupt the next wait goes on.
        self._deaths = dict.fromkeys(workers, Late(error))
        self._take_in(())

    def _handle_death(self, worker: int, death: Death | Late) -> None:
        """Restart a dead or late worker and repeat its command, or note the failure."""
        self._build_by.pop(worker, None)
        rows = self._backend.slices[worker]
        op, budget = self._op, self._settings.budget
        verb = op.verb
        count = self._restarts[worker] + 1
        error: StepTimeoutError | WorkerDiedError
        if isinstance(death, Late):
            error, restarts = death.error, True
        else:
            restarts = budget is not None and budget.on_worker_death != "raise"
            if death.error is not None:
                # An actor restarts its processes by itself, unless a function here decides.
                restarts = budget is not None and callable(budget.on_worker_death)
            advice = (
                "its environments are built again"
                if restarts
                else "call reset() to build its environments again, or close(); "
                'on_worker_death="restart" goes on by itself'
            )
            (busy, *_), text, _ = self._backend.locate(worker)
            at = busy if text else -1
            error = death.error or died(worker, rows, verb, death, at, advice, text)
        try:
            if budget is None or not restarts:
                raise error
            budget.spend(error, death)
        except Exception as fault:  # too many restarts, or what a function of the user raised
            for other in [other for other in self._deaths if self._deaths[other] is death]:
                if isinstance(death, Late):
                    self._backend.end(other)  # `close` is not to wait for it
                self._gone.add(other)
                self._waiting.discard(other)
                lost = tuple(self._backend.slices[other])
                self._failures.append(Failure(lost, verb, fault, "", other))
                del self._deaths[other]
            return
        self._check_open()
        again = {row: (restart_seed(self._seeds[row], count), self._options[row]) for row in rows}
        payload = self._payloads.get(worker)
        if op is Op.STEP_ROWS:
            # Episodes that were to begin are lost too: their rows report it.
            payload = [row for row in rows if row in self.queue.outstanding], {}, 1
        self.lost.update(rows)
        try:
            self._build(worker, again)
            if worker in self._waiting:
                self._backend.submit(op, self._slot, self._seq, {worker: payload})
        except Exception:
            # The system refused a new process or its memory: a reset tries again.
            self._break([worker])
            raise
        # As in `finish`: an interrupt before this repeats the whole restart.
        self._restarts[worker] = count
        del self._deaths[worker]

    def _running(self, worker: int) -> int:
        """Return the environment that a worker is busy with; -1 for none."""
        return int(self._backend.buffers.progress[worker])

    def _busy_rows(self, workers: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return environments of workers that have not finished, and those that are running now."""
        unfinished: list[int] = []
        running: list[int] = []
        for worker in sorted(workers):
            within = self._backend.slices[worker]
            at = self._running(worker)
            if at in within:
                running.append(at)
            if self._op is Op.STEP_ROWS:
                unfinished.extend(row for row in within if row in self.queue.outstanding)
            else:
                unfinished.extend(range(at, within.stop) if at in within else within)
        return unfinished, running

    def _give_up_building(self) -> None:
        """Note a failure for each worker that was not built in time."""
        for worker in [worker for worker, by in self._build_by.items() if by.passed]:
            del self._build_by[worker]
            self._gone.add(worker)
            self._waiting.discard(worker)
            rows = self._backend.slices[worker]
            where, stack = self._backend.find(worker)
            error = StepTimeoutError(
                Message(
                    "{:envs} were not built again within start_timeout ({} s): reset() tries "
                    "again{}",
                    rows,
                    f"{self._settings.start_timeout:g}",
                    where,
                ),
                rows,
                stack=stack,
            )
            self._failures.append(Failure(tuple(rows), "build", error, "", worker))

    def refuse_endless(self, infos: Mapping[int, Mapping[str, Any]]) -> None:
        """Raise for the first row whose info holds itself, and cannot be merged."""
        found = find_endless(infos)
        if found is not None:
            row, key = found
            text = "{:envs}: info[{}] holds itself, or is nested too deeply: leave the key out"
            error = InvalidInfoError(Message(text, [row], repr(key)))
            self._failures.append(Failure((row,), self._op.verb, error, "", self._worker_of[row]))
            self._raise_failure()

    def _raise_failure(self) -> NoReturn:
        """Raise the failure of the lowest environment, and record which are broken."""
        failures = sorted(self._failures, key=lambda failure: failure.env_ids[:1])
        first = failures[0]
        if self._op in _CALLS and not self._gone:
            # A method that raises breaks nothing, and late replies of others will be dropped.
            self._move(TRANSITIONS[self.state].get(Event.CALL_WAIT, self.state))
        else:
            for failure in failures:
                self._broken.update(failure.env_ids)
            self._move(State.BROKEN)
        # A wait for no rows, which sends no command, must not find them again.
        self._failures = []
        first.throw()

    # ------------------------------------------------------------------ the end

    def close(self, call: str, seconds: float, terminate: bool) -> list[int]:
        """End every worker; return the environments that had to be ended by force.

        What environments raised while they closed is raised once everything is freed.
        """
        self.state = self.check(Event.CLOSE, call)
        late: list[int] = []
        replies = self._backend.close(seconds, terminate)
        for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
            rows = self._backend.slices[worker]
            if op is Op.CLOSE:
                late.extend(rows)
            elif op is Op.DIED:
                if worker not in self._gone:
                    advice, busy = "everything is freed", self._running(worker)
                    raise died(worker, rows, "close", payload, busy, advice)
            elif not self._broken.intersection(payload.env_ids):
                # What a broken environment raises at its end is of no use.
                payload.throw()
        return late
