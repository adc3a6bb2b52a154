"""SharedArray: data that all environments read, once in shared memory, whatever their process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.memory import Arena

#: What pickles an array for actors of a cluster; None: the pickle is for processes of this machine.
_send: ContextVar[Callable[[SharedArray], tuple[Any, ...]] | None] = ContextVar(
    "_send", default=None
)


class SharedArray:
    """A handle of an array whose data lie once in shared memory, for all processes that have it.

    Put it into `env_kwargs` or into the closure of a factory: it is pickled as a handle, under
    every start method and for several vector envs. The actors of a Ray cluster read the data from
    the object store of their node. The memory is freed with the last handle and the last view; a
    forked process keeps what it inherited until it ends.

    Args:
        array: What to share; it is copied once. Any dtype without Python objects.

    Attributes:
        array: The data, read-only.

    Raises:
        TypeError: The dtype holds Python objects.

    Example:
        >>> import numpy as np
        >>> table = SharedArray(np.arange(6.0).reshape(2, 3))
        >>> float(table.array[1, 2]), table.array.flags.writeable
        (5.0, False)
    """

    array: npt.NDArray[Any]

    def __init__(self, array: npt.ArrayLike) -> None:
        source = np.asarray(array)
        if source.dtype.hasobject:
            raise TypeError(
                f"array: expected a dtype without Python objects, found {source.dtype}: other "
                "processes cannot follow the pointers"
            )
        arena = Arena.shared(source.nbytes)
        arena.view(source.dtype, source.shape)[...] = source
        self._hold(arena, source.dtype, source.shape)

    def _hold(self, arena: Arena | None, dtype: Any, shape: tuple[int, ...]) -> None:
        self._arena = arena
        if arena is not None:
            self.array = arena.view(dtype, shape)
            self.array.flags.writeable = False

    @classmethod
    def _of(cls, array: npt.NDArray[Any]) -> SharedArray:
        """Return a handle of read-only data that another library shares."""
        shared = cls.__new__(cls)
        shared._hold(None, array.dtype, array.shape)
        shared.array = array
        return shared

    @classmethod
    def _attach(
        cls, arena: Arena | tuple[int, int, int], nbytes: int, dtype: Any, shape: tuple[int, ...]
    ) -> SharedArray:
        """Return a handle of the memory behind a descriptor of another process."""
        if isinstance(arena, tuple):
            arena = Arena.attach(_reopen(*arena), nbytes)
        shared = cls.__new__(cls)
        shared._hold(arena, dtype, shape)
        return shared

    def __reduce__(self) -> tuple[Any, ...]:
        send = _send.get()
        if send is not None:
            return send(self)
        arena, array = self._arena, self.array
        if arena is None:
            return SharedArray, (array,)
        handle: Any = arena
        if sys.platform == "linux" and arena.fd is not None:
            handle = os.getpid(), arena.fd, os.fstat(arena.fd).st_ino
        return SharedArray._attach, (handle, arena.nbytes, array.dtype, array.shape)

    def __repr__(self) -> str:
        return f"SharedArray(shape={self.array.shape}, dtype={self.array.dtype})"


def _reopen(process: int, descriptor: int, inode: int) -> int:
    """Open the memory that a process of this machine holds under a descriptor."""
    try:
        found = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        found = -1
    if found < 0 or os.fstat(found).st_ino != inode:
        if found >= 0:
            os.close(found)
        raise RuntimeError(
            f"the SharedArray was pickled by process {process}, which has ended or freed it: keep "
            "the handle there for as long as others may read the pickle"
        )
    return found


@contextmanager
def sent_by(send: Callable[[SharedArray], tuple[Any, ...]]) -> Iterator[None]:
    """Let pickles that are made inside hold what `send` returns for each array."""
    token = _send.set(send)
    try:
        yield
    finally:
        _send.reset(token)
