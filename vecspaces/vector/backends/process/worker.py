"""The loop of a worker process: it executes commands, and ends soon after its caller has died."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from vecspaces import system
from vecspaces.memory import Arena
from vecspaces.pickling import dumps
from vecspaces.vector.backends.backend import pack_part, pack_plain, pack_result
from vecspaces.vector.backends.process.channel import WorkerEnd, pack_frame
from vecspaces.vector.backends.process.line import Line, process_descriptor
from vecspaces.vector.backends.process.stacks import StackFile
from vecspaces.vector.backends.process.tree import Tree, fell
from vecspaces.vector.backends.row_stream import RowStream
from vecspaces.vector.backends.worker_setup import WorkerSetup
from vecspaces.vector.exchange.buffers import Buffers, index_of
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import InfosByRow
from vecspaces.vector.exchange.messages import HEADER, Op, Starts, StepRows, Written
from vecspaces.vector.exchange.tables import Form
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups

# How long a worker may run after the end of its caller, to close its environments.
_END_GRACE = 0.4
# The interval of checks for the caller's end, if no descriptor reports it.
_LOOK_MILLISECONDS = 250
_CLOSE, _DONE, _PART, _STEP, _STEP_ROWS = Op.CLOSE, Op.DONE, Op.PART, Op.STEP, Op.STEP_ROWS
_TABLED = Op.TABLED


def worker_main(
    line: Line,
    stacks: StackFile,
    tree: Tree,
    caller: int,
    setup: WorkerSetup | None = None,
    callers_end: Line | None = None,
) -> None:
    """Run a worker until the close command, or until the process `caller` has ended.

    A forked worker inherits the `setup` with its factories, and the other end of its line. Without
    a setup, it is the first message.
    """
    if callers_end is not None:
        callers_end.close()  # it would keep the line open after the caller's end
    tree = tree.lead()
    _forget_caller()
    channel = WorkerEnd(line)
    factories: Sequence[int] = ()
    try:
        stacks.install()
        _watch(caller, stacks, tree)  # where no more threads may be started, this fails
        if setup is None:
            message = channel.receive()
            if message is None:
                return
            factories, packed = pickle.loads(message[3])
            setup = pickle.loads(packed)
            assert setup is not None
        factories = setup.factories
        group = setup.build(stacks.note_building)
        built = pack_frame(Op.BUILT, 0, 0, group.describe())
    except BaseException as error:
        if not channel.send(pack_frame(Op.FAILED, 0, 0, Failure.of(error, factories, "build"))):
            fell([tree])
    else:
        channel.spins = setup.spins
        channel.send(built)
        worker = Worker(channel, group, setup)
        del setup  # frees the factories, and the data to which they refer
        if not worker.run():
            fell([tree])


def _forget_caller() -> None:
    """Drop the handlers and the event loop that a fork inherits, and do nothing at Ctrl-C."""
    signal.set_wakeup_fd(-1)  # through it, the caller's event loop learns of signals
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is not None and sys.version_info < (3, 12):  # later ones do so themselves
        asyncio.set_event_loop_policy(None)
        asyncio._set_running_loop(None)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    # Not SIG_IGN, which programs would inherit.
    signal.signal(signal.SIGINT, lambda *_: None)
    if system.SIGMASK:
        # It comes at the caller's death if a program of this group is stopped; this process must
        # then end the others.
        signal.signal(signal.SIGHUP, lambda *_: None)
        signal.siginterrupt(signal.SIGINT, False)
        signal.siginterrupt(signal.SIGHUP, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # A background process that reads from the terminal gets an error, and is not stopped.
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)


class Worker:
    """A bound group and the loop that serves it."""

    def __init__(self, channel: WorkerEnd, group: Group | Groups, setup: WorkerSetup) -> None:
        self._channel = channel
        self._group = group
        self._index = setup.index
        self._stream = RowStream(group)
        self._form: Form | None = None  # of the infos of the last step

    def run(self) -> bool:
        """Bind, then serve commands until the end; return whether the caller is there."""
        message = self._channel.receive()
        if message is not None and message[0] is Op.BIND:
            bound = self._bind(message[3])
            self._channel.send(bound)
            message = self._serve() if bound[0] == Op.BOUND else None
        try:
            failure = self._group.close()
        except BaseException as error:  # environments may raise any exception
            failure = Failure.of(error, self._group.rows, "close")
        if message is not None:
            self._channel.send(pack_frame(Op.DONE, 0, message[2], failure))
        return message is not None

    def _bind(self, data: bytes) -> bytes:
        """Make views of the rows; return the reply, with an exception if this fails."""
        try:
            self._view(*pickle.loads(data))
        except BaseException as error:
            return self._pack_failure(0, 0, error, "build")
        return pack_frame(Op.BOUND, 0, 0)

    def _view(self, packed_plan: bytes, low: int, restart: Starts | None, tag: str | None) -> None:
        plan, line = pickle.loads(packed_plan), self._channel.line
        handle = line.shared[0] if line.shared else tag
        arena = None if handle is None else Arena.attach(handle, plan.size)
        self._buffers = Buffers(plan, arena)
        self._may_spill = plan.observations.has_variable
        # Whether a reply without infos is only a header.
        self._rows_suffice = arena is not None and not self._may_spill
        self._group.bind(self._buffers, low, self._index, restart)

    def _serve(self) -> tuple[Op, int, int, bytes] | None:
        """Execute commands; return the close command, or None if the caller has ended."""
        channel, group = self._channel, self._group
        receive, send = channel.receive, channel.send
        steps, index, buffers = self._buffers.positions.steps, self._index, self._buffers
        pool, rows = buffers.pool, index_of(group.rows)
        while True:
            message = receive()
            if message is None or message[0] is _CLOSE:
                group.flush_timings()  # the next worker continues the counts
                return message
            op, slot, seq, data = message
            if pool is not None:
                pool.number, slot = divmod(slot, buffers.plan.slots)
            try:
                payload: Any = self._unpack(data) if data else None
                if op is _STEP_ROWS:
                    self._step_rows(slot, seq, StepRows(*payload))
                    continue
                if op is _STEP:
                    steps[index] += 1
                result = group.execute(op, slot, payload)
                if pool is not None and pool.number:
                    pool.fill(buffers.observations[slot], rows)
                reply = self._pack_end(slot, seq, result, op)
            except BaseException as error:
                reply = self._pack_failure(slot, seq, error, op.verb)
            if not send(reply):
                return None

    def _pack_end(self, slot: int, seq: int, result: Any, command: Op) -> bytes:
        """Pack the reply to a command; most steps need only a header."""
        if isinstance(result, Written) and self._rows_suffice:
            if not result.infos:
                return HEADER.pack(_DONE, slot, seq, 0)
            form = self._tabulate(result) if command is _STEP else None
            if form is not None:
                changed, self._form = form != self._form, form
                return pack_frame(_TABLED, slot, seq, form.plain if changed else None, pack_plain)
        # With the values that did not fit into shared memory.
        attached = self._attach(command, slot, result) if isinstance(result, Written) else result
        pack = partial(pack_frame, _DONE, slot, seq)
        return pack_result(attached, result, pack, self._group, command)

    def _tabulate(self, written: Written) -> Form | None:
        """Write infos that are the same numbers in all rows into cells; return their form."""
        infos = written.infos[0] if len(written.infos) == 1 else None
        if infos.__class__ is not InfosByRow:
            return None
        return self._buffers.cells.write(written.rows, infos)

    def _pack_failure(self, slot: int, seq: int, error: BaseException, verb: str) -> bytes:
        rows = self._group.rows
        return pack_frame(Op.FAILED, slot, seq, Failure.of(error, rows, verb))

    def _unpack(self, data: bytes) -> Any:
        """Return the arguments of a command, after writing the actions that came with it."""
        arguments, actions, spilled = pickle.loads(data)
        if actions is not None:
            self._buffers.actions.load(index_of(self._group.rows), actions)
        if spilled is not None:
            self._buffers.actions.put_spilled(spilled)
        return arguments

    def _attach(self, op: Op, slot: int, written: Written) -> Any:
        """Add to the infos of rows the values that did not fit into shared memory."""
        outside = self._take_outside(op, slot, written.rows)
        return (written.infos, *outside) if written.infos or outside != (None, None) else None

    def _take_outside(self, op: Op, slot: int, rows: Sequence[int]) -> tuple[Any, Any]:
        """Return the values that are not in shared memory: too large ones, or all of rows."""
        if self._buffers.arena.handle is None:
            return None, self._buffers.export(slot, rows, op)
        if not self._may_spill:
            return None, None
        return self._buffers.take_spilled(slot, self._group.rows.start, self._group.rows.stop), None

    def _step_rows(self, slot: int, seq: int, payload: StepRows) -> None:
        """Step rows of a stream; the last of its replies ends the command."""
        left = len(payload.rows)
        for written in self._stream.step(slot, payload):
            rows, infos, failures = written
            left -= len(rows) + sum(len(failed) for failed, _ in failures)
            if self._rows_suffice and not infos and len(rows) == len(payload.rows):
                reply = HEADER.pack(_DONE, slot, seq, 0)  # all rows, and nothing else
            else:
                form = self._tabulate(written) if self._rows_suffice else None
                if form is not None:
                    written = written._replace(infos=form.plain)
                op = _PART if left else _DONE
                outside = self._take_outside(_STEP_ROWS, slot, rows)
                reply = pack_part(written, outside, partial(pack_frame, op, slot, seq), dumps)
            self._channel.send(reply)


def _watch(caller: int, stacks: StackFile, tree: Tree) -> None:
    """Start a thread that writes stacks on request, and ends this process soon after the caller.

    It ends the process even in the middle of a long step.
    """
    end, poll = process_descriptor(caller), system.make_poll()
    for watched in (end, stacks.bell):
        if watched >= 0:
            poll.register(watched, system.POLLIN)

    def watch() -> None:
        while True:
            ready = {fd for fd, _ in poll.poll(_LOOK_MILLISECONDS if end < 0 else None)}
            if end in ready or (end < 0 and not _is_alive(caller)):
                break
            if ready:
                stacks.answer()
        time.sleep(_END_GRACE)
        fell([tree])
        os._exit(1)

    threading.Thread(target=watch, name="vecspaces-caller-watch", daemon=True).start()


def _is_alive(pid: int) -> bool:
    """Whether the caller exists, without process descriptors."""
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():  # also before the first wait for it
        return False
    if not system.FORK:  # `os.kill` would end it on Windows
        return True
    process: Any = multiprocessing.current_process()
    if process._start_method != "forkserver":
        # An ended process accepts signals until its parent waits for it.
        return os.getppid() == pid
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
