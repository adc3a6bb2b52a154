"""describe: space -> node, the one place of transport that knows the types of spaces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vecspaces.layout.casting import Mismatch, Path, fit_batch, show_type, show_value
from vecspaces.layout.nodes import Array, Choice, Encoded, Fill, Node, Record, Variable
from vecspaces.layout.packing import dump, join, load, split
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

_UTF32 = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"


@singledispatch
def describe(space: Any) -> Node:
    """Say how the values of a space travel.

    A space of a third party travels whole, as a pickle; `describe.register` gives it a faster way.
    A subclass of a space that is described is described as its parent.

    Args:
        space: The space of one environment's value.

    Returns:
        Its node.

    Raises:
        TypeError: If it is no space of vecspaces.

    Example:
        >>> describe(Discrete(3))
        Array(dtype=dtype('int64'), shape=())
    """
    raise TypeError(
        f"space: expected a vecspaces.Space, found {show_value(space)}; "
        "vecspaces.adapters.gymnasium.from_gymnasium converts Gymnasium's"
    )


@describe.register(Space)
def _describe_unknown(space: Space[Any]) -> Variable:
    return Variable(dump, load)


@describe.register(Box)
@describe.register(Discrete)
@describe.register(MultiBinary)
@describe.register(MultiDiscrete)
def _describe_array(space: Space[Any]) -> Array:
    assert space.dtype is not None and space.shape is not None
    return Array(space.dtype, space.shape)


@describe.register(Dict)
def _describe_dict(space: Dict[Any]) -> Record:
    return Record(tuple(space.spaces), tuple(map(describe, space.spaces.values())), dict)


@describe.register(Tuple)
def _describe_tuple(space: Tuple) -> Record:
    return Record(tuple(range(len(space.spaces))), tuple(map(describe, space.spaces)), tuple)


@describe.register(OneOf)
def _describe_one_of(space: OneOf) -> Choice:
    return Choice(tuple(map(describe, space.spaces)))


@describe.register(Text)
def _describe_text(space: Text) -> Encoded:
    """Lay out the length plus one (zero: never written), then the code points."""
    limit = space.max_length
    unwritten = space.characters[:1] * space.min_length

    def encode(value: Any, out: NDArray[Any]) -> None:
        if not isinstance(value, str) or len(value) > limit:
            raise Mismatch(f"a str of at most {limit} characters", show_value(value))
        out[1 : len(value) + 1] = np.frombuffer(value.encode(_UTF32, "surrogatepass"), np.int32)
        out[0] = len(value) + 1

    def decode(block: NDArray[Any]) -> str:
        length = int(block[0])
        if length == 0:
            return unwritten
        codes = block[1:length].tobytes()
        try:
            return codes.decode(_UTF32, "surrogatepass")
        except UnicodeDecodeError:  # a row that was torn while it was written
            return codes.decode(_UTF32, "replace")

    return Encoded(np.dtype(np.int32), (limit + 1,), encode, decode)


@describe.register(Sequence)
def _describe_sequence(space: Sequence[Any]) -> Variable:
    feature = describe(space.feature_space)
    stacked = space.stack
    pack, unpack = _batch_codec(feature)

    def encode(value: Any) -> bytes:
        if not stacked and not isinstance(value, (tuple, list)):
            raise Mismatch("a tuple of values", show_value(value))
        count, part = pack(value)
        return join([np.array([count], np.int64), part])

    def decode(data: bytearray) -> Any:
        head, part = split(data)
        batch = unpack(head.cast("q")[0], part)
        return batch if stacked else tuple(batch)

    def empty(fill: Fill) -> Any:
        return empty_batch(feature, 1, fill) if stacked else ()

    return Variable(encode, decode, empty)


@describe.register(Graph)
def _describe_graph(space: Graph) -> Variable:
    """Lay out a table of counts (-1: None), then nodes, edges and edge links."""
    node = describe(space.node_space)
    edge = None if space.edge_space is None else describe(space.edge_space)
    pack_nodes, unpack_nodes = _batch_codec(node)
    pack_edges, unpack_edges = (_refuse_edges, None) if edge is None else _batch_codec(edge)

    def encode(value: Any) -> bytes:
        try:
            nodes, edges, links = value.nodes, value.edges, value.edge_links
        except AttributeError:
            raise Mismatch("a graph with nodes, edges and edge_links", show_value(value)) from None
        node_count, nodes = pack_nodes(nodes, ("nodes",))
        edge_count, edges = (-1, b"") if edges is None else pack_edges(edges, ("edges",))
        kind, links = (-1, b"") if links is None else _pack_links(links)
        return join([np.array([node_count, edge_count, kind], np.int64), nodes, edges, links])

    def decode(data: bytearray) -> GraphInstance:
        table, nodes, edges, links = split(data)
        node_count, edge_count, kind = table.cast("q")
        return GraphInstance(
            unpack_nodes(node_count, nodes),
            None if edge_count < 0 or unpack_edges is None else unpack_edges(edge_count, edges),
            None if kind < 0 else np.frombuffer(links, chr(kind)).reshape(-1, 2),
        )

    def empty(fill: Fill) -> GraphInstance:
        nodes = empty_batch(node, 1, fill)
        if edge is None:
            return GraphInstance(nodes, None, None)
        return GraphInstance(nodes, empty_batch(edge, 1, fill), fill((1, 2), dtype=np.int64))

    return Variable(encode, decode, empty)


_Part: TypeAlias = bytes | NDArray[Any]


def _batch_codec(
    node: Node,
) -> tuple[Callable[..., tuple[int, _Part]], Callable[[int, memoryview], Any]]:
    """Give encode and decode of a batch of any length: raw bytes for arrays, else a pickle."""
    if not isinstance(node, Array):
        return lambda batch, path=(): (0, dump(batch)), lambda count, part: load(part)
    dtype, shape = node.dtype, node.shape

    def pack(batch: Any, path: Path = ()) -> tuple[int, _Part]:
        try:
            count = len(batch)
        except TypeError:
            expected = f"a sequence of {show_type(dtype, shape)}"
            raise Mismatch(expected, show_value(batch), path) from None
        if count == 0:
            return 0, b""
        return count, np.ascontiguousarray(fit_batch(batch, count, dtype, shape, path))

    def unpack(count: int, part: memoryview) -> NDArray[Any]:
        return np.frombuffer(part, dtype).reshape((count, *shape))

    return pack, unpack


def _refuse_edges(edges: Any, path: Path) -> tuple[int, _Part]:
    raise Mismatch("None, as the graph has no edge space", show_value(edges), path)


def _pack_links(links: Any) -> tuple[int, _Part]:
    links = np.ascontiguousarray(links)
    if links.dtype.kind not in "iu" or links.ndim != 2 or links.shape[1] != 2:
        raise Mismatch("integers of shape (edges, 2)", show_value(links), ("edge_links",))
    return ord(links.dtype.char), links


def empty_batch(node: Node, n: int, fill: Fill) -> Any:
    """Make a batch of `n` values that say nothing.

    Args:
        node: What the values are made of.
        n: How many.
        fill: Makes the arrays, called as `fill(shape, dtype=dtype)`.

    Returns:
        Arrays with a leading axis of length `n` in dicts and tuples as the node nests them; a tuple
        of `n` values where values are no arrays; None where no empty value is known.

    Example:
        >>> empty_batch(describe(Tuple((Discrete(2), Text(3)))), 2, np.ones)
        (array([1, 1]), ('0', '0'))
    """
    match node:
        case Array(dtype, shape):
            return fill((n, *shape), dtype=dtype)
        case Record():
            return node.build([empty_batch(child, n, fill) for child in node.children])
        case Encoded(dtype, shape):
            return tuple(node.decode(np.zeros(shape, dtype)) for _ in range(n))
        case Choice():
            return ((),) * n
        case Variable(empty=None):
            return None
        case Variable(empty=empty):
            return tuple(empty(fill) for _ in range(n))
