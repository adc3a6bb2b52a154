"""The backend of threads: each has a group, and writes rows which the caller copies.

::

    caller                                     thread (one of many, in the same process)
    ThreadBackend ── queue of commands ──────▶ Worker ── Group | Groups
        │       ◀── one Inbox for all ──────────   │
     Buffers ◀───── copies of rows ──────────── Buffers (of all threads)

A thread cannot be ended from outside. A late thread is abandoned: a thread with its own buffers
replaces it, and what the abandoned thread still writes and replies is dropped.
"""

from __future__ import annotations

import io
import math
import sys
import threading
import traceback
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

from vecspaces import system
from vecspaces.vector.backends.backend import PATIENCE
from vecspaces.vector.backends.process.descriptors import Bell
from vecspaces.vector.backends.process.interrupts import uninterrupted
from vecspaces.vector.backends.process.stacks import format_environment
from vecspaces.vector.backends.process.waiting import HANDLER_SECONDS
from vecspaces.vector.backends.remote import RemoteBackend
from vecspaces.vector.backends.row_stream import RowStream
from vecspaces.vector.backends.worker_setup import WorkerSetup
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.messages import Op, Reply, Starts, Written, make_reply
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.exchange.stats import COMPUTING, WAITING
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups, build_group

# The longest time until idle threads have ended.
_END_SECONDS = 0.3
_DONE, _STEP = Op.DONE, Op.STEP
# The arrays of `BufferPlan` that a thread continues for the one that it replaces.
_CONTINUED = {"steps", "positions", "env_counters", "worker_counters"}


class _Message(NamedTuple):
    """A reply of a thread, with the rows that it wrote."""

    sender: Worker
    op: Op
    slot: int
    number: int
    payload: Any
    command: Op
    rows: Sequence[int]  # what the command wrote


class Inbox:
    """The replies of all threads, for a thread that waits; signal handlers run during the wait.

    Attributes:
        messages: The unread replies.
        wanted: The number of replies of the kind DONE to wait for, so that a wait for a step of all
            ends once; any other reply ends the wait.
    """

    def __init__(self) -> None:
        self.wanted = 1
        self.messages: deque[_Message | None] = deque()
        self._signal = threading.Lock()
        self._is_urgent = False
        self._bell: Bell | None = None
        self._rings = False
        # A message may be taken before its thread rings. Signal handlers may ring in `settle`.
        self._settling = threading.RLock()

    def put(self, message: _Message | None) -> None:
        """Add a message, and wake the thread that waits; None only wakes it."""
        self.messages.append(message)
        if message is None or message.op is not _DONE or len(self.messages) >= self.wanted:
            self._is_urgent = True
            with suppress(RuntimeError):  # it is released already
                self._signal.release()
        bell = self._bell  # which another thread may take away
        if bell is not None:
            with self._settling:
                if self.messages:
                    bell.ring()

    def wait(self, timeout: float | None) -> bool:
        """Wait for messages; return whether there are some."""
        left = math.inf if timeout is None else timeout
        while len(self.messages) < self.wanted:
            if self._is_urgent:
                self._is_urgent = False  # before the look: one that comes later sets it again
                if self.messages:
                    return True
            if not self._signal.acquire(timeout=min(left, HANDLER_SECONDS)):
                left -= HANDLER_SECONDS
                if left <= 0:
                    break
        return bool(self.messages)

    def take(self) -> Iterator[_Message]:
        """Yield the messages that came, each once."""
        self._is_urgent = False
        while self.messages:
            message = self.messages.popleft()
            if message is not None:
                yield message

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are messages, or while it `rings`."""
        if not system.POLL:
            raise io.UnsupportedOperation("event loops of this system do not watch pipes")
        if self._bell is None:
            self._bell = Bell()
        return self._bell.fd

    def ring(self, rings: bool) -> None:
        """Note whether the descriptor is to be readable without messages too."""
        if rings is not self._rings:
            self._rings = rings
            self.settle()

    def settle(self) -> None:
        """Make the descriptor readable, or no longer."""
        bell = self._bell
        if bell is not None:
            with self._settling:
                bell.silence()
                if self.messages or self._rings:
                    bell.ring()

    def close(self) -> None:
        """Wake the thread that waits, and free the descriptor."""
        self._bell = None
        self.put(None)


class Worker:
    """One thread, the commands that it was sent, and its rows.

    Attributes:
        building: The factory that it calls; -1 for none.
        buffers: Its rows, once they are bound.
        failure: What closing its environments raised.
    """

    def __init__(self, setup: WorkerSetup, inbox: Inbox) -> None:
        self.index, self._setup, self._inbox = setup.index, setup, inbox
        self.building = -1
        self.buffers: Buffers | None = None
        self.failure: Failure | None = None
        self._is_abandoned = False
        self._commands: SimpleQueue[tuple[Op, int, int, Any]] = SimpleQueue()
        self.thread = threading.Thread(
            target=self._run, name=f"vecspaces-envs-{setup.index}", daemon=True
        )

    # ------------------------------------------------------------------ the caller's side

    def send(self, op: Op, slot: int = 0, number: int = 0, payload: Any = None) -> None:
        """Send a command."""
        self._commands.put((op, slot, number, payload))

    def abandon(self) -> None:
        """Let it close its environments and end as soon as the current call returns."""
        self._is_abandoned = True
        self.send(Op.CLOSE)

    def join(self, timeout: float | None) -> bool:
        """Wait until it has ended; return whether it has."""
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(timeout)
        return not self.thread.is_alive()

    # ------------------------------------------------------------------ the thread

    def _reply(
        self,
        op: Op,
        slot: int = 0,
        number: int = 0,
        payload: Any = None,
        command: Op = Op.BUILD,
        rows: Sequence[int] = (),
    ) -> None:
        self._inbox.put(_Message(self, op, slot, number, payload, command, rows))

    def _note_building(self, number: int) -> None:
        self.building = number

    def _run(self) -> None:
        """Build, execute commands, close."""
        group = self._build()
        if group is None:
            return
        while not self._is_abandoned:
            command = self._commands.get()
            if command[0] is Op.CLOSE:
                break
            self._execute(group, *command)
        try:
            if self.buffers is not None:
                group.flush_timings()  # the next thread continues the counts
            self.failure = group.close()
        except BaseException as error:  # environments may raise any exception
            self.failure = Failure.of(error, group.rows, "close")

    def _build(self) -> Group | Groups | None:
        setup = self._setup
        try:
            group = build_group(
                list(setup.env_fns().values()),
                setup.autoreset_mode,
                setup.first,
                validate=setup.validate,
                note_building=self._note_building,
            )
        except BaseException as error:
            self._reply(Op.FAILED, payload=Failure.of(error, setup.factories, "build"))
            return None
        self._reply(Op.BUILT, payload=group.describe())
        return group

    def _bind(
        self, group: Group | Groups, buffers: Buffers, low: int, restart: Starts | None
    ) -> None:
        group.bind(buffers, low, self.index, restart)
        self._stream = RowStream(group)
        self.buffers = buffers

    def _execute(self, group: Group | Groups, op: Op, slot: int, number: int, payload: Any) -> None:
        """Execute a command, and reply."""
        try:
            if op is Op.BIND:
                self._bind(group, *payload)
                self._reply(Op.BOUND, slot, number)
                return
            assert self.buffers is not None
            if op is Op.STEP_ROWS:
                for written in self._stream.step(slot, payload):
                    self._reply(Op.PART, slot, number, written, op, written.rows)
                    if self._is_abandoned:
                        break
                return
            if op is _STEP:
                self.buffers.positions.steps[self.index] += 1
            result = group.execute(op, slot, payload)
            if isinstance(result, Written):
                self._reply(_DONE, slot, number, result.infos, op, result.rows)
            else:
                self._reply(_DONE, slot, number, result)
        except BaseException as error:
            verb = "build" if op is Op.BIND else op.verb
            failure = Failure.of(error, group.rows, verb)
            self._reply(Op.FAILED, slot, number, failure)


class ThreadBackend(RemoteBackend):
    """Runs slices of the environments in daemon threads of the caller's process."""

    shares_objects = True
    reset_advice = "call reset() (which leaves their threads, and builds them again in others), "

    def __init__(self, setups: Sequence[WorkerSetup], slow_warning: float | None) -> None:
        super().__init__(setups, slow_warning)
        self._inbox = Inbox()
        self._workers: list[Worker] = []
        self._abandoned: list[Worker] = []
        # By worker, the replaced thread, until the new thread is bound.
        self._former: dict[int, Worker] = {}
        # The workers that owe a reply to a reset or a step of all.
        self._owing: set[int] = set()

    # ------------------------------------------------------------------ starting

    def _start(self, worker: int) -> None:
        """Start a thread, which builds its environments."""
        new = Worker(self._setups[worker], self._inbox)
        if worker < len(self._workers):
            if self._workers[worker].buffers is not None:
                self._former[worker] = self._workers[worker]
            self._abandoned = [former for former in self._abandoned if former.thread.is_alive()]
            self._abandoned.append(self._workers[worker])
            self._workers[worker] = new
        else:
            self._workers.append(new)
        with uninterrupted():  # of which CPython may make another error
            new.thread.start()

    def _make_buffers(self, plan: BufferPlan) -> Buffers:
        buffers = Buffers(plan)
        self._written = self._make_written(buffers)
        return buffers

    def _make_written(self, buffers: Buffers) -> Buffers:
        """Make rows for threads to write."""
        written = Buffers(buffers.plan)
        # The caller writes no actions of rows that are busy.
        written.actions = buffers.actions
        written.progress[:] = -1
        written.positions.clear()
        return written

    def _bind(self, worker: int, restart: Starts | None) -> None:
        """Send a thread its rows; they continue the counts and positions of its predecessor."""
        former = self._former.get(worker)
        written = self._written if former is None else former.buffers
        assert written is not None
        if former is not None and former.thread.is_alive():  # it may still write
            old, written = written, self._make_written(self.buffers)
            for name in written.plan.arrays.keys() & _CONTINUED:
                where = written.plan.arrays[name]
                written.arena.view(*where)[...] = old.arena.view(*where)
        payload = written, self.slices[worker].start, restart
        self._workers[worker].send(Op.BIND, payload=payload)

    # ------------------------------------------------------------------ commands

    def issue(self, op: Op, slot: int, number: int, payloads: Mapping[int, Any]) -> None:
        """Queue a command."""
        self._touched = payloads
        if op is _STEP or op is Op.RESET:
            self._owing.update(payloads)
        for worker, payload in payloads.items():
            self._workers[worker].send(op, slot, number, payload)
        self._touched = ()

    def wait(self, timeout: float | None) -> bool:
        """Wait for replies; return whether there are some."""
        clock = self.clock
        if clock is not None:
            clock.note(COMPUTING)
        self._inbox.wanted = max(1, len(self._owing))
        came = self._inbox.wait(timeout)
        if not came:
            self._inbox.settle()
        if clock is not None:
            clock.note(WAITING)
        return came

    def read(self, came: bool) -> list[Reply]:
        """Return the replies that came, and copy the rows that were written."""
        replies = []
        # Copied together, since most rows of a step are in the same buffers.
        copied: dict[tuple[Buffers, int, Op], list[int]] = {}
        for sender, op, slot, number, payload, command, rows in self._inbox.take():
            worker = sender.index
            if self._workers[worker] is not sender:
                continue  # it is abandoned
            if op is not Op.PART:
                self._owing.discard(worker)
            # Until the caller sends these rows another command, their thread does not write them.
            if rows and number in self.open_tickets:
                assert sender.buffers is not None
                copied.setdefault((sender.buffers, slot, command), []).extend(rows)
            if op is Op.BUILT:
                failure = self._changed(worker, payload)
                if failure is not None:
                    self.end(worker)
                    op, payload = Op.FAILED, failure
            elif op is Op.BOUND:
                self._former.pop(worker, None)
            if op is Op.FAILED:
                payload.worker = worker
            elif op is Op.PART:
                for _, failed in payload.failures:
                    failed.worker = worker
            replies.append(make_reply((worker, op, number, payload)))
        for (buffers, slot, command), written in copied.items():
            self.buffers.copy_rows(buffers, slot, written, command)
        self._inbox.settle()
        return replies

    def fileno(self) -> int:
        """Return the descriptor of `ThreadVectorEnv.fileno`."""
        return self._inbox.fileno()

    def ring(self, rings: bool) -> None:
        """Make the descriptor of `fileno` readable while rows wait to be received."""
        self._inbox.ring(rings)

    def written_by(self, worker: int) -> Buffers:
        """Return the rows of a thread."""
        return self._workers[worker].buffers or self.buffers

    def locate(self, worker: int) -> Place:
        """Return the environment that a thread is busy with, also one that it builds."""
        if self._workers[worker].buffers is None:
            return self._locate_building(worker, self._workers[worker].building)
        return super().locate(worker)

    def stack(self, worker: int, patience: float = PATIENCE) -> str | None:
        """Return the frames of the environment in a thread."""
        frame = sys._current_frames().get(self._workers[worker].thread.ident or 0)
        return None if frame is None else format_environment(traceback.extract_stack(frame))

    # ------------------------------------------------------------------ the end

    def end(self, worker: int) -> None:
        """Abandon a thread; its replies are dropped once another thread replaces it."""
        self._owing.discard(worker)
        self._workers[worker].abandon()

    def _close_envs(
        self, workers: Iterable[int], deadline: Deadline, unanswered: set[int], wrong: list[Reply]
    ) -> None:
        chosen = {index: self._workers[index] for index in workers if index < len(self._workers)}
        for index, worker in chosen.items():
            if worker.thread.is_alive():
                unanswered.add(index)
                worker.send(Op.CLOSE)
        for index, worker in chosen.items():
            if worker.join(deadline.left):
                unanswered.discard(index)
                if worker.failure is not None:
                    wrong.append(Reply(index, Op.FAILED, 0, worker.failure))

    def _end_all(self, unanswered: Collection[int], terminate: bool) -> None:
        """Abandon the threads that have not ended."""
        for worker in self._workers:
            worker.abandon()
        deadline = Deadline(_END_SECONDS)
        for worker in (*self._workers, *self._abandoned):
            if worker.join(deadline.left):
                worker.buffers = None
        self._inbox.close()

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """End all threads; those that were abandoned before, and have not ended, are named too."""
        replies = super().close(timeout, terminate)
        running = {worker.index for worker in self._abandoned if worker.thread.is_alive()}
        named = {reply.worker for reply in replies}
        late = () if terminate else sorted(running - named)
        return replies + [Reply(worker, Op.CLOSE, 0, None) for worker in late]

    def disown(self) -> None:
        """In a forked process, which has none of the threads: free the descriptor."""
        self._workers, self._abandoned, self._has_workers = [], [], False
        self._inbox.close()
