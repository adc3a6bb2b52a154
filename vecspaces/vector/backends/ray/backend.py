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
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.vector.backends.backend import Planner
from vecspaces.vector.backends.ray.actor import GroupActor
from vecspaces.vector.backends.ray.cluster import Connection, Room
from vecspaces.vector.backends.worker_setup import WorkerSetup, assign_rows, space_mismatch
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import (
    Death,
    EnvIds,
    Failure,
    Message,
    died,
    died_within,
)
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply
from vecspaces.vector.group.members import GroupDescription

# How long to wait after an actor did not come, before another is tried.
_PAUSE_SECONDS = 0.05


class _Question(NamedTuple):
    """What an answer on its way will be an answer to.

    Attributes:
        worker: Who was asked.
        op: For what; None: for a sign of life.
        seq: The number of the command; 0 for what no command asked for.
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


class RayBackend:
    """Runs slices of the environments in actors.

    Args:
        setups: What each actor builds.
        connection: The way to the cluster; closed with the backend.
        resources: What an actor needs, as `choose_resources` gives it.
        placement: `"spread"` over the nodes, or `"pack"`.
        start_timeout: The longest wait for an actor to be placed and its environments to be built,
            in seconds.
    """

    slices: list[range]
    buffers: Buffers
    replies: deque[Reply]

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
        self._room: Room | None = None
        self._nodes = [""] * len(self._setups)
        self._build_by: dict[int, float] = {}
        self._questions: dict[Any, _Question] = {}
        # Of workers whose last actor never came, what Ray said of it; and when to ask on.
        self._stillborn: dict[int, Exception] = {}
        self._pause_until = 0.0
        self._newest = 0
        self._descriptions: list[GroupDescription] = []
        self._plan: BufferPlan | None = None
        self.actors: list[Any] = []
        self.replies = deque()
        self._found: dict[Any, Reply | None] = {}

    # ------------------------------------------------------------------ birth

    def open(self, plan: Planner, timeout: float) -> None:
        """Start all actors at once, learn their spaces, and give them their rows."""
        try:
            self._room = Room(self._connection, len(self._setups), self._resources, self._placement)
            self.actors = [None] * len(self._setups)
            for index in range(len(self._setups)):
                self._launch(index)
            self._build_by = dict.fromkeys(self._build_by, time.monotonic() + timeout)
            self._await_built()
            self._plan = plan(self._descriptions)
            self.buffers = Buffers(self._plan)
            # Nobody can see from here which environment an actor is busy with.
            self.buffers.progress[:] = -1
            self.slices = assign_rows(self._descriptions)
            for index in range(len(self.actors)):
                self._bind(index, None)
        except BaseException:
            self.close(0.0, terminate=True)
            raise

    def _launch(self, index: int) -> None:
        """Start an actor, and let it build its environments."""
        assert self._room is not None
        setup = self._setups[index]
        self.actors[index] = self._room.start(GroupActor, index)
        self._build_by[index] = time.monotonic() + self._start_timeout
        self._nodes[index] = ""
        self._ask(_Question(index, None, 0, 0, "here", ()))
        packed = cloudpickle.dumps(setup)
        self._ask(_Question(index, Op.BUILD, 0, 0, "build", (packed, setup.factories)))

    def _bind(self, index: int, lost: Any) -> None:
        arguments = (self._plan, self.slices[index].start, lost)
        self._ask(_Question(index, Op.BIND, 0, 0, "bind", arguments))

    def _ask(self, question: _Question) -> None:
        """Call a method of an actor, which does one thing after the other."""
        method = getattr(self.actors[question.worker], question.method)
        self._questions[method.remote(*question.arguments)] = question

    def _start_again(self, worker: int, error: Exception) -> None:
        """Put another actor in the place of one that never began, and ask it the same."""
        assert self._room is not None
        self._stillborn[worker] = error
        self._pause_until = time.monotonic() + _PAUSE_SECONDS
        questions = [one for one in self._questions.values() if one.worker == worker]
        build_by = self._build_by[worker]
        self._forget(worker)
        self._build_by[worker] = build_by
        if build_by <= time.monotonic():
            return  # late, as the next look at the clock will find
        self.actors[worker] = self._room.start(GroupActor, worker)
        for question in questions:
            self._ask(question)

    def _await_built(self) -> None:
        """Wait until every actor has built its environments."""
        described: dict[int, GroupDescription] = {}
        while len(described) < len(self.actors):
            replies = list(self.collect(max(0.0, min(self._build_by.values()) - time.monotonic())))
            self.replies.clear()
            for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
                if op is Op.BUILT:
                    described[worker] = payload
                elif op is Op.DIED:
                    rows = self._setups[worker].factories
                    raise died(worker, rows, "build", payload, -1, "the error above says more")
                else:
                    payload.throw()
        self._descriptions = [described[index] for index in range(len(self.actors))]

    def _give_up_building(self) -> None:
        """Report actors that are late; the cluster may have no room for them."""
        now = time.monotonic()
        late = sorted(worker for worker, by in self._build_by.items() if by <= now)
        if not late:
            return
        assert self._room is not None
        for worker in late:
            self._forget(worker)
        ids = [row for worker in late for row in self._rows(worker)]
        error = StepTimeoutError(
            Message(
                "{} were not built within start_timeout ({} s): {} of {} actors are not ready. {}. "
                "Where there is too little, use fewer workers, ask for less in "
                "resources_per_worker, or add nodes; else allow more time, or find out what the "
                "env_fn waits for",
                EnvIds(ids),
                f"{self._start_timeout:g}",
                len(late),
                len(self.actors),
                self._room.shortage(),
            ),
            ids,
        )
        error.__cause__ = next(
            (self._stillborn[worker] for worker in late if worker in self._stillborn), None
        )
        failure = Failure(tuple(ids), "build", error, "")
        self.replies.extend(Reply(worker, Op.FAILED, 0, failure) for worker in late)

    def _rows(self, worker: int) -> range:
        """The environments of an actor, as far as their numbers are known."""
        return self.slices[worker] if self._descriptions else self._setups[worker].factories

    # ------------------------------------------------------------------ commands

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Ask actors for something."""
        if op is Op.BUILD:
            for worker, lost in payloads.items():
                self._replace(worker, lost)
            return
        self._newest = seq
        questions = []
        for worker, payload in payloads.items():
            actions = None
            if op in (Op.STEP, Op.STEP_ROWS):
                rows = self.slices[worker]
                actions = self.buffers.actions.export(rows.start, rows.stop)
            # By our own hand, so that what cannot be unpickled is a failure with a name; and Ray
            # would take three times as long for arguments that are no bytes and numbers.
            try:
                packed = cloudpickle.dumps((payload, actions))
            except Exception as error:
                raise CannotSend(error) from None
            questions.append(_Question(worker, op, seq, slot, "execute", (int(op), slot, packed)))
        for question in questions:
            self._ask(question)

    def _replace(self, worker: int, lost: Any) -> None:
        """Put a new actor in the place of one that is dead, or too slow."""
        assert self._room is not None
        self._room.end(self.actors[worker])
        self._forget(worker)
        self._setups[worker] = self._setups[worker].respawned()
        self._launch(worker)
        self._bind(worker, lost)

    def _forget(self, worker: int) -> None:
        """Wait no more for the answers of an actor."""
        self._build_by.pop(worker, None)
        self._questions = {
            answer: question
            for answer, question in self._questions.items()
            if question.worker != worker
        }

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Wait for answers and deaths."""
        deadline = Deadline(timeout)
        if self._found:
            self._settle()
        while self._questions and not self.replies:
            pause = self._pause_until - time.monotonic()
            if pause > 0:
                time.sleep(min(pause, math.inf if deadline.left is None else deadline.left))
            ready, rest = self._ray.wait(
                list(self._questions), num_returns=1, timeout=deadline.left
            )
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
            self._questions.pop(answer, None)
        self.replies.clear()
        self.replies.extend(reply for reply in self._found.values() if reply is not None)
        self._found = {}

    def _understand(self, answer: Any) -> Reply | None:
        """Take in an answer and what came with it."""
        question = self._questions.get(answer)
        if question is None:
            return None  # its actor was found dead a moment ago
        worker, seq = question.worker, question.seq
        errors = self._ray.exceptions
        try:
            found = self._ray.get(answer)
        except (errors.RayTaskError, errors.RaySystemError) as error:
            failure = Failure.of(error, self._rows(worker), question.verb, worker)
            return Reply(worker, Op.FAILED, seq, failure)
        except errors.RayError as error:
            return self._lose(worker, error)
        return self._take_in(question, *found)

    def _take_in(
        self, question: _Question, op: Op, packed: bytes | None, more: Any
    ) -> Reply | None:
        """Read an answer."""
        worker, asked, seq, slot, *_ = question
        rows = self._rows(worker)
        try:
            payload: Any = None if packed is None else pickle.loads(packed)
        except Exception:
            return Reply(worker, Op.FAILED, seq, Failure.unreadable(rows, question.verb, worker))
        if asked is None:
            self._nodes[worker] = more
        elif asked is Op.BUILD:
            self._build_by.pop(worker, None)
            self._stillborn.pop(worker, None)
        elif more is not None and seq == self._newest:
            self.buffers.load(slot, more)
        if op is Op.FAILED:
            return self._blame(question, payload)
        known = self._descriptions[worker] if self._descriptions else None
        if op is Op.BUILT and known is not None and payload.layout != known.layout:
            return Reply(worker, Op.FAILED, seq, space_mismatch(rows, worker))
        return None if asked in (None, Op.BIND) else Reply(worker, op, seq, payload)

    def _lose(self, worker: int, error: Exception) -> Reply | None:
        """Take note that an actor is gone, or that it never came."""
        came = self._nodes[worker] or getattr(error, "actor_init_failed", False)
        if not came and worker in self._build_by:
            # Ray may take seconds to find a node dead, and offers places on it until then.
            self._start_again(worker, error)
            return None
        self._forget(worker)
        return Reply(worker, Op.DIED, 0, Death(None, self._nodes[worker] or None, error))

    def _blame(self, question: _Question, failure: Failure) -> Reply:
        """Add to a failure where it happened."""
        worker = question.worker
        if question.op is Op.BUILD:
            self._forget(worker)  # nothing can be asked of environments that are not there
        error = failure.exception
        # An environment may raise an error of this type itself; its message is then no `Message`.
        if isinstance(error, WorkerDiedError) and isinstance(error.args[0], Message):
            found = died_within(worker, self._nodes[worker], error)
            failure = replace(failure, exception=found)
        return Reply(worker, Op.FAILED, question.seq, replace(failure, worker=worker))

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Ask every actor to close its environments, then end it; always ends."""
        wrong: list[Reply] = []
        if self._connection.open:
            if not terminate:
                wrong = self._ask_to_close(timeout)
            if self._room is not None:
                for actor in filter(None, self.actors):
                    with contextlib.suppress(self._ray.exceptions.RayError):
                        self._room.end(actor)
                self._room.close()
        self.actors = []
        self._questions = {}
        self._room = None
        self._connection.close()
        return wrong

    def _ask_to_close(self, timeout: float) -> list[Reply]:
        """Let environments close; give what went wrong."""
        asked = {
            actor.close.remote(): index
            for index, actor in enumerate(self.actors)
            if index not in self._build_by
        }
        if not asked:
            return []
        done, late = self._ray.wait(list(asked), num_returns=len(asked), timeout=timeout)
        for answer in done:
            self._questions[answer] = _Question(asked[answer], Op.CLOSE, 0, 0, "close", ())
        replies = [self._understand(answer) for answer in done]
        wrong = [reply for reply in replies if reply is not None and reply.op is not Op.DONE]
        wrong.extend(Reply(asked[answer], Op.CLOSE, 0, None) for answer in late)
        return sorted(wrong, key=lambda reply: reply.worker)
