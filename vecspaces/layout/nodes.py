"""What the values of a space are made of: five kinds of node, the same for every space.

`describe` (in `vecspaces.layout.describe`) says it of each space; all the rest of transport knows
these nodes and no space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Fill: TypeAlias = Callable[..., NDArray[Any]]
"""`np.zeros`, `np.empty`, `np.ones`: called as `fill(shape, dtype=dtype)`."""


@dataclass(frozen=True, slots=True)
class Array:
    """Values that are arrays, or scalars where the shape is `()`: their bytes lie in place.

    Args:
        dtype: The dtype of a value.
        shape: The shape of a value.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        # A dtype that came out of a pickle equals NumPy's own but is another object; comparing by
        # identity, as the hot path does first, wants NumPy's own.
        object.__setattr__(self, "dtype", np.dtype(np.dtype(self.dtype).str))
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))


@dataclass(frozen=True, slots=True)
class Encoded:
    """Values of any type with a block of fixed size, decoded anew at each read.

    Args:
        dtype: The dtype of the block.
        shape: The shape of the block.
        encode: Called as `encode(value, out)`: writes `value` into `out`, an array of that dtype and
            shape; raises (Mismatch, or anything) if it cannot.
        decode: Called as `decode(block)`: gives the value, sharing no memory with the block. A block
            that is all zeros, as one that was never written, must decode too.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    encode: Callable[[Any, NDArray[Any]], None]
    decode: Callable[[NDArray[Any]], Any]


@dataclass(frozen=True, slots=True)
class Record:
    """Values made of a fixed number of named or numbered members.

    Args:
        keys: The subscripts of the members: strings, or `range(len(children))`.
        children: The members' nodes, in that order.
        container: `dict` or `tuple`.
    """

    keys: tuple[str | int, ...]
    children: tuple[Node, ...]
    container: type[dict[Any, Any]] | type[tuple[Any, ...]]

    def build(self, members: list[Any]) -> Any:
        """Make a value from its members, in the order of `keys`."""
        if self.container is dict:
            return dict(zip(self.keys, members, strict=True))
        return tuple(members)


@dataclass(frozen=True, slots=True)
class Choice:
    """Values `(branch, value)`, where the branch says which child the value belongs to.

    Args:
        children: The branches' nodes.
    """

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Values of variable size, in a bounded slot.

    Args:
        encode: Called as `encode(value)`: gives its bytes; raises (Mismatch, or anything) if it cannot.
        decode: Called as `decode(data)` with a bytearray that belongs to the value from then on.
        empty: Called as `empty(fill)`: what a slot that was never written reads as. None: no such
            value is known, and it reads as None.
    """

    encode: Callable[[Any], bytes | bytearray | memoryview]
    decode: Callable[[bytearray], Any]
    empty: Callable[[Fill], Any] | None = None


Node: TypeAlias = Array | Encoded | Record | Choice | Variable
