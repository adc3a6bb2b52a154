"""Frames over a socket pair: the caller's end never blocks, the worker's end may.

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
from typing import Any, NamedTuple

import cloudpickle

from vecspaces.vector.protocol import HEADER, Op

_CHUNK = 1 << 16
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


class CallerEnd:
    """The caller's end of one worker's channel.

    Args:
        sock: Its socket of the pair.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.fd = sock.fileno()
        self._inbox = bytearray()
        self._outbox = bytearray()

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._outbox)

    def send(self, data: bytes) -> None:
        """Send what can be sent at once, and keep the rest for `flush`."""
        if self._outbox:
            self._outbox += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except _GONE:
            return  # the end of the stream, which `receive` will see, tells of the death
        if sent < len(data):
            self._outbox += memoryview(data)[sent:]

    def send_with_descriptor(self, data: bytes, descriptor: int | None) -> None:
        """Send the first frame that the worker reads, with a descriptor if there is one."""
        if descriptor is None:
            self.send(data)
            return
        try:
            socket.send_fds(self.sock, [data[: HEADER.size]], [descriptor])
        except _GONE:
            return  # as above
        self.send(data[HEADER.size :])

    def flush(self) -> None:
        """Send more of what waits."""
        try:
            sent = self.sock.send(memoryview(self._outbox)[: 1 << 20])
        except BlockingIOError:
            return
        except _GONE:
            sent = len(self._outbox)
        del self._outbox[:sent]

    def receive(self) -> tuple[list[Frame], bool]:
        """Read what has come.

        Returns:
            The whole frames, and whether the worker's end is closed.
        """
        inbox, ended = self._inbox, False
        while True:
            try:
                data = self.sock.recv(_CHUNK)
            except BlockingIOError:
                break
            except _GONE:
                data = b""
            if not inbox and len(data) == HEADER.size:
                op, slot, seq, length = HEADER.unpack(data)
                if length == 0:
                    return [Frame(_OPS[op], slot, seq, b"")], False
            ended = not data
            inbox += data
            if len(data) < _CHUNK:
                break
        frames = []
        while len(inbox) >= HEADER.size:
            op, slot, seq, length = HEADER.unpack_from(inbox)
            end = HEADER.size + length
            if len(inbox) < end:
                break
            frames.append(Frame(_OPS[op], slot, seq, bytes(inbox[HEADER.size : end])))
            del inbox[:end]
        return frames, ended

    def close(self) -> None:
        """Close the socket; the worker sees the end of the stream."""
        self.sock.close()


class WorkerEnd:
    """The worker's end of its channel.

    Args:
        sock: Its socket of the pair.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock

    def send(self, data: bytes) -> None:
        """Send all of it; the caller drains."""
        self._sock.sendall(data)

    def receive(self) -> Frame | None:
        """Wait for the next command; None at the end of the stream."""
        header = self._exactly(HEADER.size)
        return None if header is None else self._rest(header)

    def receive_with_descriptor(self) -> tuple[Frame | None, int | None]:
        """Wait for the first command, which may bring a descriptor."""
        if not hasattr(socket, "recv_fds"):
            return self.receive(), None
        header, descriptors, _, _ = socket.recv_fds(self._sock, HEADER.size, 1)
        if not header:
            return None, None
        return self._rest(header), descriptors[0] if descriptors else None

    def _rest(self, header: bytes) -> Frame | None:
        op, slot, seq, length = HEADER.unpack(header)
        data = self._exactly(length) if length else b""
        return None if data is None else Frame(_OPS[op], slot, seq, data)

    def _exactly(self, count: int) -> bytes | None:
        try:
            data = self._sock.recv(count)
            if len(data) == count:
                return data
            parts = [data]
            left = count - len(data)
            while left and parts[-1]:
                parts.append(self._sock.recv(min(left, 1 << 20)))
                left -= len(parts[-1])
        except _GONE:
            return None
        return None if left else b"".join(parts)


class Poller:
    """Waits for several channels and processes at once, registered once."""

    def __init__(self) -> None:
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._reading: set[int] = set()
        self._writing: set[int] = set()

    def add(self, fd: int) -> None:
        """Watch a descriptor for input or its end."""
        self._reading.add(fd)
        if self._poll is not None:
            self._poll.register(fd, select.POLLIN)

    def write_too(self, fd: int, wanted: bool) -> None:
        """Watch a descriptor for room to write as well, or no longer."""
        if (fd in self._writing) == wanted:
            return
        (self._writing.add if wanted else self._writing.discard)(fd)
        if self._poll is not None:
            self._poll.modify(fd, select.POLLIN | (select.POLLOUT if wanted else 0))

    def remove(self, fd: int) -> None:
        """Forget a descriptor."""
        if fd in self._reading:
            self._reading.discard(fd)
            self._writing.discard(fd)
            if self._poll is not None:
                self._poll.unregister(fd)

    def wait(self, timeout: float | None) -> list[int]:
        """Wait until something can be done.

        Args:
            timeout: Seconds; None waits for ever.

        Returns:
            The descriptors that have something to read, are at their end, or have room to write.
        """
        if self._poll is not None:
            milliseconds = None if timeout is None else max(0, int(timeout * 1000 + 0.999))
            return [fd for fd, _ in self._poll.poll(milliseconds)]
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
