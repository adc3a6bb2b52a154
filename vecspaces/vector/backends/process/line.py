"""The line between caller and worker: two pipes, shared descriptors, and how its end is seen."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from vecspaces import system
from vecspaces.vector.backends.process import descriptors

GONE = ConnectionError


class Line:
    """One of the two ends, which can be passed to a process at its start.

    These are pipes, because a read from a socket wakes its other end, which may then write again;
    this wake-up of a worker took longer than the rest of a step. Where processes cannot be given
    descriptors, as on Windows, `sock` carries bytes: `multiprocessing` passes sockets everywhere,
    and `select` accepts them.

    Attributes:
        shared: The descriptor of the arena's file, which all workers get; empty without a file.
    """

    fd = out_fd = -1

    def __init__(
        self,
        incoming: int = -1,
        outgoing: int = -1,
        *shared: int,
        sock: socket.socket | None = None,
    ) -> None:
        self._sock, self.shared = sock, shared
        self.read: Callable[[int], bytes]
        self.write: Callable[[Any], int]
        if sock is None:
            self.fd, self.out_fd = incoming, outgoing
            self.read, self.write = partial(os.read, incoming), partial(os.write, outgoing)
        else:
            self.fd = self.out_fd = sock.fileno()
            self.read, self.write = sock.recv, sock.send

    @classmethod
    def pair(cls, shared: tuple[int, ...]) -> tuple[Line, Line]:
        """Return the caller's end and the worker's, which also has the shared descriptors."""
        if not system.DESCRIPTORS:
            ends = socket.socketpair()
            for end in ends:
                with suppress(OSError):  # it is not emulated by TCP, which would delay messages
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(sock=ends[0]), cls(sock=ends[1])
        commands, to_worker, replies, to_caller = descriptors.acquire(os.pipe, os.pipe)
        return cls(replies, to_worker), cls(commands, to_caller, *shared)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._sock is not None:
            return partial(Line, sock=self._sock), ()
        return descriptors.reduced(Line, (self.fd, self.out_fd, *self.shared))

    def set_blocking(self, blocking: bool) -> None:
        """Choose whether reading and writing wait."""
        if self._sock is not None:
            self._sock.setblocking(blocking)
        elif system.DESCRIPTORS:
            os.set_blocking(self.fd, blocking)
            os.set_blocking(self.out_fd, blocking)

    def close(self) -> None:
        """Close it; the other end then reads the end of the stream."""
        self.read, self.write = _read_nothing, _refuse
        if self._sock is None:
            descriptors.close_attributes(self, "fd", "out_fd")
        else:
            self.fd = self.out_fd = -1
            self._sock.close()


def _read_nothing(count: int) -> bytes:
    """Read from an end that is closed."""
    return b""


def _refuse(data: Any) -> int:
    """Write to an end that is closed."""
    raise BrokenPipeError("this end of the line is closed")


def process_descriptor(pid: int) -> int:
    """Return a descriptor that becomes readable when a process ends; -pid if there are none.

    Unlike the end of a pipe it cannot be kept open by the process's own children.
    """
    if system.PIDFD:
        with suppress(ProcessLookupError):  # it ended
            return next(iter(descriptors.acquire_if_possible(partial(os.pidfd_open, pid))), -pid)
    return -pid
