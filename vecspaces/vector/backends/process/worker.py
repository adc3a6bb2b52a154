"""What runs in a worker process: build a group, bind its rows, then do what the caller asks."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vecspaces.memory import Arena
from vecspaces.vector.backends.backend import execute, find_unpicklable, written_rows
from vecspaces.vector.backends.process.affinity import CoreAffinity
from vecspaces.vector.backends.process.channel import Frame, Line, WorkerEnd, pack, watchable
from vecspaces.vector.backends.worker_setup import WorkerSetup
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import EnvironmentFailed, Failure
from vecspaces.vector.exchange.infos import to_plain
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.group.env_group import EnvGroup

# How long a worker may go on once its caller is gone, to let an idle one close its environments.
_GRACE = 0.4
# A part of a batch is reported once it took this long: often enough that nobody waits for a slow
# neighbour, seldom enough that cheap environments travel together.
_PART_SECONDS = 100e-6


def worker_main(line: Line, setup: WorkerSetup, inherited: Iterable[Line] = ()) -> None:
    """Run a worker until it is told to close, or its caller is gone.

    Args:
        line: The worker's end of its channel.
        setup: What to build.
        inherited: Ends of the caller's that a fork brought along. They must be closed: the end of
            a sibling's stream, the sign of the caller's death, would never come.
    """
    for other in inherited:
        other.close()
    # Ctrl-C is the caller's affair; what a fork inherited for SIGTERM is too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _leave_with(setup.caller)
    setup.settle()
    channel = WorkerEnd(line, setup.awake)
    try:
        group = EnvGroup(setup.env_fns(), setup.autoreset_mode, setup.first)
        built = pack(Op.BUILT, 0, 0, group.describe())
    except EnvironmentFailed as error:
        channel.send(pack(Op.FAILED, 0, 0, error.failure))
    except BaseException as error:
        channel.send(pack(Op.FAILED, 0, 0, Failure.of(error, setup.factories, "build")))
    else:
        channel.send(built)
        Worker(channel, group, setup).run()


class Worker:
    """A bound group and the loop that serves it.

    Args:
        channel: The way to the caller.
        group: The environments.
        setup: What it was told at its birth.
    """

    def __init__(self, channel: WorkerEnd, group: EnvGroup, setup: WorkerSetup) -> None:
        self._channel = channel
        self._group = group
        self._index, self._affinity = setup.index, CoreAffinity(setup.core)
        self._shares_memory = True

    def run(self) -> None:
        """Bind, then serve commands until the end."""
        frame, descriptor = self._channel.receive_with_descriptor()
        if frame is not None and frame.op is Op.BIND:
            self._bind(frame, descriptor)
            frame = self._serve()
        failure = self._group.close()
        if frame is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._channel.send(pack(Op.DONE, 0, frame.seq, failure))

    def _bind(self, frame: Frame, descriptor: int | None) -> None:
        plan, low, lost, tag = frame.load()
        handle = tag if descriptor is None else descriptor
        self._shares_memory = handle is not None
        self._buffers = Buffers(plan, None if handle is None else Arena.attach(handle, plan.size))
        self._may_spill = plan.observations.has_variable
        self._group.bind(self._buffers, low, self._index, lost)

    def _serve(self) -> Frame | None:
        """Answer commands; give the one that ended it, or None if the caller is gone."""
        receive, send, group = self._channel.receive, self._channel.send, self._group
        while True:
            frame = receive()
            if frame is None or frame.op is Op.CLOSE:
                return frame
            self._affinity.visit()
            op, slot, seq, data = frame
            try:
                payload: Any = self._unpack(frame) if data else None
                if op is Op.STEP_ROWS:
                    for part in self._step_rows(slot, payload):
                        send(self._pack(frame, Op.PART, part, part[1]))
                    continue
                result = execute(group, op, slot, payload)
                if op is Op.CALL:
                    found = dict(zip(payload[3], result, strict=True))
                    answer = self._pack(frame, Op.DONE, result, found)
                else:
                    told = self._attach(op, slot, result, written_rows(group, op, payload))
                    answer = self._pack(frame, Op.DONE, told, result)
            except EnvironmentFailed as error:
                answer = pack(Op.FAILED, slot, seq, error.failure)
            except BaseException as error:
                rows = range(group.low, group.high)
                answer = pack(Op.FAILED, slot, seq, Failure.of(error, rows, op.verb))
            try:
                send(answer)
            except (BrokenPipeError, ConnectionResetError):
                return None

    def _step_rows(self, slot: int, rows: list[int]) -> Iterator[Any]:
        """Step some rows, and report as many at a time as one report is worth."""
        parts, at, count = self._group.whole(rows), 0, 1
        while at < len(parts):
            chunk = [row for part in parts[at : at + count] for row in part]
            began = time.perf_counter()
            columns = self._group.step(slot, chunk)
            at += count
            count = count * 2 if time.perf_counter() - began < _PART_SECONDS else 1
            yield (chunk, *self._attach(Op.STEP_ROWS, slot, columns, chunk))

    def _unpack(self, frame: Frame) -> Any:
        """Put actions that came with the command where the group looks for them."""
        arguments, actions, spilled = frame.load()
        if actions is not None:
            self._buffers.actions.load(self._group.low, self._group.high, actions)
        if spilled is not None:
            self._buffers.actions.put_spilled(spilled)
        return arguments

    def _attach(self, op: Op, slot: int, result: Any, rows: Sequence[int] | None) -> Any:
        """Add to what was told about rows what the shared memory did not take of them."""
        if rows is None:
            return result
        columns = to_plain(result)
        if self._shares_memory:
            spilled = None
            if self._may_spill:
                spilled = self._buffers.take_spilled(slot, self._group.low, self._group.high)
            if op is not Op.STEP_ROWS and spilled is None and not columns:
                return None
            return columns, spilled, None
        return columns, None, self._buffers.export(slot, rows, op is not Op.RESET)

    def _pack(self, frame: Frame, op: Op, payload: Any, told: Any) -> bytes:
        """Pack an answer; say which environment told what cannot be pickled.

        Args:
            frame: The command.
            op: What the answer is.
            payload: What it carries.
            told: Of that, what environments told: columns of infos, or one result per row.
        """
        try:
            return pack(op, frame.slot, frame.seq, payload)
        except Exception as error:
            rows = range(self._group.low, self._group.high)
            failure = find_unpicklable(told, rows, frame.op) or Failure.of(
                error, rows, frame.op.verb
            )
            raise EnvironmentFailed(failure) from None


def _leave_with(caller: int) -> None:
    """End this process soon after the caller ended, even in the middle of a long step."""
    descriptor = watchable(caller)

    def watch() -> None:
        if descriptor is not None:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
        else:
            while _is_alive(caller):
                time.sleep(0.25)
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="vecspaces-caller-watch", daemon=True).start()


def _is_alive(pid: int) -> bool:
    """Whether a process exists, where no descriptor can tell."""
    if sys.platform == "win32":
        # On Windows the end of the stream tells; signal 0 would kill.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
