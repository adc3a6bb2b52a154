"""The backend of worker processes: starts them, sends commands, collects replies and deaths.

::

    caller                                             worker (one of many)
    ProcessBackend ── CallerEnd ═══ two pipes ═══ WorkerEnd ── Worker ── Group
          │                                                        │
          └── Buffers ──────── one anonymous Arena ──────── Buffers ┘

A command is one message over the worker's pipe. Observations, actions, rewards and flags are in the
arena, an anonymous file whose descriptor each worker gets at its start. The arena is laid out when
the workers have described their spaces.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from threading import get_ident
from typing import Any

from vecspaces import system
from vecspaces.cores import count_usable_cores
from vecspaces.errors import WorkerDiedError
from vecspaces.memory import Arena, anonymous_file
from vecspaces.pickling import dumps
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import PATIENCE, pack_plain
from vecspaces.vector.backends.process import descriptors, forking
from vecspaces.vector.backends.process.channel import CallerEnd, Frame, Poller, pack_frame, unpack
from vecspaces.vector.backends.process.interrupts import uninterrupted
from vecspaces.vector.backends.process.line import GONE, Line
from vecspaces.vector.backends.process.pickling import Pickling
from vecspaces.vector.backends.process.processes import (
    WorkerProcess,
    end_all,
    end_trees,
    limits_explained,
    start_process,
)
from vecspaces.vector.backends.process.stacks import StackFile
from vecspaces.vector.backends.process.startup import Parcel, Surroundings
from vecspaces.vector.backends.process.tree import Tree
from vecspaces.vector.backends.process.worker import worker_main
from vecspaces.vector.backends.remote import RemoteBackend
from vecspaces.vector.backends.worker_setup import plan_workers
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers, index_of
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import Death, died
from vecspaces.vector.exchange.messages import (
    HEADER,
    STEPS,
    CannotSend,
    Op,
    Reply,
    Starts,
    make_reply,
)
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.exchange.stats import COMPUTING, WAITING
from vecspaces.vector.exchange.tables import Form, Table

_UNGUARDED = (
    "the script makes an AsyncVectorEnv while a new process imports it: put what it "
    'runs below `if __name__ == "__main__":`, or use context="fork" where there is one'
)
_NOT_STARTED = (
    "it could not start, for the reason printed above. A new process imports the main module and "
    "the modules of what it receives: put what a script runs below "
    '`if __name__ == "__main__":`, or use context="fork", which imports nothing'
)
_DAEMON = (
    "this process is a daemon of multiprocessing, which may not start processes: in a worker of "
    "another vector env, make that one with daemon=False; instead of a multiprocessing.Pool, use "
    "concurrent.futures.ProcessPoolExecutor; or make a SyncVectorEnv here"
)
# The longest time until workers have ended after a signal.
_TERMINATE_SECONDS = 0.3
# The longest time from the end of a worker's stream to the end of its process.
_EXIT_SECONDS = 0.5
# The interval of checks for deaths without process descriptors.
_DEATH_SECONDS = 0.1
# The interval of checks whether another thread has left its wait.
_LOOK_SECONDS = 1e-3
_BUILD, _STEP, _STEP_ROWS = Op.BUILD, Op.STEP, Op.STEP_ROWS
_BUILT, _DONE, _FAILED = Op.BUILT, Op.DONE, Op.FAILED
_STEPPED, _TABLED = Op.STEPPED, Op.TABLED


@dataclass(eq=False)
class Handle:
    """One worker, on the caller's side.

    Attributes:
        built: Whether its environments are built.
        alive: False once its end is known.
        watched: Whether the poller watches its descriptors.
    """

    process: WorkerProcess
    channel: CallerEnd
    stacks: StackFile
    built: bool = False
    alive: bool = True
    watched: bool = True

    @property
    def every(self) -> set[int]:
        """The descriptors to write to, to read from, and of the worker's end."""
        return {self.channel.out_fd, self.channel.fd, self.process.watch}

    def flush(self, poller: Poller) -> None:
        """Write what waits to be sent."""
        self.channel.flush()
        poller.watch_room(self.channel.out_fd, self.channel.pending)

    def close(self) -> None:
        """Free the descriptors, except those of the process."""
        self.channel.close()
        self.stacks.close()


class ProcessBackend(RemoteBackend):
    """Runs slices of the environments in worker processes.

    Raises:
        RuntimeError: This process is importing its main module, or is a daemon.
    """

    # The descriptor of the arena's file, which all workers get; empty without a file.
    _shared: tuple[int, ...] = ()

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
        init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise RuntimeError(_UNGUARDED)
        if multiprocessing.current_process().daemon:
            raise RuntimeError(_DAEMON)
        self._context: BaseContext = multiprocessing.get_context(context or system.START_METHOD)
        self._forked = self._context.get_start_method() == "fork"
        self._daemon = daemon
        self._shared_memory = shared_memory
        # Anonymous files take memory only where they are written.
        self.pools = shared_memory and system.MEMFD
        self._surroundings = Surroundings.here(worker_threads)
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
            init_fn=init_fn,
        )
        super().__init__(setups, slow_warning)
        self._handles: list[Handle] = []
        self._poller = Poller(epoll=False)
        # Whether every action fits into shared memory, so that a step is a bare header; the replies
        # without a payload to the last such step, by their headers.
        self._is_plain = False
        self._expected: dict[bytes, list[Frame]] = {}
        # By worker, the infos of its last step if they were in cells.
        self._tables: dict[int, list[Table]] = {}
        self._by_fd: dict[int, int] = {}
        # Whether a worker has no process descriptor, and when to look for deaths.
        self._looks, self._next_look = False, 0.0
        # The descriptors that are being read.
        self._ready: list[tuple[int, int]] = []
        # The thread that waits, or 0: its signal handlers, or other threads, may call `close`.
        self._collecting = 0
        # By busy worker, the commands that it has not ended, in their order; and the maximum number
        # of busy workers while the caller polls before it sleeps: each of them has its own core.
        self._working: dict[int, tuple[Op, ...]] = {}
        cores = count_usable_cores()
        self._most_working = cores - 1 if num_workers <= cores else 0
        self.has_spare_core = num_workers < cores
        self._arena: Arena | None = None

    def fileno(self) -> int:
        """Return the descriptor of `AsyncVectorEnv.fileno`."""
        return self._poller.fileno()

    def ring(self, rings: bool) -> None:
        """Make the descriptor of `fileno` readable while rows wait to be received."""
        self._poller.ring(rings)

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes."""
        return [handle.process.process for handle in self._handles if not handle.process.closed]

    # ------------------------------------------------------------------ starting

    def _prepare(self) -> None:
        """Open the descriptors for all workers."""
        with uninterrupted():
            if self._shared_memory and system.DESCRIPTORS:
                self._shared = descriptors.acquire(anonymous_file)
            self._poller = Poller()

    def _start(self, worker: int) -> None:
        with uninterrupted(), limits_explained(len(self._setups)):
            self._handles[worker : worker + 1] = [self._launch(worker)]

    def _note_threads(self) -> None:
        if self._forked:
            forking.warn_of_driver()

    def _launch(self, index: int) -> Handle:
        """Start one worker; after an error, free everything of it."""
        tree = Tree.plant()
        surroundings = self._surroundings.marked(tree.mark)
        setup = replace(self._setups[index], surroundings=surroundings)
        parcel = Parcel(setup)
        with contextlib.ExitStack() as undo:
            ours, theirs = Line.pair(self._shared)
            undo.callback(ours.close)
            inherited = (setup, ours) if self._forked else (parcel,)
            try:
                stacks = StackFile.make()
                undo.callback(stacks.close)
                process = start_process(
                    self._context,
                    f"vecspaces-worker-{index}",
                    worker_main,
                    (theirs, stacks, tree, os.getpid(), *inherited),
                    tree=tree,
                    daemon=self._daemon,
                    variables=surroundings.variables,
                    seconds=self._start_timeout,
                )
            finally:
                theirs.close()
            stacks.close_workers_end()
            undo.callback(process.close)
            undo.callback(end_all, [process], 0.0)
            channel = CallerEnd(ours)
            handle = Handle(process, channel, stacks)
            self._looks |= process.watch < 0
            undo.callback(self._forget, handle)
            self._by_fd.update(dict.fromkeys(handle.every, index))
            if parcel.packed:
                channel.send(parcel.packed)
            self._watch(handle, self._poller)
            undo.pop_all()
        return handle

    @staticmethod
    def _watch(handle: Handle, poller: Poller) -> None:
        """Let a poller watch a worker."""
        poller.add(handle.channel.fd)
        poller.add(handle.process.watch)
        poller.watch_room(handle.channel.out_fd, handle.channel.pending)

    def _make_buffers(self, plan: BufferPlan) -> Buffers:
        """Make the arena, in the file that the workers have."""
        self._packed_plan = self._pickling.dumps(plan)
        with uninterrupted():
            if self._shared_memory:
                file = os.dup(self._shared[0]) if self._shared else None
                self._arena = Arena.shared(plan.size, file)
            self._is_plain = self._shared_memory and not plan.actions.has_variable
            return Buffers(plan, self._arena, self._pickling.dumps)

    def _bind(self, worker: int, restart: Starts | None) -> None:
        """Send a worker the places of its rows."""
        handle, channel = self.buffers.arena.handle, self._handles[worker].channel
        tag = handle if isinstance(handle, str) else None
        payload = self._packed_plan, self.slices[worker].start, restart, tag
        packed = pack_frame(Op.BIND, 0, 0, payload, self._pickling.dumps)
        channel.send(packed)
        self._poller.watch_room(channel.out_fd, channel.pending)

    def _died_in_build(self, worker: int, death: Death) -> WorkerDiedError:
        building = self._handles[worker].stacks.building
        advice = "run the env_fn in this process to see why"
        if not self._forked and building == -1 and death.exitcode == 1:
            advice = _NOT_STARTED
        return died(worker, self._setups[worker].factories, "build", death, building, advice)

    # ------------------------------------------------------------------ commands

    def issue(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to workers, after every payload is packed."""
        pool, place = self.buffers.pool, slot
        if pool is not None and op is _STEP:
            place += pool.choose() * self.buffers.plan.slots
        if op is _STEP and self._is_plain:
            frames = [HEADER.pack(op, place, seq, 0)] * len(payloads)
            self._expected = {
                HEADER.pack(end, slot, seq, 0): [(end, slot, seq, b"")] for end in (_DONE, _TABLED)
            }
        else:
            frames = self._pack(op, place, seq, payloads)
        handles, working = self._handles, self._working
        self._touched = payloads
        for worker, frame in zip(payloads, frames, strict=True):
            channel, sent = handles[worker].channel, 0
            working[worker] = (*working.get(worker, ()), op)
            try:
                if not channel.pending:
                    sent = channel.line.write(frame)
            except (BlockingIOError, GONE):
                pass  # `send` handles it
            if sent < len(frame) and not channel.send(frame[sent:]):
                self._poller.watch_room(channel.out_fd, True)
        self._touched = ()

    def _pack(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> list[bytes]:
        """Pack a command with its arguments, and with actions that are not in shared memory."""
        frames, by_type = [], partial(dumps, otherwise=self._pickling.dumps)
        arguments: tuple[Any, ...]
        pack: Callable[[Any], bytes]
        try:
            for worker, payload in payloads.items():
                rows, exported, spilled = self.slices[worker], None, None
                if op in STEPS and not self._is_plain:
                    actions = self.buffers.actions
                    if self.buffers.arena.handle is not None:
                        spilled = actions.take_spilled(rows.start, rows.stop) or None
                        self.buffers.note_spilled(actions, spilled or [])
                    else:
                        exported = actions.export(index_of(rows))
                arguments, pack = (payload, exported, spilled), by_type
                if op is _STEP_ROWS and self._is_plain and not payload.starts:
                    # A tuple of plain values, which `pickle` itself packs in a third of the time.
                    arguments, pack = (tuple(payload), None, None), pack_plain
                frames.append(pack_frame(op, slot, seq, arguments, pack))
        except Exception as error:
            raise CannotSend(op, payload, self._pickling.dumps, error) from error
        return frames

    def _close_envs(
        self, workers: Iterable[int], deadline: Deadline, unanswered: set[int], wrong: list[Reply]
    ) -> None:
        # A worker that is built again reads no close command first. A signal handler may call this
        # in a wait, whose poll object cannot be used twice at once.
        handles, poller = self._handles, Poller(epoll=False)
        listening = [i for i in workers if i < len(handles) and handles[i].alive]
        unanswered.update(i for i in listening if handles[i].built or self._opening)
        for index in unanswered:
            handles[index].channel.send(pack_frame(Op.CLOSE, 0, 0))
        self._await_others(deadline)
        # Another thread may have closed workers that it was about to replace.
        unanswered.intersection_update([i for i in unanswered if handles[i].alive])
        every = {index: handles[index].every for index in unanswered}
        for index in unanswered:
            self._watch(handles[index], poller)
        before, self._collecting = self._collecting, get_ident()
        try:
            # A signal handler may close everything meanwhile.
            while unanswered and not deadline.passed and self._has_workers:
                ready = {fd for fd, _ in self._await(poller, deadline.left)}
                for index in [i for i in unanswered if not ready.isdisjoint(every[i])]:
                    wrong.extend(self._read_closed(index, poller, ready, unanswered))
                    for fd in () if index in unanswered else every[index]:
                        poller.remove(fd)
        finally:
            self._collecting = before
        if not self._has_workers:
            unanswered.clear()

    def _read_closed(
        self, index: int, poller: Poller, ready: set[int], unanswered: set[int]
    ) -> list[Reply]:
        """Read whether a worker has closed its environments; return what went wrong."""
        handle = self._handles[index]
        if handle.channel.pending:
            handle.flush(poller)
        frames, has_ended = handle.channel.receive({})
        for op, slot, seq, data in frames:
            if op is _DONE and seq == 0:
                unanswered.discard(index)
                if not data:
                    return []
                reply = self._understand(index, Op.CLOSE, op, slot, seq, partial(unpack, data))
                return [reply._replace(op=Op.FAILED)]
        if not (has_ended or (handle.process.watch in ready and not frames)):
            return []
        unanswered.discard(index)
        return [Reply(index, Op.DIED, 0, self._exit_status(index))]

    def retire(self, workers: Iterable[int], timeout: float) -> list[Reply]:
        """Let workers close their environments and end."""
        replies = super().retire(workers, timeout)
        with uninterrupted():
            self._end([self._handles[worker] for worker in workers], _TERMINATE_SECONDS)
        return replies

    def end(self, worker: int) -> None:
        """Kill a worker, and drop what it has replied; can be repeated."""
        with uninterrupted():
            self._end([self._handles[worker]], 0.0)
            self._working.pop(worker, None)

    @property
    def unknown(self) -> set[int]:
        """The workers whose pipes an interrupt left in an unknown state."""
        return super().unknown | {*(self._by_fd[fd] for fd, _ in self._ready if fd in self._by_fd)}

    def wait(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait for messages and deaths; return the descriptors to `read`."""
        clock, working = self.clock, self._working
        self._collecting = get_ident()
        try:
            if clock is not None:
                clock.note(COMPUTING)
            spins = 0 < len(working) <= self._most_working
            wait = partial(self._await, self._poller) if self._looks else self._poller.wait
            ready = wait(timeout, spins)
            if clock is not None:
                clock.note(WAITING)
            return ready
        finally:
            self._collecting = 0

    def _await(
        self, poller: Poller, timeout: float | None, spins: bool = False
    ) -> list[tuple[int, int]]:
        """Wait for messages and deaths; without process descriptors, look for deaths regularly."""
        if not self._looks:
            return poller.wait(timeout, spins)
        limit = _DEATH_SECONDS if timeout is None else min(timeout, _DEATH_SECONDS)
        ready = poller.wait(limit, spins)
        if ready or time.monotonic() < self._next_look:
            return ready
        self._next_look = time.monotonic() + _DEATH_SECONDS
        ended = [handle for handle in self._handles if handle.watched and handle.process.has_ended]
        return [(handle.process.watch, 0) for handle in ended]

    def read(self, came: list[tuple[int, int]]) -> list[Reply]:
        """Read the messages that came, and the deaths."""
        self._collecting, self._ready = get_ident(), came
        replies: list[Reply] = []
        stepped: list[int] = []
        working, seen, expected, handles = self._working, set[int](), self._expected, self._handles
        find, poller = self._by_fd.get, self._poller
        done = next(iter(expected.values()), [])  # the frames of the first header, that of `DONE`
        try:
            for fd, _ in came:
                index = find(fd)
                if index is None or index in seen:
                    continue
                seen.add(index)
                handle = handles[index]
                if handle.channel.pending:
                    handle.flush(poller)
                frames, ended = handle.channel.receive(expected)
                if frames is done:
                    stepped.append(index)
                    continue
                for op, slot, seq, data in frames:
                    if op is _TABLED:
                        if data:
                            form = Form(*unpack(data))
                            table = self.buffers.cells.table(self.slices[index], form)
                            self._tables[index] = [table]
                        replies.append(make_reply((index, _DONE, seq, self._tables[index])))
                    elif not data:
                        replies.append(make_reply((index, op, seq, None)))
                    else:
                        asked = working[index][0] if index in working else _BUILD
                        if op is _BUILT:
                            handle.built = True
                        read = partial(unpack, data)
                        replies.append(self._understand(index, asked, op, slot, seq, read))
                    if op is _DONE or op is _FAILED or op is _TABLED:
                        left = working.pop(index, ())[1:]
                        if left:
                            working[index] = left
                if ended or (fd == handle.process.watch and not frames):
                    working.pop(index, None)
                    replies.append(Reply(index, Op.DIED, 0, self._exit_status(index)))
                    self._forget(handle)
            if stepped:
                for index in stepped:
                    working.pop(index, None)
                replies.append(make_reply((stepped[0], _STEPPED, done[0][2], stepped)))
            self._ready = []
        finally:
            self._collecting = 0
        return replies

    def _exit_status(self, index: int) -> Death:
        """Return how a worker ended."""
        handle = self._handles[index]
        handle.alive = False
        handle.process.wait(_EXIT_SECONDS)
        # Workers often end together.
        end_trees(handle.process for handle in self._handles if handle.process.wait(0.0))
        code = handle.process.exitcode()
        return Death(code, stack=handle.stacks.read_crash(code))

    def _forget(self, handle: Handle) -> None:
        """Stop watching a worker, whose descriptors another worker may soon have."""
        if not handle.watched:
            return
        for fd in handle.every:
            self._poller.remove(fd)
            self._by_fd.pop(fd, None)
        handle.watched = False

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, also one that it builds."""
        # There are rows once all workers are built.
        if not (self._handles[worker].built and self._descriptions):
            return self._locate_building(worker, self._handles[worker].stacks.building)
        return super().locate(worker)

    def is_answering(self, worker: int) -> bool:
        """Whether a part of a worker's reply has come: only its transfer is slow."""
        return bool(self._handles[worker].channel.inbox)

    def stack(self, worker: int, patience: float = PATIENCE) -> str | None:
        """Ask a worker for the frames of its environment."""
        try:
            return self._handles[worker].stacks.ask(patience)
        except (OSError, ValueError):  # it has just ended, or another thread closed it
            return None

    # ------------------------------------------------------------------ the end

    def _end_all(self, unanswered: Collection[int], terminate: bool) -> None:
        """Terminate, then kill."""
        with uninterrupted():
            # Those that replied are ending, and need no signal.
            for index, handle in enumerate(self._handles):
                if index in unanswered or terminate or not (handle.built and handle.alive):
                    handle.process.end(kill=False)
            self._end(self._handles, _TERMINATE_SECONDS)
            self._poller.close()
            descriptors.close(*vars(self).pop("_shared", ()))
            self._working.clear()
            self._tables.clear()

    def abandon(self) -> None:
        """End every worker without a close command, and free the memory."""
        super().abandon()
        if hasattr(self, "buffers"):
            self.buffers.release()
        if self._arena is not None:
            self._arena.close()

    def disown(self) -> None:
        """In a forked process: leave the workers alone, and free copies of their descriptors."""
        for handle in self._handles:
            handle.alive = handle.watched = False  # an epoll descriptor is the caller's too
            handle.process.disown()
            handle.close()
        self._poller.close()
        self._collecting = 0  # that thread does not exist here
        self._has_workers = False

    def _end(self, handles: Sequence[Handle], timeout: float) -> None:
        """End workers, and free their descriptors; can be repeated.

        The poller watches them until another thread that waits for them has noticed their end.
        """
        for handle in handles:
            handle.alive = False
        end_all([handle.process for handle in handles], timeout)
        self._await_others(Deadline(_EXIT_SECONDS))
        for handle in handles:
            self._forget(handle)
            handle.process.close()
            handle.close()

    def _await_others(self, deadline: Deadline) -> None:
        """Wait until no other thread reads from the workers."""
        while self._collecting not in (0, get_ident()) and not deadline.passed:
            time.sleep(_LOOK_SECONDS)
