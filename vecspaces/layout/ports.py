"""Ports: how the values of one node are written to and read from its blocks, one class per node.

A port is created once, when a layout is bound to memory, so that writing a value needs no look-up
and no dispatch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from vecspaces.checks import RAISED, Path, show_value
from vecspaces.layout import columns
from vecspaces.layout.blocks import (
    ArrayBlock,
    Index,
    SizedBlock,
    private_block,
    put_all,
    row_numbers,
)
from vecspaces.layout.casting import Mismatch, fit, fit_batch
from vecspaces.layout.nodes import SEQUENCES, Array, Choice, Node, Record, Variable, walk
from vecspaces.spaces.bounds import dtype_limits

# Up to this number of rows, reading single scalars is faster than NumPy's iteration.
_MOST_SINGLE_READS = 4
# The types of Python numbers that NumPy stores without a check, by the kind of dtype.
_PYTHON_TYPES: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float}
# Up to this number of rows, row-wise writes are faster than one pass.
_MOST_SINGLE_WRITES = 2


class Port(ABC):
    """The base of all ports; `Rows` forwards its calls to the port of the whole value."""

    # Called as `write(row, value)`, for single values; a closure, so that it looks nothing up.
    write: Callable[[int, Any], None]

    def writer(self, low: int, high: int) -> Callable[[list[Any]], None]:
        """Return the function that writes a list of the values of rows `low` to `high`."""
        write_row = self.write

        def write(values: list[Any]) -> None:
            for row, value in enumerate(values, low):
                write_row(row, value)

        return write

    @abstractmethod
    def prepare(self, batch: Any, n: int) -> list[Any]:
        """Check a batch of `n` values; return what each block has to `put`."""

    @abstractmethod
    def read(self, copy: bool = False, index: Index | None = None) -> Any:
        """Return the batch of all rows, or of the rows of `index`."""

    @abstractmethod
    def item(self, row: int) -> Any:
        """Return the value of one row, in separate memory."""

    def items(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of some rows, in separate memory."""
        return list(map(self.item, rows))

    def keeper(self, kept: dict[int, Any]) -> Callable[[int, Any], None]:
        """Return the function that stores in `kept` what `item` returns after `write`."""
        write, item = self.write, self.item

        def keep(row: int, value: Any) -> None:
            write(row, value)
            kept[row] = item(row)

        return keep

    @abstractmethod
    def reader(self, low: int, high: int) -> Callable[[], Sequence[Any]]:
        """Return the function that returns the values of some rows, in separate memory."""


class ArrayPort(Port):
    """Values stored as their bytes."""

    def __init__(self, node: Array, path: Path, block: ArrayBlock) -> None:
        self.rows = block.array
        self.dtype, self.shape, self.path = self.rows.dtype, self.rows.shape[1:], path
        self.write = self._array_writer() if self.shape else self._scalar_writer()
        # Whether an entry is a number; an entry of a structured dtype is a view.
        self._is_scalar = not self.shape and self.dtype.kind != "V"

    def _array_writer(self) -> Callable[[int, Any], None]:
        rows, dtype, shape, path = self.rows, self.dtype, self.shape, self.path
        ndarray = np.ndarray
        # NumPy's own assignment casts these as `fit` does.
        other = np.dtype(bool) if dtype.kind in "iu" else dtype

        def write(row: int, value: Any) -> None:
            if value.__class__ is ndarray and value.shape == shape:
                source = value.dtype
                if source is dtype or source is other:
                    rows[row] = value
                    return
            try:
                try:
                    rows[row] = fit(value, dtype, shape, path)
                except Mismatch:
                    if value.__class__ is tuple and len(value) == shape[0]:  # to name the part
                        for place, part in enumerate(value):
                            fit(part, dtype, shape[1:], (*path, place))
                    raise
            except Mismatch as error:
                raise error.placed((), row) from error.__cause__

        return write

    def _scalar_writer(self) -> Callable[[int, Any], None]:
        rows, dtype, path = self.rows, self.dtype, self.path
        scalar = dtype.type
        # Python numbers that are in range need no array.
        python_type = _PYTHON_TYPES.get(dtype.kind, scalar)
        low, high = dtype_limits(dtype) if python_type is int else (-np.inf, np.inf)

        def write(row: int, value: Any) -> None:
            kind = value.__class__
            if kind is scalar or (kind is python_type and low <= value <= high):
                rows[row] = value
                return
            try:
                rows[row] = fit(value, dtype, (), path)[()]
            except Mismatch as error:
                raise error.placed((), row) from error.__cause__

        return write

    def writer(self, low: int, high: int) -> Callable[[list[Any]], None]:
        """Write all rows in one pass if this is faster and every value fits without a cast."""
        write_rows = super().writer(low, high)
        if high - low <= _MOST_SINGLE_WRITES:
            return write_rows
        write_columns = columns.writer(self.rows[low:high])

        def write(values: list[Any]) -> None:
            if not write_columns(values):
                write_rows(values)

        return write

    def prepare(self, batch: Any, n: int) -> list[Any]:
        """Cast the whole array at once."""
        whole = (n, *self.shape)
        if batch.__class__ is np.ndarray and batch.dtype is self.dtype and batch.shape == whole:
            return [batch]
        return [fit_batch(batch, n, self.dtype, self.shape, self.path)]

    def batch_writer(self) -> Callable[[Any], None]:
        """Return the function that writes all rows, without a check if they fit without a cast."""
        rows, dtype, shape, prepare = self.rows, self.dtype, self.rows.shape, self.prepare
        ndarray = np.ndarray

        def write(batch: Any) -> None:
            if batch.__class__ is ndarray and batch.dtype is dtype and batch.shape == shape:
                rows[...] = batch
            else:
                (rows[...],) = prepare(batch, len(rows))

        return write

    def read(self, copy: bool = False, index: Index | None = None) -> Any:
        """Return a view, or one copy."""
        if index is None:
            return self.rows.copy() if copy else self.rows.view()
        rows = self.rows[index]
        return rows.copy() if isinstance(index, slice) else rows

    def item(self, row: int) -> Any:
        """Return a copy of the row; a scalar if the shape is ()."""
        value = self.rows[row]
        return value if self._is_scalar else value.copy()

    def keeper(self, kept: dict[int, Any]) -> Callable[[int, Any], None]:
        """Copy arrays that fit without a cast once."""
        keep_other, dtype, shape, ndarray = super().keeper(kept), self.dtype, self.shape, np.ndarray

        def keep(row: int, value: Any) -> None:
            if value.__class__ is ndarray and value.dtype is dtype and value.shape == shape:
                kept[row] = value.copy()
            else:
                keep_other(row, value)

        return keep_other if self._is_scalar else keep

    def items(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return views of the rows of one copy; scalars if the shape is ()."""
        return list(self.rows[[*rows]])

    def reader(self, low: int, high: int) -> Callable[[], Sequence[Any]]:
        """Return views of the rows of one copy; scalars if the shape is ()."""
        rows = self.rows[low:high]
        if not self._is_scalar:
            return lambda: list(rows.copy())
        if not 0 < len(rows) <= _MOST_SINGLE_READS:
            return partial(list, rows)
        if len(rows) == 1:
            return lambda: [rows[0]]
        return partial(itemgetter(*range(len(rows))), rows)


class RecordPort(Port):
    """Values with members."""

    def __init__(self, node: Record, path: Path, children: list[Port]) -> None:
        self.node, self.children = node, children
        self.split = split = partial(node.split, path)
        count = len(children)
        pairs = tuple(zip(node.keys, (child.write for child in children), strict=True))
        is_dict = node.container is dict

        # Only the members are called, because `split` would double the time of a nested Dict.
        # Single values are written at ends of episodes and in steps of a few environments.
        def write(row: int, value: Any) -> None:
            try:
                if len(value) != count or not (is_dict or isinstance(value, SEQUENCES)):
                    split(value, row)  # which raises the error
                for key, write_member in pairs:
                    write_member(row, value[key])
            except Mismatch:
                raise
            except RAISED:  # not a record, or an exception of another library's mapping
                split(value, row)
                raise

        self.write = write

    def writer(self, low: int, high: int) -> Callable[[list[Any]], None]:
        """Write the rows of one member after the other."""
        node, writers = self.node, [child.writer(low, high) for child in self.children]
        write_rows = super().writer(low, high)

        def write(values: list[Any]) -> None:
            parts = columns.split_record(node, values)
            if parts is None:
                write_rows(values)  # raises the error of the wrong value
            else:
                for write_column, column in zip(writers, parts, strict=True):
                    write_column(column)

        return write

    def prepare(self, batch: Any, n: int) -> list[Any]:
        """Prepare the batch of each member."""
        members = zip(self.children, self.split(batch), strict=True)
        return [part for child, member in members for part in child.prepare(member, n)]

    def read(self, copy: bool = False, index: Index | None = None) -> Any:
        """Return a dict or tuple of the members' batches."""
        return self.node.build([child.read(copy, index) for child in self.children])

    def item(self, row: int) -> Any:
        """Return a dict or tuple of the members' values."""
        return self.node.build([child.item(row) for child in self.children])

    def reader(self, low: int, high: int) -> Callable[[], Sequence[Any]]:
        """Return dicts or tuples of the members' values."""
        keys, container = self.node.keys, self.node.container
        readers = [child.reader(low, high) for child in self.children]

        def read() -> list[Any]:
            if not readers:
                return [container() for _ in range(low, high)]
            rows = zip(*(read_member() for read_member in readers), strict=True)
            if container is tuple:
                return list(rows)
            return [dict(zip(keys, members)) for members in rows]  # noqa: B905 (hot; equal by make)

        return read


class ValuePort(Port):
    """Values whose batch is a tuple of them, one per row."""

    def __init__(self, node: Node, path: Path, blocks: list[ArrayBlock]) -> None:
        self.node, self.path, self.blocks = node, path, blocks

    def prepare(self, batch: Any, n: int) -> list[Any]:
        """Write the values into new blocks."""
        if not isinstance(batch, (tuple, list, np.ndarray)) or len(batch) != n:
            expected = f"a tuple of {n} values, one for each row"
            raise Mismatch(expected, show_value(batch), self.path)
        scratch = [block.like(n) for block in self.blocks]
        write = make_port(self.node, self.path, iter(scratch)).write
        for row, value in enumerate(batch):
            write(row, value)
        return [block.get(slice(None)) for block in scratch]

    def read(self, copy: bool = False, index: Index | None = None) -> tuple[Any, ...]:
        """Decode every row."""
        n = len(self.blocks[0].array)
        if index is None:
            # A stored reader would refer to this port, and only a collection would free the memory.
            return tuple(self.reader(0, n)())
        return tuple(map(self.item, row_numbers(index, n)))

    def reader(self, low: int, high: int) -> Callable[[], list[Any]]:
        """Decode each row separately."""
        return lambda: list(map(self.item, range(low, high)))


def _encoding_error(value: Any, path: Path, row: int, error: BaseException) -> Mismatch:
    """Convert an error of `encode` into a Mismatch with its path and row."""
    if isinstance(error, Mismatch):
        return error.placed(path, row)
    actual = f"{show_value(value)}: {error!r}"
    return Mismatch("a value that the space can encode", actual, path, row)


class ChoicePort(ValuePort):
    """Values `(branch, value)`: the branch plus one (zero: never written), then its value."""

    def __init__(
        self, node: Choice, path: Path, blocks: list[ArrayBlock], children: list[Port]
    ) -> None:
        super().__init__(node, path, blocks)
        self.tags, self.children = blocks[0].array, children
        tags, count = self.tags, len(children)
        writes = tuple(child.write for child in children)

        def write(row: int, value: Any) -> None:
            try:
                branch, member = value
                branch = branch.__index__()
                right = 0 <= branch < count
            except RAISED:
                right = False
            if not right:
                expected = f"a tuple (branch, value) with a branch from 0 to {count - 1}"
                raise Mismatch(expected, show_value(value), path, row)
            tags[row] = 0
            writes[branch](row, member)
            tags[row] = branch + 1

        self.write = write

    def item(self, row: int) -> Any:
        """Return the branch, an int64, and its value; () if there is none."""
        branch = self.tags[row] - 1
        if 0 <= branch < len(self.children):
            return branch, self.children[branch].item(row)
        return ()


class VariablePort(ValuePort):
    """Values of variable size."""

    def __init__(self, node: Variable, path: Path, block: SizedBlock) -> None:
        super().__init__(node, path, [block])
        encode, decode, store = node.encode, node.decode, block.store

        def write(row: int, value: Any) -> None:
            try:
                data = encode(value)
            except RAISED as error:
                raise _encoding_error(value, path, row, error) from error
            store(row, data)

        self.write = write
        self.decode, self.empty, self.fetch = decode, node.empty, block.fetch
        self.fetch_rows, self.store_rows = block.fetch_rows, block.store_rows
        self.encode_rows = node.encode_rows or (lambda values: list(map(encode, values)))
        self.decode_rows = node.decode_rows or (
            lambda parts: [decode(bytearray(part)) for part in parts]
        )

    def writer(self, low: int, high: int) -> Callable[[list[Any]], None]:
        """Encode the rows in one pass."""
        write_rows, encode_rows = super().writer(low, high), self.encode_rows
        store_rows = self.store_rows

        def write(values: list[Any]) -> None:
            try:
                store_rows(low, encode_rows(values))
            except RAISED:
                write_rows(values)  # raises the error of the wrong value

        return write

    def reader(self, low: int, high: int) -> Callable[[], list[Any]]:
        """Decode the rows in one pass."""
        fetch_rows, decode_rows = self.fetch_rows, self.decode_rows
        read_rows = super().reader(low, high)

        def read() -> list[Any]:
            parts = fetch_rows(low, high)
            return read_rows() if parts is None else decode_rows(parts)

        return read

    def item(self, row: int) -> Any:
        """Decode the row."""
        data = self.fetch(row)
        if data is not None:
            return self.decode(bytearray(data))
        return None if self.empty is None else self.empty(np.zeros)


def make_port(node: Node, path: Path, blocks: Iterator[ArrayBlock]) -> Port:
    """Return the port of a node at `path`, on the blocks of its leaves in the order of `walk`."""
    match node:
        case Array():
            return ArrayPort(node, path, next(blocks))
        case Variable():
            block = next(blocks)
            assert isinstance(block, SizedBlock)
            return VariablePort(node, path, block)
        case Record():
            members = zip(node.keys, node.children, strict=True)
            ports = [make_port(child, (*path, key), blocks) for key, child in members]
            return RecordPort(node, path, ports)
        case Choice():
            leaves = [next(blocks) for _ in walk(node)]
            branches = iter(leaves[1:])
            ports = [make_port(child, (*path, 1), branches) for child in node.children]
            return ChoicePort(node, path, leaves, ports)


def fit_values(node: Node, values: tuple[Any, ...] | list[Any]) -> list[Any]:
    """Return several values as they would be read back; a Mismatch names the position."""
    port = make_port(node, (), iter(_private_blocks(node, len(values))))
    for i, value in enumerate(values):
        try:
            port.write(i, value)
        except Mismatch as error:
            raise error.placed((i,)) from error.__cause__
    return list(port.reader(0, len(values))())


def fit_batch_of(node: Node, batch: Any, path: Path = (), count: int | None = None) -> Any:
    """Return a batch of `count` values, or any number, checked and cast, in separate memory."""
    if count is None:
        count = _length(node, batch, path) or 0
    blocks = _private_blocks(node, count)
    port = make_port(node, path, iter(blocks))
    put_all(blocks, slice(None), port.prepare(batch, count))
    return port.read()


def _private_blocks(node: Node, n: int) -> list[ArrayBlock]:
    return [private_block(leaf, n) for _, leaf in walk(node)]


def _length(node: Node, batch: Any, path: Path) -> int | None:
    """Return the number of values of a batch; None if they have no leaves."""
    if isinstance(node, Record):
        members = zip(node.children, node.split(path, batch), strict=True)
        lengths = (_length(child, member, path) for child, member in members)
        return next((length for length in lengths if length is not None), None)
    try:
        return len(batch)
    except TypeError:
        raise Mismatch("a batch of values", show_value(batch), path) from None
