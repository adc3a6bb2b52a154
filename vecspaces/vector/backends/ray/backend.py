"""The backend of a Ray cluster: each actor has a group, and sends its rows as a few large arrays.

::

    caller                                     actor (one of many, on any node)
    RayBackend ── execute.remote(...) ───────▶ GroupActor ── Group
        │       ◀── a few arrays per command ──    │
     Buffers                                    Buffers (memory is not shared)
"""

from __future__ import annotations

import contextlib
import math
import pickle
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.ray.actor import GroupActor
from vecspaces.vector.backends.ray.cluster import Connection, Reservation
from vecspaces.vector.backends.remote import RemoteBackend
from vecspaces.vector.backends.worker_setup import WorkerSetup
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers, index_of
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Failure, Message, died_within
from vecspaces.vector.exchange.messages import STEPS, CannotSend, Op, Reply, Starts
from vecspaces.vector.exchange.stats import COMPUTING, WAITING

# The pause before the next attempt to start an actor.
_PAUSE_SECONDS = 0.05


class _Request(NamedTuple):
    """A call of an actor's method that has not returned yet."""

    worker: int
    op: Op | None  # the command; None: the call that returns the actor's node
    method: str
    arguments: tuple[Any, ...] = ()
    seq: int = 0  # the number of the command
    slot: int = 0  # the slot of the ring that it writes


class RayBackend(RemoteBackend):
    """Runs slices of the environments in actors; its `close` also closes the connection."""

    def __init__(
        self,
        setups: Sequence[WorkerSetup],
        connection: Connection,
        resources: Mapping[str, float],
        slow_warning: float | None = None,
    ) -> None:
        super().__init__(setups, slow_warning)
        self._connection = connection
        self._ray = connection.ray
        self._resources = resources
        self._reservation: Reservation | None = None
        self._nodes = [""] * len(self._setups)
        self._building: set[int] = set()
        self._requests: dict[Any, _Request] = {}
        # Ray's error for workers whose last actor never started, and the time of the next attempt.
        self._startup_errors: dict[int, Exception] = {}
        self._pause_until = 0.0
        self.actors: dict[int, Any] = {}

    # ------------------------------------------------------------------ starting

    def _prepare(self) -> None:
        """Reserve the places of all actors; after `close` there are none."""
        self._reservation = Reservation(self._connection, len(self._setups), self._resources)

    def _start(self, worker: int) -> None:
        """Start an actor that builds its environments."""
        assert self._reservation is not None
        self.actors[worker] = self._reservation.start(GroupActor, worker)
        self._building.add(worker)
        self._nodes[worker] = ""
        setup = self._setups[worker]
        self._request(_Request(worker, None, "here"))
        build = cloudpickle.dumps(setup), setup.factories
        self._request(_Request(worker, Op.BUILD, "build", build))

    def _make_buffers(self, plan: BufferPlan) -> Buffers:
        self._packed_plan = cloudpickle.dumps(plan)
        return Buffers(plan, dumps=cloudpickle.dumps)

    def _bind(self, worker: int, restart: Starts | None) -> None:
        self._building.add(worker)
        bind = self._packed_plan, self.slices[worker].start, restart
        self._request(_Request(worker, Op.BIND, "bind", bind))

    def _request(self, request: _Request) -> None:
        """Call a method of an actor, which executes one call after the other."""
        method = getattr(self.actors[request.worker], request.method)
        self._requests[method.remote(*request.arguments)] = request

    def _start_again(self, worker: int, error: Exception) -> None:
        """Replace an actor that never started, and repeat its requests."""
        assert self._reservation is not None
        self._startup_errors[worker] = error
        self._pause_until = time.monotonic() + _PAUSE_SECONDS
        requests = [request for request in self._requests.values() if request.worker == worker]
        self._forget(worker)
        self._building.add(worker)
        self.actors[worker] = self._reservation.start(GroupActor, worker)
        for request in requests:
            self._request(request)

    def late_build_error(self, worker: int, limit: float) -> StepTimeoutError:
        """Stop starting the worker's actor, and return the error, which says what is missing."""
        self._forget(worker)
        return self._not_built([worker], limit)

    def _not_built(self, late: Sequence[int], limit: float) -> StepTimeoutError:
        assert self._reservation is not None
        ids = [row for worker in late for row in self._ids(worker)]
        error = StepTimeoutError(
            Message(
                "building {:envs} did not end within start_timeout ({} s): {} of {} actors are not "
                "ready. {}. Where there is too little, use fewer workers, ask for less in "
                "resources_per_worker, or add nodes; else allow more time, or find out what the "
                "env_fn waits for",
                ids,
                f"{limit:g}",
                len(late),
                len(self._setups),
                self._reservation.shortage(),
            ),
            ids,
        )
        errors = [
            self._startup_errors[late_worker]
            for late_worker in late
            if late_worker in self._startup_errors
        ]
        error.__cause__ = next(iter(errors), None)
        return error

    # ------------------------------------------------------------------ commands

    def issue(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to actors."""
        requests = []
        for worker, payload in payloads.items():
            actions = None
            if op in STEPS:
                rows = self.slices[worker]
                actions = self.buffers.actions.export(index_of(rows))
            # Pickled here, so that a failure to unpickle names its environment, and because Ray
            # takes three times as long for arguments other than bytes and numbers.
            try:
                packed = cloudpickle.dumps((payload, actions))
            except Exception as error:
                raise CannotSend(op, payload, cloudpickle.dumps, error) from error
            command = int(op), slot, packed
            requests.append(_Request(worker, op, "execute", command, seq, slot))
        self._touched = payloads
        for request in requests:
            self._request(request)
        self._touched = ()

    def end(self, worker: int) -> None:
        """End an actor, and drop its requests."""
        actor, reservation = self.actors.get(worker), self._reservation
        if actor is not None and reservation is not None:  # another thread may have closed all
            reservation.end(actor)
        self._forget(worker)

    def _forget(self, worker: int) -> None:
        """Drop the requests of an actor."""
        self._building.discard(worker)
        requests = self._requests.items()
        self._requests = {
            answer: request for answer, request in requests if request.worker != worker
        }

    def wait(self, timeout: float | None) -> list[Any]:
        """Wait for replies and deaths; return what to `read`."""
        deadline, clock = Deadline(timeout), self.clock
        if not self._requests:
            return []
        if clock is not None:
            clock.note(COMPUTING)
        pause = self._pause_until - time.monotonic()
        if pause > 0:
            time.sleep(min(pause, math.inf if deadline.left is None else deadline.left))
        ready, rest = self._ray.wait(list(self._requests), num_returns=1, timeout=deadline.left)
        if ready and rest:
            ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        if clock is not None:
            clock.note(WAITING)
        return list(ready)

    def read(self, came: list[Any]) -> list[Reply]:
        """Return the replies that came."""
        replies = [self._reply(answer) for answer in came]
        for answer in came:
            self._requests.pop(answer, None)
        return [reply for reply in replies if reply is not None]

    def _reply(self, answer: Any) -> Reply | None:
        """Return the reply of a request that has ended, if the engine needs it."""
        request = self._requests.get(answer)
        if request is None:
            return None  # its actor was found dead a moment ago
        worker, asked, _, _, seq, slot = request
        errors = self._ray.exceptions
        try:
            op, packed, more = self._ray.get(answer)
        except (
            errors.RayTaskError,
            errors.RaySystemError,
            errors.OutOfDiskError,
            errors.ObjectStoreFullError,
        ) as error:  # the actor lives
            verb = (asked or Op.BUILD).verb
            failure = Failure.of(error, self._ids(worker), verb, worker)
            return Reply(worker, Op.DONE if asked is Op.CLOSE else Op.FAILED, seq, failure)
        except errors.RayError as error:
            return self._lose(worker, error)
        if asked is None:
            self._nodes[worker] = more
            return None
        if asked in (Op.BUILD, Op.BIND):
            self._building.discard(worker)
            self._startup_errors.pop(worker, None)
        elif more is not None and seq in self.open_tickets:
            self.buffers.load(slot, more)
        load = (lambda: None) if packed is None else (lambda: pickle.loads(packed))
        reply = self._understand(worker, asked, op, slot, seq, load)
        if reply.op is Op.PART:
            for _, failure in reply.payload.failures:
                failed = self._fail(asked, reply._replace(op=Op.FAILED, payload=failure))
                if failed.op is Op.DIED:
                    return failed
        return self._fail(asked, reply) if op is Op.FAILED else reply

    def _lose(self, worker: int, error: Exception) -> Reply | None:
        """Return the death of an actor; start it again if it never started."""
        came = self._nodes[worker] or getattr(error, "actor_init_failed", False)
        if not came and worker in self._building:
            # Ray may take seconds to detect the death of a node, and offers places on it until
            # then.
            self._start_again(worker, error)
            return None
        self._forget(worker)
        return Reply(worker, Op.DIED, 0, Death(None, self._nodes[worker] or None, error))

    def _fail(self, asked: Op, reply: Reply) -> Reply:
        """Name the node in the error for a process that died in an actor, which may end too."""
        worker, failure = reply.worker, reply.payload
        if asked in (Op.BUILD, Op.BIND):
            self._forget(worker)  # it has no environments
        error = failure.exception
        # An environment may raise an error of this type itself; its message is then no `Message`.
        if isinstance(error, WorkerDiedError) and isinstance(error.args[0], Message):
            failure.exception = died_within(worker, self._nodes[worker], error)
            if worker not in self._building:
                # The actor lives, but its vector env cannot be used any more.
                self._forget(worker)
                death = Death(None, self._nodes[worker], error=failure.exception)
                return Reply(worker, Op.DIED, 0, death)
        return reply

    # ------------------------------------------------------------------ the end

    def _close_envs(
        self, workers: Iterable[int], deadline: Deadline, unanswered: set[int], wrong: list[Reply]
    ) -> None:
        if self._connection.open:
            building = set() if self._opening else self._building
            unanswered.update(self.actors.keys() & set(workers) - building)
        for worker in unanswered:
            self._request(_Request(worker, Op.CLOSE, "close"))
        asked = [answer for answer, request in self._requests.items() if request.op is Op.CLOSE]
        while asked and not deadline.passed:
            ready, asked = self._ray.wait(asked, num_returns=1, timeout=deadline.left)
            for worker, op, _, payload in self.read(ready):
                unanswered.discard(worker)
                if op is Op.DIED or payload is not None:
                    kind = op if op is Op.DIED else Op.FAILED
                    wrong.append(Reply(worker, kind, 0, payload))

    def _end_all(self, unanswered: Collection[int], terminate: bool) -> None:
        if self._connection.open and self._reservation is not None:
            for actor in self.actors.values():
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._reservation.end(actor)
            self._reservation.close()
        self.actors = {}
        self._requests = {}
        self._reservation = None
        self._connection.close()
