"""The backend of a Ray cluster: each actor holds a group, and sends its rows as a few large arrays.

::

    caller                                     actor (one of many, on any node)
    RayBackend ── execute.remote(...) ───────▶ GroupActor ── EnvGroup
        │       ◀── a few arrays per command ──    │
     Buffers                                    Buffers (its own; memory is not shared)
"""

from __future__ import annotations

import contextlib
import math
import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.backend import Backend, Planner
from vecspaces.vector.backends.ray.actor import GroupActor
from vecspaces.vector.backends.ray.cluster import Connection, Reservation
from vecspaces.vector.backends.worker_setup import WorkerSetup, assign_rows, space_mismatch
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, Message, died, died_within
from vecspaces.vector.exchange.infos import from_plain
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply
from vecspaces.vector.group.building import GroupDescription

# How long to wait after an actor did not come, before another is tried.
_PAUSE_SECONDS = 0.05


class _Request(NamedTuple):
    """A call of an actor's method that has not returned yet.

    Attributes:
        worker: The index of the worker.
        op: The command; None: the call that returns where the actor runs.
        seq: The number of the command; 0 where there is none.
        slot: The slot of the ring that it writes.
        method: The method of the actor that was called, and its arguments.
    """

    worker: int
    op: Op | None
    seq: int
    slot: int
    method: str
    arguments: tuple[Any, ...]

    @property
    def verb(self) -> str:
        """What environments are doing meanwhile, as errors name it."""
        return (self.op or Op.BUILD).verb


class RayBackend(Backend):
    """Runs slices of the environments in actors; closes the connection with itself."""

    def __init__(
        self,
        setups: Sequence[WorkerSetup],
        connection: Connection,
        resources: Mapping[str, float],
        placement: str,
        start_timeout: float,
    ) -> None:
        self._start_timeout = start_timeout
        self._connection = connection
        self._ray = connection.ray
        self._setups = list(setups)
        self._resources = resources
        self._placement = placement
        self._reservation: Reservation | None = None
        self._nodes = [""] * len(self._setups)
        self._build_by: dict[int, float] = {}
        self._requests: dict[Any, _Request] = {}
        # The error of Ray for workers whose last actor never started; and when to try again.
        self._startup_errors: dict[int, Exception] = {}
        self._pause_until = 0.0
        self._newest = 0
        self._descriptions: list[GroupDescription] = []
        # As of the backend of processes.
        self._packed_plan = b""
        self.actors: list[Any] = []
        self.replies = deque()
        self._found: dict[Any, Reply | None] = {}

    # ------------------------------------------------------------------ starting

    def open(self, plan: Planner, timeout: float) -> None:
        """Start all actors at once, receive their spaces, and give them their rows."""
        try:
            self._reservation = Reservation(
                self._connection, len(self._setups), self._resources, self._placement
            )
            self.actors = [None] * len(self._setups)
            for index in range(len(self._setups)):
                self._launch(index)
            self._build_by = dict.fromkeys(self._build_by, time.monotonic() + timeout)
            self._descriptions = self._await_all(Op.BUILT)
            laid_out = plan(self._descriptions)
            self._packed_plan = cloudpickle.dumps(laid_out)
            self.buffers = Buffers(laid_out, dumps=cloudpickle.dumps)
            # Which environment an actor is busy with cannot be seen from here.
            self.buffers.progress[:] = -1
            self.slices = assign_rows(self._descriptions)
            for index in range(len(self.actors)):
                self._bind(index, None)
            self._await_all(Op.BOUND)
        except BaseException:
            self.close(0.0, terminate=True)
            raise

    def _launch(self, index: int) -> None:
        """Start an actor, and let it build its environments."""
        assert self._reservation is not None
        setup = self._setups[index]
        self.actors[index] = self._reservation.start(GroupActor, index)
        self._build_by[index] = time.monotonic() + self._start_timeout
        self._nodes[index] = ""
        self._send(_Request(index, None, 0, 0, "here", ()))
        packed = cloudpickle.dumps(setup)
        self._send(_Request(index, Op.BUILD, 0, 0, "build", (packed, setup.factories)))

    def _bind(self, index: int, lost: Any) -> None:
        self._build_by.setdefault(index, time.monotonic() + self._start_timeout)
        arguments = (self._packed_plan, self.slices[index].start, lost)
        self._send(_Request(index, Op.BIND, 0, 0, "bind", arguments))

    def _send(self, request: _Request) -> None:
        """Call a method of an actor, which executes one call after the other."""
        method = getattr(self.actors[request.worker], request.method)
        self._requests[method.remote(*request.arguments)] = request

    def _start_again(self, worker: int, error: Exception) -> None:
        """Start another actor instead of one that never started, and repeat its requests."""
        assert self._reservation is not None
        self._startup_errors[worker] = error
        self._pause_until = time.monotonic() + _PAUSE_SECONDS
        requests = [one for one in self._requests.values() if one.worker == worker]
        build_by = self._build_by[worker]
        self._forget(worker)
        self._build_by[worker] = build_by
        if build_by <= time.monotonic():
            return  # late, as the next look at the clock will find
        self.actors[worker] = self._reservation.start(GroupActor, worker)
        for request in requests:
            self._send(request)

    def _await_all(self, wanted: Op) -> list[Any]:
        """Wait until every actor has built its environments, or bound its rows."""
        came: dict[int, Any] = {}
        while len(came) < len(self.actors):
            replies = list(self.collect(max(0.0, min(self._build_by.values()) - time.monotonic())))
            self.replies.clear()
            for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
                if op is wanted:
                    came[worker] = payload
                elif op is Op.DIED:
                    rows = self._setups[worker].factories
                    raise died(worker, rows, "build", payload, -1, "the error above says more")
                else:
                    payload.throw()
        return [came[index] for index in range(len(self.actors))]

    def _give_up_building(self) -> None:
        """Report actors that are late; the cluster may have no room for them."""
        now = time.monotonic()
        late = sorted(worker for worker, by in self._build_by.items() if by <= now)
        if not late:
            return
        assert self._reservation is not None
        for worker in late:
            self._forget(worker)
        ids = [row for worker in late for row in self._rows(worker)]
        error = StepTimeoutError(
            Message(
                "{:envs} were not built within start_timeout ({} s): {} of {} actors are not "
                "ready. {}. Where there is too little, use fewer workers, ask for less in "
                "resources_per_worker, or add nodes; else allow more time, or find out what the "
                "env_fn waits for",
                ids,
                f"{self._start_timeout:g}",
                len(late),
                len(self.actors),
                self._reservation.shortage(),
            ),
            ids,
        )
        error.__cause__ = next(
            (self._startup_errors[worker] for worker in late if worker in self._startup_errors),
            None,
        )
        failure = Failure(tuple(ids), "build", error, "")
        self.replies.extend(Reply(worker, Op.FAILED, 0, failure) for worker in late)

    def _rows(self, worker: int) -> range:
        """Return the environments of an actor; while they are built, its factories."""
        return self.slices[worker] if self._descriptions else self._setups[worker].factories

    # ------------------------------------------------------------------ commands

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to actors."""
        if op is Op.BUILD:
            for worker, lost in payloads.items():
                self._replace(worker, lost)
            return
        self._newest = seq
        requests = []
        for worker, payload in payloads.items():
            actions = None
            if op in (Op.STEP, Op.STEP_ROWS):
                rows = self.slices[worker]
                actions = self.buffers.actions.export(rows.start, rows.stop)
            # Pickled here, so that what cannot be unpickled is a failure with a name; and Ray
            # would take three times as long for arguments other than bytes and numbers.
            try:
                packed = cloudpickle.dumps((payload, actions))
            except Exception as error:
                raise CannotSend(error) from None
            requests.append(_Request(worker, op, seq, slot, "execute", (int(op), slot, packed)))
        for request in requests:
            self._send(request)

    def _replace(self, worker: int, lost: Any) -> None:
        """Start a new actor instead of one that is dead, or too slow."""
        self.end(worker)
        self._setups[worker] = self._setups[worker].respawned()
        self._launch(worker)
        self._bind(worker, lost)

    def end(self, worker: int) -> None:
        """End an actor, and drop its requests."""
        assert self._reservation is not None
        self._reservation.end(self.actors[worker])
        self._forget(worker)

    def _forget(self, worker: int) -> None:
        """Drop the requests of an actor."""
        self._build_by.pop(worker, None)
        self._requests = {
            answer: request
            for answer, request in self._requests.items()
            if request.worker != worker
        }

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Wait for replies and deaths."""
        deadline = Deadline(timeout)
        if self._found:
            self._settle()
        while self._requests and not self.replies:
            pause = self._pause_until - time.monotonic()
            if pause > 0:
                time.sleep(min(pause, math.inf if deadline.left is None else deadline.left))
            ready, rest = self._ray.wait(list(self._requests), num_returns=1, timeout=deadline.left)
            if not ready:
                break
            if rest:
                ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
            # As one assignment: an interrupt before it repeats everything, after it nothing.
            self._found = {answer: self._understand(answer) for answer in ready}
            self._settle()
        if not self.replies:
            self._give_up_building()
        return self.replies

    def _settle(self) -> None:
        """Hand over what `collect` found; can be repeated."""
        for answer in self._found:
            self._requests.pop(answer, None)
        self.replies.clear()
        self.replies.extend(reply for reply in self._found.values() if reply is not None)
        self._found = {}

    def _understand(self, answer: Any) -> Reply | None:
        """Return the reply that a request ended with, if the session needs it."""
        request = self._requests.get(answer)
        if request is None:
            return None  # its actor was found dead a moment ago
        worker, seq = request.worker, request.seq
        errors = self._ray.exceptions
        try:
            found = self._ray.get(answer)
        except (errors.RayTaskError, errors.RaySystemError) as error:
            failure = Failure.of(error, self._rows(worker), request.verb, worker)
            return Reply(worker, Op.FAILED, seq, failure)
        except errors.RayError as error:
            return self._lose(worker, error)
        return self._take_in(request, *found)

    def _take_in(self, request: _Request, op: Op, packed: bytes | None, more: Any) -> Reply | None:
        """Unpickle a reply, and load what came with it."""
        worker, asked, seq, slot, *_ = request
        rows = self._rows(worker)
        try:
            payload: Any = None if packed is None else pickle.loads(packed)
        except Exception:
            return Reply(worker, Op.FAILED, seq, Failure.unreadable(rows, request.verb, worker))
        if asked is None:
            self._nodes[worker] = more
        elif asked in (Op.BUILD, Op.BIND):
            self._build_by.pop(worker, None)
            self._startup_errors.pop(worker, None)
        elif more is not None and seq == self._newest:
            self.buffers.load(slot, more)
        if op is Op.FAILED:
            return self._locate(request, payload)
        if op is Op.PART:
            payload = payload[0], list(map(from_plain, payload[1]))
        elif asked in (Op.STEP, Op.RESET) and payload:
            payload = list(map(from_plain, payload))
        if op is Op.BUILT and self._descriptions:
            change = payload.change_since(self._descriptions[worker])
            if change is not None:
                return Reply(worker, Op.FAILED, seq, space_mismatch(change, rows, worker))
        return None if asked is None else Reply(worker, op, seq, payload)

    def _lose(self, worker: int, error: Exception) -> Reply | None:
        """Return the death of an actor; start it again if it never started."""
        came = self._nodes[worker] or getattr(error, "actor_init_failed", False)
        if not came and worker in self._build_by:
            # Ray may take seconds to find a node dead, and offers places on it until then.
            self._start_again(worker, error)
            return None
        self._forget(worker)
        return Reply(worker, Op.DIED, 0, Death(None, self._nodes[worker] or None, error))

    def _locate(self, request: _Request, failure: Failure) -> Reply:
        """Add the worker and its node to a failure."""
        worker = request.worker
        if request.op in (Op.BUILD, Op.BIND):
            self._forget(worker)  # nothing can be asked of environments that are not there
        error = failure.exception
        # An environment may raise an error of this type itself; its message is then no `Message`.
        if isinstance(error, WorkerDiedError) and isinstance(error.args[0], Message):
            found = died_within(worker, self._nodes[worker], error)
            if worker not in self._build_by:
                # The actor lives, but its vector env is of no more use.
                self._forget(worker)
                return Reply(worker, Op.DIED, 0, Death(None, self._nodes[worker], error=found))
            failure.exception = found
        failure.worker = worker
        return Reply(worker, Op.FAILED, request.seq, failure)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Ask every actor to close its environments, then end it; always ends."""
        wrong: list[Reply] = []
        if self._connection.open:
            if not terminate:
                wrong = self._close_environments(timeout)
            if self._reservation is not None:
                for actor in filter(None, self.actors):
                    with contextlib.suppress(self._ray.exceptions.RayError):
                        self._reservation.end(actor)
                self._reservation.close()
        self.actors = []
        self._requests = {}
        self._reservation = None
        self._connection.close()
        return wrong

    def _close_environments(self, timeout: float) -> list[Reply]:
        """Close environments; return what went wrong."""
        asked = {
            actor.close.remote(): index
            for index, actor in enumerate(self.actors)
            if index not in self._build_by
        }
        if not asked:
            return []
        done, late = self._ray.wait(list(asked), num_returns=len(asked), timeout=timeout)
        for answer in done:
            self._requests[answer] = _Request(asked[answer], Op.CLOSE, 0, 0, "close", ())
        replies = [self._understand(answer) for answer in done]
        wrong = [reply for reply in replies if reply is not None and reply.op is not Op.DONE]
        wrong.extend(Reply(asked[answer], Op.CLOSE, 0, None) for answer in late)
        return sorted(wrong, key=lambda reply: reply.worker)
