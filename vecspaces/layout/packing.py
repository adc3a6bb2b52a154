"""Packing: how a value of any size becomes bytes: parts after a table of sizes, or a pickle."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vecspaces.pickling import dumps, dumps_by_name

_ALIGNMENT = 16
"""Bytes: what `malloc` guarantees, so that arrays over the parts of a copy are aligned too."""

Piece: TypeAlias = bytes | memoryview | NDArray[Any]
"""Contiguous bytes."""

Dumps: TypeAlias = Callable[..., bytes]
"""Called as `dumps(value, buffer_callback=function)`."""

# The pickler for values of users' classes.
_by_value: ContextVar[Dumps] = ContextVar("_by_value", default=dumps_by_name)

_PADDING = tuple(bytes(size) for size in range(_ALIGNMENT))


def nbytes(part: Piece) -> int:
    """Return the number of bytes of a part."""
    return len(part) if isinstance(part, bytes) else part.nbytes


def padding(size: int) -> bytes:
    """Return the zeros that align what follows this number of bytes."""
    return _PADDING[-size % _ALIGNMENT]


def pack(parts: Sequence[Piece]) -> bytes:
    """Return parts one after the other, after a table of their sizes; `unpack` is the inverse."""
    table = np.array((len(parts), *map(nbytes, parts)), np.int64).tobytes()
    pieces: list[Any] = []
    for part in (table, *parts):
        pieces += (part, padding(nbytes(part)))
    return b"".join(pieces)


def unpack(data: bytearray, start: int = 0) -> list[memoryview]:
    """Return writable views of the parts that `pack` put together, in `data` from `start` on."""
    view = memoryview(data)[start:]
    table = 8 + 8 * int.from_bytes(view[:8], sys.byteorder)
    sizes = view[8:table].cast("q").tolist()
    starts = accumulate(map(_padded, sizes), initial=_padded(table))
    return [view[start : start + size] for start, size in zip(starts, sizes, strict=False)]


def dump(value: Any) -> bytes:
    """Pickle any value, with its arrays as bytes; `load` is the inverse."""
    buffers: list[pickle.PickleBuffer] = []
    head = dumps(value, _by_value.get(), buffers)
    return pack([head, *(buffer.raw() for buffer in buffers)])


def dumping_by(dumps: Dumps, function: Callable[..., None]) -> Callable[..., None]:
    """Return a function in which `dump` uses `dumps` for objects of the main module's classes."""

    # The process that loads them may have another main module, with another class of that name.
    def call(*args: Any, **kwargs: Any) -> None:
        token = _by_value.set(dumps)
        try:
            function(*args, **kwargs)
        finally:
            _by_value.reset(token)

    return call


def load(data: bytearray, start: int = 0) -> Any:
    """Return what `dump` pickled, from `start` on; its arrays are writable views of `data`."""
    head, *buffers = unpack(data, start)
    return pickle.loads(head, buffers=buffers)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
