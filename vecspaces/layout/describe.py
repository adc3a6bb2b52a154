"""describe: how the values of each kind of space are stored: as arrays, code points, bytes."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial, singledispatch
from operator import is_
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vecspaces.checks import Path, show_value
from vecspaces.layout import packing
from vecspaces.layout.casting import Mismatch, fit_batch
from vecspaces.layout.nodes import Array, Choice, Encoded, Fill, Node, Record, Variable, empty_batch
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

_UTF32 = "utf-32-le" if sys.byteorder == "little" else "utf-32-be"


@singledispatch
def describe(space: Any) -> Node:
    """Return the node of a space: what its values are made of.

    A third party's space is sent whole, as a pickle; `describe.register` gives it a faster way. A
    subclass of a space that is described is described as its parent.

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


def described(space: Space[Any]) -> Node:
    """Return `describe(space)`, cached while the space exists, for functions of single steps."""
    # Spaces have no hash, so they are known by identity. Only what cannot change is cached: no
    # classes of third parties, and no Dict, Tuple or OneOf after its members were changed.
    known = _remembered.get(id(space))
    if known is not None and known[0]() is space:
        for holder, spaces, keys, members in known[1]:
            if (space if holder is None else holder).spaces is not spaces or (
                keys is not None
                and (tuple(spaces) != keys or not all(map(is_, spaces.values(), members)))
            ):
                break
        else:
            return known[2]
    node = describe(space)
    holders: list[tuple[Any, ...]] = []
    if _is_settled(space, None, holders):
        key = id(space)
        _remembered[key] = weakref.ref(space, lambda _: _remembered.pop(key, None)), holders, node
    return node


_remembered: dict[int, tuple[weakref.ref[Any], list[tuple[Any, ...]], Node]] = {}


def _is_settled(space: Any, holder: Any, holders: list[tuple[Any, ...]]) -> bool:
    """Return whether a space holds vecspaces' own classes alone; note its members in `holders`."""
    # `holder` is None for the outermost space: a reference to it would keep it alive.
    if type(space) is Dict:
        members = tuple(space.spaces.values())
        holders.append((holder, space.spaces, tuple(space.spaces), members))
    elif type(space) in (OneOf, Tuple):
        members = space.spaces
        holders.append((holder, members, None, members))
    else:
        return type(space) in (Box, Discrete, MultiBinary, MultiDiscrete, Text)
    return all(_is_settled(member, member, holders) for member in members)


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
def _describe_tuple(space: Tuple[Any]) -> Record:
    return Record(tuple(range(len(space.spaces))), tuple(map(describe, space.spaces)), tuple)


@describe.register(OneOf)
def _describe_one_of(space: OneOf) -> Choice:
    return Choice(tuple(map(describe, space.spaces)))


@describe.register(Text)
def _describe_text(space: Text) -> Encoded:
    """Store the length plus one (zero: never written), then the code points."""
    limit = space.max_length
    unwritten = space.characters[:1] * space.min_length
    return Encoded(
        np.dtype(np.int32),
        (limit + 1,),
        partial(_encode_text, limit),
        partial(_decode_text, unwritten),
        partial(_decode_texts, limit, unwritten),
    )


def _encode_text(limit: int, value: Any, out: NDArray[Any]) -> None:
    if not isinstance(value, str) or len(value) > limit:
        raise Mismatch(f"a str of at most {limit} characters", show_value(value))
    out[1 : len(value) + 1] = np.frombuffer(value.encode(_UTF32, "surrogatepass"), np.int32)
    out[0] = len(value) + 1


def _decode_text(unwritten: str, block: NDArray[Any]) -> str:
    length = int(block[0])
    if length == 0:
        return unwritten
    codes = block[1:length].tobytes()
    try:
        return codes.decode(_UTF32, "surrogatepass")
    except UnicodeDecodeError:  # a row that was torn while it was written
        return codes.decode(_UTF32, "replace")


def _decode_texts(limit: int, unwritten: str, blocks: NDArray[Any]) -> list[str]:
    """Decode all rows as one str, which is then cut; no further than the longest reaches."""
    lengths = blocks[:, 0].clip(0, limit + 1).tolist()
    width = max([1, *lengths]) - 1
    try:
        text = blocks[:, 1 : width + 1].tobytes().decode(_UTF32, "surrogatepass")
    except UnicodeDecodeError:
        return [_decode_text(unwritten, block) for block in blocks]
    return [
        text[row * width : row * width + length - 1] if length else unwritten
        for row, length in enumerate(lengths)
    ]


@describe.register(Sequence)
def _describe_sequence(space: Sequence) -> Variable:
    """Store the number of values, then the values."""
    feature = describe(space.feature_space)
    pack, unpack = _batch_codec(feature)
    encode, decode = partial(_encode_batch, pack), partial(_decode_batch, unpack)
    if space.stack:
        return Variable(encode, decode, partial(empty_batch, feature, 1))
    if isinstance(feature, (Array, Variable)):  # a tuple of their values is laid out as a batch is
        return Variable(partial(_encode_values, encode), partial(_decode_tuple, decode), _no_values)
    encode = partial(_encode_values, partial(_dump_values, feature))
    return Variable(encode, partial(_decode_tuple, _load_values), _no_values)


def _encode_batch(pack: _Pack, batch: Any) -> bytes:
    count, rows = pack(batch)
    return b"".join((_SEQUENCE.pack(count, 0), rows))


def _decode_batch(unpack: _Unpack, data: bytearray) -> Any:
    return unpack(data, _SEQUENCE.size, _SEQUENCE.unpack_from(data)[0])


def _encode_values(encode: Callable[[Any], bytes], value: Any) -> bytes:
    if not isinstance(value, (tuple, list)):
        raise Mismatch("a tuple of values", show_value(value))
    return encode(value)


def _decode_tuple(decode: Callable[[bytearray], Any], data: bytearray) -> tuple[Any, ...]:
    return tuple(decode(data))


def _dump_values(feature: Node, value: Any) -> bytes:
    return b"".join((_SEQUENCE.pack(len(value), 0), dump(tuple(fit_values(feature, value)))))


def _load_values(data: bytearray) -> Any:
    return load(data, _SEQUENCE.size)


def _no_values(fill: Fill) -> tuple[()]:
    return ()


@describe.register(Graph)
def _describe_graph(space: Graph) -> Variable:
    """Store a table, then nodes, edges and edge links."""
    node = describe(space.node_space)
    edge = None if space.edge_space is None else describe(space.edge_space)
    pack_nodes, unpack_nodes = _batch_codec(node)
    pack_edges, unpack_edges = _NO_EDGES if edge is None else _batch_codec(edge)
    return Variable(
        partial(_encode_graph, pack_nodes, pack_edges),
        partial(_decode_graph, unpack_nodes, unpack_edges),
        partial(_empty_graph, node, edge),
    )


def _encode_graph(pack_nodes: _Pack, pack_edges: _Pack, value: Any) -> bytes:
    try:
        nodes, edges, links = value.nodes, value.edges, value.edge_links
    except AttributeError:
        expected = "a graph with nodes, edges and edge_links"
        raise Mismatch(expected, show_value(value)) from None
    node_count, nodes = pack_nodes(nodes, ("nodes",))
    edge_count, edges = _NONE if edges is None else pack_edges(edges, ("edges",))
    link_type, links = _NONE if links is None else _pack_links(links)
    node_bytes, edge_bytes = nbytes(nodes), nbytes(edges)
    pad_nodes, pad_edges = padding(node_bytes), padding(edge_bytes)
    edges_at = _GRAPH.size + node_bytes + len(pad_nodes)
    links_at = edges_at + edge_bytes + len(pad_edges)
    table = _GRAPH.pack(node_count, edge_count, link_type, len(links), edges_at, links_at)
    return b"".join((table, nodes, pad_nodes, edges, pad_edges, links))


def _decode_graph(unpack_nodes: _Unpack, unpack_edges: _Unpack, data: bytearray) -> GraphInstance:
    node_count, edge_count, link_type, links, edges_at, links_at = _GRAPH.unpack_from(data)
    return GraphInstance(
        unpack_nodes(data, _GRAPH.size, node_count),
        None if edge_count < 0 else unpack_edges(data, edges_at, edge_count),
        None if link_type < 0 else np.ndarray((links, 2), chr(link_type), data, links_at),
    )


def _empty_graph(node: Node, edge: Node | None, fill: Fill) -> GraphInstance:
    nodes = empty_batch(node, 1, fill)
    if edge is None:
        return GraphInstance(nodes, None, None)
    return GraphInstance(nodes, empty_batch(edge, 1, fill), fill((1, 2), dtype=np.int64))


# Tables in front of the rows; their sizes are multiples of 16, so that rows are aligned.
_SEQUENCE = Struct("=qq")
_GRAPH = Struct("=6q")

_Pack: TypeAlias = Callable[..., tuple[int, Any]]
_Unpack: TypeAlias = Callable[[bytearray, int, int], Any]

_NONE: tuple[int, Any] = (-1, b"")


def _batch_codec(node: Node) -> tuple[_Pack, _Unpack]:
    """Return encode and decode of a batch of any length: its number of rows, and their bytes."""
    # The rows of arrays are their bytes, those of values of variable size the bytes of each; any
    # other batch is a pickle.
    if isinstance(node, Variable):
        return partial(_pack_variable, node), partial(_unpack_variable, node)
    if isinstance(node, Array):
        return partial(_pack_arrays, node), partial(_unpack_arrays, node)
    return partial(_pack_pickled, node), _unpack_pickled


def _pack_arrays(node: Array, batch: Any, path: Path = ()) -> tuple[int, Any]:
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
    if count == 0:  # [] has a shape of its own
        return 0, b""
    return count, np.ascontiguousarray(fit_batch(batch, count, dtype, shape, path))


def _unpack_arrays(node: Array, data: bytearray, at: int, count: int) -> NDArray[Any]:
    rows: NDArray[Any] = np.ndarray((count, *node.shape), node.dtype, data, at)
    return rows


def _pack_variable(node: Variable, batch: Any, path: Path = ()) -> tuple[int, Any]:
    parts = []
    for row, value in enumerate(batch):
        try:
            parts.append(node.encode(value))
        except Mismatch as error:
            raise error.at((*path, row)) from error.__cause__
    return len(parts), packing.pack(parts)


def _unpack_variable(node: Variable, data: bytearray, at: int, count: int) -> tuple[Any, ...]:
    return tuple(node.decode(bytearray(part)) for part in packing.unpack(data, at))


def _pack_pickled(node: Node, batch: Any, path: Path = ()) -> tuple[int, Any]:
    return 0, dump(fit_batch_of(node, batch, path))


def _unpack_pickled(data: bytearray, at: int, count: int) -> Any:
    return load(data, at)


def _refuse_edges(edges: Any, path: Path) -> tuple[int, Any]:
    raise Mismatch("None, as the graph's space has no edges", show_value(edges), path)


def _unpack_no_edges(data: bytearray, at: int, count: int) -> None:
    return None


_NO_EDGES: tuple[_Pack, _Unpack] = (_refuse_edges, _unpack_no_edges)


def _pack_links(links: Any) -> tuple[int, Any]:
    links = np.ascontiguousarray(links)
    if links.dtype.kind not in "iu" or links.ndim != 2 or links.shape[1] != 2:
        raise Mismatch("integers of shape (edges, 2)", show_value(links), ("edge_links",))
    # The character of a dtype does not tell its byte order.
    links = links.astype(links.dtype.newbyteorder("="), copy=False)
    return ord(links.dtype.char), links
