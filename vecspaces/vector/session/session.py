"""The session: sends commands, waits for replies, and handles faults.

A command begins (`begin_*`, `send_rows`), is awaited, and ends when its result was read (`finish`,
`receive`); only these methods change the state. Every worker that gets a command sends one reply.
Every wait is bounded, a late reply is never taken for the reply to another command, and the command
of a dead worker is sent again to its successor.

An interrupt may come at any moment, and a wait can then be repeated: docs/design.md has the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_seconds
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidInfoError,
    ResetNeededError,
    SlowEnvironmentWarning,
    StepTimeoutError,
)
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure, Message, died, waited
from vecspaces.vector.exchange.infos import Part, as_columns, find_endless, snapshot, split
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply, Starts, Written
from vecspaces.vector.exchange.stats import COMPUTING, OUTSIDE
from vecspaces.vector.session.arguments import ResetPlan, Settings
from vecspaces.vector.session.recycling import Planned, Recycling
from vecspaces.vector.session.ring import Rollout, SlotRing
from vecspaces.vector.session.row_queue import NEVER, RowQueue
from vecspaces.vector.session.states import State
from vecspaces.vector.session.wait import Ready, Wait
from vecspaces.vector.session.workers import Workers

T = TypeVar("T")

_DONE, _PART, _STEP, _STEP_ROWS = Op.DONE, Op.PART, Op.STEP, Op.STEP_ROWS
IDLE = State()
_STEPPING, _STREAMING, _CLOSED = State("step"), State("send"), State(closed=True)


class Session:
    """The state of a vector env; only its methods change it.

    Attributes:
        state: The pending command, and whether the vector env is new, broken or closed.
        recycling: Which live workers are replaced; None: no workers.
        everyone: All workers, with the payload of a command without arguments.
        results: By worker, the payload of its reply to the last command.
        returned: The results of calls of single rows, or their `Failure`, until they are taken.
        broken: Rows that failed and must be built again, with their failures.
        replaced: Rows whose worker was replaced for a reset that may not have been sent.
        finished: The rows whose episode ended in their last step; shape `(num_envs,)`. In NEXT_STEP
            mode, steps of all rows are only noted if actions are checked.
        gone: The rows of agents whose next action is not used; shape `(num_envs,)`.
        interrupted: Whether an interrupt ended the last wait.
        masked_rows: The rows of the last reset if it had a mask, and wrote into the current slot.
        clock: Divides the caller's time; None without `stats`.
    """

    def __init__(self, backend: Backend, settings: Settings, units: Sequence[int]) -> None:
        self._backend = backend
        self._settings = settings
        plan = backend.buffers.plan
        self.state = State(new=True)
        self.ring = SlotRing(settings.buffers, plan.slots)
        self.queue = RowQueue()
        self.recycling = Recycling(settings, backend, units) if settings.recycles else None
        self.workers = Workers(backend, settings, self.recycling)
        self.everyone: dict[int, None] = dict.fromkeys(range(len(backend.slices)))
        self.results: dict[int, Any] = {}
        self.broken: dict[int, Failure] = {}
        self.replaced: set[int] = set()
        self.finished: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.gone: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.interrupted = self._inherited = False
        self.clock = backend.clock
        self.masked_rows: list[int] | None = None
        # The last command: its arguments, to repeat it for a worker that was replaced, the user's
        # call, and the slot and the number of steps of the rollout after it.
        self._call = "reset"
        self._payloads: Mapping[int, Any] = {}
        self._slot = self._steps = 0
        self.wait = Wait(backend, settings, self.workers, self.queue)
        # The workers that have not replied, and for which the caller has stopped waiting.
        self._late: set[int] = set()
        # Calls of single rows in the stream, by their numbers, which are larger than those of
        # commands.
        self._row_call_number = 1 << 32
        self._row_calls: dict[int, tuple[int, Op]] = {}
        self.returned: dict[int, Any] = {}
        # The number of rows of the last `recv`, which is probably that of the next one.
        self._wanted = 1

    # ------------------------------------------------------------------ what is legal

    def check(self, call: str, name: str) -> None:
        """Raise if a call is not allowed; `name` is the method that the user called."""
        if self._inherited:
            raise ClosedEnvironmentError(
                f"{name} was called in a process that was forked from the one that made the vector "
                "env, which alone can use it: make another one here"
            )
        if not self.state.allows(call):
            what = "was interrupted" if self.interrupted else "timed out"
            raise self.state.refusal(call, name, f"{self._call} that {what}")
        if self.clock is not None:
            self.clock.note(OUTSIDE)

    def check_rows(
        self, rows: Collection[int], name: str, *, sends: bool = True, begins: bool = False
    ) -> None:
        """Raise if one of some rows accepts no call now.

        A call that `sends` needs rows whose results were received; one that `begins` episodes
        builds broken environments again.
        """
        under_way, ready, broken = self.queue.under_way, self.queue.ready, self.broken
        if not (under_way.keys().isdisjoint(rows) and ready.keys().isdisjoint(rows)):
            busy = [row for row in rows if row in under_way]
            unread = [row for row in rows if row in ready and row not in self.queue.fresh]
            if busy or (sends and unread):
                what = "is not there yet" if busy else "was not received yet"
                text = "{}: the last reply of {:envs} {}: recv first"
                raise AlreadyPendingCallError(Message(text, name, busy or unread, what), "send")
        if self.replaced and sends and not begins:
            new = [row for row in rows if row in self.replaced]
            if new:
                text = (
                    "{}: a reset that was interrupted built {:envs} anew: reset or send_reset first"
                )
                raise ResetNeededError(Message(text, name, new))
        if broken and not begins:
            failed = [row for row in rows if row in broken]
            if failed:
                advice = "send_reset or reset() first"
                if not ready.keys().isdisjoint(failed):
                    advice = "recv the exception and then send_reset, or reset()"
                them = "it" if len(failed) == 1 else "them"
                text = "{}: {:envs} failed: {}, which builds {} again"
                raise ResetNeededError(Message(text, name, failed, advice, them))

    def note_agents(self, at: Any, infos: Mapping[str, Any]) -> None:
        """Note which agents are gone, and which are finished: all at the end of the episode."""
        known = infos.get("_alive", False)
        if np.any(known):
            self.gone[at] = np.where(known, ~infos["alive"], self.gone[at])
            self.finished[at] = np.where(known, infos["episode_over"], self.finished[at])

    def disown(self) -> None:
        """In a process that was forked from the caller's: allow only `close`."""
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
        """Send a command to some workers; if it cannot be pickled, the state does not change."""
        self.wait.begin(op, payloads, state.new)
        self.results = {}
        self.interrupted = False
        # A call during a stream keeps the late workers of the stream.
        if state.pending != "call" or not self.queue.under_way:
            self._late = set()
        self._call, self._payloads = call, payloads
        self._slot, self._steps = slot, steps
        try:
            self._backend.submit(op, slot, self.wait.number, payloads)
            if self.state.closed:
                self._check_open()
            if state.pending != "call":
                self.wait.stream = -1
            self.state = state
            if self.clock is not None:
                self.clock.note(COMPUTING)
        except BaseException as error:
            self.wait.owing = set()
            self._fail_sending(error, payloads)

    def _fail_sending(self, error: BaseException, workers: Iterable[int]) -> NoReturn:
        """Raise the exception that ended the sending of a command."""
        try:
            if isinstance(error, CannotSend):
                raise error.reason from None
            # Some workers may have received it: only new ones can begin together again.
            self._break(workers)
            self.interrupted = isinstance(error, KeyboardInterrupt)
            self._check_open(error)
            raise error
        finally:
            del error  # its traceback holds this frame, and frames with views of the memory

    def begin_call(self, call: str, op: Op, payloads: Mapping[int, Any]) -> None:
        """Send a call, which does not write rows."""
        state = self.state._replace(pending="call")
        self._begin(state, call, op, self.ring.current, self.ring.steps, payloads)

    def begin_reset(self, plan: ResetPlan, call: str) -> None:
        """Send a reset, after replacing workers that are gone or busy with a call that is late.

        A reset with a mask writes into the current slot: it is not a step, even if it chooses all
        rows. Any other, and the first one, begins again with the first slot.
        """
        rows = plan.rows.tolist()
        if self.recycling is not None:
            self.recycling.successors = {}
            self._recycle_in_reset(self.recycling, rows, call)
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
        slot, steps = (self.ring.current, self.ring.steps) if goes_on else (0, 0)
        for row in rows:
            options = plan.options[row] if plan.keep_options else None
            self.workers.note_start(row, plan.seeds[row], options)
        self._begin(State("reset", new=self.state.new), call, Op.RESET, slot, steps, payloads)

    def begin_step(self, call: str) -> None:
        """Send a step of all environments, into the next slot of the ring."""
        ring = self.ring
        if ring.begins_rollout:
            ring.begin_rollout(self._backend.buffers)
        if self.queue.ready:  # first observations, which were not received
            self.queue.ready, self.queue.fresh = {}, set()
        slot = ring.after[ring.current]
        if self.recycling is not None:
            due = self.recycling.due_in_step(range(len(self.finished)), self.finished)
            self._replace_planned(due)
        self._begin(_STEPPING, call, _STEP, slot, ring.steps + 1, self.everyone)

    def end_rollout(self) -> Rollout:
        """Return the steps of a complete rollout; the next step begins another."""
        self.check("step", "rollout_view")
        buffers, steps = self._backend.buffers, self.ring.rollout_steps
        infos = buffers.plan.infos
        rollout = Rollout(
            buffers.plan.observations.ring(buffers.arena, steps + 1),
            buffers.rewards[1 : steps + 1].copy(),
            buffers.terminations[1 : steps + 1].copy(),
            buffers.truncations[1 : steps + 1].copy(),
            {key: layout.ring(buffers.arena, steps + 1) for key, layout in infos.items()},
        )
        self.ring.begins_rollout = True
        return rollout

    def send_rows(
        self,
        rows: Sequence[int],
        call: str,
        starts: Starts,
        wanted: int | None = None,
        until: Deadline | None = None,
    ) -> None:
        """Send a step of some rows; replies contain only these rows, and come when they are ready.

        The step of a row in `starts` begins an episode, in an environment that is built again if it
        is broken. Workers report their share of the `wanted` rows together; None: the number of the
        last `recv`. `until` is the time limit, by default `step_timeout`.
        """
        if not rows:
            return  # otherwise there would be nothing to receive
        broken, wanted = self.broken, self._wanted if wanted is None else wanted
        share = max(1, wanted // len(self._backend.slices))
        if self.recycling is not None and starts:
            self._recycle_in_reset(self.recycling, rows, call)
        elif self.recycling is not None:
            self._replace_planned(self.recycling.due_in_step(rows, self.finished))
        payloads = {
            worker: (
                chosen,
                {row: starts[row] for row in chosen if row in starts} if starts else {},
                [row for row in chosen if row in broken] if broken else [],
                share,
            )
            for worker, chosen in self.workers.of_rows(rows).items()
        }
        for row, (seed, _) in starts.items():
            self.workers.note_start(row, seed, None)
        self.replaced.difference_update(starts)
        slot = self.ring.current
        self._keep_known(rows)
        if not self.state.pending:
            self.wait.begin_stream()
            self._late = set()
        self._call, self.interrupted = call, False
        try:
            self._backend.submit(_STEP_ROWS, slot, self.wait.stream, payloads)
            self.ring.is_mixed = True
            self.queue.send(rows, until or self.wait.row_deadline(), starts)
            self.workers.lost.difference_update(starts)
            for row in starts:
                # The worker builds it again, once: a reset may come before its reply.
                self.broken.pop(row, None)
            if self.state.closed:
                self._check_open()
            self.state = _STREAMING
            if self.clock is not None:
                self.clock.note(COMPUTING)
        except BaseException as error:
            self._fail_sending(error, payloads)

    def _keep_known(self, rows: Sequence[int]) -> None:
        """Copy the last observations to the other slot, in case a worker dies while it writes."""
        if self._settings.budget is not None:
            ring, at = self.ring, np.array(rows, dtype=np.intp)
            observations = self._backend.buffers.observations
            observations[ring.after[ring.current]].copy_rows(observations[ring.current], at)

    def _break(self, workers: Iterable[int]) -> None:
        """Note that the state of workers is unknown: a reset replaces them."""
        self.workers.gone.update(workers)
        self._move(State(new=self.state.new, broken=True))

    def _move(self, state: State) -> None:
        """Change the state, unless `close` was called meanwhile, which is final."""
        if not self.state.closed:
            self.state = state

    def _check_open(self, error: BaseException | None = None) -> None:
        """End a call during which a signal handler, another thread or a callback called `close`.

        This replaces an `error` that the call raised because memory and workers are gone.
        """
        if not self.state.closed or isinstance(error, ClosedEnvironmentError):
            return
        if error is None or isinstance(error, Exception):
            raise ClosedEnvironmentError(
                f"close() was called during {self._call}, which has no result: make a new "
                "vector env"
            ) from None

    def _find_unusable(self) -> set[int]:
        """Return the workers that are gone, or still busy with a call that is late."""
        late = self._late & (self.wait.busy(True) | self.wait.owing)
        return self.workers.gone | self.workers.deaths.keys() | late

    def _replace_unusable(self) -> None:
        """Before a reset, replace workers that are gone, or still busy with a call that is late."""
        workers, unusable = self.workers, self._find_unusable()
        if not unusable:
            return
        # After an interrupt from here on, the next reset repeats this.
        workers.gone |= unusable
        self.wait.owing = set()
        self._move(State(new=self.state.new, broken=True))
        for worker in sorted(unusable):
            workers.replace(worker)
            for row in self._backend.slices[worker]:
                self.broken.pop(row, None)

    # ------------------------------------------------------------------ the ends of commands

    @property
    def parts(self) -> list[Part]:
        """The infos in the replies to the last reset or step."""
        return [part for infos in self.results.values() for part in infos or ()]

    def finish(self, command: str, call: str, timeout: float | None, read: Callable[[int], T]) -> T:
        """Wait for the pending command, and return what `read` returns for the slot that it wrote.

        `read` may be called again after an interrupt, so it must not change any state.
        """
        if self.state.pending != command:
            self.check(f"{command}_wait", call)
        if self.clock is not None:
            self.clock.note(OUTSIDE)
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            self.wait.run(None, timeout, self._take_in)
            if self.wait.failures:
                self._raise_failure()
            if command == "reset":
                self._settle_reset()
        except BaseException as error:
            if self.state.pending in (command, ""):  # otherwise the call failed, during a stream
                self._end_early(error)
            raise
        ring, recycling, episodes = self.ring, self.recycling, None
        try:
            result = read(self._slot)
            state = self._after_call() if command == "call" else IDLE
            if recycling is not None and command == "step":
                episodes = recycling.with_ends(self.finished, range(len(self.finished)))
            if self.clock is not None:
                if self.state.new:
                    self.clock.begin()
                self.clock.note(COMPUTING)
            if self.state.closed:
                self._check_open()
        except BaseException as error:
            if isinstance(error, RecursionError) and command != "call":
                failure = self._find_endless(split(self.parts, range(len(self.finished))))
                if failure is not None:
                    self.wait.failures.append(failure)
                    self._raise_failure()
            self.suspend(error)
            raise
        # Plain assignments alone: an interrupt comes before all of them or after all of them.
        self.state, ring.current, ring.steps = state, self._slot, self._steps
        if recycling is not None and episodes is not None:
            recycling.successors, recycling.episodes = {}, episodes
        return result

    def _settle_reset(self) -> None:
        """Note that rows were reset: they are usable again, and can be received."""
        rows = [row for payload in self._payloads.values() for row in payload[0]]
        for row in rows:
            self.broken.pop(row, None)
        self.workers.lost.difference_update(rows)
        self.replaced.difference_update(rows)
        self.finished[rows] = False
        if self.masked_rows is None:
            self.ring.begins_rollout = self.ring.is_mixed = False
        self.queue.refill(snapshot(split(self.parts, rows)))

    def _after_call(self) -> State:
        """Return the state after a call."""
        return State("send" if self.queue.streams else "", new=self.state.new)

    def receive(
        self,
        ready: Ready,
        count: int,
        timeout: float | None,
        read: Callable[[list[int]], T],
        enough: Ready | None = None,
    ) -> T:
        """Wait until `ready()` returns `count` rows, and return what `read` returns for them.

        After `timeout`, the rows that `enough()` returns are received instead, unless it is None.
        If one of them failed, its exception is raised, once, and the others stay ready.
        """
        self._wanted = count
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            rows = self.wait.run(ready, timeout, self._take_in, enough)
            if self.wait.failures:
                self._raise_failure()
        except BaseException as error:
            self._end_early(error)
            raise
        if self.broken:
            failure = next((self.broken[row] for row in rows if row in self.broken), None)
            if failure is not None:
                self._raise_row(failure)
        try:
            result = read(rows)
            self.commit_rows(rows)
        except BaseException as error:
            if isinstance(error, RecursionError):
                failure = self._find_endless({row: self.queue.ready[row] for row in rows})
                if failure is not None:
                    self.broken[failure.env_ids[0]] = failure
                    self._raise_row(failure)
            self.suspend(error)
            raise
        return result

    def _raise_row(self, failure: Failure) -> NoReturn:
        """Raise the failure of rows, which are then received."""
        try:
            failure.throw()
        except Exception:
            self.commit_rows([row for row, other in self.broken.items() if other is failure])
            raise

    def commit_rows(self, rows: Iterable[int]) -> None:
        """Note that rows were received."""
        rows, recycling = list(rows), self.recycling
        ready, fresh = self.queue.without(rows)
        streams = self.queue.under_way or ready.keys() - fresh
        state = _STREAMING if streams else IDLE
        if recycling is not None:
            sound = [row for row in rows if row not in self.broken]
            episodes = recycling.with_ends(self.finished, sound)
            successors = {
                row: recycling.successors[row] for row in recycling.successors.keys() - rows
            }
        if self.clock is not None:
            self.clock.note(COMPUTING)
        if self.state.closed:
            self._check_open()
        # Plain assignments alone, as in `finish`.
        self.state, self.queue.ready, self.queue.fresh = state, ready, fresh
        if recycling is not None:
            recycling.successors, recycling.episodes = successors, episodes

    def suspend(self, error: BaseException) -> None:
        """Note that a call ended early: the command stays pending, unless a fault ended it."""
        if self.clock is not None:
            self.clock.note(COMPUTING)
        self._check_open(error)
        if not self.state.pending:
            return
        self._late |= self.wait.busy(self.state.pending == "send")
        self.interrupted = not isinstance(error, (StepTimeoutError, SlowEnvironmentWarning))
        if self.state.pending != "send":
            self.state = self.state._replace(overdue=True)

    def _end_early(self, error: BaseException) -> None:
        """Note that a wait ended early, and add to a KeyboardInterrupt what was awaited."""
        self.suspend(error)
        streams = self.state.pending == "send"
        busy = self.wait.busy(streams)
        # isinstance would read the exception's __class__, which may raise.
        if busy and issubclass(type(error), KeyboardInterrupt) and not self.state.closed:
            rows, _ = self.wait.busy_rows(streams)
            where, _ = self.workers.find_running(busy)
            error.add_note(waited(self.wait.verb, self.wait.since, rows, where))

    def interrupt(self, error: BaseException) -> None:
        """Note that a call was interrupted between its two halves: its command is pending."""
        if not isinstance(error, Exception):
            self.suspend(error)
        self._check_open(error)

    # ------------------------------------------------------------------ replies

    def _take_in(self, replies: Any) -> None:
        """Process the replies that came; a late reply is recognised by its number, and dropped.

        Each reply stays with the backend until it was processed.
        """
        if self.state.closed:
            self._check_open()
        wait, workers, recycling = self.wait, self.workers, self.recycling
        while replies:
            worker, op, number, payload = reply = replies[0]
            if op is not _DONE:
                self._receive(reply)
            elif number == wait.stream:  # the reset of a successor (SAME_STEP)
                self._take_part(worker, Written(self._backend.slices[worker], payload or []))
            elif number == wait.number and not (
                recycling is not None
                and wait.op is _STEP
                and recycling.holds_back(worker, self._slot, payload, workers.deaths)
            ):
                if payload or recycling is not None:
                    payload = self._complete(worker, payload)
                self.results[worker] = payload
                wait.owing.discard(worker)
            elif number in self._row_calls:
                self._end_row_call(number, payload)
            replies.popleft()
        if workers.deaths and recycling is not None:
            recycling.retire(workers.deaths)
        while workers.deaths:
            self._handle_death(min(workers.deaths))

    def _complete(self, worker: int, payload: Any) -> Any:
        """Return the payload of a reply, with what is known here, and note what it reports."""
        op = self.wait.op
        if self.recycling is not None and op is _STEP:
            payload = self.recycling.join_last(worker, payload)
        if self.workers.lost and payload and op is _STEP:
            self._show_known(self._slot, self.ring.current, payload)
        return payload

    def _receive(self, reply: Reply) -> None:
        """Process one reply that does not end the command."""
        worker, op, number, payload = reply
        if op is _PART:
            if number == self.wait.stream:
                self._take_part(worker, payload)
        elif op is Op.BOUND:
            self.workers.build_by.pop(worker, None)
            self.queue.send_again(self._backend.slices[worker], self.wait.row_deadline())
        elif op is Op.DIED:
            if worker not in self.workers.gone:
                self.workers.deaths[worker] = payload
        elif op is Op.FAILED and number in self._row_calls:
            self._end_row_call(number, payload)
        elif op is Op.FAILED:
            unbuilt = self.workers.build_by.pop(worker, None) is not None
            successors = () if self.recycling is None else self.recycling.successors
            if number == self.wait.stream and worker in successors and not unbuilt:
                failed = [(self._backend.slices[worker], payload)]
                self._take_part(worker, Written((), [], failed))
                return
            if unbuilt or number == self.wait.stream:
                # It is unknown which rows of the stream can still answer.
                self.workers.gone.add(worker)
            if unbuilt or number in (self.wait.number, self.wait.stream):
                self.wait.owing.discard(worker)
                # A call that failed has ended: late failures of other workers have no effect.
                if unbuilt or number == self.wait.stream or self.state.pending not in ("", "send"):
                    self.wait.failures.append(payload)

    def _take_part(self, worker: int, written: Written) -> None:
        """Process rows of a stream, which have answered or failed before others of their worker."""
        rows, infos, failures = written
        recycling, current = self.recycling, self.ring.current
        if recycling is not None and rows:
            if recycling.holds_back(worker, current, infos, self.workers.deaths):
                return
            infos = recycling.join_last(worker, infos)
        if self.workers.lost and infos:
            self._show_known(current, self.ring.after[current], infos)
        slow = self.wait.slow
        if any(slow.seen.values()):
            slow.note_answer(worker, rows)
        # A group in this process reports the environments' own objects. Splitting and copying empty
        # infos would take a sixth of the time of sending and receiving rows.
        self.queue.answer(snapshot(split(infos, rows)) if infos else {row: {} for row in rows})
        for failed, failure in failures:
            new = [row for row in failed if row in self.queue.under_way]
            self.broken.update(dict.fromkeys(new, failure))
            self.queue.answer({row: {} for row in new})

    def _show_known(self, slot: int, known: int, infos: Sequence[Part]) -> None:
        """Write the last known observations, for rows whose step reports a loss."""
        key = "worker_restarted"
        parts = map(as_columns, infos)
        restarted = {row for part in parts if key in part for row in part[key].rows}
        # An environment may itself use the key.
        rows = sorted(restarted & self.workers.lost)
        if not rows:
            return
        buffers, at = self._backend.buffers, np.array(rows, dtype=np.intp)
        shown = buffers.observations[slot] if buffers.finals is None else buffers.finals
        shown.copy_rows(buffers.observations[known], at)
        # An agent that was gone before its worker died had already ended.
        buffers.truncations[slot, at[self.gone[at]]] = False
        self.workers.lost.difference_update(rows)
        self.workers.lost_episodes[at] += 1

    # ------------------------------------------------------------------ faults

    def _handle_death(self, worker: int) -> None:
        """Restart a dead or late worker and repeat its commands, or note the failure."""
        workers, verb = self.workers, self.wait.verb
        fault = workers.judge(worker, verb)
        if fault is not None:
            for other in workers.give_up(workers.deaths[worker]):
                self.wait.owing.discard(other)
                lost = tuple(self._backend.slices[other])
                self.wait.failures.append(Failure(lost, verb, fault, "", other))
                del workers.deaths[other]
            return
        self._check_open()
        try:
            self._restart(worker, isinstance(workers.deaths[worker], Planned))
        except Exception:
            # The system refused a new process or its memory; a reset tries again.
            self._break([worker])
            raise
        workers.note_restart(worker)

    def _restart(self, worker: int, is_planned: bool) -> None:
        """Start a new worker, and send it the commands that its predecessor has not answered."""
        wait, recycling = self.wait, self.recycling
        under_way = [row for row in self._backend.slices[worker] if row in self.queue.under_way]
        steps = bool(under_way) or (worker in wait.owing and wait.op is _STEP)
        succeeds = recycling is not None and worker in recycling.successors and steps
        self.workers.restart(worker, is_planned or succeeds)
        if succeeds and self._settings.autoreset_mode is AutoresetMode.SAME_STEP:
            # Reward, flags and last observation of the step stay those of its predecessor.
            slot, number = (
                (self.ring.current, wait.stream) if under_way else (self._slot, wait.number)
            )
            options = self.workers.options[worker]
            payload = [worker], [None], [options], options is not None, ()
            self._backend.submit(Op.RESET, slot, number, {worker: payload})
            return
        if under_way and wait.stream >= 0 and not is_planned:  # otherwise a reset ends all of them
            # Episodes that had been sent a reset are lost too, and their rows report this.
            payloads: dict[int, Any] = {worker: (under_way, {}, [], 1)}
            self._backend.submit(_STEP_ROWS, self.ring.current, wait.stream, payloads)
        if worker in wait.owing:
            payloads = {worker: self._payloads[worker]}
            self._backend.submit(wait.op, self._slot, wait.number, payloads)

    # ------------------------------------------------------------------ a caller that never waits

    def poll(self) -> list[Failure]:
        """Process what has come; return the errors of workers that ended, which are not replaced.

        The rows that have answered are in `queue.ready`.
        """
        self._take_in(self._backend.collect(0.0))
        self.wait.give_up_building()
        failures, self.wait.failures = self.wait.failures, []
        return failures

    def send_call(self, row: int, op: Op, arguments: Any, until: Deadline) -> None:
        """Call one row, or build it again if it is broken; it is then ready, as after a step."""
        if not self.state.pending:
            self.wait.begin_stream()
        self._row_call_number = number = self._row_call_number + 1
        worker = self.workers.of[row]
        try:
            self._backend.submit(op, self.ring.current, number, {worker: arguments})
            self._row_calls[number] = row, op
            self.queue.send([row], until)
            self.state = _STREAMING
        except BaseException as error:
            self._fail_sending(error, [worker])

    def _end_row_call(self, number: int, payload: Any) -> None:
        """Process the reply to `send_call`."""
        row, op = self._row_calls[number]
        if isinstance(payload, Failure):
            payload.env_ids = (row,)  # that of a worker names all of its rows
        result = payload if isinstance(payload, Failure) else payload[row]
        if op is not Op.REBUILD:
            self.returned[row] = result
        elif result is None:
            self.broken.pop(row, None)
        else:
            self.broken[row] = result
        self.queue.answer({row: {}})
        del self._row_calls[number]

    def give_up(self, row: int, error: StepTimeoutError, until: Deadline = NEVER) -> bool:
        """Let a late row fail with an error, and get a new thread; False: it has no thread.

        It answers like any other row; `send_reset` or `REBUILD` then builds it again. A worker that
        does not answer `until` then cannot give it up, and must be ended.
        """
        if self._backend.buffers.busy is None:
            return False
        worker = self.workers.of[row]
        if row in self.queue.under_way:
            self.queue.under_way[row] = until
        self.broken[row] = failure = Failure((row,), "step", error, "", worker)
        self._backend.submit(Op.GIVE_UP, self.ring.current, 0, {worker: {row: failure}})
        return True

    def end_worker(self, worker: int, error: StepTimeoutError) -> None:
        """Kill a worker that has a late row; `poll` returns the error."""
        self.workers.deaths[worker] = error
        self._take_in(deque())

    def forget(self, worker: int) -> None:
        """Note that a worker is gone, and drop the commands of its rows."""
        rows = self._backend.slices[worker]
        self.workers.gone.add(worker)
        for row in rows:
            self.queue.under_way.pop(row, None)
            self.broken.pop(row, None)
            self.returned.pop(row, None)
        calls = self._row_calls.items()
        self._row_calls = {number: call for number, call in calls if call[0] not in rows}

    # ------------------------------------------------------------------ planned replacement

    def _recycle_in_reset(self, recycling: Recycling, rows: Sequence[int], call: str) -> None:
        """Replace the due workers all of whose rows will be reset."""
        playing = ~self.finished & (not self.state.new)
        due = recycling.due_in_reset(rows, call, playing)
        due = {worker: due[worker] for worker in due.keys() - self._find_unusable()}
        # If an interrupt comes, the reset may not have been sent to them.
        self.replaced.update(row for worker in due for row in self._backend.slices[worker])
        self._replace_planned(due)

    def _replace_planned(self, due: Mapping[int, Planned]) -> None:
        """Replace workers; after an interrupt, the next wait continues this."""
        self.workers.deaths.update(due)
        if self.workers.deaths:
            self._take_in(deque())

    def drain(self, ended: Sequence[int], playing: Collection[int]) -> set[int]:
        """Return the rows that must not begin an episode yet; the caller distributes episodes.

        A due worker is replaced when none of its rows plays. The caller calls this before each
        `send_reset`, with the rows that have ended an episode and those that play one.
        """
        recycling = self.recycling
        if recycling is None:
            return set()
        self._replace_planned(recycling.drain(ended, playing, ~self.finished))
        return {row for worker in recycling.draining for row in self._backend.slices[worker]}

    def _find_endless(self, infos: Mapping[int, Mapping[str, Any]]) -> Failure | None:
        """Find the first row whose info contains itself, and cannot be merged."""
        place = find_endless(infos)
        if place is None:
            return None
        row, key = place
        text = "{:envs}: info[{}] holds itself, or is nested too deeply: leave the key out"
        error = InvalidInfoError(Message(text, [row], repr(key)))
        return Failure((row,), self.wait.verb, error, "", self.workers.of[row])

    def _raise_failure(self) -> NoReturn:
        """Raise the failure of the lowest environment, and record which are broken."""
        failures = sorted(self.wait.failures, key=lambda failure: failure.env_ids[:1])
        if self.state.pending == "call" and not self.workers.gone:
            # An exception in a method breaks nothing, and late replies of others will be dropped.
            self._move(self._after_call())
        else:
            for failure in failures:
                self.broken.update(dict.fromkeys(failure.env_ids, failure))
            self._break(())
        # A later wait that sends no command must not find them again.
        self.wait.failures = []
        failures[0].throw()

    # ------------------------------------------------------------------ the end

    def close(self, seconds: float, terminate: bool) -> list[int]:
        """End every worker; return the environments that had to be killed.

        Exceptions of environments in closing are raised after everything is freed.
        """
        self.state = _CLOSED
        late: list[int] = []
        replies = self._backend.close(seconds, terminate)
        for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
            rows = self._backend.slices[worker]
            if op is Op.CLOSE:
                late.extend(rows if payload is None else payload)
            elif op is Op.DIED:
                if worker not in self.workers.gone:
                    advice, busy = "everything is freed", self._backend.running(worker) or [-1]
                    raise died(worker, rows, "close", payload, busy[0], advice)
            elif self.broken.keys().isdisjoint(payload.env_ids):
                # An error in closing a broken environment would hide the first error.
                payload.throw()
        return late
