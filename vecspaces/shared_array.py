"""SharedArray: data in shared memory that the environments of all processes read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.memory import Arena

# The arrays that are sent to an actor beside a pickle, which then contains their positions in this
# list.
_beside: ContextVar[list[Any] | None] = ContextVar("_beside", default=None)


class SharedArray:
    """A handle of an array whose data are in shared memory once, for all processes.

    Put it into `env_kwargs` or into the closure of a factory: its pickle contains no data, under
    every start method and for several vector envs. On Linux and Windows, other processes of this
    machine can also read the pickle while the process that made it has the handle. Ray's actors
    read the data from the object store of their node. The memory is freed with the last handle and
    the last view; a forked process keeps the memory that it inherited until it ends.

    Args:
        array: The data, of any dtype without Python objects; they are copied once, in C order.

    Raises:
        TypeError: The dtype contains Python objects, or the array is masked.
        MemoryError: The machine has too little free memory.

    Example:
        >>> import numpy as np
        >>> table = SharedArray(np.arange(6.0).reshape(2, 3))
        >>> float(table.array[1, 2]), table.array.flags.writeable
        (5.0, False)
    """

    _array: npt.NDArray[Any]
    _arena: Arena | None

    def __init__(self, array: npt.ArrayLike) -> None:
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError("array: expected an array without a mask: share data and mask, as two")
        source = np.asarray(array)
        if source.dtype.hasobject:
            raise TypeError(
                f"array: expected a dtype without Python objects, found {source.dtype}: other "
                "processes cannot follow the pointers"
            )
        room = _available_bytes()
        if source.nbytes > room:
            raise MemoryError(
                f"array: expected at most the {room / 1e9:.3g} GB of memory that are available, "
                f"found {source.nbytes / 1e9:.3g} GB"
            )
        arena = Arena.shared(source.nbytes)
        arena.view(source.dtype, source.shape)[...] = source
        self._arena = arena.read_only()
        self._array = self._arena.view(source.dtype, source.shape)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The data, read-only."""
        return self._array

    @classmethod
    def _of(cls, array: npt.NDArray[Any], arena: Arena | None) -> SharedArray:
        shared = cls.__new__(cls)
        shared._array, shared._arena = array, arena
        return shared

    def __reduce__(self) -> tuple[Any, ...]:
        form, beside = (self.array.dtype, self.array.shape), _beside.get()
        if beside is not None:
            beside.append(self)
            return _take, (len(beside) - 1, *form)
        if self._arena is None:  # in an actor, whose own processes share a copy
            self._arena = SharedArray(self.array)._arena
        assert self._arena is not None
        handle: Any = self._arena.handle
        if isinstance(handle, int):
            handle = os.getpid(), handle, os.fstat(handle).st_ino
        return _open, (handle, self._arena.nbytes, *form)

    def __repr__(self) -> str:
        return f"SharedArray(shape={self.array.shape}, dtype={self.array.dtype})"


def _open(handle: Any, nbytes: int, dtype: Any, shape: tuple[int, ...]) -> SharedArray:
    """Return a handle of the memory of another process of this machine."""
    if not isinstance(handle, str):
        process, descriptor, inode = handle
        path = f"/proc/{process}/fd/{descriptor}"
        try:
            if os.stat(path).st_ino != inode:
                raise FileNotFoundError(path)
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise RuntimeError(
                f"the SharedArray of process {process} cannot be opened: it has ended or freed it, "
                "or is no process of this machine (on macOS, context='fork' alone shares it)"
            ) from None
    arena = Arena.attach(handle, nbytes, writable=False)
    return SharedArray._of(arena.view(dtype, shape), arena)


def _take(position: int, dtype: Any, shape: tuple[int, ...]) -> SharedArray:
    """Return a handle of bytes that were sent beside the pickle and that another library shares."""
    arrays = _beside.get()
    assert arrays is not None
    return SharedArray._of(arrays[position].view(dtype).reshape(shape), None)


@contextmanager
def beside(arrays: list[Any]) -> Iterator[None]:
    """In this block, pickling adds each array to a list, from which unpickling takes it."""
    token = _beside.set(arrays)
    try:
        yield
    finally:
        _beside.reset(token)


def _available_bytes() -> float:
    """Return the free memory of this machine in bytes; infinity if it is unknown."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return math.inf
    return 1024.0 * sum(map(int, re.findall(r"(?:MemAvailable|SwapFree): +(\d+) kB", text)))
