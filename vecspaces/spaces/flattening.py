"""Flattening: values of a space of fixed size as vectors, and back.

`flatdim`, `flatten_space`, `flatten` and `unflatten` dispatch on the type of the space like
`functools.singledispatch`: their methods `register` add spaces of other libraries. A space without
a fixed size (one with a Graph or a Sequence) is flattened to a space of the same nesting whose
leaves are flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vecspaces.checks import add_path, show_value
from vecspaces.spaces.batch_values import stack, unstack
from vecspaces.spaces.box import Box
from vecspaces.spaces.dict import Dict
from vecspaces.spaces.discrete import Discrete
from vecspaces.spaces.graph import Graph, GraphInstance
from vecspaces.spaces.multi_binary import MultiBinary
from vecspaces.spaces.multi_discrete import MultiDiscrete
from vecspaces.spaces.nesting import Product
from vecspaces.spaces.one_of import OneOf
from vecspaces.spaces.sequence import Sequence
from vecspaces.spaces.space import Space
from vecspaces.spaces.text import Text
from vecspaces.spaces.tuple import Tuple

Vector: TypeAlias = npt.NDArray[Any]


@singledispatch
def flatdim(space: Space[Any]) -> int:
    """Return the number of entries of a flattened value of `space`.

    Raises:
        ValueError: Values have no fixed size, because they contain a Graph or a Sequence.
        NotImplementedError: A third party's space that is not registered.

    Example:
        >>> flatdim(Dict(position=Discrete(2), velocity=Box(0, 1, (3, 2))))
        8
    """
    if space.is_np_flattenable is False:
        raise ValueError(f"space: expected values of a fixed size, found {space!r}")
    raise NotImplementedError(_unknown("flatdim", space))


flatdim.register(Box, lambda space: math.prod(space.shape))
flatdim.register(MultiBinary, lambda space: math.prod(space.shape))
flatdim.register(Discrete, lambda space: int(space.n))
flatdim.register(MultiDiscrete, lambda space: int(space.nvec.sum(dtype=np.int64)))
flatdim.register(Text, lambda space: space.max_length)
flatdim.register(Product, lambda space: sum(map(flatdim, space._members().values())))
flatdim.register(OneOf, lambda space: 1 + max(map(flatdim, space.spaces)))


@singledispatch
def flatten_space(space: Space[Any]) -> Box | Dict | Sequence | Tuple | Graph:
    """Return the space of the flattened values of `space`.

    Returns:
        A Box of shape `(flatdim(space),)`; or, if values have no fixed size, a space of the same
        nesting whose leaves are such boxes.

    Raises:
        NotImplementedError: A third party's space that is not registered.

    Example:
        >>> flatten_space(Dict(position=Discrete(2), velocity=Box(0, 1, (2, 2))))
        Box(0.0, 1.0, (6,), float64)
        >>> flatten_space(Graph(Box(-100, 100, (3, 4)), Discrete(5)))
        Graph(Box(-100.0, 100.0, (12,), float32), Box(0, 1, (5,), int64))
    """
    raise NotImplementedError(_unknown("flatten_space", space))


@flatten_space.register(Box)
def _(space: Box) -> Box:
    return Box(space.low.flatten(), space.high.flatten(), dtype=space.dtype)


@flatten_space.register(Discrete)
@flatten_space.register(MultiBinary)
@flatten_space.register(MultiDiscrete)
def _(space: Discrete[Any] | MultiBinary | MultiDiscrete[Any]) -> Box:
    return Box(0, 1, (flatdim(space),), space.dtype)


@flatten_space.register(Text)
def _(space: Text) -> Box:
    return Box(0, len(space.character_list), (space.max_length,), np.int32)


@flatten_space.register(Product)
def _(space: Product[Any]) -> Box | Tuple | Dict:
    if space.is_np_flattenable:
        boxes = [_flat_box(member) for member in space._members().values()]
        low, high = (
            _concatenate([box.low for box in boxes]),
            _concatenate([box.high for box in boxes]),
        )
        return Box(low, high, dtype=low.dtype)
    flat: Tuple | Dict = space._with(map(flatten_space, space._members().values()))
    return flat


@flatten_space.register(OneOf)
def _(space: OneOf) -> Box:
    dtype = _flat_dtype(space)
    low = np.empty(flatdim(space), dtype)
    high = np.empty_like(low)
    boxes = [_flat_box(member) for member in space.spaces]
    low[0], high[0] = 0, len(boxes) - 1
    if len(low) > 1:
        low[1:] = min(box.low.astype(dtype).min() for box in boxes if box.low.size)
        high[1:] = max(box.high.astype(dtype).max() for box in boxes if box.high.size)
    return Box(low, high, dtype=dtype)


@flatten_space.register(Sequence)
def _(space: Sequence) -> Sequence:
    return Sequence(flatten_space(space.feature_space), stack=space.stack)


@flatten_space.register(Graph)
def _(space: Graph) -> Graph:
    edge_space = None if space.edge_space is None else flatten_space(space.edge_space)
    return Graph(flatten_space(space.node_space), edge_space)


# The classes of errors for a value that does not fit, as in Gymnasium.
_MISFITS = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def flatten(space: Space[Any], x: Any) -> Any:
    """Return a value of `space` as one vector.

    Args:
        space: The space of `x`.
        x: The value.

    Returns:
        A new array of shape `(flatdim(space),)`, a value of `flatten_space(space)`: the entries of
        a Box or MultiBinary; one-hot vectors for a Discrete or MultiDiscrete; indices of characters
        for a Text, padded with the number of characters; the index and then the value, padded, for
        a OneOf; one member after the other, promoted to one dtype, for a Dict or Tuple. If values
        have no fixed size, a value of the same nesting whose leaves are such vectors.

    Raises:
        KeyError, IndexError, TypeError, ValueError, AttributeError: `x` does not fit; the message
            begins with the path to the first leaf that does not.
        NotImplementedError: A third party's space that is not registered.

    Example:
        >>> flatten(Discrete(4), 2)
        array([0, 0, 1, 0])
        >>> flatten(Tuple((Box(0, 1, (2,)), Discrete(3))), ([0.5, 0.25], 1))
        array([0.5 , 0.25, 0.  , 1.  , 0.  ])
    """
    try:
        return _flatten(space, x)
    except _MISFITS as error:
        add_path(error, "x")
        kind = next(kind for kind in _MISFITS if isinstance(error, kind))
        raise kind(space.explain(x, "x") or str(error)) from error


@singledispatch
def _flatten(space: Space[Any], x: Any) -> Any:
    raise NotImplementedError(_unknown("flatten", space))


flatten.register = _flatten.register  # type: ignore[attr-defined]  # as the other three have it


def _flatten_member(space: Space[Any], x: Any, key: str | int) -> Any:
    """Flatten a member of a value; an error names the path."""
    try:
        return _flatten(space, x)
    except _MISFITS as error:
        add_path(error, "x", key)
        raise


@_flatten.register(Box)
@_flatten.register(MultiBinary)
def _(space: Box | MultiBinary, x: Any) -> Vector:
    return np.asarray(x, dtype=space.dtype).flatten()


@_flatten.register(Discrete)
def _(space: Discrete[Any], x: Any) -> Vector:
    index = int(x) - int(space.start)
    if int(x) != x or not 0 <= index < space.n:  # NumPy counts negative indices from the end
        raise IndexError(f"no value of {space!r}")
    onehot = np.zeros(int(space.n), space.dtype)
    onehot[index] = 1
    return onehot


@_flatten.register(MultiDiscrete)
def _(space: MultiDiscrete[Any], x: Any) -> Vector:
    x = np.asarray(x)
    low, high = space._bounds()
    if ((x < low) | (x > high) | (x != np.trunc(x))).any():
        raise IndexError(f"no value of {space!r}")
    firsts, n = _onehot_starts(space)
    onehot = np.zeros(n, space.dtype)
    onehot[firsts + (x.astype(np.int64) - space.start.astype(np.int64)).ravel()] = 1
    return onehot


@_flatten.register(Text)
def _(space: Text, x: str) -> Vector:
    codes = np.full(space.max_length, len(space.character_list), np.int32)
    codes[: len(x)] = list(map(space.character_index, x))
    return codes


@_flatten.register(Product)
def _(space: Product[Any], x: Any) -> Any:
    members = space._members()
    values = [x[key] for key in members] if isinstance(space, Dict) else x
    parts = [
        _flatten_member(member, value, key)
        for (key, member), value in zip(members.items(), values, strict=True)
    ]
    return _concatenate(parts) if space.is_np_flattenable else space._build(parts)


@_flatten.register(OneOf)
def _(space: OneOf, x: tuple[int, Any]) -> Vector:
    index, value = x
    part = _flatten_member(space.spaces[index], value, 1)
    flat = np.empty(flatdim(space), _flat_dtype(space))
    flat[0] = index
    flat[1 : 1 + len(part)] = part
    # The padding must be within the bounds, as the first entry and the lower bound are.
    if len(flat) > 1 + len(part):
        flat[1 + len(part) :] = part[0] if len(part) else _flat_box(space).low[1]
    return flat


_flatten.register(Sequence, lambda space, x: _flatten_batch(space.feature_space, x, space.stack))
_flatten.register(Graph, lambda space, x: _map_graph(space, x, _flatten_batch))


@singledispatch
def unflatten(space: Space[Any], x: Any) -> Any:
    """Return the value that `flatten` flattened, dtypes included.

    Args:
        space: The space of the value.
        x: The flattened value.

    Returns:
        The value, which equals the original if the dtype of the vector can represent it.

    Raises:
        AssertionError: For a Dict or Tuple, `x` is not an array, or not a dict or tuple if values
            have no fixed size.
        NotImplementedError: A third party's space that is not registered.
        ValueError: `x` has another length, or no value can be read from it, such as from zeros for
            a Discrete.

    Example:
        >>> space = Tuple((Box(0, 1, (2,)), Discrete(3)))
        >>> unflatten(space, np.array([0.5, 0.25, 0, 1, 0]))
        (array([0.5 , 0.25], dtype=float32), np.int64(1))
    """
    raise NotImplementedError(_unknown("unflatten", space))


@unflatten.register(Box)
@unflatten.register(MultiBinary)
def _(space: Box | MultiBinary, x: Any) -> Vector:
    return np.asarray(x, dtype=space.dtype).reshape(space.shape)


@unflatten.register(Discrete)
def _(space: Discrete[Any], x: Any) -> Any:
    hot = np.flatnonzero(x)
    if not len(hot) or hot[0] >= space.n or not np.ndim(x):
        raise ValueError(f"x: expected a one-hot vector for {space!r}, found {x}")
    return space.dtype.type(int(space.start) + int(hot[0]))


@unflatten.register(MultiDiscrete)
def _(space: MultiDiscrete[Any], x: Any) -> Any:
    firsts, _ = _onehot_starts(space)
    hot = np.flatnonzero(x)
    counts = space.nvec.ravel().astype(np.int64)
    if len(hot) != len(firsts) or (hot < firsts).any() or (hot >= firsts + counts).any():
        raise ValueError(
            f"x: expected {len(firsts)} one-hot vectors, one after the other, for {space!r}, "
            f"found non-zeros at {hot}"
        )
    values = (hot - firsts).reshape(space.shape) + space.start.astype(np.int64)
    return np.asarray(values).astype(space.dtype)[()]  # a scalar if the shape is ()


@unflatten.register(Text)
def _(space: Text, x: Any) -> str:
    characters = space.character_list
    codes = np.asarray(x).astype(np.int64).tolist()
    if len(codes) > space.max_length or min(codes, default=0) < 0:
        raise ValueError(
            f"x: expected at most {space.max_length} indices of characters for {space!r}, found {x}"
        )
    return "".join([characters[code] for code in codes if code < len(characters)])


@unflatten.register(Product)
def _(space: Product[Any], x: Any) -> Any:
    members = space._members()
    if space.is_np_flattenable:
        parts = _split(space, x)
    elif isinstance(space, Dict):
        parts = [_expect(dict, space, x)[key] for key in members]
    else:
        parts = _expect(tuple, space, x)
    return space._build(
        [unflatten(member, part) for member, part in zip(members.values(), parts, strict=True)]
    )


@unflatten.register(OneOf)
def _(space: OneOf, x: Any) -> tuple[np.int64, Any]:
    index = np.int64(x[0])
    if not 0 <= index < len(space):
        raise ValueError(f"x[0]: expected the index of a member of {space!r}, found {index}")
    member = space.spaces[index]
    return index, unflatten(member, x[1 : 1 + flatdim(member)].astype(_flat_dtype(member)))


unflatten.register(Sequence, lambda space, x: _unflatten_batch(space.feature_space, x, space.stack))
unflatten.register(Graph, lambda space, x: _map_graph(space, x, _unflatten_batch))


def _map_graph(space: Graph, x: GraphInstance, change: Callable[[Any, Any], Any]) -> GraphInstance:
    """Flatten the batches of a graph, or unflatten them."""
    edges = None if x.edges is None else change(space.edge_space, x.edges)
    return GraphInstance(change(space.node_space, x.nodes), edges, x.edge_links)


def _unknown(operation: str, space: Any) -> str:
    return f"space: {operation} does not know {show_value(space)}; add it with {operation}.register"


def _flat_box(space: Space[Any]) -> Box:
    """Return the flat space of a space whose values have a fixed size."""
    box = flatten_space(space)
    if not isinstance(box, Box):
        raise ValueError(f"space: expected values of a fixed size, found {space!r}")
    return box


def _flat_dtype(space: Space[Any]) -> np.dtype[Any]:
    """Return the dtype of flattened values without making `flatten_space(space)`."""
    if isinstance(space, Text):
        return np.dtype(np.int32)
    if isinstance(space, Product):
        return _promote([_flat_dtype(member) for member in space._members().values()])
    if isinstance(space, OneOf):
        dtype = _promote([_flat_dtype(member) for member in space.spaces])
        last = len(space) - 1
        # The index is part of the vector, and must neither overflow nor be rounded.
        if dtype.kind == "f":
            limit = 2 ** (np.finfo(dtype).nmant + 1)
        else:
            limit = 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
        return dtype if last <= limit else np.result_type(dtype, np.min_scalar_type(last))
    return _flat_box(space).dtype if space.dtype is None else space.dtype


def _promote(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype for all; without values it is bool, which promotes no other dtype."""
    return np.result_type(*dtypes) if dtypes else np.dtype(np.bool_)


def _concatenate(parts: list[Vector]) -> Vector:
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def _onehot_starts(space: MultiDiscrete[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Return the index at which each one-hot vector begins, and the end of the last vector."""
    counts = space.nvec.ravel().astype(np.int64)
    return counts.cumsum() - counts, int(counts.sum())


def _split(space: Product[Any], x: Any) -> list[Vector]:
    """Return the vectors of the members, which are parts of the whole vector."""
    x = _expect(np.ndarray, space, x)
    parts, end = [], 0
    for member in space._members().values():
        start, end = end, end + flatdim(member)
        parts.append(x[start:end])
    if len(x) != end:
        raise ValueError(f"x: expected {end} entries for {space!r}, found {len(x)}")
    return parts


def _expect(kind: type, space: Space[Any], x: Any) -> Any:
    if not isinstance(x, kind):
        raise AssertionError(
            f"x: expected what flatten returns for {space!r}, of type {kind.__name__}, "
            f"found {show_value(x)}"
        )
    return x


def _flatten_batch(space: Any, x: Any, stacked: bool = True) -> Any:
    """Flatten each value of a batch, or of a tuple."""
    values = unstack(space, x) if stacked else x
    rows = [_flatten_member(space, value, i) for i, value in enumerate(values)]
    if not stacked:
        return tuple(rows)
    if not space.is_np_flattenable:
        return stack(flatten_space(space), rows)
    return (
        np.stack(rows, dtype=rows[0].dtype)
        if rows
        else np.empty((0, flatdim(space)), _flat_dtype(space))
    )


def _unflatten_batch(space: Any, x: Any, stacked: bool = True) -> Any:
    """Unflatten each value of a batch, or of a tuple."""
    rows = unstack(flatten_space(space), x) if stacked and not space.is_np_flattenable else x
    values = [unflatten(space, row) for row in rows]
    return stack(space, values) if stacked else tuple(values)
