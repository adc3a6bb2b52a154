"""The session: sends commands, waits for replies, and decides what errors leave behind.

A command begins (`begin_*`, `send_rows`), is waited for (`run`, `receive`), and ends once its
result was read (`commit`, `commit_rows`); these alone change the state. Every worker that a command
went to owes one reply. Every wait is bounded, a late reply is never taken for another command's,
and the command of a dead worker is sent again to its successor.

An interrupt (Ctrl-C, or any exception from a signal handler) may come at any moment. A reply stays
with the backend until it was taken in, taking it in twice changes nothing, and the end of a call is
a few plain assignments, between which Python runs no signal handler. So a wait can be repeated and
gives the right answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_seconds
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidInfoError,
    ResetNeededError,
    StepTimeoutError,
)
from vecspaces.vector.backends.backend import PATIENCE, Backend
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, Message, died, overdue, waited
from vecspaces.vector.exchange.infos import Columns, find_endless, snapshot, split
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply, Written
from vecspaces.vector.group.members import Starts
from vecspaces.vector.session.arguments import ResetPlan, Settings
from vecspaces.vector.session.restarts import Late
from vecspaces.vector.session.ring import Rollout, SlotRing
from vecspaces.vector.session.row_queue import NEVER, RowQueue
from vecspaces.vector.session.states import State
from vecspaces.vector.session.workers import Workers

T = TypeVar("T")

# After a first fault, how long others may take to report theirs, in seconds: then the lowest
# environment is named.
_FAULT_GRACE = 0.1

_DONE, _STEP = Op.DONE, Op.STEP  # members of enumerations are found slowly
IDLE = State()
_STEPPING, _STREAMING, _CLOSED = State("step"), State("send"), State(closed=True)

#: What a wait for rows is over by: the rows, once they are ready.
Ready = Callable[[], "list[int] | None"]
#: Until when something may take, and what happens then.
WaitBound = tuple[Deadline, Callable[[], object]]


class Session:
    """The state of a vector env, and the only thing that changes it.

    Attributes:
        state: What the vector env is doing.
        ring: The slots of observations.
        queue: The rows of `send` and `recv`.
        workers: Which workers can be used.
        results: By worker, the payload of its reply to the last command.
        broken: Rows that failed and must be built again, and what they failed with.
        replaced: Rows whose environment was replaced by another, which was not reset yet.
        finished: The rows whose episode ended in their last step; shape `(num_envs,)`. In NEXT_STEP
            mode steps of all rows are not noted, unless actions are checked.
        gone: The rows of agents whose next action is not used; shape `(num_envs,)`.
        interrupted: Whether an interrupt ended the last wait.
        masked_rows: The rows of the last reset if it had a mask, and wrote into the current slot.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings
        self._replies = backend.replies
        plan = backend.buffers.plan
        self.state = State(new=True)
        self.ring = SlotRing(settings.buffers, plan.slots)
        self.queue = RowQueue()
        self.workers = Workers(backend, settings)
        self.results: dict[int, Any] = {}
        self.broken: dict[int, Failure] = {}
        self.replaced: set[int] = set()
        self.finished: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.gone: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.interrupted = self._inherited = False
        self.masked_rows: list[int] | None = None
        # The last command: enough to repeat it for a worker that had to be replaced, the call that
        # the user made, and the slot and the steps of the rollout once it is done.
        self._op, self._call = Op.RESET, "reset"
        self._payloads: Mapping[int, Any] = {}
        self._slot = self._steps = 0
        # Each command has a number, which its replies carry. All commands to rows, until none is
        # under way, are one stream with one number (-1: none), beside which a call has its own.
        self._number, self._stream = 0, -1
        # The workers that owe a reply to the command, and those whose caller gave up waiting.
        self._waiting: set[int] = set()
        self._late: set[int] = set()
        self._failures: list[Failure] = []
        # How many rows the last `recv` waited for, as the next one probably will.
        self._wanted = 1
        budget = settings.budget
        self._restarts_late = budget is not None and budget.on_step_timeout != "raise"
        self._slow = SlowWatch(settings.slow_warning, backend)
        self._since = 0.0  # when the last wait began

    # ------------------------------------------------------------------ what is legal

    def check(self, call: str, name: str) -> None:
        """Raise where a call is illegal, which the user made by a method of this name."""
        if self._inherited:
            raise ClosedEnvironmentError(
                f"{name} was called in a process that was forked from the one that made the vector "
                "env, which alone can use it: make another one here"
            )
        if not self.state.allows(call):
            what = "was interrupted" if self.interrupted else "timed out"
            raise self.state.refusal(call, name, f"{self._call} that {what}")

    def check_rows(
        self, rows: Collection[int], name: str, *, sends: bool = True, begins: bool = False
    ) -> None:
        """Raise where one of some rows takes no call now.

        A call that `sends` needs rows whose results were received; one that `begins` episodes
        builds broken environments again.
        """
        queue, broken = self.queue, self.broken
        if not (queue.under_way.keys().isdisjoint(rows) and queue.ready.keys().isdisjoint(rows)):
            busy = [row for row in rows if row in queue.under_way]
            unread = [row for row in rows if row in queue.ready and row not in queue.fresh]
            if busy or (sends and unread):
                what = "is not there yet" if busy else "was not received yet"
                text = "{}: the last reply of {:envs} {}: recv first"
                raise AlreadyPendingCallError(Message(text, name, busy or unread, what), "send")
        if self.replaced and begins is False and sends:
            new = [row for row in rows if row in self.replaced]
            if new:
                text = "{}: {:envs} were replaced by other environments: reset them first"
                raise ResetNeededError(Message(text, name, new))
        if broken and not begins:
            failed = [row for row in rows if row in broken]
            if failed:
                text = "{}: {:envs} failed: send_reset or reset() first, which builds {} again"
                them = "it" if len(failed) == 1 else "them"
                raise ResetNeededError(Message(text, name, failed, them))

    def note_agents(self, at: Any, infos: Mapping[str, Any]) -> None:
        """Note which agents are gone, and which are finished: all at the end of the episode."""
        known = infos.get("_alive", False)
        if np.any(known):
            self.gone[at] = np.where(known, ~infos["alive"], self.gone[at])
            self.finished[at] = np.where(known, infos["episode_over"], self.finished[at])

    @property
    def start_timeout(self) -> float:
        """How long environments may take to be built, in seconds."""
        return self._settings.start_timeout

    def note_replaced(self, rows: Iterable[int], failures: Mapping[int, Failure]) -> None:
        """Note which rows were replaced, and which failed and are to be built as before."""
        self.replaced.update(rows, failures)
        self.broken.update(failures)

    def disown(self) -> None:
        """In a process that was forked from the caller's: what was inherited can only be closed."""
        self.state, self._inherited = _CLOSED, True

    # ------------------------------------------------------------------ commands

    def _begin(
        self,
        state: State,
        call: str,
        op: Op,
        slot: int,
        steps: int,
        payloads: Mapping[int, Any],
    ) -> None:
        """Send a command to some workers; one that cannot be pickled leaves the state as it is."""
        self._number += 1
        self._waiting = set(payloads)
        self._failures = []
        self.results = {}
        self.interrupted = False
        if state.pending != "call":  # which may be made in a stream
            self._late = set()
        self._op, self._call, self._payloads = op, call, payloads
        self._slot, self._steps = slot, steps
        try:
            self._backend.submit(op, slot, self._number, payloads)
            if self.state.closed:
                self._check_open()
            if state.pending != "call":
                self._stream = -1
            self.state = state
        except BaseException as error:
            self._waiting = set()
            self._fail_sending(error, payloads)

    def _fail_sending(self, error: BaseException, workers: Iterable[int]) -> NoReturn:
        """Raise what ended the sending of a command."""
        if isinstance(error, CannotSend):
            raise error.reason from None
        # Some workers may have received it: only new ones can begin together again.
        self._break(workers)
        self.interrupted = isinstance(error, KeyboardInterrupt)
        self._check_open(error)
        raise error

    def begin_call(self, call: str, op: Op, payloads: Mapping[int, Any]) -> None:
        """Send a call, which writes no rows."""
        state = self.state._replace(pending="call")
        self._begin(state, call, op, self.ring.current, self.ring.steps, payloads)

    def begin_reset(self, plan: ResetPlan, call: str) -> None:
        """Send a reset, after replacing workers that are gone or busy with a call that is late.

        One with a mask writes into the current slot: it takes no step, even if it chooses all rows.
        Any other, and the first one, begins anew with the first slot.
        """
        rows = plan.rows.tolist()
        goes_on = plan.is_masked and self.state == IDLE
        self.masked_rows = rows if goes_on else None
        self._replace_unusable()
        payloads: dict[int, Any] = {}
        for worker, chosen in self.workers.of_rows(rows).items():
            payloads[worker] = (
                chosen,
                [plan.seeds[row] for row in chosen],
                [plan.options[row] for row in chosen],
                plan.keep_options,
                [row for row in chosen if row in self.broken],
            )
        slot, steps = self.ring.slot_of_reset(goes_on)
        for row in rows:
            options = plan.options[row] if plan.keep_options else None
            self.workers.note_start(row, plan.seeds[row], options)
        self._begin(State("reset", new=self.state.new), call, Op.RESET, slot, steps, payloads)

    def begin_step(self, call: str, payloads: Mapping[int, None]) -> None:
        """Send a step of all environments, into the next slot of the ring."""
        ring = self.ring
        if ring.begins_rollout:
            ring.begin_rollout(self._backend.buffers)
        if self.queue.ready:
            self.queue.clear()
        slot = ring.after[ring.current]
        self._begin(_STEPPING, call, _STEP, slot, ring.steps + 1, payloads)

    def end_rollout(self) -> Rollout:
        """Return the steps of a complete rollout; the next step begins another."""
        self.check("step", "rollout_view")
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

        The step of a row that `starts` names begins an episode, in an environment that is built
        again if it is broken. Workers report their share of the `wanted` rows together; None: of as
        many as the last `recv` waited for.
        """
        if not rows:
            return  # nothing would be there to receive
        broken, wanted = self.broken, self._wanted if wanted is None else wanted
        share = max(1, wanted // len(self._backend.slices))
        payloads = {
            worker: (
                chosen,
                {row: starts[row] for row in chosen if row in starts},
                [row for row in chosen if row in broken] if broken else [],
                share,
            )
            for worker, chosen in self.workers.of_rows(rows).items()
        }
        for row, (seed, _) in starts.items():
            self.workers.note_start(row, seed, None)
        self.replaced.difference_update(starts)
        slot = self.ring.current
        self.ring.is_mixed = True
        if self._settings.budget is not None:
            # The other slot keeps what was known, in case a worker dies while it writes.
            observations, at = self._backend.buffers.observations, np.array(rows, dtype=np.intp)
            observations[self.ring.after[slot]].copy_rows(observations[slot], at)
        if not self.state.pending:
            self._number += 1
            self._stream, self._late, self._failures = self._number, set(), []
        self._call, self.interrupted = call, False
        try:
            self._backend.submit(Op.STEP_ROWS, slot, self._stream, payloads)
            self.queue.send(rows, self._row_deadline())
            for row in starts:
                # The worker builds it again, once: a reset may come before its reply.
                self.broken.pop(row, None)
            if self.state.closed:
                self._check_open()
            self.state = _STREAMING
        except BaseException as error:
            self._fail_sending(error, payloads)

    def _break(self, workers: Iterable[int]) -> None:
        """Note that workers may be in any state: a reset replaces them."""
        self.workers.gone.update(workers)
        self._move(State(new=self.state.new, broken=True))

    def _move(self, state: State) -> None:
        """Change the state, unless `close` came in between: it is the end."""
        if not self.state.closed:
            self.state = state

    def _check_open(self, error: BaseException | None = None) -> None:
        """End a call during which a signal handler, another thread or a callback called `close`.

        This replaces an `error` that such a call raised since memory and workers are gone.
        """
        if not self.state.closed or isinstance(error, ClosedEnvironmentError):
            return
        if error is None or isinstance(error, Exception):
            raise ClosedEnvironmentError(
                f"close() was called during {self._call}, which has no result: make a new "
                "vector env"
            ) from None

    def _replace_unusable(self) -> None:
        """Before a reset, replace workers that are gone, or still busy with a call that is late."""
        workers = self.workers
        unusable = (
            workers.gone | workers.deaths.keys() | (self._late & (self._busy(True) | self._waiting))
        )
        if not unusable:
            return
        # After an interrupt from here on, the next reset begins this anew.
        workers.gone |= unusable
        self._waiting = set()
        self._move(State(new=self.state.new, broken=True))
        for worker in sorted(unusable):
            workers.replace(worker)
            for row in self._backend.slices[worker]:
                self.broken.pop(row, None)

    # ------------------------------------------------------------------ the ends of commands

    def finish(self, command: str, call: str, timeout: float | None, read: Callable[[int], T]) -> T:
        """Wait for the pending command, and return what `read` makes of the slot that it wrote.

        `read` may be called again after an interrupt, so it must change nothing that lasts.
        """
        slot = self.run(command, call, timeout)
        try:
            result = read(slot)
            self.commit()
        except BaseException as error:
            self.suspend(error)
            raise
        return result

    def run(self, command: str, call: str, timeout: float | None) -> int:
        """Wait for the pending command, and return the slot that it wrote; `commit` ends it."""
        if self.state.pending != command:
            self.check(f"{command}_wait", call)
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            self._wait(None, timeout)
            if command == "reset":
                self._settle_reset()
        except BaseException as error:
            if self.state.pending in (command, ""):  # else the call failed, beside a stream
                self._end_early(error)
            raise
        return self._slot

    def _settle_reset(self) -> None:
        """Note that rows were reset: they are in order again, and can be received."""
        rows = [row for payload in self._payloads.values() for row in payload[0]]
        for row in rows:
            self.broken.pop(row, None)
        self.workers.lost.difference_update(rows)
        self.replaced.difference_update(rows)
        self.finished[rows] = False
        parts = [part for infos in self.results.values() for part in infos or ()]
        self.queue.refill(snapshot(split(parts, rows)))

    def commit(self) -> None:
        """End the command whose result was read."""
        state = self._after_call() if self.state.pending == "call" else IDLE
        ring = self.ring
        if self.state.closed:
            self._check_open()
        # Plain assignments alone: an interrupt comes before all of them or after all of them.
        self.state, ring.current, ring.steps = state, self._slot, self._steps

    def _after_call(self) -> State:
        """Return the state that a call leads back to."""
        return State("send" if self.queue.streams else "", new=self.state.new)

    def receive(self, ready: Ready, count: int, timeout: float | None) -> list[int]:
        """Wait until `ready()` returns `count` rows, and return them; `commit_rows` ends it.

        If one of them failed, this is raised, once, and the others stay ready.
        """
        self._wanted = count
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            self._wait(ready, timeout)
            rows = ready() or []
        except BaseException as error:
            self._end_early(error)
            raise
        if self.broken:
            failure = next((self.broken[row] for row in rows if row in self.broken), None)
            if failure is not None:
                self._raise_row(failure)
        return rows

    def _raise_row(self, failure: Failure) -> NoReturn:
        """Raise what broke rows, which are then received."""
        try:
            failure.throw()
        except Exception:
            self.commit_rows([row for row, one in self.broken.items() if one is failure])
            raise

    def commit_rows(self, rows: Iterable[int]) -> None:
        """Note that rows were received."""
        ready, fresh = self.queue.without(rows)
        streams = self.queue.under_way or ready.keys() - fresh
        state = _STREAMING if streams else IDLE
        if self.state.closed:
            self._check_open()
        # As in `commit`.
        self.state, self.queue.ready, self.queue.fresh = state, ready, fresh

    def suspend(self, error: BaseException) -> None:
        """Note that a call ended early: what is pending stays so, unless a fault ended it."""
        self._check_open(error)
        if not self.state.pending:
            return
        self._late |= self._busy(self.state.pending == "send")
        self.interrupted = not isinstance(error, StepTimeoutError)
        if self.state.pending != "send":
            self.state = self.state._replace(overdue=True)

    def _end_early(self, error: BaseException) -> None:
        """Note that a wait ended early, and let a Ctrl-C say what was waited for."""
        self.suspend(error)
        streams = self.state.pending == "send"
        busy = self._busy(streams)
        # isinstance would read the exception's __class__, which may raise.
        if busy and issubclass(type(error), KeyboardInterrupt) and not self.state.closed:
            rows, _ = self._busy_rows(streams)
            where, _ = self.workers.find_running(busy)
            error.add_note(waited(self._verb, self._since, rows, where))

    def interrupt(self, error: BaseException) -> None:
        """Note that a call was interrupted between its two halves: what it began is pending."""
        if not isinstance(error, Exception):
            self.suspend(error)
        self._check_open(error)

    # ------------------------------------------------------------------ waiting

    def _busy(self, streams: bool) -> set[int]:
        """Return the workers that owe a reply: of rows that are under way, or to the command."""
        if not streams:
            return set(self._waiting)
        return set(self.workers.of_rows(self.queue.under_way)) if self.queue.under_way else set()

    def _busy_rows(self, streams: bool) -> tuple[list[int], list[int]]:
        """Return the environments that are waited for, and those of them that are running now."""
        under_way = self.queue.under_way if streams else None
        return self.workers.busy_rows(self._busy(streams), under_way)

    @property
    def _verb(self) -> str:
        """What is waited for, as errors name it."""
        return "step" if self.state.pending == "send" else self._op.verb

    def _wait(self, ready: Ready | None, timeout: float | None) -> None:
        """Take in replies until no worker owes one, or `ready()` is not None; raise failures."""
        workers, waiting, slow = self.workers, self._waiting, self._slow
        self._since = time.monotonic()
        if self._replies or workers.deaths:  # of the caller's own group, or left by an interrupt
            self._take_in(self._replies)
            if ready is None and not (waiting or self._failures):
                return
        advice = "wait again, call reset() (which kills and builds them again), or close()"
        restarts = self._restarts_late and timeout is None
        # In a stream each row has a time of its own, which bounds the wait.
        by_row = self._restarts_late and ready is not None
        if timeout is None and not by_row:
            timeout = self._settings.step_timeout
            if timeout is None and self._op is Op.RESET and self.state.new:
                # A renderer or a simulator often starts in the first reset, and may hang there.
                timeout = self._settings.start_timeout
                advice += f" (start_timeout bounds the first reset){self._backend.hang_advice}"
        until = NEVER if timeout is None else Deadline(timeout)
        if ready is not None and self._since >= slow.due:
            # Rows that answer at once end each wait before a look at slow ones is due. Those that
            # answered while the caller did something else are taken in first: they are not slow.
            self._take_in(self._backend.collect(0.0))
            slow.look(self._busy(True), self._stream, self._verb)
        while not self._failures:
            over = not waiting if ready is None else ready() is not None
            bounds: list[WaitBound] = []
            if by_row:
                late = self.queue.late_from(workers.building_rows())
                bounds.append((late, self._restart_late_rows))
                # The wait goes on for a row whose time is up, although others are ready: else one
                # that hangs would never be found while the others answer.
                in_grace = self.queue.is_grace(late)
                over = over and not (late.passed or (in_grace and not until.passed))
            if over:
                break
            if workers.build_by:
                bounds.append((min(workers.build_by.values()), self._give_up_building))
                # The time of the command itself counts from when all workers are built.
                until = until if timeout is None else Deadline(timeout)
            elif timeout is not None:
                overrun = partial(self._overrun, ready, timeout, None if restarts else advice)
                bounds.append((until, overrun))
            left = slow.interval
            if bounds:
                left = slow.shorten(min(bound for bound, _ in bounds).left)
            if by_row:
                read_until = Deadline(left)
            replies = self._backend.collect(left)
            if not replies:
                busy = waiting if ready is None else self._busy(True)
                slow.look(busy, self._number if ready is None else self._stream, self._verb)
            if by_row and in_grace and (replies or not read_until.passed):
                self.queue.renew_grace()  # a reply came, or a part of one
            self._take_in(replies)
            for bound, act in bounds:
                if bound.passed:
                    act()
        if self._failures:
            grace = Deadline(_FAULT_GRACE)
            while self._busy(ready is not None) and not grace.passed:
                self._take_in(self._backend.collect(grace.left))
            self._raise_failure()

    def _overrun(self, ready: Ready | None, timeout: float, advice: str | None) -> None:
        """Raise that a wait took too long; without advice, restart the workers that are late."""
        streams = ready is not None
        if not self._waiting if ready is None else ready() is not None:
            return
        rows, running = self._busy_rows(streams)
        if advice is None:
            self._restart_late(rows, running)
            return
        # A wait of a moment, such as timeout=0, does not pay for a stack.
        where = self.workers.find_running(self._busy(streams), min(PATIENCE, timeout))
        raise overdue(self._verb, timeout, rows, running, advice, *where)

    def _row_deadline(self) -> Deadline:
        """Return until when a row may take that is sent a command now."""
        return Deadline(self._settings.step_timeout) if self._restarts_late else NEVER

    def _restart_late_rows(self) -> None:
        """Restart the workers of rows under way that are late."""
        exempt = self.workers.building_rows()
        if self.queue.late_from(exempt).passed:
            late = self.workers.of_rows(self.queue.late(exempt))
            self._restart_late(*self.workers.busy_rows(late, self.queue.under_way))

    def _restart_late(self, rows: Sequence[int], running: Sequence[int]) -> None:
        """Treat the workers of rows that overran `step_timeout` as dead ones, in one restart."""
        workers = list(self.workers.of_rows(rows))
        timeout = self._settings.step_timeout or 0.0
        advice = "their workers are restarted, with all of their environments"
        where = self.workers.find_running(workers)
        error = overdue(self._verb, timeout, rows, running, advice, *where)
        error.env_ids = tuple(row for worker in workers for row in self._backend.slices[worker])
        # As one assignment, so that after an interrupt the next wait goes on.
        self.workers.deaths = dict.fromkeys(workers, Late(error))
        self._take_in(())

    def _give_up_building(self) -> None:
        """Note a failure for each worker that was not built in time."""
        failures = self.workers.give_up_building()
        self._waiting.difference_update(failure.worker for failure in failures)
        self._failures += failures

    # ------------------------------------------------------------------ replies

    def _take_in(self, replies: Any) -> None:
        """Take in what has come; each reply stays with the backend until it was."""
        if self.state.closed:
            self._check_open()
        while replies:
            self._receive(replies[0])
            replies.popleft()
        while self.workers.deaths:
            self._handle_death(min(self.workers.deaths))

    def _receive(self, reply: Reply) -> None:
        """Take in one reply; a late one is recognised by its number, and dropped."""
        worker, op, number, payload = reply
        if op is _DONE:
            if number == self._number:
                if self.workers.lost and payload and self._op is _STEP:
                    self._show_known(self._slot, self.ring.current, payload)
                self.results[worker] = payload
                self._waiting.discard(worker)
        elif op is Op.PART:
            if number == self._stream:
                self._take_part(worker, payload)
        elif op is Op.BOUND:
            self.workers.build_by.pop(worker, None)
            self.queue.send_again(self._backend.slices[worker], self._row_deadline())
        elif op is Op.DIED:
            if worker not in self.workers.gone:
                self.workers.deaths[worker] = payload
        elif op is Op.FAILED:
            unbuilt = self.workers.build_by.pop(worker, None) is not None
            if unbuilt or number == self._stream:
                # It is not known which rows of the stream can still answer.
                self.workers.gone.add(worker)
            if unbuilt or number in (self._number, self._stream):
                self._waiting.discard(worker)
                # A call that failed has ended: late failures of others concern nothing else.
                if unbuilt or number == self._stream or self.state.pending not in ("", "send"):
                    self._failures.append(payload)

    def _take_part(self, worker: int, written: Written) -> None:
        """Take in rows of a stream, which have answered or failed before others of their worker."""
        rows, infos, failures = written
        if self.workers.lost and infos:
            slot = self.ring.current
            self._show_known(slot, self.ring.after[slot], infos)
        self._slow.seen.pop(worker, None)
        # A group in this process reports the environments' own objects. To split and to copy
        # nothing takes a sixth of the time in which rows without infos are sent and received.
        self.queue.answer(snapshot(split(infos, rows)) if infos else {row: {} for row in rows})
        for failed, failure in failures:
            new = [row for row in failed if row in self.queue.under_way]
            self.broken.update(dict.fromkeys(new, failure))
            self.queue.answer({row: {} for row in new})

    def _show_known(self, slot: int, known: int, infos: list[Columns]) -> None:
        """Show the last observations that were known, for rows whose step reports a loss."""
        key = "worker_restarted"
        restarted = {row for columns in infos if key in columns for row in columns[key].rows}
        # An environment may use the key for something of its own.
        rows = sorted(restarted & self.workers.lost)
        if not rows:
            return
        buffers, at = self._backend.buffers, np.array(rows, dtype=np.intp)
        shown = buffers.observations[slot] if buffers.finals is None else buffers.finals
        shown.copy_rows(buffers.observations[known], at)
        # An agent that was gone before its worker died had ended already.
        buffers.truncations[slot, at[self.gone[at]]] = False
        self.workers.lost.difference_update(rows)

    # ------------------------------------------------------------------ faults

    def _handle_death(self, worker: int) -> None:
        """Restart a dead or late worker and repeat its commands, or note the failure."""
        workers, verb = self.workers, self._verb
        fault = workers.judge(worker, verb)
        if fault is not None:
            for other in workers.give_up(workers.deaths[worker]):
                self._waiting.discard(other)
                lost = tuple(self._backend.slices[other])
                self._failures.append(Failure(lost, verb, fault, "", other))
                del workers.deaths[other]
            return
        self._check_open()
        try:
            workers.restart(worker)
            self._repeat(worker)
        except Exception:
            # The system refused a new process or its memory: a reset tries again.
            self._break([worker])
            raise
        workers.note_restart(worker)

    def _repeat(self, worker: int) -> None:
        """Send a new worker what the one before it has not answered."""
        under_way = [row for row in self._backend.slices[worker] if row in self.queue.under_way]
        if under_way and self._stream >= 0:
            # Episodes that were to begin are lost too: their rows report it.
            payloads: dict[int, Any] = {worker: (under_way, {}, [], 1)}
            self._backend.submit(Op.STEP_ROWS, self.ring.current, self._stream, payloads)
        if worker in self._waiting:
            payloads = {worker: self._payloads[worker]}
            self._backend.submit(self._op, self._slot, self._number, payloads)

    def fail_endless(self, infos: Mapping[int, Mapping[str, Any]], streams: bool) -> bool:
        """Note as failed the first row whose info holds itself, and cannot be merged.

        In a stream, `receive` raises it; else it is raised here. False: there is none.
        """
        found = find_endless(infos)
        if found is None:
            return False
        row, key = found
        text = "{:envs}: info[{}] holds itself, or is nested too deeply: leave the key out"
        error = InvalidInfoError(Message(text, [row], repr(key)))
        worker = next(iter(self.workers.of_rows([row])))
        failure = Failure((row,), self._verb, error, "", worker)
        if streams:
            self.broken[row] = failure
            return True
        self._failures.append(failure)
        self._raise_failure()

    def _raise_failure(self) -> NoReturn:
        """Raise the failure of the lowest environment, and record which are broken."""
        failures = sorted(self._failures, key=lambda failure: failure.env_ids[:1])
        if self.state.pending == "call" and not self.workers.gone:
            # A method that raises breaks nothing, and late replies of others will be dropped.
            self._move(self._after_call())
        else:
            for failure in failures:
                self.broken.update(dict.fromkeys(failure.env_ids, failure))
            self._break(())
        # A wait for no rows, which sends no command, must not find them again.
        self._failures = []
        failures[0].throw()

    # ------------------------------------------------------------------ the end

    def close(self, seconds: float, terminate: bool) -> list[int]:
        """End every worker; return the environments that had to be ended by force.

        What environments raised while they closed is raised once everything is freed.
        """
        self.state = _CLOSED
        late: list[int] = []
        replies = self._backend.close(seconds, terminate)
        for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
            rows = self._backend.slices[worker]
            if op is Op.CLOSE:
                late.extend(rows)
            elif op is Op.DIED:
                if worker not in self.workers.gone:
                    advice, busy = "everything is freed", self.workers.running(worker)
                    raise died(worker, rows, "close", payload, busy, advice)
            elif self.broken.keys().isdisjoint(payload.env_ids):
                # An error at the end of a broken environment would hide the first one.
                payload.throw()
        return late
