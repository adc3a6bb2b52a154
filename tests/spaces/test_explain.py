"""explain and contains of objects whose methods raise: an answer, and no exception."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


class Trap:
    """An object each of whose methods raises."""

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError

    def __iter__(self) -> Any:
        raise RuntimeError

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError


class TrapDict(dict):  # type: ignore[type-arg]
    """A dict of no use."""

    __getitem__ = __iter__ = keys = __contains__ = __len__ = Trap.__iter__  # type: ignore[assignment]


class TrapTuple(tuple):  # type: ignore[type-arg]
    """A tuple of no use."""

    __slots__ = ()
    __getitem__ = __iter__ = __len__ = Trap.__iter__  # type: ignore[assignment]


class TrapArray(np.ndarray[Any, Any]):
    """An array whose operators raise, as those of quantities with units do."""

    __array_ufunc__ = __ge__ = __int__ = Trap.__iter__  # type: ignore[assignment]


def trapped_array() -> Any:
    array = np.empty(1, dtype=object)
    array[0] = Trap()
    return array


NESTED: list[Space[Any]] = [
    Dict(a=Discrete(3)),
    Tuple([Discrete(3)]),
    Sequence(Discrete(3)),
    Sequence(Discrete(3), stack=True),
    Sequence(Dict(a=Discrete(3)), stack=True),
    Sequence(Text(3), stack=True),
    Graph(Discrete(3), Discrete(2)),
    Graph(Tuple([Discrete(3), Text(2)]), Discrete(2)),
    OneOf([Discrete(3), Text(2)]),
]


def loop() -> Any:
    """A list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


TRAPS: list[Any] = [
    Trap,
    lambda: TrapDict(a=1),
    lambda: TrapTuple((0, 1)),
    lambda: {"a": Trap(), "longer": Trap()},
    lambda: {Trap: 1, "a": 2},
    lambda: (Trap(),),
    lambda: (Trap(), Trap()),
    lambda: (0, Trap()),
    lambda: GraphInstance(Trap(), None, None),
    lambda: GraphInstance(np.array([1]), Trap(), np.array([[0, 0]])),
    lambda: GraphInstance(np.array([1]), np.array([0]), Trap()),
    trapped_array,
    loop,
    lambda: np.array(3),
    lambda: iter([1, 2]),
    lambda: (value for value in "ab"),
]


@pytest.mark.parametrize("space", NESTED, ids=repr)
def test_explain_and_contains_of_traps_raise_nothing(space: Any) -> None:
    for number, make in enumerate(TRAPS):
        assert space.contains(make()) is False, number
        assert isinstance(space.explain(make(), "x"), str), number


ARRAYS = [Box(0, 1, (2,)), Box(0, 1, (2000,)), MultiBinary(2), MultiDiscrete([3, 3]), Discrete(3)]


@pytest.mark.parametrize("space", ARRAYS, ids=repr)
def test_contains_takes_arrays_whose_operators_raise(space: Any) -> None:
    inside = np.asarray(space.sample())
    assert space.contains(inside.view(TrapArray)) is True
    outside = (inside + 9).view(TrapArray)
    assert space.contains(outside) is False
    assert "expected" in space.explain(outside)
