"""RemoteBackend, of processes and Ray: opens all or none, replaces one, reads replies, closes."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.backend import Backend, Planner
from vecspaces.vector.backends.bounded_wait import wait_once
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.backends.worker_setup import WorkerSetup, assign_rows
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, died, waited
from vecspaces.vector.exchange.infos import Columns, from_plain
from vecspaces.vector.exchange.messages import Op, Reply, Written
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.group.building import GroupDescription
from vecspaces.vector.utils import CloudpickleWrapper


class RemoteBackend(Backend):
    """What processes and actors have in common; a subclass is the transport to them."""

    def __init__(
        self,
        setups: Sequence[WorkerSetup],
        slow_warning: float | None,
        env_fns: list[Callable[[], Any]],
    ) -> None:
        self._setups = list(setups)
        self._env_fns = env_fns  # the caller's, which `note_factories` changes
        self._slow_warning = slow_warning
        self._descriptions: list[GroupDescription] = []
        # Pickled once: what every worker gets, those that replace others too.
        self._packed_plan = b""
        # The number of the last command that writes rows: what older ones wrote is dropped.
        self._seq = 0
        self._has_workers = False
        self.replies = deque()

    # ------------------------------------------------------------------ the transport

    @abstractmethod
    def _start(self, worker: int) -> None:
        """Start a worker, which builds its environments."""

    def _note_threads(self) -> None:
        """Note, once all workers are started, what may make them hang."""

    @abstractmethod
    def _make_buffers(self, plan: BufferPlan) -> Buffers:
        """Make the caller's rows."""

    @abstractmethod
    def _bind(self, worker: int, lost: Any) -> None:
        """Send a worker its rows; `lost` holds the seeds of episodes that began in another one."""

    @abstractmethod
    def _not_built(self, late: Sequence[int]) -> StepTimeoutError:
        """Make the error for workers that were not built within `start_timeout`."""

    @abstractmethod
    def _ask_to_close(self, deadline: Deadline, unanswered: set[int]) -> None:
        """Ask the workers that listen to close their environments; add them to `unanswered`."""

    @abstractmethod
    def _end_all(self, unanswered: Collection[int], terminate: bool) -> None:
        """End every worker, and free what it holds; can be repeated."""

    def note_factories(self, worker: int, env_fns: Mapping[int, Callable[[], Any]]) -> None:
        """Restart a worker with other factories from now on, given by the first rows of theirs."""
        setup, counts = self._setups[worker], self._descriptions[worker].counts
        own = setup.env_fns()
        for number, row in enumerate(accumulate(counts[:-1], initial=self.slices[worker].start)):
            if row in env_fns:
                own[number] = env_fns[row]
                if len(own) == setup.count:  # else it is the one of an actor with processes
                    self._env_fns[setup.first + number] = env_fns[row]
        make: Callable[[], list[Callable[[], Any]]] = partial(list, own)
        self._setups[worker] = replace(setup, env_fns=CloudpickleWrapper(make))

    # ------------------------------------------------------------------ starting

    def open(self, plan: Planner, timeout: float) -> None:
        """Start all workers at once, receive their spaces, and bind their rows."""
        self._has_workers = True
        try:
            for worker in range(len(self._setups)):
                self._start(worker)
            self._note_threads()
            deadline = Deadline(timeout)
            self._descriptions = self._await_all(Op.BUILT, deadline)
            self.buffers = self._make_buffers(plan(self._descriptions))
            self.buffers.progress[:] = -1
            self.buffers.positions.clear()
            self.slices = assign_rows(self._descriptions)
            for worker in range(len(self._setups)):
                self._bind(worker, None)
            self._await_all(Op.BOUND, deadline)
        except BaseException:
            self.abandon()
            raise

    def _await_all(self, wanted: Op, deadline: Deadline) -> list[Any]:
        """Wait until every worker has built its environments, or bound its rows."""
        came: dict[int, Any] = {}
        late = set(range(len(self._setups)))
        slow, began = SlowWatch(self._slow_warning, self), time.monotonic()

        def give_up() -> None:
            if late:
                raise self._not_built(sorted(late))

        def take_in(replies: deque[Reply]) -> None:
            for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
                if op is Op.FAILED:
                    payload.throw()
                elif op is Op.DIED:
                    raise payload.error or self._died_in_build(worker, payload)
                elif op is wanted:
                    came[worker] = payload
                    late.discard(worker)
            replies.clear()

        try:
            while late:
                bounds = [(deadline, give_up)]
                wait_once(self, slow, bounds, take_in, lambda: (late, 0, "building"))
        except KeyboardInterrupt as error:
            if late:
                ids = self._factories(sorted(late))
                error.add_note(waited("building", began, ids, self.find(min(late))[0]))
            raise
        return [came[worker] for worker in range(len(self._setups))]

    def _take(self, timeout: float | None) -> list[Reply]:
        """Take what comes, where no session does."""
        replies = list(self.collect(timeout))
        self.replies.clear()
        return replies

    def _died_in_build(self, worker: int, death: Death) -> WorkerDiedError:
        """Make the error for a worker that died before its environments were built."""
        factories = self._setups[worker].factories
        return died(worker, factories, "build", death, -1, "the error above says more")

    def _replace_all(self, lost: Mapping[int, Any]) -> None:
        """Start workers in place of dead or late ones; can be repeated if it fails."""
        for worker, seeds in lost.items():
            self.end(worker)
            self._setups[worker] = self._setups[worker].respawned()
            self._start(worker)
            self._bind(worker, seeds)

    # ------------------------------------------------------------------ replies

    def _ids(self, worker: int) -> Sequence[int]:
        """Return the environments of a worker; until they are described, its factories."""
        return self.slices[worker] if self._descriptions else self._setups[worker].factories

    def _factories(self, workers: Sequence[int]) -> list[int]:
        return [number for worker in workers for number in self._setups[worker].factories]

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, if there are rows yet."""
        return super().locate(worker) if self._descriptions else Place(self._ids(worker))

    def _understand(
        self, worker: int, asked: Op, op: Op, slot: int, seq: int, load: Callable[[], Any]
    ) -> Reply:
        """Unpickle the reply to the command `asked`, and take in what came with it."""
        try:
            payload = load()
        except (Exception, SystemExit):  # an info or a result that cannot be unpickled
            failure = Failure.unreadable(self._ids(worker), asked.verb, worker)
            return Reply(worker, Op.FAILED, seq, failure)
        if isinstance(payload, Failure):
            payload.env_ids = payload.env_ids or tuple(self._ids(worker))
            payload.worker = worker
        elif op is Op.BUILT:
            change = payload.change_since((self._descriptions or {worker: payload})[worker])
            if change is not None:
                failure = Failure.of(RuntimeError(change), self.slices[worker], "build", worker)
                return Reply(worker, Op.FAILED, seq, failure)
        elif op is Op.PART:
            rows, failures, *written = payload
            for _, failure in failures:
                failure.worker = worker
            payload = Written(rows, self._take_in(slot, seq, *written), failures)
        elif op is Op.DONE and isinstance(payload, tuple):
            payload = self._take_in(slot, seq, *payload)
        return Reply(worker, op, seq, payload)

    def _take_in(
        self, slot: int, seq: int, infos: Sequence[Any], spilled: Any, exported: Any
    ) -> list[Columns]:
        """Write what was sent beside shared memory into the rows, and return the infos."""
        if seq == self._seq:
            if spilled is not None:
                self.buffers.put_spilled(slot, spilled)
            if exported is not None:
                self.buffers.load(slot, exported)
        return list(map(from_plain, infos))

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Ask, wait, end; always ends, even if it is interrupted."""
        wrong: list[Reply] = []
        unanswered: set[int] = set()
        try:
            if not terminate:
                deadline = Deadline(timeout)
                self._ask_to_close(deadline, unanswered)
                while unanswered and not deadline.passed:
                    for reply in self._take(deadline.left):
                        self._note_closed(reply, unanswered, wrong)
        finally:
            self._end_all(unanswered, terminate)
            self._has_workers = False
        wrong.extend(Reply(worker, Op.CLOSE, 0, None) for worker in unanswered)
        return wrong

    def _note_closed(self, reply: Reply, unanswered: set[int], wrong: list[Reply]) -> None:
        """Take in a reply while workers close; one that has replied ends, as it should."""
        worker, op, seq, payload = reply
        is_answer = op is Op.DIED or (op is Op.DONE and seq == 0)
        if worker in unanswered and is_answer:
            if op is Op.DIED:
                wrong.append(reply)
            elif payload is not None:
                wrong.append(reply._replace(op=Op.FAILED))
            unanswered.discard(worker)

    def abandon(self) -> None:
        """End every worker without asking: for what could not be completed."""
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
