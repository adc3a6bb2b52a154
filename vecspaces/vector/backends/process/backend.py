"""The backend of worker processes: starts them, rings them, hears them, buries them.

::

    caller                                             worker (one of many)
    ProcessBackend ── CallerEnd ═══ two pipes ═══ WorkerEnd ── Worker ── EnvGroup
          │                                                        │
          └── Buffers ──────── one anonymous Arena ──────── Buffers ┘

A command is one frame over the worker's pipe; observations, actions, rewards and flags lie in the
arena, which is made once the workers have told their spaces and travels as a descriptor.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from vecspaces.errors import StepTimeoutError
from vecspaces.memory import Arena
from vecspaces.vector.backends.backend import Planner
from vecspaces.vector.backends.process.affinity import CoreAffinity
from vecspaces.vector.backends.process.channel import (
    CallerEnd,
    Frame,
    Line,
    Poller,
    pack,
    watchable,
)
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.backends.process.worker import worker_main
from vecspaces.vector.backends.worker_setup import (
    THREAD_VARIABLES,
    assign_rows,
    plan_workers,
    space_mismatch,
)
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.failures import Death, EnvIds, Failure, Message, died
from vecspaces.vector.exchange.infos import from_plain
from vecspaces.vector.exchange.messages import CannotSend, Op, Reply
from vecspaces.vector.group.members import GroupDescription
from vecspaces.vector.utils import clear_mpi_env_vars
from vecspaces.vector.vector_env import AutoresetMode

# A process that imports its main module again, and finds an AsyncVectorEnv in it, ends with this.
UNGUARDED_MAIN = 86

# Every caller's end in this process: a forked worker must close them all, whoever they belong to.
_CALLER_ENDS: weakref.WeakSet[CallerEnd] = weakref.WeakSet()

_TERMINATE_SECONDS = 0.3
_KILL_SECONDS = 0.5


@dataclass
class _Handle:
    """One worker, as the caller sees it.

    Args:
        process: The process.
        channel: The way to it.
        watch: A descriptor that becomes readable when it ends; None where there is none.
        build_by: When its environments must be built, on the monotonic clock; None once they are.
        alive: Whether it is not known to have ended.
    """

    process: BaseProcess
    channel: CallerEnd
    watch: int | None
    build_by: float | None
    alive: bool = True


class ProcessBackend:
    """Runs slices of the environments in worker processes.

    Args:
        env_fns: Factories of environments.
        autoreset_mode: What follows the end of an episode.
        num_workers: The number of processes.
        context: The start method; None for the platform's default.
        daemon: Whether workers are daemons; daemons cannot have children.
        shared_memory: Whether rows lie in shared memory.
        worker_threads: Threads for native libraries in a worker; None leaves them alone.
        start_timeout: The longest wait for environments to be built again, in seconds.
    """

    slices: list[range]
    buffers: Buffers
    replies: deque[Reply]

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        *,
        num_workers: int,
        context: str | None,
        daemon: bool,
        shared_memory: bool,
        worker_threads: int | None,
        start_timeout: float,
    ) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # The main module has no guard: say nothing here, the first process says it once.
            os._exit(UNGUARDED_MAIN)
        self._context: BaseContext = multiprocessing.get_context(context)
        self._daemon = daemon
        self._shared_memory = shared_memory
        self._start_timeout = start_timeout
        self._poller = Poller()
        self._handles: list[_Handle] = []
        self._by_fd: dict[int, int] = {}
        self.replies = deque()
        self._found: tuple[list[tuple[CallerEnd, list[bytes]]], list[Reply]] | None = None
        self._reading = False
        # The number of the last command: what came with a reply to an older one is dropped.
        self._seq = 0
        # What workers are busy with, and how many may be while the caller waits awake.
        self._working: dict[int, Op] = {}
        self._spare_cores = count_usable_cores() - 1
        self._plan: BufferPlan | None = None
        self._descriptions: list[GroupDescription] = []
        forked = self._context.get_start_method() == "fork"
        self._setups = plan_workers(
            env_fns, num_workers, autoreset_mode, worker_threads, by_value=not forked
        )
        # The caller shares the core of the worker that never waits awake.
        self._affinity = CoreAffinity(self._setups[-1].core)

    @property
    def processes(self) -> list[BaseProcess]:
        """The worker processes."""
        return [handle.process for handle in self._handles]

    # ------------------------------------------------------------------ starting

    def open(self, plan: Planner, timeout: float) -> None:
        """Start all workers at once, learn their spaces, and hand them the arena."""
        try:
            for index in range(len(self._setups)):
                self._handles.append(self._launch(index))
            self._await_built(time.monotonic() + timeout)
            self._plan = plan(self._descriptions)
            arena = Arena.shared(self._plan.size) if self._shared_memory else None
            self.buffers = Buffers(self._plan, arena)
            # Whether every action fits into shared memory, so that a step is a bare header.
            self._rows_suffice = self._shared_memory and not self._plan.actions.has_variable
            self.buffers.progress[:] = -1
            self.slices = assign_rows(self._descriptions)
            for index in range(len(self._handles)):
                self._bind(index, None)
        except BaseException:
            self.close(0.0, terminate=True)
            raise

    def _launch(self, index: int) -> _Handle:
        """Start one worker."""
        setup = self._setups[index]
        ours, theirs = Line.pair()
        forked = self._context.get_start_method() == "fork"
        inherited = [end.line for end in _CALLER_ENDS] + [ours] if forked else []
        process = self._context.Process(  # type: ignore[attr-defined]  # typeshed has it on subclasses
            target=worker_main,
            name=f"vecspaces-worker-{index}",
            args=(theirs, setup, inherited),
            daemon=self._daemon,
        )
        try:
            with clear_mpi_env_vars(), _environment(setup.threads), self._no_interrupt():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = CallerEnd(ours)
        _CALLER_ENDS.add(channel)
        watch = watchable(process.pid)
        self._by_fd[channel.out_fd] = index
        for fd in (channel.fd, watch):
            if fd is not None:
                self._by_fd[fd] = index
                self._poller.add(fd)
        return _Handle(process, channel, watch, time.monotonic() + self._start_timeout)

    @contextlib.contextmanager
    def _no_interrupt(self) -> Iterator[None]:
        """Let a new process be born deaf to Ctrl-C; the worker listens once it ignores it."""
        # Not where a fork server would stay deaf, and bear deaf children to others.
        if sys.platform == "win32" or self._context.get_start_method() == "forkserver":
            yield
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _await_built(self, deadline: float) -> None:
        """Wait until every worker has built its environments."""
        described: dict[int, GroupDescription] = {}
        while len(described) < len(self._handles):
            replies = self._take(deadline)
            if not replies and time.monotonic() >= deadline:
                late = [index for index in range(len(self._handles)) if index not in described]
                ids = [number for index in late for number in self._setups[index].factories]
                raise StepTimeoutError(
                    Message(
                        "{} were not built within start_timeout: "
                        "allow more time, or find out what their env_fn waits for",
                        EnvIds(ids),
                    ),
                    ids,
                )
            for reply in sorted(replies, key=lambda reply: reply.worker):
                if reply.op is Op.FAILED:
                    reply.payload.throw()
                elif reply.op is Op.DIED:
                    self._raise_startup_failure(reply)
                else:
                    described[reply.worker] = reply.payload
        self._descriptions = [described[index] for index in range(len(self._handles))]

    def _raise_startup_failure(self, reply: Reply) -> None:
        """Say why a worker died before its environments were built."""
        if reply.payload.exitcode == UNGUARDED_MAIN:
            raise RuntimeError(
                "the script makes an AsyncVectorEnv while it is imported by a worker: put what it "
                'runs below `if __name__ == "__main__":`, or use context="fork" where there is one'
            )
        raise died(
            reply.worker,
            self._setups[reply.worker].factories,
            "build",
            reply.payload,
            -1,
            "run the env_fn in this process to see why",
        )

    def _bind(self, index: int, lost: Any) -> None:
        """Tell a worker where its rows lie."""
        arena = self.buffers.arena
        tag = arena.handle if isinstance(arena.handle, str) else None
        payload = (self._plan, self.slices[index].start, lost, tag)
        channel = self._handles[index].channel
        channel.send_with_descriptor(pack(Op.BIND, 0, 0, payload), arena.fd)
        self._poller.watch_room(channel.out_fd, channel.pending)

    # ------------------------------------------------------------------ commands

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Ring workers, once every payload is packed."""
        if op is Op.BUILD:
            for worker, lost in payloads.items():
                self._replace(worker, lost)
            return
        self._seq = seq
        bare = pack(op, slot, seq)
        try:
            frames = [
                bare
                if payload is None and self._rows_suffice
                else pack(op, slot, seq, self._with_actions(worker, op, payload))
                for worker, payload in payloads.items()
            ]
        except Exception as error:
            raise CannotSend(error) from None
        if not self._working:
            self._affinity.visit()
        for worker, frame in zip(payloads, frames, strict=True):
            self._working[worker] = op
            channel = self._handles[worker].channel
            channel.send(frame)
            if channel.pending:
                self._poller.watch_room(channel.out_fd, True)

    def _with_actions(self, worker: int, op: Op, payload: Any) -> Any:
        """Add the actions to a command, where they do not lie in shared memory."""
        rows = self.slices[worker]
        exported = spilled = None
        if op in (Op.STEP, Op.STEP_ROWS):
            if self._shared_memory:
                spilled = self.buffers.actions.take_spilled(rows.start, rows.stop) or None
            else:
                exported = self.buffers.actions.export(rows.start, rows.stop)
        return payload, exported, spilled

    def _replace(self, worker: int, lost: Any) -> None:
        """Put a new worker in the place of one that is dead, or too slow."""
        self._reap(self._handles[worker])
        self._working.pop(worker, None)
        self._setups[worker] = self._setups[worker].respawned()
        self._handles[worker] = self._launch(worker)
        self._bind(worker, lost)

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Wait for frames and deaths.

        What was read stays in the inboxes until `_found` holds the replies made of it, and
        `_settle` can be repeated: an interrupt at any moment loses and doubles nothing.
        """
        if self._found is not None:
            self._settle()
        if self.replies:
            return self.replies
        rests: list[tuple[CallerEnd, list[bytes]]] = []
        replies: list[Reply] = []
        if self._reading:  # interrupted between reading and finding: nothing may be left to read
            ready: Iterable[int] = [handle.channel.fd for handle in self._handles]
        else:
            awake = 0 < len(self._working) <= self._spare_cores
            ready = self._poller.wait(timeout, awake)
        self._reading = True
        seen: set[int] = set()
        for fd in ready:
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
                if frame.data:
                    replies.append(self._understand(index, frame))
                else:
                    replies.append(Reply(index, frame.op, frame.seq, None))
                if frame.op is not Op.PART:
                    self._working.pop(index, None)
            if ended or (fd == handle.watch and not frames):
                self._working.pop(index, None)
                replies.append(Reply(index, Op.DIED, 0, self._exit_status(handle)))
        self._found = rests, replies
        self._settle()
        return self.replies

    def _settle(self) -> None:
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

    def _take(self, deadline: float) -> list[Reply]:
        """Take what comes until a point in time, where no session does."""
        replies = list(self.collect(min(1e6, max(0.0, deadline - time.monotonic()))))
        self.replies.clear()
        return replies

    def _understand(self, index: int, frame: Frame) -> Reply:
        """Take in what came beside the answer."""
        op, slot, seq, _ = frame
        try:
            payload = frame.load()
        except Exception:  # an info or a result that can be pickled but not unpickled
            ids = self.slices[index] if self._descriptions else self._setups[index].factories
            asked = self._working.get(index, Op.BUILD)
            failure = Failure.unreadable(ids, asked.verb, index)
            return Reply(index, Op.FAILED, seq, failure)
        if isinstance(payload, Failure):
            payload = replace(payload, worker=index)
        if op is Op.BUILT:
            self._handles[index].build_by = None
            if self._descriptions and payload.layout != self._descriptions[index].layout:
                return Reply(index, Op.FAILED, seq, space_mismatch(self.slices[index], index))
        elif op is Op.PART:
            rows, columns, spilled, exported = payload
            self._take_in(slot, seq, spilled, exported)
            payload = rows, from_plain(columns)
        elif op is Op.DONE and isinstance(payload, tuple):
            columns, spilled, exported = payload
            self._take_in(slot, seq, spilled, exported)
            payload = from_plain(columns)
        return Reply(index, op, seq, payload)

    def _take_in(self, slot: int, seq: int, spilled: Any, exported: Any) -> None:
        if seq != self._seq:
            return
        if spilled is not None:
            self.buffers.put_spilled(slot, spilled)
        if exported is not None:
            self.buffers.load(slot, exported)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Ask, wait, terminate, kill; always ends, even if it is interrupted."""
        wrong: list[Reply] = []
        # Those that may be asked; a worker that builds would not hear it.
        asked = {
            index
            for index, handle in enumerate(self._handles)
            if handle.alive and not terminate and handle.build_by is None
        }
        unanswered = set(asked)
        try:
            self._ask_to_close(unanswered, time.monotonic() + timeout, wrong)
        finally:
            # Those that answered are on their way out; the others are told by the system.
            for index, handle in enumerate(self._handles):
                if index in unanswered or index not in asked:
                    handle.process.terminate()
            self._join_all(_TERMINATE_SECONDS)
            for handle in self._handles:
                self._reap(handle)
            self._handles = []
        wrong.extend(Reply(index, Op.CLOSE, 0, None) for index in unanswered)
        return wrong

    def _ask_to_close(self, unanswered: set[int], deadline: float, wrong: list[Reply]) -> None:
        """Ask workers to close their environments; strike those that did off `unanswered`."""
        for index in unanswered:
            self._handles[index].channel.send(pack(Op.CLOSE, 0, 0))
        while unanswered and time.monotonic() < deadline:
            for reply in self._take(deadline):
                if reply.worker not in unanswered:
                    continue  # it answered, and then it ended: that is how it should be
                if reply.op is Op.DIED:
                    wrong.append(reply)
                elif reply.op is Op.DONE and reply.seq == 0:
                    if reply.payload is not None:
                        wrong.append(reply._replace(op=Op.FAILED))
                else:
                    continue
                unanswered.discard(reply.worker)

    def _join_all(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for handle in self._handles:
            handle.process.join(max(0.0, deadline - time.monotonic()))

    def _reap(self, handle: _Handle) -> None:
        """Make sure that a worker is gone, and free what it was known by."""
        self._forget(handle)
        if handle.process.is_alive():
            handle.process.kill()
        handle.process.join(_KILL_SECONDS)
        handle.channel.close()
        if handle.watch is not None:
            os.close(handle.watch)
            handle.watch = None
        with contextlib.suppress(ValueError):  # not gone yet: the kernel will see to it
            handle.process.close()

    def _exit_status(self, handle: _Handle) -> Death:
        """Return how a worker ended."""
        handle.alive = False
        handle.process.join(_KILL_SECONDS)
        return Death(handle.process.exitcode)

    def _forget(self, handle: _Handle) -> None:
        for fd in {handle.channel.fd, handle.channel.out_fd, handle.watch}:
            if fd is not None and fd in self._by_fd:
                self._poller.remove(fd)
                del self._by_fd[fd]


@contextlib.contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """Let a starting process read the number of threads before it loads NumPy."""
    if threads is None:
        yield
        return
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
