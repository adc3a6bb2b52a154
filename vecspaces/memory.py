"""Arena: one block of memory, private or shared between processes, and its array views.

A shared arena has no name that another program could find or that could remain after its last user:
it is an anonymous file (Linux), an unlinked temporary file (macOS and other POSIX systems) or a
page-file mapping with a random tag (Windows). The system frees it with its last user, however this
user ends.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from math import prod
from multiprocessing import context, reduction
from typing import TYPE_CHECKING, Any

import numpy as np

from vecspaces import system

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

# From Python 3.13 on, the mapping duplicates no descriptor, which would stay open for as long as
# views of a closed arena are held.
_KEEPS_NO_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


class Arena:
    """One block of memory, zero at first, with views of any dtype and shape, which keep it alive.

    `Arena(nbytes)` is private memory; `shared` and `attach` make shared memory, for processes that
    have its `handle`.
    """

    def __init__(self, nbytes: int) -> None:
        nbytes = _checked_size(nbytes)
        block = np.zeros(nbytes + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        self._add_array(block[start : start + nbytes], None, [])

    def _add_array(
        self, buffer: NDArray[np.uint8], handle: int | str | None, descriptors: list[int]
    ) -> None:
        self._buffer: NDArray[np.uint8] | None = buffer
        self._nbytes = buffer.nbytes
        self._handle = handle
        # As `_close_last` takes it, empty once it is closed.
        self._descriptors = descriptors
        self._closer = weakref.finalize(self, _close_last, descriptors) if descriptors else None

    @classmethod
    def shared(cls, nbytes: int, fd: int | None = None) -> Arena:
        """Make a block that other processes can map; pages take memory only once they are written.

        With `fd`, in a file of `anonymous_file`, which the arena owns from here on.
        """
        nbytes = _checked_size(nbytes)
        if system.NAMED_MEMORY:
            return cls.attach(f"vecspaces-{os.urandom(16).hex()}", nbytes)
        fd = anonymous_file() if fd is None else fd
        try:
            os.ftruncate(fd, max(nbytes, 1))
        except BaseException:
            os.close(fd)
            raise
        arena = cls.attach(fd, nbytes)
        if not system.DESCRIPTORS:  # Linux that simulates Windows
            arena._handle = f"/proc/{os.getpid()}/fd/{fd}"
        return arena

    @classmethod
    def attach(cls, handle: int | str, nbytes: int) -> Arena:
        """Map the block of another process, given its `handle` and `nbytes`.

        The new arena owns the descriptor from here on, and closes it even if this call fails.
        """
        nbytes = _checked_size(nbytes)
        length = max(nbytes, 1)  # an empty mapping is no mapping
        if isinstance(handle, str) and not (system.DESCRIPTORS or system.NAMED_MEMORY):
            handle = os.open(handle, os.O_RDWR)
        if isinstance(handle, int):
            try:
                os.set_inheritable(handle, False)  # one that was received is inherited by `exec`
                mapping = mmap.mmap(handle, length, **_KEEPS_NO_DESCRIPTOR)
            except BaseException:
                os.close(handle)
                raise
        elif system.NAMED_MEMORY:
            mapping = mmap.mmap(-1, length, tagname=handle)  # type: ignore[call-arg]
        else:
            raise TypeError(f"handle: expected a file descriptor, found {handle!r}")
        arena = cls.__new__(cls)
        descriptors = [-1, handle] if isinstance(handle, int) else []
        arena._add_array(np.frombuffer(mapping, np.uint8, nbytes), handle, descriptors)
        return arena

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._nbytes

    @property
    def handle(self) -> int | str | None:
        """The argument of `attach`: a descriptor, on Windows a tag; None if private or closed."""
        return self._handle

    @property
    def buffer(self) -> NDArray[np.uint8]:
        """The whole block as writable bytes."""
        if self._buffer is None:
            raise ValueError("this arena is closed: views must be taken before close()")
        return self._buffer

    def view(self, dtype: DTypeLike, shape: int | tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """Return a writable array over a part of the block, which begins at byte `offset`."""
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        end = offset + prod(shape) * dtype.itemsize
        if offset < 0 or min(shape, default=0) < 0 or end > self._nbytes:
            raise ValueError(
                f"expected a view inside the {self._nbytes} bytes of the arena, "
                f"found shape {shape} at bytes {offset} to {end}"
            )
        return self.buffer[offset:end].view(dtype).reshape(shape)

    def close(self) -> None:
        """Release the descriptor and the mapping; views stay valid; can be repeated."""
        self._buffer = self._handle = None
        _close_last(self._descriptors)
        if self._closer is not None:
            self._closer.detach()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass the handle to a process that is being started; the bytes are never copied."""
        if context.get_spawning_popen() is None or self._handle is None:
            raise TypeError(
                "an arena cannot be pickled: a shared one is passed to a process at its start"
            )
        if system.DESCRIPTORS and isinstance(self._handle, int):
            return _attach_sent, (reduction.DupFd(self._handle), self._nbytes)
        return Arena.attach, (self._handle, self._nbytes)


def _attach_sent(sent: Any, nbytes: int) -> Arena:
    return Arena.attach(sent.detach(), nbytes)


def _close_last(descriptors: list[int]) -> None:
    """Close the descriptor in `[-1, descriptor]` once, also if an interrupt repeats the call.

    Between `pop` and `os.close`, no Python code runs, and so no signal handler.
    """
    if descriptors:
        any(map(os.close, iter(descriptors.pop, -1)))


def _checked_size(nbytes: int) -> int:
    if nbytes < 0:
        raise ValueError(f"nbytes: expected a size of at least 0, found {nbytes}")
    return int(nbytes)


def anonymous_file() -> int:
    """Open a file without a name, closed on exec, readable by this user alone."""
    if system.MEMFD:
        return os.memfd_create("vecspaces", os.MFD_CLOEXEC)
    import tempfile  # here, since it is rarely needed and slow to import

    fd, path = tempfile.mkstemp(prefix="vecspaces-")
    os.unlink(path)
    return fd
