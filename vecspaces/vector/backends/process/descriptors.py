"""Descriptors that are opened together or not at all, and passed to processes at their start.

None is inherited by `exec`. An owner forgets the numbers before it closes them, so that no
repeated call, and no process forked by another thread, closes a number that was reused.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import reduction
from typing import Any

from vecspaces import system
from vecspaces.vector.backends.process.interrupts import uninterrupted


def acquire(*opens: Callable[[], int | tuple[int, ...]]) -> tuple[int, ...]:
    """Open descriptors, all or none."""
    opened: list[int] = []
    try:
        for open_some in opens:
            descriptors = open_some()
            opened += [descriptors] if isinstance(descriptors, int) else descriptors
    except BaseException:
        close(*opened)
        raise
    return tuple(opened)


def acquire_if_possible(*opens: Callable[[], int | tuple[int, ...]]) -> tuple[int, ...]:
    """Do the same; open none if the system has no such calls, or a sandbox forbids them."""
    try:
        return acquire(*opens)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EACCES):
            return ()
        raise


def nonblocking_pipe() -> tuple[int, int]:
    """Make a pipe whose ends never wait."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


class Bell:
    """A pipe whose `fd` is readable while it `rings`; closed with its last reference."""

    fd = _ring = -1
    rings = False

    def __init__(self) -> None:
        with uninterrupted():
            self.fd, self._ring = acquire(nonblocking_pipe)

    def ring(self) -> None:
        """Make it readable."""
        self.rings = True
        with suppress(BlockingIOError):
            os.write(self._ring, b"!")

    def silence(self) -> None:
        """Read what it holds."""
        self.rings = False
        with suppress(BlockingIOError):
            os.read(self.fd, 1 << 16)

    def __del__(self) -> None:
        close(self.fd, self._ring)


def close(*descriptors: int) -> None:
    """Close descriptors that `acquire` opened; negative numbers stand for none."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)


def close_attributes(owner: object, *names: str) -> None:
    """Close descriptors that are attributes, each by the first of several threads that close them.

    An attribute is removed in one operation; then that of the class remains, which is -1.
    """
    close(*(vars(owner).pop(name, -1) for name in names))


def reduced(kind: Callable[..., object], descriptors: tuple[int, ...]) -> tuple[Any, ...]:
    """Let pickle make an object from its descriptors, in a process that is being started."""
    if not (system.DESCRIPTORS and descriptors):
        return kind, ()
    return _receive, (kind, *map(reduction.DupFd, descriptors))


def _receive(kind: Callable[..., object], *sent: Any) -> object:
    """Make an object from the descriptors that were passed to this process."""
    descriptors = acquire(*(handle.detach for handle in sent))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return kind(*descriptors)
