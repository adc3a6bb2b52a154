"""Nodes: how values are stored, in four kinds for all spaces.

`describe` returns the node of a space; values are stored by their node. Nodes are sent to other
processes, with their functions by name or by value. Arrays of fixed size are `Array`, a
product of spaces is `Record`, a sum is `Choice`, and other values are `Variable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vecspaces.checks import RAISED, Path, show_keys, show_value
from vecspaces.layout.casting import KeyMismatch

Fill: TypeAlias = Callable[..., NDArray[Any]]
"""`np.zeros`, `np.empty`, `np.ones`: called as `fill(shape, dtype=dtype)`."""

# Up to this size, every row has a place for the value. Copying larger places takes longer than
# copying the used bytes.
_ALWAYS_RESERVED = 1 << 14

SEQUENCES = (tuple, list, np.ndarray)
"""The types that a value of a Tuple may have."""


@dataclass(frozen=True, slots=True)
class Array:
    """Values that are arrays, or scalars if the shape is `()`, stored as their bytes.

    Args:
        dtype: The dtype of a value.
        shape: The shape of a value.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        # A dtype from a pickle equals NumPy's own but is another object, and hot paths compare by
        # identity.
        if self.dtype.kind != "V":
            object.__setattr__(self, "dtype", np.dtype(self.dtype.str))

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Record:
    """Values with a fixed number of named or numbered members.

    Args:
        keys: The subscripts of the members: strings, or `range(len(children))`.
        children: The members' nodes, in that order.
        container: `dict` or `tuple`.
    """

    keys: tuple[str | int, ...]
    children: tuple[Node, ...]
    container: type[dict[Any, Any]] | type[tuple[Any, ...]]

    def build(self, members: list[Any]) -> Any:
        """Return a value, or a batch, for its members in the order of `keys`."""
        if self.container is dict:
            return dict(zip(self.keys, members, strict=True))
        return tuple(members)

    def split(self, path: Path, value: Any, row: int | None = None) -> Any:
        """Return the members of a value or a batch in the order of `keys`, or raise Mismatch."""
        count = len(self.keys)
        if self.container is tuple:
            if isinstance(value, SEQUENCES) and len(value) == count:
                return value
            raise KeyMismatch(f"a tuple of length {count}", show_value(value), path, row)
        cause = None
        try:
            if len(value) == count:
                return [value[key] for key in self.keys]
        except (IndexError, KeyError, TypeError):
            pass  # not a mapping, or one without these keys
        except RAISED as error:  # whatever a mapping of another library raises
            cause = error
        actual = show_value(value)
        if isinstance(value, Mapping):
            name = "dict" if isinstance(value, dict) else "mapping"
            actual = f"a {name} with {show_keys(value)}"
        raise KeyMismatch(f"a dict with {show_keys(self.keys)}", actual, path, row) from cause


@dataclass(frozen=True, slots=True)
class Choice:
    """Values `(branch, value)`, where the branch is the index of the child that has the value.

    Args:
        children: The branches' nodes.
    """

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Values that are stored as bytes, whose number varies.

    Args:
        encode: Called as `encode(value)`: returns its bytes; raises (Mismatch, or anything) if it
            cannot.
        decode: Called as `decode(data)` with a bytearray, to which the value may refer.
        empty: Called as `empty(fill)`: returns the value of a row that was never written. None: the
            value of such a row is None.
        most: The size of the largest value in bytes, or None. A value of at most 16 KiB
            always has its place, which is copied like an array. For larger ones, address space is
            reserved up to a limit; pages take memory only once they are written.
        encode_rows: `encode` of several values; None: calls it for each value.
        decode_rows: `decode` of several values, from memoryviews; None: calls it for each value.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytearray], Any]
    empty: Callable[[Fill], Any] | None = None
    most: int = 0
    encode_rows: Callable[[list[Any]], list[bytes]] | None = None
    decode_rows: Callable[[list[Any]], list[Any]] | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether each row has a place for the largest value."""
        return 0 < self.most <= _ALWAYS_RESERVED


Node: TypeAlias = Array | Record | Choice | Variable


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Array | Variable]]:
    """Yield the path and node of each leaf, in the order of a layout's blocks."""
    if isinstance(node, Record):
        for key, child in zip(node.keys, node.children, strict=True):
            yield from walk(child, (*path, key))
    elif isinstance(node, Choice):
        # The branch, and then the leaves of every branch.
        yield (*path, 0), Array(np.dtype(np.int64), ())
        for child in node.children:
            yield from walk(child, (*path, 1))
    else:
        yield path, node


def empty_batch(node: Node, n: int, fill: Fill) -> Any:
    """Return a batch of `n` values, whose arrays are `fill((n, *shape), dtype=dtype)`."""
    match node:
        case Array():
            return fill((n, *node.shape), dtype=node.dtype)
        case Record():
            return node.build([empty_batch(child, n, fill) for child in node.children])
        case Choice():
            return ((),) * n
        case Variable():
            return None if node.empty is None else tuple(node.empty(fill) for _ in range(n))
