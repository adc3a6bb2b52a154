"""The backend of worker processes: starts them, sends commands, collects replies and deaths.

::

    caller                                             worker (one of many)
    ProcessBackend ── CallerEnd ═══ two pipes ═══ WorkerEnd ── Worker ── EnvGroup
          │                                                        │
          └── Buffers ──────── one anonymous Arena ──────── Buffers ┘

A command is one message over the worker's pipe; observations, actions, rewards and flags lie in the
arena, which is made once the workers have described their spaces and travels as a descriptor.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import get_ident
from typing import Any

from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.memory import Arena
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import PATIENCE
from vecspaces.vector.backends.process import forking
from vecspaces.vector.backends.process.affinity import CoreAffinity
from vecspaces.vector.backends.process.channel import CallerEnd, Poller, pack_frame
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.backends.process.interrupts import uninterrupted
from vecspaces.vector.backends.process.line import Line
from vecspaces.vector.backends.process.pickling import Pickling
from vecspaces.vector.backends.process.processes import WorkerProcess, end_all, start_process
from vecspaces.vector.backends.process.stacks import StackFile
from vecspaces.vector.backends.process.startup import Surroundings
from vecspaces.vector.backends.process.waiting import WaitingPolicy, WaitMode
from vecspaces.vector.backends.process.worker import worker_main
from vecspaces.vector.backends.remote import RemoteBackend
from vecspaces.vector.backends.worker_setup import plan_workers
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, Message, died
from vecspaces.vector.exchange.messages import (
    HEADER,
    WRITES,
    CannotSend,
    Op,
    Reply,
    dumps,
    make_reply,
)
from vecspaces.vector.exchange.positions import Place

_UNGUARDED = (
    "the script makes an AsyncVectorEnv while a new process imports it: put what it "
    'runs below `if __name__ == "__main__":`, or use context="fork" where there is one'
)
_NOT_STARTED = (
    "it could not start, for the reason printed above. A new process imports the main module and "
    "the modules of what it is given: put what a script runs below "
    '`if __name__ == "__main__":`, or use context="fork", which imports nothing'
)
_DAEMON = (
    "this process is a daemon of multiprocessing, which may not start processes: in a worker of "
    "another vector env, make that one with daemon=False; instead of a multiprocessing.Pool, use "
    "concurrent.futures.ProcessPoolExecutor; or make a SyncVectorEnv here"
)
_FORKED = (
    "; the process that the workers were forked from has several threads, whose locks they may "
    'wait for forever: context="forkserver" starts them afresh'
)
# The longest time until workers have ended after a signal.
_TERMINATE_SECONDS = 0.3
# The longest time until a worker that closed its stream has ended.
_EXIT_SECONDS = 0.5
# The time between looks whether another thread has left its wait.
_LOOK_SECONDS = 1e-3


@dataclass(eq=False)
class _Handle:
    """One worker, on the caller's side.

    Attributes:
        built: Whether its environments are built.
        alive: Whether it is not known to have ended.
        watched: Whether the poller watches its descriptors.
    """

    process: WorkerProcess
    channel: CallerEnd
    stacks: StackFile
    built: bool = False
    alive: bool = True
    watched: bool = True

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that report what it sends, and its end."""
        return [fd for fd in (self.channel.fd, self.process.watch) if fd is not None]

    def close(self) -> None:
        """Free the descriptors but those of the process."""
        self.channel.close()
        self.stacks.close()


class ProcessBackend(RemoteBackend):
    """Runs slices of the environments in worker processes.

    Raises:
        RuntimeError: This process is importing its main module, or is a daemon.
    """

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        *,
        num_workers: int,
        context: str | None,
        daemon: bool,
        shared_memory: bool,
        worker_threads: int | None,
        validate: bool = False,
        slow_warning: float | None = None,
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise RuntimeError(_UNGUARDED)
        if multiprocessing.current_process().daemon:
            raise RuntimeError(_DAEMON)
        self._context: BaseContext = multiprocessing.get_context(context)
        self._forked = self._context.get_start_method() == "fork"
        self._daemon = daemon
        self._shared_memory = shared_memory
        surroundings = Surroundings.here(worker_threads)
        self._variables = surroundings.variables
        self._pickling = Pickling(self._forked)
        if not self._forked:
            # The name of the main module in workers, in pickles of objects that they return.
            sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        setups = plan_workers(
            env_fns,
            num_workers,
            autoreset_mode,
            worker_threads,
            by_value=not self._forked,
            validate=validate,
            surroundings=surroundings,
        )
        super().__init__(setups, slow_warning, env_fns)
        self._poller = Poller()
        self._handles: list[_Handle] = []
        self._by_fd: dict[int, int] = {}
        self._found: tuple[list[tuple[CallerEnd, list[bytes]]], list[Reply]] | None = None
        self._reading = False
        # The thread that collects, or 0: its signal handlers, or other threads, may call `close`.
        self._collecting = 0
        # The commands that workers are busy with, and how many may be while the caller busy-polls.
        self._working: dict[int, Op] = {}
        self._spare_cores = count_usable_cores() - 1
        # How to wait for each command, and for the last one.
        self._policies: dict[Op, WaitingPolicy] = {}
        self._op, self._policy = Op.BUILD, WaitingPolicy([WaitMode.FREE])
        self._arena: Arena | None = None
        # The caller shares the core of the worker that never busy-polls.
        self._affinity = CoreAffinity(setups[-1].core)

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes."""
        return [handle.process.process for handle in self._handles if not handle.process.closed]

    # ------------------------------------------------------------------ starting

    def _start(self, worker: int) -> None:
        """Start a worker; a forked one inherits what it builds, and others are sent it."""
        setup, packed = self._setups[worker], b""
        if not self._forked:
            packed = pack_frame(Op.BUILD, 0, 0, (setup.factories, dumps(setup)))
        with uninterrupted():
            self._handles[worker : worker + 1] = [self._launch(worker, packed)]

    def _note_threads(self) -> None:
        if self._forked:
            self.hang_advice = _FORKED if forking.count_threads() > 1 else ""
            forking.warn_of_renderer()

    def _launch(self, index: int, packed: bytes) -> _Handle:
        """Start one worker; after an error nothing is left of it."""
        with contextlib.ExitStack() as undo:
            ours, theirs = Line.pair()
            undo.callback(ours.close)
            try:
                stacks = StackFile.make()
                undo.callback(stacks.close)
                process = start_process(
                    self._context,
                    f"vecspaces-worker-{index}",
                    worker_main,
                    (theirs, stacks, os.getpid(), self._setups[index] if self._forked else None),
                    daemon=self._daemon,
                    variables=self._variables,
                )
            finally:
                theirs.close()
            undo.callback(end_all, [process], 0.0)
            channel = CallerEnd(ours)
            handle = _Handle(process, channel, stacks)
            undo.callback(self._forget, handle)
            self._by_fd.update(dict.fromkeys([channel.out_fd, *handle.descriptors], index))
            if packed:
                channel.send(packed)
            self._watch(handle)
            undo.pop_all()
        return handle

    def _watch(self, handle: _Handle) -> None:
        """Let the poller watch a worker."""
        for descriptor in handle.descriptors:
            self._poller.add(descriptor)
        self._poller.watch_room(handle.channel.out_fd, handle.channel.pending)

    def _make_buffers(self, plan: BufferPlan) -> Buffers:
        """Make the arena, which travels as a descriptor."""
        self._packed_plan = self._pickling.dumps(plan)
        # Whether every action fits into shared memory, so that a step is a bare header.
        self._rows_suffice = self._shared_memory and not plan.actions.has_variable
        with uninterrupted():
            if self._shared_memory:
                self._arena = Arena.shared(plan.size)
                forking.withhold(self._arena)
            return Buffers(plan, self._arena, self._pickling.dumps)

    def _bind(self, worker: int, lost: Any) -> None:
        """Send a worker where its rows lie, and hand it the memory."""
        arena, channel = self.buffers.arena, self._handles[worker].channel
        tag = arena.handle if isinstance(arena.handle, str) else None
        payload = (self._packed_plan, self.slices[worker].start, lost, tag)
        packed = pack_frame(Op.BIND, 0, 0, payload, self._pickling.dumps)
        with uninterrupted():
            channel.line.pass_descriptor(arena.fd)
            channel.send(packed)
            self._poller.watch_room(channel.out_fd, channel.pending)

    def _not_built(self, late: Sequence[int]) -> StepTimeoutError:
        ids = self._factories(late)
        where, stack = self.find(late[0])
        return StepTimeoutError(
            Message(
                "{:envs} were not built within start_timeout: "
                "allow more time, or find out what their env_fn waits for{}{}",
                ids,
                self.hang_advice,
                where,
            ),
            ids,
            stack=stack,
        )

    def _died_in_build(self, worker: int, death: Death) -> WorkerDiedError:
        building = self._handles[worker].stacks.building
        advice = "run the env_fn in this process to see why"
        if not self._forked and building < 0 and death.exitcode == 1:
            advice = _NOT_STARTED
        return died(worker, self._setups[worker].factories, "build", death, building, advice)

    # ------------------------------------------------------------------ commands

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to workers, once every payload is packed."""
        if op is Op.BUILD:
            self._replace_all(payloads)
            return
        if op in WRITES:
            self._seq = seq
        self._op, self._policy = op, self._policies.get(op) or self._make_policy(op)
        way = self._policy.begin()
        if op is Op.STEP and self._rows_suffice:
            frames = [HEADER.pack(op, way, slot, seq, 0)] * len(payloads)
        else:
            try:
                frames = [
                    self._pack_command(worker, op, way, slot, seq, payload)
                    for worker, payload in payloads.items()
                ]
            except Exception as error:
                raise CannotSend(error) from None
        if way and not self._working:
            self._affinity.return_to_core()
        for worker, frame in zip(payloads, frames, strict=True):
            self._working[worker] = op
            channel = self._handles[worker].channel
            channel.send(frame)
            if channel.pending:
                self._poller.watch_room(channel.out_fd, True)

    def _make_policy(self, op: Op) -> WaitingPolicy:
        """Make the policy of waiting for a command, when it is sent for the first time."""
        ways = (
            [WaitMode.FREE] if self._setups[-1].core is None else [WaitMode.RETURNS, WaitMode.FREE]
        )
        if self._spare_cores > 0:
            ways.append(WaitMode.BUSY_POLLS)
        policy = self._policies[op] = WaitingPolicy(ways)
        return policy

    def _pack_command(
        self, worker: int, op: Op, way: WaitMode, slot: int, seq: int, payload: Any
    ) -> bytes:
        """Pack a command with its arguments, and with actions that lie in no shared memory."""
        rows = self.slices[worker]
        exported = spilled = None
        if op in (Op.STEP, Op.STEP_ROWS):
            if self._shared_memory:
                spilled = self.buffers.actions.take_spilled(rows.start, rows.stop) or None
                self.buffers.note_spilled(self.buffers.actions, spilled or [])
            else:
                exported = self.buffers.actions.export(rows.start, rows.stop)
        if op in (Op.STEP, Op.STEP_ROWS, Op.STEP_CHUNK) and exported is None and spilled is None:
            # Row numbers and arrays alone.
            return pack_frame(op, slot, seq, (payload, None, None), way=way)
        return pack_frame(op, slot, seq, (payload, exported, spilled), self._pickling.dumps, way)

    def memory(self, worker: int) -> int | None:
        """Read a worker's proportional set size, which counts shared pages in part."""
        try:
            path = f"/proc/{self._handles[worker].process.process.pid}/smaps_rollup"
            text = Path(path).read_text(encoding="ascii")
            return int(text.partition("Pss:")[2].split()[0]) * 1024
        except (OSError, ValueError, IndexError):  # another system, or it has just ended
            return None

    def retire(self, workers: Iterable[int], timeout: float) -> list[Reply]:
        """Ask workers to close, and read from their pipes alone until they have."""
        deadline, wrong = Deadline(timeout), list[Reply]()
        handles = {index: self._handles[index] for index in workers}
        unanswered = {index for index, one in handles.items() if one.alive and one.built}
        self._collecting = get_ident()
        try:
            for index in unanswered:
                handles[index].channel.send(pack_frame(Op.CLOSE, 0, 0))
            for index in sorted(unanswered):
                poller, handle = Poller(), handles[index]
                for descriptor in handle.descriptors:
                    poller.add(descriptor)
                # Until it has answered, or a signal handler has closed everything.
                while index in unanswered and not deadline.passed and self._has_workers:
                    poller.wait(deadline.left)
                    if handle.process.closed:
                        break
                    frames, handle.channel.inbox, ended = handle.channel.receive()
                    for frame in frames:
                        reply = self._understand(index, Op.CLOSE, *frame[:3], frame.load)
                        self._note_closed(reply, unanswered, wrong)
                    if ended and index in unanswered:
                        reply = Reply(index, Op.DIED, 0, None)
                        self._note_closed(reply, unanswered, wrong)
                if index not in unanswered:  # it is on its way out
                    handle.alive = False
                    handle.process.wait(_TERMINATE_SECONDS)
        finally:
            self._collecting = 0
        return wrong + [Reply(index, Op.CLOSE, 0, None) for index in sorted(unanswered)]

    def end(self, worker: int) -> None:
        """Kill a worker, and drop what it has replied; can be repeated."""
        with uninterrupted():
            self._end([self._handles[worker]], 0.0)
            self._working.pop(worker, None)
            if self._found is not None:
                self._publish()
            others = [reply for reply in self.replies if reply.worker != worker]
            self.replies.clear()
            self.replies.extend(others)

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Wait for frames and deaths.

        Bytes stay in the inboxes until `_found` holds the replies made of them, and `_publish` can
        be repeated: an interrupt at any moment neither loses nor doubles a reply.
        """
        self._collecting = get_ident()
        try:
            if self._found is not None:
                self._publish()
            if self.replies:
                return self.replies
            rests: list[tuple[CallerEnd, list[bytes]]] = []
            replies: list[Reply] = []
            if self._reading:
                # Interrupted between reading and finding: nothing may be left to read.
                ready = [(handle.channel.fd, 0) for handle in self._handles]
            else:
                spins = (
                    self._policy.way is WaitMode.BUSY_POLLS
                    and len(self._working) <= self._spare_cores
                )
                ready = self._poller.wait(timeout, self._op if spins and self._working else None)
            self._reading = True
            seen: set[int] = set()
            for fd, _ in ready:
                index = self._by_fd.get(fd)
                if index is None or index in seen:
                    continue
                seen.add(index)
                handle = self._handles[index]
                channel = handle.channel
                if channel.pending:
                    channel.flush()
                    self._poller.watch_room(channel.out_fd, channel.pending)
                frames, rest, ended = channel.receive()
                rests.append((channel, rest))
                for frame in frames:
                    if not frame.data:
                        replies.append(make_reply((index, frame.op, frame.seq, None)))
                    else:
                        asked = self._working.get(index, Op.BUILD)
                        if frame.op is Op.PART:  # beside which a call may have been answered
                            asked = Op.STEP_ROWS
                        if frame.op is Op.BUILT:
                            handle.built = True
                        replies.append(self._understand(index, asked, *frame[:3], frame.load))
                    if frame.op is not Op.PART:
                        self._working.pop(index, None)
                if ended or (fd == handle.process.watch and not frames):
                    self._working.pop(index, None)
                    replies.append(Reply(index, Op.DIED, 0, self._exit_status(index)))
            self._found = rests, replies
            if not self._working:
                self._policy.end()
            self._publish()
        finally:
            self._collecting = 0
        return self.replies

    def _publish(self) -> None:
        """Hand over what `collect` found."""
        assert self._found is not None
        rests, replies = self._found
        for channel, rest in rests:
            channel.inbox = rest
        for reply in replies:
            if reply.op is Op.DIED:
                self._forget(self._handles[reply.worker])
        self.replies.clear()
        self.replies.extend(replies)
        self._reading, self._found = False, None

    def _exit_status(self, index: int) -> Death:
        """Return how a worker ended."""
        handle = self._handles[index]
        handle.alive = False
        handle.process.wait(_EXIT_SECONDS)
        code = handle.process.exitcode()
        return Death(code, stack=handle.stacks.read_crash(code))

    def _forget(self, handle: _Handle) -> None:
        """Stop watching a worker, whose descriptors may soon belong to another one."""
        if not handle.watched:
            return
        for fd in {handle.channel.fd, handle.channel.out_fd, handle.process.watch}:
            if fd is not None:
                self._poller.remove(fd)
                self._by_fd.pop(fd, None)
        handle.watched = False

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, also one that it builds."""
        # Before all are built there are no rows, not even of those that have been.
        if not self._handles[worker].built or not self._descriptions:
            number = self._handles[worker].stacks.building
            if number < 0:
                return Place(self._ids(worker))
            ids = range(number, number + 1)
            if self._descriptions:  # a vector env has several numbers
                counts = self._descriptions[worker].counts
                at = number - self._setups[worker].factories.start
                low = self.slices[worker].start + sum(counts[:at])
                ids = range(low, low + counts[at])
            return Place(ids, "being built")
        return super().locate(worker)

    def stack(self, worker: int, patience: float = PATIENCE, insist: bool = True) -> str | None:
        """Ask a worker for the frames of its environment."""
        handle = self._handles[worker]
        try:
            return handle.stacks.ask(patience, handle.process if insist else None)
        except (OSError, ValueError):  # it has just ended, or another thread closed it
            return None

    # ------------------------------------------------------------------ the end

    def _ask_to_close(self, deadline: Deadline, unanswered: set[int]) -> None:
        # A worker that builds does not listen.
        unanswered.update(
            index for index, handle in enumerate(self._handles) if handle.alive and handle.built
        )
        for index in unanswered:
            self._handles[index].channel.send(pack_frame(Op.CLOSE, 0, 0))
        if self._collecting == get_ident():  # its poll object cannot be used twice at once
            self._poller.end()
            self._poller = Poller()
            for index in unanswered:
                self._watch(self._handles[index])
        self._await_others(deadline)
        # Some may have closed already, which another thread was about to replace.
        unanswered.intersection_update([i for i, one in enumerate(self._handles) if one.alive])

    def _end_all(self, unanswered: Collection[int], terminate: bool) -> None:
        """Terminate, then kill."""
        with uninterrupted():
            # Those that replied are on their way out, and need no signal.
            for index, handle in enumerate(self._handles):
                if index in unanswered or terminate or not (handle.built and handle.alive):
                    handle.process.end(kill=False)
            self._poller.end()
            self._end(self._handles, _TERMINATE_SECONDS)
            self._working.clear()
            self.replies.clear()

    def abandon(self) -> None:
        """End every worker without asking, and free the memory: for what could not be completed."""
        super().abandon()
        if hasattr(self, "buffers"):
            self.buffers.release()
        if self._arena is not None:
            self._arena.close()

    def disown(self) -> None:
        """In a forked process, leave the workers alone, and free its copies of what they are."""
        for handle in self._handles:
            handle.alive = False
            handle.process.disown()
            handle.close()
        self._collecting = 0  # that thread is not here
        self._has_workers = False

    def _end(self, handles: Sequence[_Handle], timeout: float) -> None:
        """End workers, and free their descriptors; can be repeated."""
        for handle in handles:
            self._forget(handle)
            handle.alive = False
        end_all([handle.process for handle in handles], timeout)
        self._await_others(Deadline(_EXIT_SECONDS))
        for handle in handles:
            handle.close()

    def _await_others(self, deadline: Deadline) -> None:
        """Wait until no other thread reads from the workers."""
        while self._collecting not in (0, get_ident()) and not deadline.passed:
            time.sleep(_LOOK_SECONDS)
