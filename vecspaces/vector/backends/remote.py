"""RemoteBackend, for processes, threads and Ray: opens, replaces and closes workers, reads."""

from __future__ import annotations

import math
import pickle
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.backend import Backend, Planner
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.backends.worker_setup import INIT_FN, WorkerSetup, assign_rows
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, Message, died, waited
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Op, Reply, Starts, make_reply, make_written
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.exchange.tables import Form
from vecspaces.vector.group.building import GroupDescription

# How long environments may take to close after the constructor failed.
_CLOSE_SECONDS, _CLOSE_SOON_SECONDS = 4.0, 0.5
_BUILT, _DONE, _PART, _STEP_ROWS = Op.BUILT, Op.DONE, Op.PART, Op.STEP_ROWS


class RemoteBackend(Backend):
    """The base of processes, threads and actors; a subclass is the transport to them."""

    def __init__(self, setups: Sequence[WorkerSetup], slow_warning: float | None) -> None:
        self._setups = list(setups)
        self._slow_warning = slow_warning
        self._descriptions: list[GroupDescription] = []
        # Pickled once, for every worker, also for those that replace others.
        self._packed_plan = b""
        self._has_workers = False
        # Whether workers that build now read the close command next.
        self._opening = False
        self._start_timeout = math.inf
        # The workers that a command is being sent to.
        self._touched: Iterable[int] = ()

    @property
    def unknown(self) -> set[int]:
        """The workers that may have received a command when an interrupt came."""
        return set(self._touched)

    # ------------------------------------------------------------------ the transport

    def _prepare(self) -> None:
        """Open the descriptors that all workers get at their start."""

    @abstractmethod
    def _start(self, worker: int) -> None:
        """Start a worker, which builds its environments."""

    def _note_threads(self) -> None:
        """Warn, after all workers are started, of threads that may make them hang."""

    @abstractmethod
    def _make_buffers(self, plan: BufferPlan) -> Buffers:
        """Make the caller's rows."""

    @abstractmethod
    def _bind(self, worker: int, restart: Starts | None) -> None:
        """Send a worker its rows, and their `restart` if it replaces another worker."""

    @abstractmethod
    def _close_envs(
        self, workers: Iterable[int], deadline: Deadline, unanswered: set[int], wrong: list[Reply]
    ) -> None:
        """Ask workers that listen to close their environments, and wait for them.

        `unanswered` always has the workers that have not answered; errors are added to `wrong`.
        """

    @abstractmethod
    def _end_all(self, unanswered: Collection[int], terminate: bool) -> None:
        """End every worker, and free what it holds; can be repeated."""

    # ------------------------------------------------------------------ starting

    def open(self, plan: Planner, timeout: float) -> None:
        """Start all workers at once, receive their spaces, and bind their rows."""
        self._has_workers, self._opening, self._start_timeout = True, True, timeout
        try:
            self._prepare()
            for worker in range(len(self._setups)):
                self._start(worker)
            self._note_threads()
            deadline = Deadline(timeout)
            self._descriptions = self._await_all(Op.BUILT, deadline, timeout)
            self.slices = assign_rows(self._descriptions)
            self.buffers = self._make_buffers(plan(self._descriptions))
            self.buffers.progress[:] = -1
            self.buffers.positions.clear()
            for worker in range(len(self._setups)):
                self._bind(worker, None)
            self._await_all(Op.BOUND, deadline, timeout)
        except BaseException as error:
            # After a time limit or an interrupt, workers that still build are not awaited.
            self._opening = not isinstance(error, (StepTimeoutError, KeyboardInterrupt))
            try:
                self.close(_CLOSE_SECONDS if self._opening else _CLOSE_SOON_SECONDS)
            finally:
                self.abandon()
            raise
        self._opening = False

    def _await_all(self, wanted: Op, deadline: Deadline, limit: float) -> list[Any]:
        """Wait until every worker has built its environments, or bound its rows."""
        payloads: dict[int, Any] = {}
        late = set(range(len(self._setups)))
        slow, began = SlowWatch(self._slow_warning, self), time.monotonic()
        try:
            while late:
                came = self.wait(slow.shorten(deadline.left))
                if not came:
                    slow.look(late, lambda _: 0, "building")
                replies = self.read(came) if came else []
                for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
                    if op is Op.FAILED:
                        payload.throw()
                    elif op is Op.DIED:
                        raise payload.error or self._died_in_build(worker, payload)
                    elif op is wanted:
                        payloads[worker] = payload
                        late.discard(worker)
                if late and deadline.passed:
                    raise self._not_built(sorted(late), limit)
        except KeyboardInterrupt as error:
            if late:
                ids = self._factories(sorted(late))
                error.add_note(waited("building", began, ids, self.find(min(late))[0]))
            raise
        return [payloads[worker] for worker in range(len(self._setups))]

    def _not_built(self, late: Sequence[int], limit: float) -> StepTimeoutError:
        """Make the error for workers that were not built within `limit` seconds."""
        ids = self._factories(late)
        where, stack = self.find(late[0])
        return StepTimeoutError(
            Message(
                "building {:envs} did not end within start_timeout: "
                "allow more time, or find out what {} waits for{}",
                ids,
                self.locate(late[0]).function,
                where,
            ),
            ids,
            stack=stack,
        )

    def _died_in_build(self, worker: int, death: Death) -> WorkerDiedError:
        """Make the error for a worker that died before its environments were built."""
        factories = self._setups[worker].factories
        return died(worker, factories, "build", death, -1, "the error above says more")

    def start(self, worker: int, restart: Starts | None) -> None:
        """Start a worker in place of another; can be repeated if it fails."""
        self.end(worker)
        if not self._has_workers:  # another thread, or a signal handler, has closed all
            return
        self._setups[worker] = self._setups[worker].respawned()
        self._start(worker)
        self._bind(worker, restart)

    # ------------------------------------------------------------------ replies

    def _ids(self, worker: int) -> Sequence[int]:
        """Return the environments of a worker; until they are described, its factories."""
        return self.slices[worker] if self._descriptions else self._setups[worker].factories

    def _factories(self, workers: Sequence[int]) -> list[int]:
        return [number for worker in workers for number in self._setups[worker].factories]

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, if there are rows yet."""
        return super().locate(worker) if self._descriptions else Place(self._ids(worker))

    def _locate_building(self, worker: int, number: int) -> Place:
        """Return the environment that a worker builds, by the number of its factory, or -1."""
        if number == INIT_FN:
            return Place(self._ids(worker), "in worker_init_fn", function="worker_init_fn")
        if number < 0:
            return Place(self._ids(worker))
        ids = range(number, number + 1)
        if self._descriptions:  # a vector env has several numbers
            counts = self._descriptions[worker].counts
            place = number - self._setups[worker].factories.start
            low = self.slices[worker].start + sum(counts[:place])
            ids = range(low, low + counts[place])
        return Place(ids, "being built")

    def _understand(
        self, worker: int, asked: Op, op: Op, slot: int, seq: int, load: Callable[[], Any]
    ) -> Reply:
        """Unpickle the reply to the command `asked`, and store the rows that came with it."""
        try:
            payload = load()
        except (Exception, SystemExit):  # an info or a result that cannot be unpickled
            failure = Failure.unreadable(self._ids(worker), asked.verb, worker)
            return Reply(worker, Op.FAILED, seq, failure)
        if isinstance(payload, Failure):
            payload.env_ids = payload.env_ids or tuple(self._ids(worker))
            payload.worker = worker
        elif op is _BUILT:
            changed = self._changed(worker, payload)
            if changed is not None:
                return Reply(worker, Op.FAILED, seq, changed)
        elif op is _PART or (op is _DONE and asked is _STEP_ROWS):
            rows, failures, packed, *outside = payload
            infos: list[Any] = []
            try:
                infos = pickle.loads(packed) if packed else []
                if infos.__class__ is tuple:
                    infos = [self.buffers.cells.table(rows, Form(*infos))]
            except (Exception, SystemExit):
                failures = [*failures, (rows, Failure.unreadable(rows, "step", worker))]
                rows = []
            for _, failure in failures:
                failure.worker = worker
            payload = make_written(
                (rows, self._store_outside(slot, seq, infos, *outside), failures)
            )
        elif op is _DONE and isinstance(payload, tuple):
            payload = self._store_outside(slot, seq, *payload)
        return make_reply((worker, op, seq, payload))

    def _changed(self, worker: int, description: GroupDescription) -> Failure | None:
        """Return the failure of a worker whose environments differ from those that it replaces."""
        if not self._descriptions:
            return None
        change = description.change_since(self._descriptions[worker])
        if change is None:
            return None
        return Failure.of(RuntimeError(change), self.slices[worker], "build", worker)

    def _store_outside(
        self, slot: int, seq: int, infos: Sequence[Any], spilled: Any, exported: Any
    ) -> list[Part]:
        """Write values that were not sent by shared memory into the rows, and return the infos."""
        if seq in self.open_tickets:
            if spilled is not None:
                self.buffers.put_spilled(slot, spilled)
            if exported is not None:
                self.buffers.load(slot, exported)
        return list(infos)

    # ------------------------------------------------------------------ the end

    def retire(self, workers: Iterable[int], timeout: float) -> list[Reply]:
        """Let workers close their environments and end; return errors, as `close` does."""
        unanswered, wrong = set[int](), list[Reply]()
        self._close_envs(workers, Deadline(timeout), unanswered, wrong)
        return wrong + [Reply(worker, Op.CLOSE, 0, None) for worker in sorted(unanswered)]

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Let all workers close their environments, and end them, also after an interrupt."""
        unanswered, wrong = set[int](), list[Reply]()
        try:
            if not terminate:
                everyone = range(len(self._setups))
                self._close_envs(everyone, Deadline(timeout), unanswered, wrong)
        finally:
            self._end_all(unanswered, terminate)
            self._has_workers = False
        return wrong + [Reply(worker, Op.CLOSE, 0, None) for worker in unanswered]

    def abandon(self) -> None:
        """End every worker without a close command."""
        self.close(0.0, terminate=True)

    def drop(self, kind: str) -> None:
        """End the workers of a vector env that is collected and was not closed."""
        if self._has_workers:
            # First: a warning may be turned into an error, whose traceback keeps the backend.
            self.close(1.0)
            self.abandon()
            warnings.warn(
                f"{kind} was dropped without close(): use `with` or call close()",
                ResourceWarning,
                stacklevel=2,
            )
