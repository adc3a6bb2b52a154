"""The line between caller and worker: a pipe in each direction, and a socket for one descriptor."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import reduction
from typing import Any

from vecspaces.vector.backends.process import forking

GONE = (BrokenPipeError, ConnectionResetError)


class Line:
    """One of the two ends, which can be handed to a process that is being started.

    Bytes go through pipes, and the descriptor of the arena through a socket. A read from a socket
    wakes its other end, which may write again but only waits to read: this wake-up of a worker cost
    more than the rest of a step. On Windows `select` takes sockets alone, so `sock` carries bytes.
    """

    def __init__(
        self,
        incoming: int = -1,
        outgoing: int = -1,
        passing: int | None = None,
        sock: socket.socket | None = None,
    ) -> None:
        self._sock, self._passing = sock, passing
        self.read: Callable[[int], bytes]
        self.write: Callable[[Any], int]
        if sock is None:
            self.fd, self.out_fd = incoming, outgoing
            self.read, self.write = partial(os.read, incoming), partial(os.write, outgoing)
        else:
            self.fd = self.out_fd = sock.fileno()
            self.read, self.write = sock.recv, sock.send

    @classmethod
    def pair(cls) -> tuple[Line, Line]:
        """Return the caller's end and the worker's."""
        if sys.platform == "win32":
            ours, theirs = socket.socketpair()
            return cls(sock=ours), cls(sock=theirs)
        opened: list[int] = []
        try:
            for open_two in (os.pipe, os.pipe, _socketpair):
                opened += forking.acquire(open_two)
        except BaseException:
            forking.close(*opened)
            raise
        commands, to_worker, replies, to_caller, passes, takes = opened
        return cls(replies, to_worker, passes), cls(commands, to_caller, takes)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._sock is not None:
            return _receive_socket, (self._sock,)
        return _receive, tuple(map(reduction.DupFd, self.descriptors))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that are open."""
        if self._sock is not None or self.fd < 0:
            return ()
        return (self.fd, self.out_fd) + (() if self._passing is None else (self._passing,))

    def set_blocking(self, blocking: bool) -> None:
        """Choose whether reading and writing wait."""
        if self._sock is not None:
            self._sock.setblocking(blocking)
        else:
            os.set_blocking(self.fd, blocking)
            os.set_blocking(self.out_fd, blocking)

    def pass_descriptor(self, descriptor: int | None) -> None:
        """Send a descriptor, or that there is none; can be done once."""
        if self._passing is None:
            return
        sock = socket.socket(fileno=self._passing)
        try:
            socket.send_fds(sock, [b"d"], [] if descriptor is None else [descriptor])
        except GONE:
            pass  # the worker is gone: the end of the stream follows
        finally:
            self._close_passing(sock)

    def take_descriptor(self) -> int | None:
        """Wait for what `pass_descriptor` sends; None if there is none, or the caller is gone."""
        if self._passing is None:
            return None
        sock = socket.socket(fileno=self._passing)
        try:
            sock.setblocking(True)
            _, found, _, _ = socket.recv_fds(sock, 1, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        finally:
            self._close_passing(sock)
        return found[0] if found else None

    def _close_passing(self, sock: socket.socket) -> None:
        """Close the socket that has served."""
        self._passing = None
        forking.close(sock.detach())

    def close(self) -> None:
        """Close it; who reads at the other end comes to the end of the stream."""
        self.read, self.write = _read_nothing, _refuse
        if self._sock is not None:
            self._sock.close()
        descriptors = self.descriptors
        self.fd = self.out_fd = -1
        self._passing = None
        forking.close(*descriptors)


def _socketpair() -> tuple[int, int]:
    """Open a pair of sockets."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def _receive(*sent: Any) -> Line:
    """Make the end again that was handed to this process."""
    incoming, outgoing, passing = forking.acquire(lambda: tuple(one.detach() for one in sent))
    for descriptor in (incoming, outgoing, passing):
        os.set_inheritable(descriptor, False)
    return Line(incoming, outgoing, passing)


def _receive_socket(sock: socket.socket) -> Line:
    return Line(sock=sock)


def _read_nothing(count: int) -> bytes:
    """Read from an end that is closed."""
    return b""


def _refuse(data: Any) -> int:
    """Write to an end that is closed."""
    raise BrokenPipeError("this end of the line is closed")


def process_descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends, where there is such a thing.

    Unlike the end of a pipe it cannot be kept open by the process's own children.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        (descriptor,) = forking.acquire(lambda: (os.pidfd_open(pid),))
    except (ProcessLookupError, PermissionError):  # it ended; or a sandbox forbids it
        return None
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL):  # a kernel without this call
            return None
        raise  # no descriptor is left
    return descriptor
