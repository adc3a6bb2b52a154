"""Blocks: where the bytes of one leaf lie, n rows of them, and how raw rows move between blocks."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Index: TypeAlias = slice | NDArray[np.integer[Any]] | list[int]
"""Which rows: a slice, or their numbers."""

HEADER = 8
"""Bytes in front of a variable value: its size."""

_UNWRITTEN, _SPILLED = 0, -1


def row_numbers(at: Index, n: int) -> range | list[int]:
    """List the rows that an index means.

    Example:
        >>> list(row_numbers(slice(1, None), 3)), row_numbers(np.array([2, 0]), 3)
        ([1, 2], [2, 0])
    """
    if isinstance(at, slice):
        return range(*at.indices(n))
    rows = np.asarray(at)
    numbers: list[int] = (np.flatnonzero(rows) if rows.dtype == bool else rows).tolist()
    return numbers


class ArrayBlock:
    """Rows of a fixed size.

    Args:
        array: Shape `(n, *shape)`.
    """

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def like(self, n: int) -> ArrayBlock:
        """Make a block of `n` rows of the same kind in memory of its own."""
        return ArrayBlock(np.zeros((n, *self.array.shape[1:]), self.array.dtype))

    def copy(self, to: Index, source: ArrayBlock, rows: Index) -> None:
        """Copy rows of another block of the same kind into rows of this one."""
        self.array[to] = source.array[rows]

    def export(self, low: int, high: int) -> Any:
        """Give rows `low` to `high` as a contiguous copy."""
        return self.array[low:high].copy()

    def load(self, low: int, high: int, part: Any) -> None:
        """Put in what `export` gave."""
        self.array[low:high] = part


class VariableBlock(ArrayBlock):
    """Rows that hold values of different sizes, or say that the value spilled.

    A row is its value's size and then its bytes. The size is written last: a row that was torn by
    the death of its writer reads as one that was never written.

    Args:
        array: Shape `(n, HEADER + capacity)`, uint8, C-contiguous.
        spill: Whether a value larger than the capacity goes to `spilled`; otherwise it is an error.
        leaves: How many blocks share the capacity of an environment, for the error's advice.

    Attributes:
        spilled: Row -> the bytes that did not fit.
    """

    __slots__ = ("bytes", "capacity", "leaves", "sizes", "spill", "spilled", "stride")

    array: NDArray[np.uint8]

    def __init__(self, array: NDArray[np.uint8], spill: bool, leaves: int) -> None:
        super().__init__(array)
        self.spill = spill
        self.leaves = leaves
        self.stride = array.shape[1]
        self.capacity = self.stride - HEADER
        self.sizes = array[:, :HEADER].view(np.int64)[:, 0]
        self.bytes = memoryview(array.reshape(-1))
        self.spilled: dict[int, bytes] = {}

    def like(self, n: int) -> VariableBlock:
        """Make a block of `n` rows of the same kind in memory of its own."""
        array: NDArray[np.uint8] = np.zeros((n, self.stride), np.uint8)
        return VariableBlock(array, self.spill, self.leaves)

    def store(self, row: int, data: bytes) -> None:
        """Write the bytes of one value.

        Raises:
            ValueError: If they do not fit and may not spill.
        """
        size = len(data)
        if size > self.capacity:
            if not self.spill:
                raise ValueError(
                    f"a value of variable size needs {size} bytes, its slot has {self.capacity}; "
                    f"pass variable_capacity={size * self.leaves} or more"
                )
            self.spilled[row] = data
            self.sizes[row] = _SPILLED
            return
        self.sizes[row] = _UNWRITTEN
        start = row * self.stride + HEADER
        self.bytes[start : start + size] = data
        self.sizes[row] = size
        if self.spilled:
            self.spilled.pop(row, None)

    def fetch(self, row: int) -> bytearray | None:
        """Copy the bytes of one value; None if the row was never written, or lost what it spilled."""
        size = int(self.sizes[row])
        if size > 0:
            start = row * self.stride + HEADER
            return bytearray(self.bytes[start : start + min(size, self.capacity)])
        spilled = self.spilled.get(row) if size == _SPILLED else None
        return None if spilled is None else bytearray(spilled)

    def copy(self, to: Index, source: ArrayBlock, rows: Index) -> None:
        """Copy rows of another block of the same kind into rows of this one, spilled ones too."""
        assert isinstance(source, VariableBlock)
        targets, origins = row_numbers(to, len(self.array)), row_numbers(rows, len(source.array))
        self._store_all(targets, [source.fetch(row) for row in origins])

    def export(self, low: int, high: int) -> Any:
        """Give the used bytes of rows `low` to `high`, None for those never written."""
        return [self.fetch(row) for row in range(low, high)]

    def load(self, low: int, high: int, part: Any) -> None:
        """Put in what `export` gave."""
        self._store_all(range(low, high), part)

    def _store_all(self, rows: range | list[int], values: list[bytearray | None]) -> None:
        for row, data in zip(rows, values, strict=True):
            if data is None:
                self.sizes[row] = _UNWRITTEN
                self.spilled.pop(row, None)
            else:
                self.store(row, data)

    def take(self, low: int, high: int) -> list[tuple[int, bytes]]:
        """Remove and return what rows `low` to `high` spilled."""
        if not self.spilled:
            return []
        return [(row, self.spilled.pop(row)) for row in sorted(self.spilled) if low <= row < high]
