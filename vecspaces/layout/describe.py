"""describe: how each kind of space is stored: arrays, texts, and values of variable size."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import singledispatch
from struct import Struct
from typing import Any

import numpy as np

from vecspaces.checks import Path, show_value
from vecspaces.layout import packing
from vecspaces.layout.casting import Mismatch, fit_batch
from vecspaces.layout.nodes import Array, Choice, Fill, Node, Record, Variable, empty_batch
from vecspaces.layout.packing import dump, load, nbytes, padding
from vecspaces.layout.ports import fit_batch_of, fit_values
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.spaces.array_space import ArraySpace
from vecspaces.spaces.nesting import Product

_UTF8_BYTES = 4  # of a character at most
_NO_TEXT = b"\xff"  # not UTF-8; without bytes, the row would read as never written


@singledispatch
def describe(space: Any) -> Node:
    """Return the node of a space, which states how its values are stored.

    Values of another library's space are pickled; register a faster node with `describe.register`.
    A subclass of a registered space has the node of its parent.

    Args:
        space: The space of one environment's value.

    Returns:
        Its node.

    Raises:
        TypeError: If it is not a space of vecspaces.

    Example:
        >>> describe(Discrete(3))
        Array(dtype=dtype('int64'), shape=())
    """
    raise TypeError(
        f"space: expected a vecspaces.Space, found {show_value(space)}; "
        "vecspaces.adapters.gymnasium.from_gymnasium converts Gymnasium's"
    )


def described(space: Space[Any]) -> Node:
    """Return `describe(space)`, cached while the space exists, for use in each step."""
    # Spaces have no hash, so the key is their identity. Only spaces that cannot change are cached:
    # not those of other libraries, and not a Dict, Tuple or OneOf whose members were changed.
    known = _remembered.get(id(space))
    if known is not None and known[0]() is space and known[1] == _members(space):
        return known[2]
    node = describe(space)
    if _is_settled(space):
        key = id(space)
        reference = weakref.ref(space, lambda _: _remembered.pop(key, None))
        _remembered[key] = reference, _members(space), node
    return node


_remembered: dict[int, tuple[weakref.ref[Any], tuple[Any, ...], Node]] = {}


def _members(space: Any) -> tuple[Any, ...]:
    """Return all spaces inside a space, by their keys; not itself, which would keep it alive."""
    # By their identity: a space may equal one of a subclass, which may be stored in another way.
    if type(space) not in (Dict, OneOf, Tuple):
        return ()
    members = space._members().items()
    return tuple([(key, id(member), member, _members(member)) for key, member in members])


def _is_settled(space: Any) -> bool:
    """Return whether a space has only classes of vecspaces."""
    if type(space) in (Dict, OneOf, Tuple):
        return all(map(_is_settled, space._members().values()))
    return type(space) in (Box, Discrete, MultiBinary, MultiDiscrete, Text)


describe.register(Space, lambda space: Variable(dump, load))
describe.register(ArraySpace, lambda space: Array(space.dtype, space.shape))
describe.register(Discrete, lambda space: Array(space.dtype, space.shape))
describe.register(OneOf, lambda space: Choice(tuple(map(describe, space.spaces))))


@describe.register(Product)
def _describe_product(space: Product[Any]) -> Record:
    members = space._members()
    return Record(tuple(members), tuple(map(describe, members.values())), space._container)


@describe.register(Text)
def _describe_text(space: Text) -> Variable:
    codec = _TextCodec(space.max_length, space.characters[:1] * space.min_length)
    most = max(len(_NO_TEXT), _UTF8_BYTES * space.max_length)
    return Variable(
        *(codec.encode, codec.decode, codec.empty, most, codec.encode_rows, codec.decode_rows)
    )


@dataclass(frozen=True, slots=True)
class _TextCodec:
    """Stores UTF-8, so only the bytes of the text are written."""

    limit: int
    unwritten: str

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str) or len(value) > self.limit:
            raise Mismatch(f"a str of at most {self.limit} characters", show_value(value))
        encoded: bytes = value.encode("utf-8", "surrogatepass")
        return encoded or _NO_TEXT

    def decode(self, data: bytearray) -> str:
        if data == _NO_TEXT:
            return ""
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # the writer died before the row was complete
            return data.decode("utf-8", "replace")

    def encode_rows(self, values: list[Any]) -> list[bytes]:
        try:
            parts = list(map(str.encode, values))
            is_plain = all(parts) and max(map(len, values)) <= self.limit
        except (TypeError, ValueError):  # not a str, or with a surrogate
            is_plain = False
        return parts if is_plain else list(map(self.encode, values))

    def decode_rows(self, parts: list[Any]) -> list[str]:
        try:
            return [part.tobytes().decode() for part in parts]
        except UnicodeDecodeError:
            return [self.decode(bytearray(part)) for part in parts]

    def empty(self, fill: Any) -> str:
        return self.unwritten


# Tables in front of the rows; their sizes are multiples of 16, so that rows are aligned.
_SEQUENCE = Struct("=qq")
_GRAPH = Struct("=6q")

_NONE: tuple[int, Any] = (-1, b"")


@dataclass(frozen=True, slots=True)
class _BatchCodec:
    """Encodes any number of values of a node, as a batch or, not stacked, as a tuple of values."""

    node: Node
    is_stacked: bool = True

    def pack(self, batch: Any, path: Path = ()) -> tuple[int, Any]:
        """Return the number of rows, and their bytes."""
        node = self.node
        if isinstance(node, Array):
            return _pack_arrays(node, batch, path)
        if isinstance(node, Variable):
            return _pack_variable(node, batch, path)
        if self.is_stacked:  # neither arrays nor of variable size: pickled
            return 0, dump(fit_batch_of(node, batch, path))
        return 0, dump(tuple(fit_values(node, batch)))

    def unpack(self, data: bytearray, start: int, count: int) -> Any:
        """Return the batch, which begins at a byte."""
        node = self.node
        if isinstance(node, Array):
            return np.ndarray((count, *node.shape), node.dtype, data, start)
        if isinstance(node, Variable):
            return tuple(node.decode(bytearray(part)) for part in packing.unpack(data, start))
        return load(data, start)

    # The bytes of a Sequence: the number of values, then the values.

    def encode(self, value: Any) -> bytes:
        if not self.is_stacked and not isinstance(value, (tuple, list)):
            raise Mismatch("a tuple of values", show_value(value))
        count, rows = self.pack(value)
        return b"".join((_SEQUENCE.pack(count, 0), rows))

    def decode(self, data: bytearray) -> Any:
        values = self.unpack(data, _SEQUENCE.size, _SEQUENCE.unpack_from(data)[0])
        return values if self.is_stacked else tuple(values)

    def empty(self, fill: Fill) -> Any:
        return empty_batch(self.node, 1, fill) if self.is_stacked else ()


def _pack_arrays(node: Array, batch: Any, path: Path) -> tuple[int, Any]:
    dtype, shape = node.dtype, node.shape
    if (
        batch.__class__ is np.ndarray
        and batch.dtype is dtype
        and batch.shape[1:] == shape
        and batch.flags.c_contiguous
    ):
        return len(batch), batch
    try:
        count = len(batch)
    except TypeError:
        expected = f"a sequence of {dtype} values of shape {shape}"
        raise Mismatch(expected, show_value(batch), path) from None
    if count == 0:  # the shape of [] is (0,), not (0, *shape)
        return 0, b""
    return count, np.ascontiguousarray(fit_batch(batch, count, dtype, shape, path))


def _pack_variable(node: Variable, batch: Any, path: Path) -> tuple[int, Any]:
    parts = []
    for row, value in enumerate(batch):
        try:
            parts.append(node.encode(value))
        except Mismatch as error:
            raise error.placed((*path, row)) from error.__cause__
    return len(parts), packing.pack(parts)


@describe.register(Sequence)
def _describe_sequence(space: Sequence) -> Variable:
    codec = _BatchCodec(describe(space.feature_space), space.stack)
    return Variable(codec.encode, codec.decode, codec.empty)


@describe.register(Graph)
def _describe_graph(space: Graph) -> Variable:
    edges = None if space.edge_space is None else _BatchCodec(describe(space.edge_space))
    codec = _GraphCodec(_BatchCodec(describe(space.node_space)), edges)
    return Variable(codec.encode, codec.decode, codec.empty)


@dataclass(frozen=True, slots=True)
class _GraphCodec:
    """Stores a table, then nodes, edges and edge links."""

    nodes: _BatchCodec
    edges: _BatchCodec | None

    def encode(self, value: Any) -> bytes:
        try:
            nodes, edges, links = value.nodes, value.edges, value.edge_links
        except AttributeError:
            expected = "a graph with nodes, edges and edge_links"
            raise Mismatch(expected, show_value(value)) from None
        node_count, nodes = self.nodes.pack(nodes, ("nodes",))
        edge_count, edges = self._pack_edges(edges)
        link_type, links = _NONE if links is None else _pack_links(links)
        node_bytes, edge_bytes = nbytes(nodes), nbytes(edges)
        pad_nodes, pad_edges = padding(node_bytes), padding(edge_bytes)
        edges_start = _GRAPH.size + node_bytes + len(pad_nodes)
        links_start = edges_start + edge_bytes + len(pad_edges)
        table = _GRAPH.pack(node_count, edge_count, link_type, len(links), edges_start, links_start)
        return b"".join((table, nodes, pad_nodes, edges, pad_edges, links))

    def decode(self, data: bytearray) -> GraphInstance:
        node_count, edge_count, link_type, links, edges_start, links_start = _GRAPH.unpack_from(
            data
        )
        edges = None
        if self.edges is not None and edge_count >= 0:
            edges = self.edges.unpack(data, edges_start, edge_count)
        return GraphInstance(
            self.nodes.unpack(data, _GRAPH.size, node_count),
            edges,
            None if link_type < 0 else np.ndarray((links, 2), chr(link_type), data, links_start),
        )

    def _pack_edges(self, edges: Any) -> tuple[int, Any]:
        if edges is None:
            return _NONE
        if self.edges is None:
            expected = "None, as the graph's space has no edges"
            raise Mismatch(expected, show_value(edges), ("edges",))
        return self.edges.pack(edges, ("edges",))

    def empty(self, fill: Fill) -> GraphInstance:
        nodes = self.nodes.empty(fill)
        if self.edges is None:
            return GraphInstance(nodes, None, None)
        return GraphInstance(nodes, self.edges.empty(fill), fill((1, 2), dtype=np.int64))


def _pack_links(links: Any) -> tuple[int, Any]:
    links = np.ascontiguousarray(links)
    if links.dtype.kind not in "iu" or links.ndim != 2 or links.shape[1] != 2:
        raise Mismatch("integers of shape (edges, 2)", show_value(links), ("edge_links",))
    # The character of a dtype does not state its byte order.
    links = links.astype(links.dtype.newbyteorder("="), copy=False)
    return ord(links.dtype.char), links
