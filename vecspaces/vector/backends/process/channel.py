"""Messages over two pipes: the caller's end never blocks, the worker's end may.

A step's command is one header of 24 bytes, and so one system call; its reply likewise. A payload
follows only if it is not empty. The caller reads while it sends, so that sending large actions and
receiving large infos never wait for each other.
"""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import select
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from vecspaces import system
from vecspaces.pickling import dumps
from vecspaces.vector.backends.process.descriptors import Bell
from vecspaces.vector.backends.process.line import GONE, Line
from vecspaces.vector.backends.process.waiting import HANDLER_SECONDS, SPIN_SECONDS, spin
from vecspaces.vector.exchange.messages import HEADER, Op

_CHUNK = 1 << 16
_MOST_WRITTEN = 1 << 20
# What a wait returns after `close`: no descriptor has this number.
_CLOSED = [(-1, 0)]


#: A message: its meaning, its slot of the ring, the number of the command, and the payload.
Frame = tuple[Op, int, int, bytes]


def unpack(data: bytes) -> Any:
    """Unpickle a payload, which came over an inherited descriptor; may raise anything."""
    return pickle.loads(data) if data else None


def pack_frame(
    op: Op, slot: int, seq: int, payload: Any = None, dumps: Callable[[Any], bytes] = dumps
) -> bytes:
    """Convert a message to bytes; exceptions of pickling are not caught."""
    if payload is None:
        return HEADER.pack(op, slot, seq, 0)
    data = dumps(payload)
    return HEADER.pack(op, slot, seq, len(data)) + data


_OPS = {int(op): op for op in Op}


class CallerEnd:
    """The caller's end of one worker's channel.

    An interrupt in one of its methods may lose bytes: the worker must then be replaced.

    Attributes:
        pending: Whether something waits to be sent.
        inbox: The bytes of an incomplete message.
    """

    def __init__(self, line: Line) -> None:
        line.set_blocking(False)
        self.line = line
        self.fd, self.out_fd = line.fd, line.out_fd
        self.pending = False
        self.inbox: list[bytes] = []
        self._outbox = memoryview(b"")

    def send(self, data: bytes) -> bool:
        """Send as much as possible at once, and store the rest for `flush`; return whether all."""
        if self.pending:
            self._outbox = memoryview(bytes(self._outbox) + data)
            return False
        try:
            sent = self.line.write(data)
        except BlockingIOError:
            sent = 0
        except GONE:
            return True  # the worker has ended, as `receive` finds
        if sent == len(data):
            return True
        self._outbox = memoryview(data)[sent:]
        self.pending = True
        return False

    def flush(self) -> None:
        """Send more of the stored bytes."""
        try:
            sent = self.line.write(self._outbox[:_MOST_WRITTEN])
        except BlockingIOError:
            return
        except GONE:
            sent = len(self._outbox)  # as above
        self._outbox = self._outbox[sent:]
        self.pending = len(self._outbox) > 0

    def receive(self, expected: Mapping[bytes, list[Frame]]) -> tuple[list[Frame], bool]:
        """Return the whole frames that came, and whether the worker's end is closed.

        `expected` has the frames of headers that probably come, which saves unpacking them.
        """
        inbox, read, ended = self.inbox, self.line.read, False
        while True:
            try:
                data = read(_CHUNK)
            except BlockingIOError:
                break
            except GONE:
                data = b""
            if data in expected and not inbox:
                return expected[data], False
            inbox.append(data)
            if len(data) < _CHUNK:
                ended = not data
                break
        if not inbox:
            return [], ended
        if len(inbox[0]) >= HEADER.size:
            whole = HEADER.size + HEADER.unpack_from(inbox[0])[-1]
            if sum(map(len, inbox)) < whole:  # joined once, when it is whole
                return [], ended
        data = b"".join(inbox)
        frames, start = [], 0
        while len(data) - start >= HEADER.size:
            op, slot, seq, length = HEADER.unpack_from(data, start)
            end = start + HEADER.size + length
            if len(data) < end:
                break
            frames.append((_OPS[op], slot, seq, data[end - length : end]))
            start = end
        self.inbox = [data[start:]] if start < len(data) else []
        return frames, ended

    def close(self) -> None:
        """Close it; the worker then reads the end of the stream."""
        self.line.close()


class WorkerEnd:
    """The worker's end of its channel.

    Attributes:
        spins: Whether it polls for a short time before it sleeps.
    """

    spins = False

    def __init__(self, line: Line) -> None:
        line.set_blocking(True)
        self.line = line
        self._read, self._write = line.read, line.write
        self._poll = system.make_poll()
        self._poll.register(line.fd, system.POLLIN)

    def send(self, data: bytes) -> bool:
        """Send all of it, and return whether the caller is there to read it."""
        try:
            sent = self._write(data)
            while sent < len(data):
                sent += self._write(memoryview(data)[sent:])
        except GONE:
            return False
        return True

    def receive(self) -> Frame | None:
        """Wait for the next command; None at the end of the stream."""
        if self.spins:
            spin(partial(self._poll.poll, 0))
        try:
            header = self._read(HEADER.size)
        except GONE:
            return None
        if len(header) < HEADER.size:
            header = self._rest(header, HEADER.size)
            if not header:
                return None
        number, slot, seq, length = HEADER.unpack(header)
        data = self._rest(b"", length) if length else b""
        return None if length and not data else (_OPS[number], slot, seq, data)

    def _rest(self, data: bytes, count: int) -> bytes:
        """Read until there are `count` bytes; return nothing at the end of the stream."""
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
    """Waits for several channels and processes at once, registered once.

    By epoll where the system has it, because `poll` checks each descriptor twice per wait. Forked
    processes inherit its descriptor, which keeps no other open. Unlike `poll`, it may be used
    by several threads at once, and again in a signal handler.
    """

    def __init__(self, epoll: bool = True) -> None:
        self._epoll: Any = None
        if epoll and system.EPOLL:
            self._epoll = select.epoll()
        self._poll = self._epoll or system.make_poll()
        self._reading: set[int] = set()
        self._writing: set[int] = set()
        self._bell: Bell | None = None
        self._outer: Any = None
        self._is_closed = False

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something to read, or rows wait.

        It watches the one that `wait` uses, which rows that wait must not wake.
        """
        if self._epoll is None:
            raise io.UnsupportedOperation("fileno() needs epoll, which this system does not have")
        if self._bell is None:
            bell, self._outer = Bell(), type(self._epoll)()
            for watched in (self._epoll.fileno(), bell.fd):
                self._outer.register(watched, system.POLLIN)
            self._bell = bell
        return int(self._outer.fileno())

    def ring(self, rings: bool) -> None:
        """Note whether rows wait to be received."""
        if self._bell is not None and rings is not self._bell.rings:
            (self._bell.ring if rings else self._bell.silence)()

    def add(self, fd: int) -> None:
        """Watch a descriptor for input or its end; a negative number stands for none."""
        if fd >= 0:
            self._reading.add(fd)
            self._register(fd)

    def watch_room(self, fd: int, wanted: bool) -> None:
        """Watch a descriptor for space to write, or stop this; after an interrupt, repeat it."""
        (self._writing.add if wanted else self._writing.discard)(fd)
        self._register(fd)

    def remove(self, fd: int) -> None:
        """Stop watching a descriptor; can be repeated."""
        self._reading.discard(fd)
        if fd >= 0:
            self.watch_room(fd, False)

    def close(self) -> None:
        """Free its own descriptors; can be repeated. Every wait then returns at once."""
        self._is_closed, self._bell = True, None
        for epoll in filter(None, (self._epoll, self._outer)):
            epoll.close()

    def _register(self, fd: int) -> None:
        events = system.POLLIN * (fd in self._reading) | system.POLLOUT * (fd in self._writing)
        try:
            # First, because epoll does not register twice.
            with contextlib.suppress(KeyError, OSError):
                self._poll.unregister(fd)
            if events:
                self._poll.register(fd, events)
        except (OSError, ValueError):
            if not self._is_closed:  # meanwhile, by another thread
                raise

    def wait(self, timeout: float | None, spins: bool = False) -> list[tuple[int, int]]:
        """Return descriptors that are readable or writable, each with its events of `poll`.

        If it `spins`, it polls for a short time before it sleeps.
        """
        poll, unit = self._poll.poll, 1 if self._epoll is not None else 1000
        left = math.inf if timeout is None else timeout
        ready: list[tuple[int, int]] = []
        try:
            if spins and timeout != 0:  # as `spin` does, whose call would take time
                until = perf_counter() + SPIN_SECONDS
                while not (ready := poll(0)) and perf_counter() < until:
                    system.yield_core()
            while not (ready or self._is_closed) and left > HANDLER_SECONDS:
                ready = poll(HANDLER_SECONDS * unit)
                left -= HANDLER_SECONDS
            return _CLOSED if self._is_closed else ready or poll(left * unit)
        except (OSError, ValueError):
            if self._is_closed:  # meanwhile, by a signal handler or another thread
                return _CLOSED
            raise
