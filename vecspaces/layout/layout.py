"""Layout: the offset of each leaf of a space; and Rows, the views of one slot."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from vecspaces.checks import Path, check_count, show_path
from vecspaces.errors import CustomSpaceError
from vecspaces.layout.blocks import (
    ArrayBlock,
    Index,
    SizedBlock,
    VariableBlock,
    put_all,
    row_bytes,
    row_numbers,
)
from vecspaces.layout.describe import describe
from vecspaces.layout.nodes import Array, Node, Record, Variable, walk
from vecspaces.layout.ports import ArrayPort, Port, make_port
from vecspaces.memory import ALIGNMENT, Arena
from vecspaces.spaces import Space

_Memory: TypeAlias = Arena | NDArray[np.uint8] | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Leaf:
    """One contiguous block of a layout.

    Args:
        path: The path in the nested value. The branch of a OneOf is at `(..., 0)`, the values of
            all its branches are at `(..., 1)`.
        dtype: The dtype of its elements.
        shape: The shape of one environment's value.
        offset: Where the `(slots, n, *shape)` block begins, in bytes, a multiple of 64.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """The bytes of one environment's value."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True, repr=False)
class Layout:
    """The places of the bytes of n values of a space, in each slot of a ring; immutable.

    Each leaf of the space is one contiguous array `(slots, n, *shape)`, so that a batch is a view.
    Create a layout with `Layout.compile`.

    Attributes:
        space: The space of one value.
        n: How many values a slot holds.
        slots: The length of the ring.
        variable_capacity: Bytes per value for its leaves of variable size, in equal shares.
        leaves: The blocks, in the order of the space.
        nbytes: The bytes of one value.
        offset: Where the first block begins.
        size: The bytes from `offset` to the end of the last block, a multiple of 64.

    Example:
        >>> from vecspaces.spaces import Box, Dict, Discrete
        >>> Layout.compile(Dict(position=Box(-1, 1, (3,)), color=Discrete(5)), n=64)
        Layout(n=64, slots=1, 20 bytes per environment, 1,280 bytes in all)
          path          dtype    shape  offset  bytes
          ['position']  float32  (3,)        0     12
          ['color']     int64    ()        768      8
    """

    space: Space[Any]
    n: int
    slots: int
    variable_capacity: int
    leaves: tuple[Leaf, ...]
    nbytes: int
    offset: int
    size: int
    _node: Node = field(compare=False)

    @classmethod
    def compile(
        cls,
        space: Space[Any],
        n: int = 1,
        *,
        slots: int = 1,
        variable_capacity: int = 65536,
        offset: int = 0,
    ) -> Layout:
        """Return the layout of n values of a space.

        Args:
            space: The space of one value.
            n: How many values a slot holds, at least 0.
            slots: The length of the ring, at least 1.
            variable_capacity: Bytes per value for its leaves of variable size, in equal shares.
            offset: Where the first block begins, in bytes, a multiple of 64.

        Returns:
            The layout.

        Raises:
            TypeError: If `space` is not a space, or a number is not an integer.
            ValueError: If a number is out of range.
        """
        n, slots = check_count("n", n, least=0), check_count("slots", slots)
        variable_capacity = check_count("variable_capacity", variable_capacity, least=0)
        offset = check_count("offset", offset, least=0)
        if offset % ALIGNMENT:
            raise ValueError(f"offset: expected a multiple of {ALIGNMENT}, found {offset}")
        return cls._arrange(space, describe(space), n, slots, variable_capacity, offset)

    @classmethod
    def _arrange(
        cls, space: Space[Any], node: Node, n: int, slots: int, variable_capacity: int, offset: int
    ) -> Layout:
        """Lay out values of a node; the result is the same in every process."""
        shares = sum(map(_may_spill, [leaf for _, leaf in walk(node)]))
        leaves = []
        end = offset
        for path, leaf_node in walk(node):
            if isinstance(leaf_node, Variable):
                slot = (row_bytes(leaf_node, -(-variable_capacity // max(shares, 1))),)
                leaf = Leaf(path, np.dtype(np.uint8), slot, end)
            else:
                leaf = Leaf(path, leaf_node.dtype, leaf_node.shape, end)
            leaves.append(leaf)
            end += -(-leaf.nbytes * n * slots // ALIGNMENT) * ALIGNMENT
        nbytes = sum(leaf.nbytes for leaf in leaves)
        return cls(
            space, n, slots, variable_capacity, tuple(leaves), nbytes, offset, end - offset, node
        )

    @property
    def has_variable(self) -> bool:
        """Whether a value has leaves of variable size without a small bound."""
        return any(_may_spill(leaf) for _, leaf in walk(self._node))

    @property
    def fixed(self) -> bool:
        """Whether every leaf is an array, so that a batch consists of views."""
        return _is_fixed(self._node)

    def bind(self, memory: _Memory, *, spill: bool = False) -> tuple[Rows, ...]:
        """Return the views of this layout on a block of memory.

        Args:
            memory: An `Arena`, or any writable buffer, of at least `offset + size` bytes that are
                zero where nothing was written.
            spill: Whether a value of variable size that is larger than its share is stored
                separately (`Rows.take_spilled`) instead of being refused.

        Returns:
            One Rows for each slot.
        """
        views = self._views(memory)
        nodes = [leaf for _, leaf in walk(self._node)]
        shares = sum(map(_may_spill, nodes))

        def block(leaf: Leaf, node: Node, array: NDArray[Any]) -> ArrayBlock:
            if isinstance(node, Array):
                return ArrayBlock(array)
            if _may_spill(node):
                return VariableBlock(array, spill, leaf.path, shares)
            return SizedBlock(array, leaf.path)

        leaves = list(zip(self.leaves, nodes, views, strict=True))
        return tuple(
            Rows(self, [block(leaf, node, view[slot]) for leaf, node, view in leaves])
            for slot in range(self.slots)
        )

    def ring(self, memory: _Memory, slots: int | None = None) -> Any:
        """Return views of many slots at once.

        Args:
            memory: The memory that was passed to `bind`.
            slots: The number of slots, from the first on; None: all.

        Returns:
            Views of shape `(slots, n, *shape)`, nested like the values.

        Raises:
            ValueError: If a leaf is not an array.
        """
        return self._nest(memory, slice(slots))

    def batch(self, memory: _Memory, slot: int) -> Any:
        """Return views of one slot, `(n, *shape)`, nested like the values; as `ring`."""
        return self._nest(memory, slot)

    def _nest(self, memory: _Memory, index: slice | int) -> Any:
        """Return the slots that `index` selects of each leaf, nested like the values."""
        if not self.fixed:
            raise ValueError(
                f"space: expected arrays in dicts and tuples alone, found {self.space}"
            )
        return _nest(self._node, (view[index] for view in self._views(memory)))

    def _views(self, memory: _Memory) -> list[NDArray[Any]]:
        """Return a view of each leaf's block in memory: `(slots, n, *shape)`."""
        buffer = np.frombuffer(memory.buffer if isinstance(memory, Arena) else memory, np.uint8)
        if buffer.nbytes < self.offset + self.size:
            raise ValueError(
                f"memory: expected at least {self.offset + self.size} bytes, found {buffer.nbytes}"
            )
        rows = self.slots * self.n
        return [
            buffer[leaf.offset : leaf.offset + rows * leaf.nbytes]
            .view(leaf.dtype)
            .reshape(self.slots, self.n, *leaf.shape)
            for leaf in self.leaves
        ]

    def __hash__(self) -> int:  # spaces have none
        return hash((self.leaves, self.n, self.slots, self.offset, self.variable_capacity))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduce_by(cloudpickle.dumps)

    def reduce_by(self, dumps: Callable[[Any], bytes]) -> tuple[Any, ...]:
        """Return the parts of a pickle, with a custom pickler for the space and its node."""
        # The node is sent, so that no other process needs to describe the space, because
        # registrations may be missing there. It is pickled separately, so that an error names the
        # space.
        try:
            packed = dumps((self.space, self._node))
        except Exception as error:
            raise CustomSpaceError(
                f"{self.space}: how its values are stored cannot be sent to another process: "
                f"{error!r}; let the functions of its node be functions of a module, with "
                "functools.partial for their arguments"
            ) from error
        numbers = (self.n, self.slots, self.variable_capacity, self.offset)
        return _unpack, (str(self.space), packed, *numbers)

    def __deepcopy__(self, memo: dict[int, Any]) -> Layout:
        return self  # immutable

    def __repr__(self) -> str:
        header = ("path", "dtype", "shape", "offset", "bytes")
        rows = [
            (
                show_path(leaf.path) or "(whole)",
                str(leaf.dtype),
                str(leaf.shape),
                f"{leaf.offset:,}",
                f"{leaf.nbytes:,}",
            )
            for leaf in self.leaves
        ]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            f"Layout(n={self.n}, slots={self.slots}, {self.nbytes:,} bytes per environment, "
            f"{self.size:,} bytes in all)"
        ]
        for row in (header, *rows):
            left = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
            right = [cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True)]
            lines.append("  " + "  ".join(left + right))
        return "\n".join(lines)


def _may_spill(leaf: Node) -> bool:
    return isinstance(leaf, Variable) and not leaf.is_bounded


def _is_fixed(node: Node) -> bool:
    if isinstance(node, Record):
        return all(map(_is_fixed, node.children))
    return isinstance(node, Array)


def _nest(node: Node, views: Iterator[Any]) -> Any:
    """Nest one view per leaf; no closure, which would keep the views until garbage collection."""
    if isinstance(node, Record):
        return node.build([_nest(child, views) for child in node.children])
    return next(views)


def _unpack(name: str, packed: bytes, *numbers: int) -> Layout:
    """Rebuild the layout that `reduce_by` packed in another process."""
    try:
        space, node = pickle.loads(packed)
    except Exception as error:  # importing a module of the user's may raise anything
        raise CustomSpaceError(
            f"{name}: how its values are stored arrived in a process that cannot unpickle it: "
            f"{error!r}; what describe was registered with must be importable there"
        ) from error
    return Layout._arrange(space, node, *numbers)


class Rows:
    """The values of all environments in one slot of a layout.

    A batch has the form of `batch_space`: an array `(n, *shape)` for each array leaf, in dicts and
    tuples nested like the space, and a tuple of n values for every other space.

    Attributes:
        layout: The layout of these views.
        write: Called as `write(row, value)`: writes one environment's value. Raises Mismatch if the
            value does not fit the space's dtypes and shapes, ValueError if it is of variable size,
            too large, and may not spill.
        read: Called as `read(copy=False, index=None)`: returns the batch. Its arrays are copies or
            live views; with an `index`, copies of these rows.
        item: Called as `item(row)`: returns a copy of one environment's value.
        items: Called as `items(rows)`: returns copies of several values.
        keeper: Called as `keeper(kept)`: returns a function of a row and a value, which stores in
            the dict `kept` what `item` would return after `write`.
    """

    __slots__ = (
        *("_blocks", "_port", "_variable"),
        *("item", "items", "keeper", "layout", "read", "write"),
    )

    def __init__(self, layout: Layout, blocks: list[ArrayBlock]) -> None:
        self.layout = layout
        self._blocks = blocks
        self._variable = [block for block in blocks if isinstance(block, VariableBlock)]
        self._port: Port = make_port(layout._node, (), iter(blocks))
        # Called in each step; methods that pass them on would double the calls.
        self.write, self.read, self.item = self._port.write, self._port.read, self._port.item
        self.items, self.keeper = self._port.items, self._port.keeper

    def writer(self, low: int, high: int) -> Callable[[list[Any]], None]:
        """Return the function that writes rows `low` to `high`, much faster than `write` per row.

        Args:
            low: The first row.
            high: The row after the last.

        Returns:
            A function of a list with one value per row. It raises like `write`, and may then have
            written the rows before the one that does not fit.
        """
        return self._port.writer(low, high)

    def reader(self, low: int, high: int) -> Callable[[], Sequence[Any]]:
        """Return a function that copies the values of rows `low` to `high`."""
        return self._port.reader(low, high)

    def batch_writer(self) -> Callable[[Any], None]:
        """Return a function that writes all rows, in less time than `write_batch`."""
        if isinstance(self._port, ArrayPort):
            return self._port.batch_writer()
        return self.write_batch

    def write_batch(self, batch: Any, index: Index | None = None) -> None:
        """Write a batch; all of it is checked before any of it is written.

        Args:
            batch: One value for each row of `index`.
            index: The rows, a slice or their numbers; None: all.

        Raises:
            Mismatch: If the batch does not fit; `row` is the position in the batch.
        """
        n = self.layout.n if index is None else len(row_numbers(index, self.layout.n))
        prepared = self._port.prepare(batch, n)
        put_all(self._blocks, slice(None) if index is None else index, prepared)

    def copy_rows(self, source: Rows, index: Index) -> None:
        """Copy the rows of `index` from another slot of the same layout, without decoding them."""
        put_all(self._blocks, index, [block.get(index) for block in source._blocks])

    def clear(self, index: Index) -> None:
        """Restore the initial state of rows, which is zeros for arrays."""
        n = len(row_numbers(index, self.layout.n))
        put_all(self._blocks, index, [block.like(n).get(slice(None)) for block in self._blocks])

    def export(self, index: Index) -> list[Any]:
        """Copy rows into a few picklable parts, with their spilled values."""
        return [block.get(index, copy=True) for block in self._blocks]

    def load(self, index: Index, parts: list[Any]) -> None:
        """Write what `export` returned, for the same number of rows of the same space."""
        put_all(self._blocks, index, parts)

    def take_spilled(self, low: int, high: int) -> list[tuple[int, int, bytes | bytearray]]:
        """Remove and return leaf, row and bytes of what rows spilled, for `put_spilled`."""
        return [
            (leaf, row, data)
            for leaf, block in enumerate(self._variable)
            for row, data in block.take(low, high)
        ]

    def capacity_for(self, parts: list[tuple[int, int, bytes | bytearray]]) -> int:
        """Return the `variable_capacity` with which no value of `parts` would have been spilled."""
        return max(len(data) * self._variable[leaf].shares for leaf, _, data in parts)

    def put_spilled(self, parts: list[tuple[int, int, bytes | bytearray]]) -> None:
        """Store the spilled values of another process, for later reads."""
        for leaf, row, data in parts:
            self._variable[leaf].spilled[row] = data
