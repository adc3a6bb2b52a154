"""Blocks: the memory of one leaf, in rows; values that are too large are spilled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from vecspaces.checks import Path, show_path
from vecspaces.layout.nodes import Array, Variable

Index: TypeAlias = slice | NDArray[Any] | list[int]
"""Which rows: a slice, or their numbers."""

_Bytes: TypeAlias = bytes | bytearray | memoryview

SIZE_BYTES = 8
"""Bytes in front of a value of variable size: that size."""

_UNWRITTEN, _SPILLED = 0, -1

# The maximum number of bytes of a row for a value with a known bound; larger values are spilled.
_MOST_RESERVED = 1 << 24


def row_numbers(index: Index, n: int) -> range | list[int]:
    """Return the numbers of the rows that an index selects."""
    if isinstance(index, slice):
        return range(*index.indices(n))
    rows = np.asarray(index, dtype=None if len(index) else int)
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    return cast("list[int]", rows.tolist())


class ArrayBlock:
    """Rows of a fixed size, in an array of shape `(n, *shape)`."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def like(self, n: int) -> ArrayBlock:
        """Return a block of `n` rows of the same kind in new memory."""
        return ArrayBlock(np.zeros((n, *self.array.shape[1:]), self.array.dtype))

    def get(self, index: Index, *, copy: bool = False) -> Any:
        """Return the contents of rows, which another block of the same kind can `put`."""
        rows = self.array[index]
        return rows.copy() if copy else rows

    def put(self, index: Index, rows: Any) -> None:
        """Write what `get` returned."""
        self.array[index] = rows


class SizedBlock(ArrayBlock):
    """Rows of bytes: a contiguous uint8 array `(n, SIZE_BYTES + capacity)`.

    A row contains the number of its bytes, and then the bytes. The number is written last, so a row
    whose writer died reads like one that was never written.
    """

    # `shares` is the number of leaves that share an environment's capacity, from which the error
    # computes the required capacity; 0: the node says how much the largest value needs.
    __slots__ = ("_bytes", "_capacity", "_path", "_sizes", "_stride", "shares")

    def __init__(self, array: NDArray[np.uint8], path: Path = (), shares: int = 0) -> None:
        super().__init__(array)
        self._path, self.shares = path, shares
        self._stride = array.shape[1]
        self._capacity = self._stride - SIZE_BYTES
        # Memoryviews read and store single numbers in half the time of arrays.
        self._sizes = array[:, :SIZE_BYTES].view(np.int64)[:, 0].data
        self._bytes = array.reshape(-1).data

    def like(self, n: int) -> SizedBlock:
        """Return a block of `n` rows of the same kind in new memory."""
        return SizedBlock(np.zeros((n, self._stride), np.uint8), self._path, self.shares)

    def store(self, row: int, data: _Bytes) -> None:
        """Write the bytes of one value; raise ValueError if they do not fit and may not spill."""
        size = len(data)
        if size > self._capacity:
            self._spill(row, data)
            return
        self._sizes[row] = _UNWRITTEN
        start = row * self._stride + SIZE_BYTES
        self._bytes[start : start + size] = data
        self._sizes[row] = size

    def store_rows(self, low: int, rows: Iterable[_Bytes]) -> None:
        """Write what `store` writes for consecutive rows, without a call for most of them."""
        sizes, stored, stride, capacity = self._sizes, self._bytes, self._stride, self._capacity
        start = low * stride + SIZE_BYTES
        for row, data in enumerate(rows, low):
            size = len(data)
            if size > capacity:
                self.store(row, data)
            else:
                sizes[row] = _UNWRITTEN
                stored[start : start + size] = data
                sizes[row] = size
            start += stride

    def _spill(self, row: int, data: _Bytes) -> None:
        size, where = len(data), f"row {row}: {show_path(self._path)}".removesuffix(": ")
        needed = f"variable_capacity={size * self.shares}" if self.shares else f"most={size}"
        raise ValueError(
            f"{where}: this value needs {size} bytes, its place has {self._capacity}; "
            f"pass {needed} or more"
        )

    def fetch(self, row: int) -> _Bytes | None:
        """Return the bytes of one value; None if the row was never written or its spill is lost."""
        size: int = self._sizes[row]
        if size <= 0:
            return None
        start = row * self._stride + SIZE_BYTES
        return self._bytes[start : start + min(size, self._capacity)]

    def fetch_rows(self, low: int, high: int) -> list[_Bytes] | None:
        """Return the bytes of consecutive rows; None if some have none, or have spilled."""
        stored, stride, sizes = self._bytes, self._stride, self._sizes[low:high].tolist()
        if not sizes or not 0 < min(sizes) <= max(sizes) <= self._capacity:
            return None
        starts = range(low * stride + SIZE_BYTES, high * stride, stride)
        return [stored[start : start + size] for start, size in zip(starts, sizes, strict=True)]


class VariableBlock(SizedBlock):
    """Rows of bytes that are copied up to their number; what is too large may be `spilled`."""

    __slots__ = ("_may_spill", "spilled")

    def __init__(
        self, array: NDArray[np.uint8], spill: bool, path: Path = (), shares: int = 1
    ) -> None:
        super().__init__(array, path, shares)
        self._may_spill = spill
        self.spilled: dict[int, bytes | bytearray] = {}

    def like(self, n: int) -> VariableBlock:
        """Return a block of `n` rows of the same kind in new memory."""
        # Blocks that may spill have no capacity: making rows for large values takes long.
        stride = SIZE_BYTES if self._may_spill else self._stride
        array: NDArray[np.uint8] = np.zeros((n, stride), np.uint8)
        return VariableBlock(array, self._may_spill, self._path, self.shares)

    def store(self, row: int, data: _Bytes) -> None:
        """Write the bytes of one value; raise ValueError if they do not fit and may not spill."""
        super().store(row, data)
        if self.spilled and self._sizes[row] != _SPILLED:
            self.spilled.pop(row, None)

    def store_rows(self, low: int, rows: Iterable[_Bytes]) -> None:
        """Write the bytes of consecutive rows, some of which may have been spilled before."""
        for row, data in enumerate(rows, low):
            self.store(row, data)

    def _spill(self, row: int, data: _Bytes) -> None:
        if not self._may_spill:
            super()._spill(row, data)
        # A view is over memory to which another value will be written.
        self.spilled[row] = bytes(data) if isinstance(data, memoryview) else data
        self._sizes[row] = _SPILLED

    def fetch(self, row: int) -> _Bytes | None:
        """Return the bytes of one value; None if the row was never written or its spill is lost."""
        return self.spilled.get(row) if self._sizes[row] == _SPILLED else super().fetch(row)

    def get(self, index: Index, *, copy: bool = False) -> list[_Bytes | None]:
        """Return the used bytes of rows, spilled ones too; None for rows never written."""
        contents = map(self.fetch, row_numbers(index, len(self.array)))
        return [data if data is None or not copy else bytearray(data) for data in contents]

    def put(self, index: Index, rows: Iterable[_Bytes | None]) -> None:
        """Write what `get` returned."""
        for row, data in zip(row_numbers(index, len(self.array)), rows, strict=True):
            if data is None:
                self._sizes[row] = _UNWRITTEN
                self.spilled.pop(row, None)
            else:
                self.store(row, data)

    def take(self, low: int, high: int) -> list[tuple[int, bytes | bytearray]]:
        """Remove and return what rows `low` to `high` spilled."""
        if not self.spilled:
            return []
        return [(row, self.spilled.pop(row)) for row in sorted(self.spilled) if low <= row < high]


def put_all(blocks: list[ArrayBlock], index: Index, parts: list[Any]) -> None:
    """Write the contents of rows, one part for each block."""
    for block, part in zip(blocks, parts, strict=True):
        block.put(index, part)


def private_block(leaf: Array | Variable, n: int) -> ArrayBlock:
    """Return a block of `n` rows for a leaf, in separate memory; values without a bound spill."""
    if isinstance(leaf, Array):
        return ArrayBlock(np.zeros((n, *leaf.shape), leaf.dtype))
    array: NDArray[np.uint8] = np.zeros((n, row_bytes(leaf, 0)), np.uint8)
    return SizedBlock(array) if leaf.is_bounded else VariableBlock(array, spill=True)


def row_bytes(leaf: Variable, share: int) -> int:
    """Return the bytes of a row, of a multiple of 8, so that its size is aligned."""
    capacity = share
    if leaf.is_bounded:
        capacity = leaf.most
    elif share:
        capacity = max(share, min(leaf.most, _MOST_RESERVED))
    return SIZE_BYTES + -(-capacity // 8) * 8
