"""Frames over two pipes: the caller's end never blocks, the worker's end may.

A step's command and its answer are one header each, 24 bytes, and so one system call each. A
payload follows only where there is something to say. The caller drains while it sends, so large
actions going out and large infos coming in never wait for each other.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from vecspaces.vector.backends.process.affinity import SpinPoll
from vecspaces.vector.exchange.messages import HEADER, Op

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_CHUNK = 1 << 16
_READ_SIZE = (_CHUNK,)
_MOST_WRITTEN = 1 << 20
_GONE = (BrokenPipeError, ConnectionResetError)


class Frame(NamedTuple):
    """One message.

    Attributes:
        op: What it means.
        slot: The slot of the ring.
        seq: The number of the command that it is, or answers.
        data: What else there is to say, pickled; empty for nothing.
    """

    op: Op
    slot: int
    seq: int
    data: bytes

    def load(self) -> Any:
        """Unpickle the payload, which came over an inherited descriptor; may raise anything."""
        return pickle.loads(self.data) if self.data else None


def pack(op: Op, slot: int, seq: int, payload: Any = None) -> bytes:
    """Turn a message into bytes.

    Raises:
        Exception: Whatever the pickling of the payload raises.
    """
    if payload is None:
        return HEADER.pack(op, slot, seq, 0)
    try:
        data = pickle.dumps(payload, protocol=5)
    except Exception:  # lambdas, and what is defined in __main__ or in a function
        data = cloudpickle.dumps(payload, protocol=5)
    return HEADER.pack(op, slot, seq, len(data)) + data


_OPS = {int(op): op for op in Op}


class Line:
    """One of the two ends of what joins a caller and a worker; it can be handed to a new process.

    Bytes go through a pipe in each direction, descriptors through a socket. Who reads from a socket
    wakes its other end, which may write again and only waits to read: that wake-up of a worker for
    nothing cost more than all of the rest of a step. Where `select` takes sockets alone (Windows),
    bytes go through the socket too.

    Args:
        sock: A socket of a pair.
        incoming: The end of a pipe to read from; None to read from the socket.
        outgoing: The end of a pipe to write to; None to write to the socket.
    """

    def __init__(
        self,
        sock: socket.socket,
        incoming: Connection[Any, Any] | None = None,
        outgoing: Connection[Any, Any] | None = None,
    ) -> None:
        self.sock = sock
        self._pipes = [pipe for pipe in (incoming, outgoing) if pipe is not None]
        self.fd = (incoming or sock).fileno()
        self.out_fd = (outgoing or sock).fileno()
        self.read: Callable[[int], bytes] = partial(os.read, self.fd) if incoming else sock.recv
        self.write: Callable[[Any], int] = partial(os.write, self.out_fd) if outgoing else sock.send

    def __reduce__(self) -> tuple[Any, ...]:
        return Line, (self.sock, *self._pipes)

    @classmethod
    def pair(cls) -> tuple[Line, Line]:
        """Make the caller's end and the worker's."""
        ours, theirs = socket.socketpair()
        if sys.platform == "win32":
            return cls(ours), cls(theirs)
        commands, to_worker = Pipe(duplex=False)
        answers, to_caller = Pipe(duplex=False)
        return cls(ours, answers, to_worker), cls(theirs, commands, to_caller)

    def set_blocking(self, blocking: bool) -> None:
        """Whether reading and writing wait."""
        self.sock.setblocking(blocking)
        if sys.platform != "win32":
            for pipe in self._pipes:
                os.set_blocking(pipe.fileno(), blocking)

    def close(self) -> None:
        """Close it; who reads at the other end comes to the end of the stream."""
        self.sock.close()
        for pipe in self._pipes:
            pipe.close()


class CallerEnd:
    """The caller's end of one worker's channel.

    While the caller waits, a signal handler may raise between any two calls. So what a system call
    read or wrote is recorded within the same call into C (`list.extend` over `map`), never in a
    statement after it.

    Args:
        line: Its end.

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
        except _GONE:
            return  # the end of the stream, which `receive` will see, tells of the death
        if sent < len(data):
            self._outbox = data[sent:]
            self.pending = True

    def send_with_descriptor(self, data: bytes, descriptor: int | None) -> None:
        """Send the first frame that the worker reads, with a descriptor if there is one."""
        if hasattr(socket, "send_fds"):
            try:
                socket.send_fds(self.line.sock, [b"d"], [] if descriptor is None else [descriptor])
            except _GONE:
                return  # as above
        self.send(data)

    def flush(self) -> None:
        """Send more of what waits."""
        start = sum(self._written)
        try:
            view = memoryview(self._outbox)[start : start + _MOST_WRITTEN]
            self._written.extend(map(self.line.write, (view,)))
        except BlockingIOError:
            return
        except _GONE:
            self._written.append(len(self._outbox))  # as above
        if sum(self._written) >= len(self._outbox):
            self._outbox, self._written, self.pending = b"", [], False

    def receive(self) -> tuple[list[Frame], list[bytes], bool]:
        """Read what has come.

        Returns:
            The whole frames in the inbox; the inbox without them, for the caller to assign once
            the frames are in safe hands; and whether the worker's end is closed.
        """
        inbox, read = self.inbox, self.line.read
        size = _CHUNK
        while True:
            try:
                inbox.extend(map(read, _READ_SIZE))
            except BlockingIOError:
                break
            except _GONE:
                inbox.append(b"")
            size = len(inbox[-1])
            if size < _CHUNK:
                break
        if not inbox:
            return [], inbox, False
        ended = size == 0
        if len(inbox) == 1 and size == HEADER.size:
            op, slot, seq, length = HEADER.unpack(inbox[0])
            if length == 0:
                return [Frame(_OPS[op], slot, seq, b"")], [], False
        if len(inbox[0]) >= HEADER.size:
            expected = HEADER.size + HEADER.unpack_from(inbox[0])[3]
            if sum(map(len, inbox)) < expected:  # joined once, when it is whole
                return [], inbox, ended
        data = b"".join(inbox)
        frames, at = [], 0
        while len(data) - at >= HEADER.size:
            op, slot, seq, length = HEADER.unpack_from(data, at)
            end = at + HEADER.size + length
            if len(data) < end:
                break
            frames.append(Frame(_OPS[op], slot, seq, data[end - length : end]))
            at = end
        return frames, [data[at:]] if at < len(data) else [], ended

    def close(self) -> None:
        """Close it; the worker comes to the end of the stream."""
        self.line.close()


class WorkerEnd:
    """The worker's end of its channel.

    Args:
        line: Its end.
        awake: Whether it may wait awake for commands.
    """

    def __init__(self, line: Line, awake: bool = False) -> None:
        line.set_blocking(True)
        self._line = line
        self._poll: SpinPoll | None = None
        if awake and hasattr(select, "poll"):
            poll = select.poll()
            poll.register(line.fd, select.POLLIN)
            self._poll = SpinPoll(poll)

    def send(self, data: bytes) -> None:
        """Send all of it; the caller drains."""
        sent = self._line.write(data)
        while sent < len(data):
            sent += self._line.write(memoryview(data)[sent:])

    def receive(self) -> Frame | None:
        """Wait for the next command; None at the end of the stream."""
        if self._poll is not None:
            self._poll.poll(None)
        header = self._exactly(HEADER.size)
        if header is None:
            return None
        op, slot, seq, length = HEADER.unpack(header)
        data = self._exactly(length) if length else b""
        return None if data is None else Frame(_OPS[op], slot, seq, data)

    def receive_with_descriptor(self) -> tuple[Frame | None, int | None]:
        """Wait for the first command, which may bring a descriptor."""
        descriptors: list[int] = []
        if hasattr(socket, "recv_fds"):
            _, descriptors, _, _ = socket.recv_fds(self._line.sock, 1, 1)
        return self.receive(), descriptors[0] if descriptors else None

    def _exactly(self, count: int) -> bytes | None:
        try:
            data = self._line.read(count)
            if len(data) == count:
                return data
            parts = [data]
            left = count - len(data)
            while left and parts[-1]:
                parts.append(self._line.read(min(left, 1 << 20)))
                left -= len(parts[-1])
        except _GONE:
            return None
        return None if left else b"".join(parts)


class Poller:
    """Waits for several channels and processes at once, registered once."""

    def __init__(self) -> None:
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._awake = None if self._poll is None else SpinPoll(self._poll)
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
        """Forget a descriptor."""
        if fd in self._reading or fd in self._writing:
            self._reading.discard(fd)
            self._writing.discard(fd)
            self._register(fd)

    def _register(self, fd: int) -> None:
        if self._poll is None:
            return
        events = select.POLLIN * (fd in self._reading) | select.POLLOUT * (fd in self._writing)
        if events:
            self._poll.register(fd, events)
        else:
            self._poll.unregister(fd)

    def wait(self, timeout: float | None, awake: bool = False) -> list[int]:
        """Wait until something can be done.

        Args:
            timeout: Seconds, as `Deadline.left` gives them; None waits forever.
            awake: Whether it may wait awake.

        Returns:
            The descriptors that have something to read, are at their end, or have room to write.
        """
        if self._poll is not None:
            milliseconds = None if timeout is None else int(timeout * 1000 + 0.999)
            poll = self._awake if awake and self._awake is not None else self._poll
            return [fd for fd, _ in poll.poll(milliseconds)]
        if not self._reading:
            return []
        readable, writable, _ = select.select(self._reading, self._writing, [], timeout)
        return list({*readable, *writable})


def watchable(pid: int) -> int | None:
    """A descriptor that becomes readable when a process ends, where the system has such a thing.

    Unlike the end of a pipe it cannot be kept open by the process's own children.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
