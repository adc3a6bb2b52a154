"""concatenate, iterate and create_empty_array: conversion between values and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from operator import is_
from typing import Any

import numpy as np

from vecspaces.checks import Path, check_count, show_path, show_value
from vecspaces.errors import CustomSpaceError
from vecspaces.layout import Array, Mismatch, Record, columns
from vecspaces.layout.blocks import ArrayBlock
from vecspaces.layout.describe import described
from vecspaces.layout.nodes import Node, empty_batch
from vecspaces.layout.ports import ArrayPort
from vecspaces.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

_BATCHES = (Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple)
"""The spaces of columns; a Tuple with another space in it is a batch of single values."""


def create_empty_array(space: Space[Any], n: int = 1, fn: Callable[..., Any] = np.zeros) -> Any:
    """Return a batch of `n` values for `concatenate` to write into.

    Args:
        space: The space of one value.
        n: The number of values.
        fn: Makes the arrays: `np.zeros`, `np.empty` or `np.ones`.

    Returns:
        Arrays `(n, *shape)`, nested like the space; a tuple of `n` empty values if values are not
        arrays; None for a space of another library that is not registered.

    Raises:
        TypeError: If `space` is not a space, or `n` is not an integer.
        ValueError: If `n` is negative.

    Example:
        >>> create_empty_array(Dict(position=Box(-1, 1, (2,)), color=Discrete(3)), n=2)
        {'position': array([[0., 0.],
               [0., 0.]], dtype=float32), 'color': array([0, 0])}
    """
    return empty_batch(described(space), check_count("n", n, least=0), fn)


def concatenate(space: Space[Any], items: Iterable[Any], out: Any) -> Any:
    """Put values into one batch.

    Args:
        space: The space of one value.
        items: The values.
        out: The batch to write into, as `create_empty_array` makes it; None: a new batch.

    Returns:
        `out`; tuples, which cannot be written to, are replaced by new ones.

    Raises:
        TypeError: If `space` is not a space.
        ValueError: If there are more or fewer items than rows, or an item's shape, dtype or keys
            are not those of the space; names the item and the path.

    Example:
        >>> concatenate(Box(0, 1, (2,)), [[0, 1], [0.5, 0.25]], np.zeros((2, 2), np.float32))
        array([[0.  , 1.  ],
               [0.5 , 0.25]], dtype=float32)
    """
    return _concatenate(described(space), list(items), out, ())


def _concatenate(node: Node, items: list[Any], out: Any, path: Path) -> Any:
    if isinstance(node, Array):
        return _stack(node, items, out, path)
    if isinstance(node, Record):
        return _concatenate_members(node, items, out, path)
    if isinstance(out, tuple) and len(out) != len(items):
        _wrong_number(len(out), len(items), path)
    return tuple(items)


def _stack(node: Array, items: list[Any], out: Any, path: Path) -> Any:
    n = len(items)
    if out is None:
        out = np.empty((n, *node.shape), node.dtype)
    elif not isinstance(out, np.ndarray) or out.shape != (n, *node.shape):
        is_array = isinstance(out, np.ndarray)
        if is_array and out.ndim and out.shape[1:] == node.shape:
            _wrong_number(len(out), n, path)
        raise (ValueError if is_array else TypeError)(
            f"out{show_path(path)}: expected an array of shape {(n, *node.shape)}, "
            f"found {show_value(out)}"
        )
    elif not out.flags.writeable:
        raise ValueError(
            f"out{show_path(path)}: expected an array to write to, found a read-only one"
        )
    try:
        if not columns.writer(out)(items):
            ArrayPort(node, path, ArrayBlock(out)).writer(0, n)(items)
    except Mismatch as error:
        raise error.called("items") from error.__cause__
    return out


def _concatenate_members(node: Record, items: list[Any], out: Any, path: Path) -> Any:
    parts = columns.split_record(node, items)
    if parts is None:
        try:
            rows = [node.split(path, item, row) for row, item in enumerate(items)]
        except Mismatch as error:
            raise error.called("items") from None
        parts = [list(column) for column in zip(*rows, strict=True)]
    try:
        outs = (None,) * len(node.keys) if out is None else node.split(path, out)
    except Mismatch as error:
        raise error.called("out") from None
    members = [
        _concatenate(child, column, old, (*path, key))
        for child, column, old, key in zip(node.children, parts, outs, node.keys, strict=True)
    ]
    if out is not None and all(map(is_, members, outs)):
        return out
    if isinstance(out, MutableMapping):
        out.update(zip(node.keys, members, strict=True))
        return out
    return node.build(members)


def _wrong_number(expected: int, actual: int, path: Path) -> None:
    raise ValueError(
        f"items: expected {expected} items, the rows of out{show_path(path)}, found {actual}"
    )


def iterate(space: Space[Any], items: Any) -> Iterator[Any]:
    """Iterate over the values of a batch, without copying them.

    Args:
        space: The space of the batch, as `batch_space` makes it.
        items: The batch.

    Returns:
        An iterator over views of the rows of arrays, over scalars, or over values.

    Raises:
        TypeError: If `space` is not a space, or its values cannot be iterated over.
        CustomSpaceError: If it is not a space of batches.
        ValueError: A member of a dict or tuple ends before the others; raised at this point.

    Example:
        >>> next(iterate(Dict(position=Box(-1, 1, (2, 3))), {"position": np.zeros((2, 3))}))
        {'position': array([0., 0., 0.])}
    """
    rows = _rows(space, described(space), items, ())
    return iter(()) if rows is None else rows


def _rows(space: Space[Any], node: Node, items: Any, path: Path) -> Iterator[Any] | None:
    """Return an iterator over a batch; None if its values have no data."""
    if isinstance(space, Discrete):
        raise TypeError(f"space: expected the space of a batch, found {space}; see batch_space")
    if isinstance(node, Array):
        return _iter(items, path)
    if not isinstance(space, (Dict, Tuple)) or not isinstance(node, Record):
        raise CustomSpaceError(
            f"space: expected the space of a batch, found {space}; batch_space makes it, "
            "a Tuple of spaces where values are no arrays"
        )
    members = list(space.spaces.values() if isinstance(space, Dict) else space.spaces)
    if isinstance(space, Tuple) and not all(isinstance(member, _BATCHES) for member in members):
        return _iter(items, path)  # one value for each member
    try:
        columns = node.split(path, items)
    except Mismatch as error:
        raise error.called("items") from None
    iterators = [
        _rows(member, child, column, (*path, key))
        for member, child, column, key in zip(
            members, node.children, columns, node.keys, strict=True
        )
    ]
    return None if all(rows is None for rows in iterators) else _zip_members(node, iterators, path)


def _iter(items: Any, path: Path) -> Iterator[Any]:
    try:
        return iter(items)
    except TypeError as error:
        name = f"items{show_path(path)}"
        raise TypeError(f"{name}: expected a batch of values, found {show_value(items)}") from error


def _zip_members(node: Record, iterators: list[Iterator[Any] | None], path: Path) -> Iterator[Any]:
    # A member without data has no rows: each value gets the only value that it can have.
    row = [empty_batch(child, 0, np.zeros) for child in node.children]
    places = [place for place, rows in enumerate(iterators) if rows is not None]
    members = [rows for rows in iterators if rows is not None]
    try:
        for values in zip(*members, strict=True):
            for place, value in zip(places, values, strict=True):
                row[place] = value
            yield node.build(row)
    except ValueError as error:
        if not str(error).startswith("zip()"):
            raise
        keys = ", ".join(repr(node.keys[place]) for place in places)
        raise ValueError(
            f"items{show_path(path)}: expected as many values in each of the members {keys}, "
            "found more in some than in others"
        ) from None
