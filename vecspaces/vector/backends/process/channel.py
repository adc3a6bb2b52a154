"""Messages over two pipes: the caller's end never blocks, the worker's end may.

A step's command and its reply are one header each, 24 bytes, and so one system call each. A payload
follows only where there is one. The caller reads while it sends, so large actions going out and
large infos coming in never wait for each other.
"""

from __future__ import annotations

import contextlib
import pickle
import select
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from vecspaces.vector.backends.process.line import GONE, Line
from vecspaces.vector.backends.process.waiting import SpinPoll, WaitMode
from vecspaces.vector.exchange.messages import HEADER, Op, dumps

_CHUNK = 1 << 16
_READ_SIZE = (_CHUNK,)
_MOST_WRITTEN = 1 << 20
# `poll` reports at once that no such descriptor is open.
_NEVER_OPEN = 2**31 - 1


class Frame(NamedTuple):
    """One message: its slot of the ring, and the number of the command that it is or replies to."""

    op: Op
    slot: int
    seq: int
    data: bytes

    def load(self) -> Any:
        """Unpickle the payload, which came over an inherited descriptor; may raise anything."""
        return pickle.loads(self.data) if self.data else None


# Without the Python function that the constructor of a named tuple is.
_frame: Callable[[tuple[Op, int, int, bytes]], Frame] = partial(tuple.__new__, Frame)


def pack_frame(
    op: Op,
    slot: int,
    seq: int,
    payload: Any = None,
    dumps: Callable[[Any], bytes] = dumps,
    way: int = 0,
) -> bytes:
    """Turn a message into bytes; raises whatever the pickling of the payload raises."""
    if payload is None:
        return HEADER.pack(op, way, slot, seq, 0)
    data = dumps(payload)
    return HEADER.pack(op, way, slot, seq, len(data)) + data


_OPS = {int(op): op for op in Op}
_BUSY_POLLS = int(WaitMode.BUSY_POLLS)


class CallerEnd:
    """The caller's end of one worker's channel.

    While the caller waits, a signal handler may raise between any two calls. So what a system call
    read or wrote is recorded within the same call into C (`list.extend` over `map`), never in a
    statement after it.

    Attributes:
        pending: Whether something waits to be sent.
        inbox: What was read and is not yet taken out: `receive` takes nothing out of it.
    """

    def __init__(self, line: Line) -> None:
        line.set_blocking(False)
        self.line = line
        self.fd, self.out_fd = line.fd, line.out_fd
        self.pending = False
        self.inbox: list[bytes] = []
        self._outbox = b""
        # How much of the outbox each write took.
        self._written: list[int] = []

    def send(self, data: bytes) -> None:
        """Send what can be sent at once, and keep the rest for `flush`."""
        if self.pending:
            self._outbox += data
            return
        try:
            sent = self.line.write(data)
        except BlockingIOError:
            sent = 0
        except GONE:
            return  # the worker is gone, as `receive` finds
        if sent < len(data):
            self._outbox = data[sent:]
            self.pending = True

    def flush(self) -> None:
        """Send more of what waits."""
        start = sum(self._written)
        try:
            view = memoryview(self._outbox)[start : start + _MOST_WRITTEN]
            self._written.extend(map(self.line.write, (view,)))
        except BlockingIOError:
            return
        except GONE:
            self._written.append(len(self._outbox))  # as above
        if sum(self._written) >= len(self._outbox):
            self._outbox, self._written, self.pending = b"", [], False

    def receive(self) -> tuple[list[Frame], list[bytes], bool]:
        """Return the whole frames that came, the rest, and whether the worker's end is closed.

        The rest is for the caller to assign to `inbox`, once it has kept what the frames hold.
        """
        inbox, read = self.inbox, self.line.read
        size = _CHUNK
        while True:
            try:
                inbox.extend(map(read, _READ_SIZE))
            except BlockingIOError:
                break
            except GONE:
                inbox.append(b"")
            size = len(inbox[-1])
            if size < _CHUNK:
                break
        if not inbox:
            return [], inbox, False
        ended = size == 0
        if len(inbox) == 1 and size == HEADER.size:
            op, _, slot, seq, length = HEADER.unpack(inbox[0])
            if length == 0:
                return [_frame((_OPS[op], slot, seq, b""))], [], False
        if len(inbox[0]) >= HEADER.size:
            expected = HEADER.size + HEADER.unpack_from(inbox[0])[4]
            if sum(map(len, inbox)) < expected:  # joined once, when it is whole
                return [], inbox, ended
        data = b"".join(inbox)
        frames, at = [], 0
        while len(data) - at >= HEADER.size:
            op, _, slot, seq, length = HEADER.unpack_from(data, at)
            end = at + HEADER.size + length
            if len(data) < end:
                break
            frames.append(_frame((_OPS[op], slot, seq, data[end - length : end])))
            at = end
        return frames, [data[at:]] if at < len(data) else [], ended

    def close(self) -> None:
        """Close it; the worker comes to the end of the stream."""
        self.line.close()


class WorkerEnd:
    """The worker's end of its channel; `way` is how to wait for the next command."""

    def __init__(self, line: Line) -> None:
        line.set_blocking(True)
        self.line = line
        self._read, self._write = line.read, line.write
        self.way = int(WaitMode.FREE)
        self._last = Op.BUILD
        self._spin_poll: SpinPoll | None = None

    def allow_busy_polling(self) -> None:
        """From now on, busy-poll after commands that ask for it."""
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self.line.fd, select.POLLIN)
            self._spin_poll = SpinPoll(poll)

    def send(self, data: bytes) -> bool:
        """Send all of it, and return whether the caller is there to read it."""
        try:
            sent = self._write(data)
            while sent < len(data):
                sent += self._write(memoryview(data)[sent:])
        except GONE:
            return False
        return True

    def receive(self) -> tuple[Op, int, int, bytes] | None:
        """Wait for the next command; None at the end of the stream."""
        if self.way == _BUSY_POLLS and self._spin_poll is not None:
            self._spin_poll.poll(None, self._last)
        try:
            header = self._read(HEADER.size)
        except GONE:
            return None
        if len(header) < HEADER.size:
            header = self._rest(header, HEADER.size)
            if not header:
                return None
        number, self.way, slot, seq, length = HEADER.unpack(header)
        op = self._last = _OPS[number]
        if not length:
            return op, slot, seq, b""
        data = self._rest(b"", length)
        return (op, slot, seq, data) if data else None

    def _rest(self, data: bytes, count: int) -> bytes:
        """Read on until there are `count` bytes; empty at the end of the stream."""
        parts, left = [data], count - len(data)
        while left:
            try:
                parts.append(self._read(min(left, 1 << 20)))
            except GONE:
                return b""
            if not parts[-1]:
                return b""
            left -= len(parts[-1])
        return b"".join(parts)


class Poller:
    """Waits for several channels and processes at once, registered once."""

    def __init__(self) -> None:
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._spin_poll = None if self._poll is None else SpinPoll(self._poll)
        self._reading: set[int] = set()
        self._writing: set[int] = set()

    def add(self, fd: int) -> None:
        """Watch a descriptor for input or its end."""
        self._reading.add(fd)
        self._register(fd)

    def watch_room(self, fd: int, wanted: bool) -> None:
        """Watch a descriptor for room to write, or no longer."""
        if (fd in self._writing) != wanted:
            (self._writing.add if wanted else self._writing.discard)(fd)
            self._register(fd)

    def remove(self, fd: int) -> None:
        """Watch a descriptor no more; can be repeated."""
        self._reading.discard(fd)
        self._writing.discard(fd)
        if self._poll is not None:
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)

    def end(self) -> None:
        """Let every wait return at once, also one of another thread that is about to begin."""
        if self._poll is not None:
            self._poll.register(_NEVER_OPEN, 0)

    def _register(self, fd: int) -> None:
        if self._poll is None:
            return
        events = select.POLLIN * (fd in self._reading) | select.POLLOUT * (fd in self._writing)
        if events:
            self._poll.register(fd, events)
        else:
            self._poll.unregister(fd)

    def wait(self, timeout: float | None, spin_for: Op | None = None) -> list[tuple[int, int]]:
        """Return descriptors to read from or to write to, each with what `poll` reports of it.

        It may busy-poll for the end of the command `spin_for`.
        """
        if self._poll is not None:
            milliseconds = None if timeout is None else int(timeout * 1000 + 0.999)
            if spin_for is None or self._spin_poll is None:
                return self._poll.poll(milliseconds)
            return self._spin_poll.poll(milliseconds, spin_for)
        if not self._reading:
            return []
        readable, writable, _ = select.select(self._reading, self._writing, [], timeout)
        return [(fd, 0) for fd in {*readable, *writable}]
