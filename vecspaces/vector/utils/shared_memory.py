"""Shared memory for the values of n environments: three functions over one layout and one arena."""

from __future__ import annotations

import multiprocessing
from operator import index as to_index
from typing import Any

from vecspaces.checks import show_value
from vecspaces.layout import Layout
from vecspaces.memory import Arena
from vecspaces.spaces import Space


class SharedMemory:
    """One anonymous block with the values of n environments, and its views; it has no lock."""

    __slots__ = ("_known", "arena", "layout", "n", "rows", "write")

    def __init__(self, layout: Layout, arena: Arena) -> None:
        self.layout, self.arena = layout, arena
        (self.rows,) = layout.bind(arena)
        self.n, self.write = layout.n, self.rows.write
        self._known = layout.space

    def check(self, space: Space[Any]) -> None:
        """Raise ValueError if this memory was made for another space."""
        if space is self._known:
            return
        if space != self.layout.space:
            raise ValueError(
                f"space: expected {self.layout.space}, which the shared memory was made for, "
                f"found {space}"
            )
        self._known = space

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedMemory, (self.layout, self.arena)


def create_shared_memory(
    space: Space[Any], n: int = 1, ctx: Any = multiprocessing, *, variable_capacity: int = 65536
) -> SharedMemory:
    """Create shared memory for the values of n environments, for any space.

    Args:
        space: The space of one environment's value.
        n: How many environments.
        ctx: Ignored: the memory works with every start method. Gymnasium has this argument.
        variable_capacity: Bytes per environment for values of variable size (Sequence, Graph, and
            spaces of other libraries), in equal shares for the leaves that have such values.

    Returns:
        The memory, one anonymous block that is freed with its last user.

    Raises:
        TypeError: If `space` is not a space.

    Example:
        >>> from vecspaces.spaces import Text
        >>> memory = create_shared_memory(Text(5), n=2)
        >>> write_to_shared_memory(Text(5), 1, "left", memory)
        >>> read_from_shared_memory(Text(5), memory, n=2)
        ('0', 'left')
    """
    layout = Layout.compile(space, n, variable_capacity=variable_capacity)
    return SharedMemory(layout, Arena.shared(layout.size))


def write_to_shared_memory(
    space: Space[Any], index: int, value: Any, shared_memory: SharedMemory
) -> None:
    """Write one environment's value.

    Args:
        space: The space that the memory was made for.
        index: The environment, from 0 to n - 1.
        value: The value.
        shared_memory: What `create_shared_memory` returned.

    Raises:
        IndexError: If there is no such environment.
        TypeError: If `shared_memory` is another object, or `index` is not an integer.
        ValueError: If the value's dtypes or shapes do not fit the space, or a value of variable
            size is larger than its place: the message names `variable_capacity` and what it needs.
    """
    try:
        known = shared_memory._known
    except AttributeError:
        raise _no_memory(shared_memory) from None
    if space is not known:
        shared_memory.check(space)
    if index.__class__ is not int:  # a bool would be a mask of all rows
        index = int(to_index(index))
    if not 0 <= index < shared_memory.n:
        raise IndexError(f"index: expected 0 to {shared_memory.n - 1}, found {index}")
    shared_memory.write(index, value)


def read_from_shared_memory(space: Space[Any], shared_memory: SharedMemory, n: int = 1) -> Any:
    """Read the values of all environments.

    Args:
        space: The space that the memory was made for.
        shared_memory: What `create_shared_memory` returned.
        n: How many environments the memory was made for.

    Returns:
        Live views `(n, *shape)` for arrays, nested like the space, and tuples of n values, decoded
        at each call, for everything else.

    Raises:
        TypeError: If `shared_memory` is another object.
        ValueError: If the memory was made for another space or number.
    """
    if not isinstance(shared_memory, SharedMemory):
        raise _no_memory(shared_memory)
    shared_memory.check(space)
    if n != shared_memory.n:
        raise ValueError(
            f"n: expected {shared_memory.n}, which the shared memory was made for, found {n}"
        )
    return shared_memory.rows.read()


def _no_memory(value: Any) -> TypeError:
    return TypeError(
        f"shared_memory: expected what create_shared_memory returned, found {show_value(value)}"
    )
