"""The session: sends commands, waits for replies, and decides what errors leave behind.

A command begins (`begin_*`, `send_rows`), is waited for (`finish`, `receive`), and ends once its
result was read (`commit`, `commit_rows`); these alone change the state. Every worker that a command
went to owes one reply. Every wait is bounded, a late reply is never taken for another command's,
and the command of a dead worker is sent again to its successor.

An interrupt (Ctrl-C, or any exception from a signal handler) may come at any moment. A reply stays
with the backend until it was taken in, taking it in twice changes nothing, and the end of a call is
a few plain assignments, between which Python runs no signal handler. So a wait can be repeated and
gives the right answer.
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
    StepTimeoutError,
)
from vecspaces.log import log
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import Failure, Message, died, name_envs, waited
from vecspaces.vector.exchange.infos import Columns, Part, as_columns, find_endless, snapshot, split
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply, Written
from vecspaces.vector.group.members import Starts
from vecspaces.vector.session.arguments import ResetPlan, Settings
from vecspaces.vector.session.recycling import Planned, Recycling
from vecspaces.vector.session.ring import Rollout, SlotRing
from vecspaces.vector.session.row_queue import RowQueue
from vecspaces.vector.session.states import State
from vecspaces.vector.session.wait import Ready, Wait
from vecspaces.vector.session.workers import Workers

T = TypeVar("T")

_DONE, _STEP = Op.DONE, Op.STEP  # members of enumerations are found slowly
IDLE = State()
_STEPPING, _STREAMING, _CLOSED = State("step"), State("send"), State(closed=True)


class Session:
    """The state of a vector env, and the only thing that changes it.

    Attributes:
        state: What the vector env is doing.
        ring: The slots of observations.
        queue: The rows of `send` and `recv`.
        workers: Which workers can be used.
        results: By worker, the payload of its reply to the last command.
        broken: Rows that failed and must be built again, and what they failed with.
        replaced: Rows whose environment is another, or is being replaced, and was not reset yet.
        finished: The rows whose episode ended in their last step; shape `(num_envs,)`. In NEXT_STEP
            mode steps of all rows are not noted, unless actions are checked.
        gone: The rows of agents whose next action is not used; shape `(num_envs,)`.
        interrupted: Whether an interrupt ended the last wait.
        masked_rows: The rows of the last reset if it had a mask, and wrote into the current slot.
    """

    def __init__(self, backend: Backend, settings: Settings, units: Sequence[int]) -> None:
        self._backend = backend
        self._settings = settings
        self._replies = backend.replies
        plan = backend.buffers.plan
        self.state = State(new=True)
        self.ring = SlotRing(settings.buffers, plan.slots)
        self.queue = RowQueue()
        self.workers = Workers(backend, settings, units)
        self._recycling = self.workers.recycling
        self.results: dict[int, Any] = {}
        self.broken: dict[int, Failure] = {}
        self.replaced: set[int] = set()
        self.finished: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.gone: npt.NDArray[np.bool_] = np.zeros(plan.num_envs, dtype=np.bool_)
        self.interrupted = self._inherited = False
        self.masked_rows: list[int] | None = None
        # The last command: enough to repeat it for a worker that had to be replaced, the call that
        # the user made, and the slot and the steps of the rollout once it is done.
        self._call = "reset"
        self._payloads: Mapping[int, Any] = {}
        self._slot = self._steps = 0
        # The workers that owe a reply, of which the caller gave up waiting for some.
        self._wait = Wait(backend, settings, self.workers, self.queue)
        self._late: set[int] = set()
        # Workers that replaced others between two episodes, and reset in place of a step; and of
        # each the last info of its predecessor (SAME_STEP).
        self._successors: dict[int, Columns] = {}
        # How many rows the last `recv` waited for, as the next one probably will.
        self._wanted = 1

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
        if self.replaced and sends and not begins:
            new = [row for row in rows if row in self.replaced]
            if new:
                text = "{}: replace_envs, or a reset that was interrupted, built {:envs} anew: "
                text += "reset or send_reset first"
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

    def _note_replaced(self, worker: int, results: Mapping[int, Failure | None]) -> None:
        """Note which rows have other environments, and which failed and are built as before."""
        failures = {row: failure for row, failure in results.items() if failure is not None}
        env_fns = self._payloads[worker].items()
        built = {row: env_fn for row, env_fn in env_fns if row not in failures}
        self._backend.note_factories(worker, built)
        others = results.keys() - failures
        for row in others:
            self.broken.pop(row, None)
        self.broken.update(failures)
        self.replaced = (self.replaced | others) - failures.keys()
        # A first observation of a former environment cannot be received any more.
        self.queue.ready, self.queue.fresh = self.queue.without(results)
        if others:
            log.info("%s: replaced by replace_envs", name_envs(sorted(others)))

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
        self._wait.begin(op, payloads, state.new)
        self.results = {}
        self.interrupted = False
        if state.pending != "call":  # which may be made in a stream
            self._late = set()
        self._call, self._payloads = call, payloads
        self._slot, self._steps = slot, steps
        try:
            if self._successors and op is _STEP:
                for worker in self._successors:
                    self._submit_reset(worker, slot, self._wait.number)
                payloads = {one: None for one in payloads if one not in self._successors}
            self._backend.submit(op, slot, self._wait.number, payloads)
            if self.state.closed:
                self._check_open()
            if state.pending != "call":
                self._wait.stream = -1
            self.state = state
        except BaseException as error:
            self._wait.owing = set()
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
        if self._recycling is not None:
            self._recycle_before_reset(self._recycling, rows, call)
        goes_on = plan.is_masked and self.state == IDLE
        self.masked_rows = rows if goes_on else None
        self._replace_unusable()
        self._successors = {}
        payloads: dict[int, Any] = {}
        for worker, chosen in self.workers.of_rows(rows).items():
            payloads[worker] = (
                chosen,
                [self.workers.begin_fresh(row, plan.seeds[row])[0] for row in chosen],
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
        if self._recycling is not None:
            everyone = range(len(self.finished))
            self._successors = self._recycle_ended(self._recycling, everyone)
        self._begin(_STEPPING, call, _STEP, slot, ring.steps + 1, payloads)

    def begin_chunk(self, call: str, rows: Sequence[int], payloads: Mapping[int, Any]) -> None:
        """Send chunks of actions; their results overwrite the rows of the current slot."""
        ring, queue = self.ring, self.queue
        queue.ready, queue.fresh = queue.without(rows)
        ring.is_mixed = True
        self._keep_known(rows)
        self._begin(_STEPPING, call, Op.STEP_CHUNK, ring.current, ring.steps, payloads)

    @property
    def takes_chunk(self) -> bool:
        """Whether the last command was a chunk."""
        return self._wait.op is Op.STEP_CHUNK

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
        successors: dict[int, Columns] = {}
        if self._recycling is not None:
            if starts:
                self._recycle_before_reset(self._recycling, rows, call)
            else:
                successors = self._recycle_ended(self._recycling, rows)
            self._successors.update(successors)
        payloads = {
            worker: (
                chosen,
                {
                    row: self.workers.begin_fresh(row, *starts[row])
                    for row in chosen
                    if row in starts
                },
                [row for row in chosen if row in broken] if broken else [],
                share,
            )
            for worker, chosen in self.workers.of_rows(rows).items()
            if worker not in successors
        }
        for row, (seed, _) in starts.items():
            self.workers.note_start(row, seed, None)
        self.replaced.difference_update(starts)
        slot = self.ring.current
        self.ring.is_mixed = True
        self._keep_known(rows)
        if not self.state.pending:
            self._wait.begin_stream()
            self._late = set()
        self._call, self.interrupted = call, False
        try:
            self._backend.submit(Op.STEP_ROWS, slot, self._wait.stream, payloads)
            for worker in successors:
                self._submit_reset(worker, slot, self._wait.stream)
            self.queue.send(rows, self._wait.row_deadline())
            self.workers.note_reset(starts)
            for row in starts:
                # The worker builds it again, once: a reset may come before its reply.
                self.broken.pop(row, None)
            if self.state.closed:
                self._check_open()
            self.state = _STREAMING
        except BaseException as error:
            self._fail_sending(error, payloads)

    def _keep_known(self, rows: Sequence[int]) -> None:
        """Keep the last observations in the other slot, in case a worker dies while it writes."""
        if self._settings.budget is not None:
            ring, at = self.ring, np.array(rows, dtype=np.intp)
            observations = self._backend.buffers.observations
            observations[ring.after[ring.current]].copy_rows(observations[ring.current], at)

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

    def _find_unusable(self) -> set[int]:
        """Return the workers that are gone, or still busy with a call that is late."""
        late = self._late & (self._wait.busy(True) | self._wait.owing)
        return self.workers.gone | self.workers.deaths.keys() | late

    def _replace_unusable(self) -> None:
        """Before a reset, replace workers that are gone, or still busy with a call that is late."""
        workers, unusable = self.workers, self._find_unusable()
        if not unusable:
            return
        # After an interrupt from here on, the next reset begins this anew.
        workers.gone |= unusable
        self._wait.owing = set()
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
        if self.state.pending != command:
            self.check(f"{command}_wait", call)
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        try:
            self._wait.run(None, timeout, self._take_in)
            if self._wait.failures:
                self._raise_failure()
            if command == "reset":
                self._settle_reset()
        except BaseException as error:
            if self.state.pending in (command, ""):  # else the call failed, beside a stream
                self._end_early(error)
            raise
        try:
            result = read(self._slot)
            self.commit()
        except BaseException as error:
            self.suspend(error)
            raise
        return result

    def _settle_reset(self) -> None:
        """Note that rows were reset: they are in order again, and can be received."""
        rows = [row for payload in self._payloads.values() for row in payload[0]]
        for row in rows:
            self.broken.pop(row, None)
        self.workers.note_reset(rows)
        self.replaced.difference_update(rows)
        self.finished[rows] = False
        parts = [part for infos in self.results.values() for part in infos or ()]
        self.queue.refill(snapshot(split(parts, rows)))

    def commit(self) -> None:
        """End the command whose result was read."""
        state = self._after_call() if self.state.pending == "call" else IDLE
        ring, recycling, episodes = self.ring, self._recycling, None
        if recycling is not None and self.state.pending == "step":
            episodes = self._count_ends(recycling, range(len(self.finished)))
        if self.state.closed:
            self._check_open()
        # Plain assignments alone: an interrupt comes before all of them or after all of them.
        self.state, ring.current, ring.steps = state, self._slot, self._steps
        if recycling is not None and episodes is not None:
            self._successors, recycling.episodes = {}, episodes

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
            self._wait.run(ready, timeout, self._take_in)
            if self._wait.failures:
                self._raise_failure()
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
        rows, recycling, episodes = list(rows), self._recycling, None
        ready, fresh = self.queue.without(rows)
        streams = self.queue.under_way or ready.keys() - fresh
        state = _STREAMING if streams else IDLE
        if recycling is not None:
            episodes = self._count_ends(recycling, [row for row in rows if row not in self.broken])
            received = self.workers.of_rows(rows)
            rest = {one: last for one, last in self._successors.items() if one not in received}
        if self.state.closed:
            self._check_open()
        # As in `commit`.
        self.state, self.queue.ready, self.queue.fresh = state, ready, fresh
        if recycling is not None and episodes is not None:
            self._successors, recycling.episodes = rest, episodes

    def suspend(self, error: BaseException) -> None:
        """Note that a call ended early: what is pending stays so, unless a fault ended it."""
        self._check_open(error)
        if not self.state.pending:
            return
        self._late |= self._wait.busy(self.state.pending == "send")
        self.interrupted = not isinstance(error, StepTimeoutError)
        if self.state.pending != "send":
            self.state = self.state._replace(overdue=True)

    def _end_early(self, error: BaseException) -> None:
        """Note that a wait ended early, and let a Ctrl-C say what was waited for."""
        self.suspend(error)
        streams = self.state.pending == "send"
        busy = self._wait.busy(streams)
        # isinstance would read the exception's __class__, which may raise.
        if busy and issubclass(type(error), KeyboardInterrupt) and not self.state.closed:
            rows, _ = self._wait.busy_rows(streams)
            where, _ = self.workers.find_running(busy)
            error.add_note(waited(self._wait.verb, self._wait.since, rows, where))

    def interrupt(self, error: BaseException) -> None:
        """Note that a call was interrupted between its two halves: what it began is pending."""
        if not isinstance(error, Exception):
            self.suspend(error)
        self._check_open(error)

    # ------------------------------------------------------------------ replies

    def _take_in(self, replies: Any) -> None:
        """Take in what has come; a late reply is recognised by its number, and dropped.

        Each reply stays with the backend until it was taken in.
        """
        if self.state.closed:
            self._check_open()
        wait = self._wait
        while replies:
            worker, op, number, payload = reply = replies[0]
            if op is not _DONE:
                self._receive(reply)
            elif number == wait.stream:  # the reset of a successor
                self._take_part(worker, Written(self._backend.slices[worker], payload or []))
            elif number == wait.number and (
                self._recycling is None
                or wait.op is not _STEP
                or not self._holds_back(worker, self._slot, payload)
            ):
                if self._successors and wait.op is _STEP:
                    payload = self._join_last(worker, payload)
                if self.workers.lost and payload and wait.op in (_STEP, Op.STEP_CHUNK):
                    ring = self.ring
                    known = ring.current if wait.op is _STEP else ring.after[ring.current]
                    self._show_known(self._slot, known, payload)
                elif payload and wait.op is Op.REPLACE:
                    self._note_replaced(worker, payload)
                self.results[worker] = payload
                wait.owing.discard(worker)
            replies.popleft()
        while self.workers.deaths:
            self._handle_death(min(self.workers.deaths))

    def _receive(self, reply: Reply) -> None:
        """Take in one reply that does not end the command."""
        worker, op, number, payload = reply
        if op is Op.PART:
            if number == self._wait.stream:
                self._take_part(worker, payload)
        elif op is Op.BOUND:
            self.workers.build_by.pop(worker, None)
            self.queue.send_again(self._backend.slices[worker], self._wait.row_deadline())
        elif op is Op.DIED:
            if worker not in self.workers.gone:
                self.workers.deaths[worker] = payload
        elif op is Op.FAILED:
            unbuilt = self.workers.build_by.pop(worker, None) is not None
            if number == self._wait.stream and worker in self._successors and not unbuilt:
                failed = [(self._backend.slices[worker], payload)]
                self._take_part(worker, Written((), [], failed))
                return
            if unbuilt or number == self._wait.stream:
                # It is not known which rows of the stream can still answer.
                self.workers.gone.add(worker)
            if unbuilt or number in (self._wait.number, self._wait.stream):
                self._wait.owing.discard(worker)
                # A call that failed has ended: late failures of others concern nothing else.
                if unbuilt or number == self._wait.stream or self.state.pending not in ("", "send"):
                    self._wait.failures.append(payload)

    def _take_part(self, worker: int, written: Written) -> None:
        """Take in rows of a stream, which have answered or failed before others of their worker."""
        rows, infos, failures = written
        if self._recycling is not None and rows:
            if self._holds_back(worker, self.ring.current, infos):
                return
            infos = self._join_last(worker, infos)
        if self.workers.lost and infos:
            slot = self.ring.current
            self._show_known(slot, self.ring.after[slot], infos)
        self._wait.slow.seen.pop(worker, None)
        # A group in this process reports the environments' own objects. To split and to copy
        # nothing takes a sixth of the time in which rows without infos are sent and received.
        self.queue.answer(snapshot(split(infos, rows)) if infos else {row: {} for row in rows})
        for failed, failure in failures:
            new = [row for row in failed if row in self.queue.under_way]
            self.broken.update(dict.fromkeys(new, failure))
            self.queue.answer({row: {} for row in new})

    def _show_known(self, slot: int, known: int, infos: Sequence[Part]) -> None:
        """Show the last observations that were known, for rows whose step reports a loss."""
        key = "worker_restarted"
        parts = map(as_columns, infos)
        restarted = {row for part in parts if key in part for row in part[key].rows}
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
        workers, verb = self.workers, self._wait.verb
        workers.retire_planned()
        fault = workers.judge(worker, verb)
        if fault is not None:
            for other in workers.give_up(workers.deaths[worker]):
                self._wait.owing.discard(other)
                lost = tuple(self._backend.slices[other])
                self._wait.failures.append(Failure(lost, verb, fault, "", other))
                del workers.deaths[other]
            return
        self._check_open()
        try:
            is_planned = isinstance(workers.deaths[worker], Planned)
            workers.restart(worker, is_planned or worker in self._successors)
            self._repeat(worker, is_planned)
        except Exception:
            # The system refused a new process or its memory: a reset tries again.
            self._break([worker])
            raise
        workers.note_restart(worker)

    def _repeat(self, worker: int, is_planned: bool) -> None:
        """Send a new worker what the one before it has not answered."""
        under_way = [row for row in self._backend.slices[worker] if row in self.queue.under_way]
        if worker in self._successors:
            if under_way and self._wait.stream >= 0:
                self._submit_reset(worker, self.ring.current, self._wait.stream)
            elif worker in self._wait.owing and self._wait.op is _STEP:
                self._submit_reset(worker, self._slot, self._wait.number)
                return
        elif under_way and self._wait.stream >= 0 and not is_planned:  # else a reset ends them all
            # Episodes that were to begin are lost too: their rows report it.
            payloads: dict[int, Any] = {worker: (under_way, {}, [], 1)}
            self._backend.submit(Op.STEP_ROWS, self.ring.current, self._wait.stream, payloads)
        if worker in self._wait.owing:
            payloads = {worker: self._payloads[worker]}
            self._backend.submit(self._wait.op, self._slot, self._wait.number, payloads)

    # ------------------------------------------------------------------ planned replacement

    def _recycle_before_reset(self, recycling: Recycling, rows: Sequence[int], call: str) -> None:
        """Replace the workers that are due, of which all rows are to be reset."""
        recycling.check_reset(rows, call)
        if recycling.hands_out and len(rows) < len(self.finished):
            return  # `drain` did
        if not (self.state.new or recycling.hands_out):  # a reset ends episodes too
            recycling.episodes = recycling.with_ends(~self.finished, rows)
        unusable = self._find_unusable()
        workers = [worker for worker in self.workers.of_rows(rows) if worker not in unusable]
        due = recycling.due(workers)
        # If the reset is interrupted: it may not have been sent to them.
        self.replaced.update(row for worker in due for row in self._backend.slices[worker])
        self._replace_planned(due)

    def _recycle_ended(self, recycling: Recycling, rows: Sequence[int]) -> dict[int, Columns]:
        """Replace workers due whose episode ended (NEXT_STEP); return those that reset instead."""
        if self._settings.autoreset_mode is not AutoresetMode.NEXT_STEP:
            return {}
        slices, workers = self._backend.slices, list(self.workers.of_rows(rows))
        ended = [worker for worker in workers if self.finished[slices[worker].start]]
        self._replace_planned(recycling.due(ended))
        return {worker: {} for worker in workers if slices[worker].start in self.workers.fresh}

    def _replace_planned(self, due: Mapping[int, Planned]) -> None:
        """Replace workers; after an interrupt, the next wait goes on."""
        self.workers.deaths.update(due)
        if self.workers.deaths:
            self._take_in(deque())

    def _submit_reset(self, worker: int, slot: int, number: int) -> None:
        """Let the worker that replaced another one begin an episode, where that one would have."""
        row, buffers = self._backend.slices[worker].start, self._backend.buffers
        if self._settings.autoreset_mode is AutoresetMode.NEXT_STEP:
            buffers.rewards[slot, row] = 0.0
            buffers.terminations[slot, row] = buffers.truncations[slot, row] = False
        seed, options = self.workers.fresh.get(row), self.workers.options[row]
        payload = [row], [seed], [options], options is not None, ()
        self._backend.submit(Op.RESET, slot, number, {worker: payload})

    def _holds_back(self, worker: int, slot: int, infos: Sequence[Part] | None) -> bool:
        """In SAME_STEP mode, let a worker that is due be replaced before its row has answered."""
        workers, buffers = self.workers, self._backend.buffers
        if self._settings.autoreset_mode is not AutoresetMode.SAME_STEP:
            return False
        if not isinstance(workers.deaths.get(worker), Planned):  # else it is taken in once more
            if self._recycling is None or worker in self._successors:
                return False
            at = slot, self._backend.slices[worker].start
            if not (buffers.terminations[at] or buffers.truncations[at]):
                return False
            due = self._recycling.due([worker], more=1)
            if not due:
                return False
            workers.deaths.update(due)
        parts = map(as_columns, infos or ())
        last = [columns["final_info"] for columns in parts if "final_info" in columns]
        self._successors[worker] = {"final_info": last[0]} if last else {}
        return True

    def _join_last(self, worker: int, infos: Any) -> Any:
        """Add the last info of an episode to the infos of the reset that another worker made."""
        last = self._successors.get(worker)
        return [{**as_columns(part), **last} for part in infos or [{}]] if last else infos

    def _count_ends(self, recycling: Recycling, rows: Sequence[int]) -> Any:
        """Return the episodes of the workers once some rows have answered."""
        reset = [self._backend.slices[worker].start for worker in self._successors]
        self.workers.note_reset(set(reset).intersection(rows))
        return recycling.with_ends(self.finished, [row for row in rows if row not in reset])

    def drain(self, ended: Sequence[int], playing: Collection[int]) -> set[int]:
        """Return the rows that must not begin an episode yet, for a caller that hands them out.

        A worker that is due is replaced once none of its rows plays. The caller asks before each
        `send_reset`, and names the rows that have ended an episode, and those that play one.
        """
        recycling = self._recycling
        if recycling is None:
            return set()
        recycling.hands_out = True
        recycling.episodes = recycling.with_ends(~self.finished, ended)  # cut by the caller
        slices, draining = self._backend.slices, recycling.draining
        draining |= recycling.due(self.workers.of_rows(ended).keys() - draining)
        idle = {
            worker: why
            for worker, why in draining.items()
            if not any(row in playing for row in slices[worker])
        }
        self._replace_planned(idle)
        return {row for worker in draining for row in slices[worker]}

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
        failure = Failure((row,), self._wait.verb, error, "", worker)
        if streams:
            self.broken[row] = failure
            return True
        self._wait.failures.append(failure)
        self._raise_failure()

    def _raise_failure(self) -> NoReturn:
        """Raise the failure of the lowest environment, and record which are broken."""
        failures = sorted(self._wait.failures, key=lambda failure: failure.env_ids[:1])
        if self._wait.op is Op.REPLACE:  # what they answer later would not be noted
            self.workers.gone |= self._wait.owing
        if self.state.pending == "call" and not self.workers.gone:
            # A method that raises breaks nothing, and late replies of others will be dropped.
            self._move(self._after_call())
        else:
            for failure in failures:
                self.broken.update(dict.fromkeys(failure.env_ids, failure))
            self._break(())
        # A wait for no rows, which sends no command, must not find them again.
        self._wait.failures = []
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
