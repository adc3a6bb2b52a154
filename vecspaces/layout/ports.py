"""Ports: how values of one node go into and out of its blocks; one class for each kind of node.

A port is made once, when a layout is bound to memory, and holds all that can be known then, so that
writing a value costs no look-up and no dispatch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecspaces.layout.blocks import ArrayBlock, Index, VariableBlock, row_numbers
from vecspaces.layout.casting import KeyMismatch, Mismatch, Path, fit, fit_batch, limits, show_value
from vecspaces.layout.nodes import Array, Choice, Encoded, Node, Record, Variable


class Port(ABC):
    """What every port offers; `Rows` hands its calls on to the port of the whole value.

    Attributes:
        write: Called as `write(row, value)`: the hot path, a closure over all it needs.
    """

    write: Callable[[int, Any], None]

    @abstractmethod
    def prepare(self, batch: Any, n: int) -> Any:
        """Check a batch of `n` values and bring it into the form that `commit` takes."""

    @abstractmethod
    def commit(self, prepared: Any, at: Index) -> None:
        """Write a prepared batch into the rows `at`."""

    @abstractmethod
    def check(self, batch: Any, n: int) -> Any:
        """Check a batch of `n` values and give it back with every array cast to its dtype."""

    @abstractmethod
    def read(self, copy: bool, at: Index | None) -> Any:
        """Give the batch of all rows, or of the rows `at`."""

    @abstractmethod
    def item(self, row: int) -> Any:
        """Give the value of one row, in memory of its own."""

    @abstractmethod
    def items(self, low: int, high: int) -> list[Any]:
        """Give the values of rows `low` to `high`, in memory of their own."""


class ArrayPort(Port):
    """Values whose bytes lie in place."""

    def __init__(self, node: Array, path: Path, block: ArrayBlock) -> None:
        self.rows = block.array
        self.dtype, self.shape, self.path = node.dtype, node.shape, path
        self.full_shape = self.rows.shape
        self.write = self._scalar_writer() if not self.shape else self._array_writer()

    def _array_writer(self) -> Callable[[int, Any], None]:
        rows, dtype, shape, path = self.rows, self.dtype, self.shape, self.path
        ndarray = np.ndarray

        def write(row: int, value: Any) -> None:
            if value.__class__ is ndarray and value.dtype is dtype and value.shape == shape:
                rows[row] = value
                return
            try:
                rows[row] = fit(value, dtype, shape, path)
            except Mismatch as error:
                raise error.at((), row) from error.__cause__

        return write

    def _scalar_writer(self) -> Callable[[int, Any], None]:
        rows, dtype, path = self.rows, self.dtype, self.path
        scalar = dtype.type
        # Python's own integers need no array where they lie in range.
        low, high = limits(dtype) if dtype.kind in "iu" else (1, 0)

        def write(row: int, value: Any) -> None:
            kind = value.__class__
            if kind is scalar or (kind is int and low <= value <= high):
                rows[row] = value
                return
            try:
                rows[row] = fit(value, dtype, (), path)
            except Mismatch as error:
                raise error.at((), row) from error.__cause__

        return write

    def prepare(self, batch: Any, n: int) -> NDArray[Any]:
        if (
            batch.__class__ is np.ndarray
            and batch.dtype is self.dtype
            and batch.shape == self.full_shape
            and n == self.full_shape[0]
        ):
            fitted: NDArray[Any] = batch
            return fitted
        return fit_batch(batch, n, self.dtype, self.shape, self.path)

    check = prepare

    def commit(self, prepared: NDArray[Any], at: Index) -> None:
        self.rows[at] = prepared

    def read(self, copy: bool, at: Index | None) -> NDArray[Any]:
        if at is not None:
            gathered: NDArray[Any] = self.rows[at]
            return gathered.copy() if isinstance(at, slice) else gathered
        return self.rows.copy() if copy else self.rows.view()

    def item(self, row: int) -> Any:
        return self.rows[row].copy()

    def items(self, low: int, high: int) -> list[Any]:
        return list(self.rows[low:high].copy())


class RecordPort(Port):
    """Values with members."""

    def __init__(self, node: Record, path: Path, children: list[Port]) -> None:
        self.node, self.children = node, children
        self.split = make_splitter(node, path)
        split, writes = self.split, tuple(child.write for child in children)

        def write(row: int, value: Any) -> None:
            for put, member in zip(writes, split(value, row)):  # noqa: B905 (the hot path)
                put(row, member)

        self.write = write

    def prepare(self, batch: Any, n: int) -> list[Any]:
        members = zip(self.children, self.split(batch), strict=True)
        return [child.prepare(member, n) for child, member in members]

    def commit(self, prepared: list[Any], at: Index) -> None:
        for child, member in zip(self.children, prepared, strict=True):
            child.commit(member, at)

    def check(self, batch: Any, n: int) -> Any:
        members = zip(self.children, self.split(batch), strict=True)
        return self.node.build([child.check(member, n) for child, member in members])

    def read(self, copy: bool, at: Index | None) -> Any:
        return self.node.build([child.read(copy, at) for child in self.children])

    def item(self, row: int) -> Any:
        return self.node.build([child.item(row) for child in self.children])

    def items(self, low: int, high: int) -> list[Any]:
        if not self.children:
            return [self.node.container() for _ in range(low, high)]
        rows = zip(*(child.items(low, high) for child in self.children), strict=True)
        if self.node.container is tuple:
            return list(rows)
        keys = self.node.keys
        return [dict(zip(keys, members)) for members in rows]  # noqa: B905 (the hot path)


def make_splitter(node: Record, path: Path) -> Callable[..., Sequence[Any]]:
    """Make the function that takes values of a record, or batches of them, apart.

    Args:
        node: The record.
        path: Where it sits.

    Returns:
        Called as `split(value, row=None)`: gives the members in the order of `node.keys`; raises
        KeyMismatch, with the row, where `value` has not exactly these.
    """
    count = len(node.keys)

    def split_tuple(value: Any, row: int | None = None) -> Sequence[Any]:
        if not isinstance(value, (tuple, list, np.ndarray)) or len(value) != count:
            found = show_value(value)
            if isinstance(value, (tuple, list)):
                found = f"a {type(value).__name__} of length {len(value)}"
            raise KeyMismatch(f"a tuple of length {count}", found, path, row)
        return value

    if node.container is tuple:
        return split_tuple
    get = _getter(node.keys)

    def split_dict(value: Any, row: int | None = None) -> Sequence[Any]:
        try:
            members = get(value)
            if len(value) == count:
                return members
        except (KeyError, TypeError, IndexError):
            pass  # no mapping, or one without these keys: reported below
        found = show_value(value)
        if isinstance(value, Mapping):
            found = f"a {type(value).__name__} with {_show_keys(value)}"
        raise KeyMismatch(f"a dict with {_show_keys(node.keys)}", found, path, row)

    return split_dict


def _getter(keys: tuple[str | int, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda value: tuple([value[key] for key in keys])


def _show_keys(keys: Iterable[Any]) -> str:
    return f"the keys {', '.join(map(repr, keys))}" if keys else "no keys"


class ValuePort(Port):
    """Values whose batch is a tuple of them, one a row.

    Args:
        node: What the values are.
        path: Where they sit.
        blocks: The blocks that hold them.
    """

    def __init__(self, node: Node, path: Path, blocks: list[ArrayBlock]) -> None:
        self.node, self.path, self.blocks = node, path, blocks

    def prepare(self, batch: Any, n: int) -> list[ArrayBlock]:
        if not isinstance(batch, (tuple, list, np.ndarray)) or len(batch) != n:
            found = show_value(batch)
            if isinstance(batch, (tuple, list)):
                found = f"a {type(batch).__name__} of length {len(batch)}"
            raise Mismatch(f"a tuple of {n} values, one for each row", found, self.path)
        scratch = [block.like(n) for block in self.blocks]
        write = make_port(self.node, self.path, iter(scratch)).write
        for row, value in enumerate(batch):
            write(row, value)
        return scratch

    def commit(self, prepared: list[ArrayBlock], at: Index) -> None:
        for block, source in zip(self.blocks, prepared, strict=True):
            block.copy(at, source, slice(None))

    def check(self, batch: Any, n: int) -> tuple[Any, ...]:
        self.prepare(batch, n)
        return tuple(batch)

    def read(self, copy: bool, at: Index | None) -> tuple[Any, ...]:
        n = len(self.blocks[0].array)
        if at is None:
            return tuple(self.items(0, n))
        return tuple(map(self.item, row_numbers(at, n)))

    def items(self, low: int, high: int) -> list[Any]:
        return list(map(self.item, range(low, high)))

    def _foreign(self, value: Any, row: int, error: Exception) -> Mismatch:
        """Turn what a third party's `encode` raised into a finding at this place."""
        if isinstance(error, Mismatch):
            return error.at(self.path, row)
        return Mismatch(
            "a value that this space encodes", f"{show_value(value)} ({error!r})", self.path, row
        )


class EncodedPort(ValuePort):
    """Values with a block of fixed size, decoded at each read."""

    def __init__(self, node: Encoded, path: Path, block: ArrayBlock) -> None:
        super().__init__(node, path, [block])
        rows, encode, decode, foreign = block.array, node.encode, node.decode, self._foreign

        def write(row: int, value: Any) -> None:
            try:
                encode(value, rows[row, ...])
            except Exception as error:
                raise foreign(value, row, error) from error

        self.write = write
        self.rows, self.decode = rows, decode

    def item(self, row: int) -> Any:
        return self.decode(self.rows[row, ...])


class ChoicePort(ValuePort):
    """Values `(branch, value)`: the branch's number plus one (zero: never written), then its value."""

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
            except (AttributeError, TypeError, ValueError):
                right = False
            if not right:
                expected = f"a tuple (branch, value) with a branch from 0 to {count - 1}"
                raise Mismatch(expected, show_value(value), path, row)
            tags[row] = 0
            writes[branch](row, member)
            tags[row] = branch + 1

        self.write = write

    def item(self, row: int) -> Any:
        branch = self.tags[row] - 1
        if 0 <= branch < len(self.children):
            return branch, self.children[branch].item(row)
        return ()


class VariablePort(ValuePort):
    """Values of variable size."""

    def __init__(self, node: Variable, path: Path, block: VariableBlock) -> None:
        super().__init__(node, path, [block])
        encode, store, foreign = node.encode, block.store, self._foreign

        def write(row: int, value: Any) -> None:
            try:
                data = encode(value)
            except Exception as error:
                raise foreign(value, row, error) from error
            store(row, data)

        self.write = write
        self.decode, self.empty, self.fetch = node.decode, node.empty, block.fetch

    def item(self, row: int) -> Any:
        data = self.fetch(row)
        if data is not None:
            return self.decode(data)
        return None if self.empty is None else self.empty(np.zeros)


def make_port(node: Node, path: Path, blocks: Iterator[ArrayBlock]) -> Port:
    """Join a node and its blocks.

    Args:
        node: What the values are made of.
        path: Where they sit in the whole value.
        blocks: The blocks of the node's leaves, in the order of `Layout.leaves`; taken as needed.

    Returns:
        The port of the node.
    """
    match node:
        case Array():
            return ArrayPort(node, path, next(blocks))
        case Encoded():
            return EncodedPort(node, path, next(blocks))
        case Variable():
            block = next(blocks)
            assert isinstance(block, VariableBlock)
            return VariablePort(node, path, block)
        case Record(keys, children):
            members = zip(keys, children, strict=True)
            return RecordPort(node, path, [make_port(c, (*path, k), blocks) for k, c in members])
        case Choice(children):
            taken: list[ArrayBlock] = []
            own = _recorded(blocks, taken)
            next(own)
            ports = [make_port(child, (*path, 1), own) for child in children]
            return ChoicePort(node, path, taken, ports)


def _recorded(blocks: Iterator[ArrayBlock], taken: list[ArrayBlock]) -> Iterator[ArrayBlock]:
    for block in blocks:
        taken.append(block)
        yield block
