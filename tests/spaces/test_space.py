"""Space: what every space offers, and what a subclass gets from it."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from vecspaces.seeding import copy_generator
from vecspaces.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

if TYPE_CHECKING:
    from collections.abc import Callable


def test_space_normalises_shape_and_dtype() -> None:
    space = Space[Any]([2, np.int64(3)], "f4")
    assert space.shape == (2, 3) and isinstance(space.shape, tuple)
    assert space.dtype == np.dtype("float32") and isinstance(space.dtype, np.dtype)
    assert Space[Any]().shape is None and Space[Any]().dtype is None


def test_space_refuses_assigned_shape_and_np_random() -> None:
    for name in ("shape", "np_random", "is_np_flattenable"):
        with pytest.raises(AttributeError):
            setattr(Box(0, 1), name, None)


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_copy_generator_goes_on_by_itself(bits: Any) -> None:
    generator = np.random.Generator(bits(5))
    generator.integers(9, size=3, dtype=np.int8)  # leaves half-used bits in the buffer
    twin = copy_generator(generator)
    expected = generator.integers(9, size=20, dtype=np.int32).tolist()
    assert twin.integers(9, size=20, dtype=np.int32).tolist() == expected
    assert generator.random() == twin.random()
    children = [rng.bit_generator.seed_seq.spawn(1)[0] for rng in (generator, twin)]
    assert children[0].spawn_key == children[1].spawn_key == (0,)


@pytest.mark.parametrize("travel", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
def test_space_samples_with_numpys_dtype_object_after_a_journey(
    travel: Callable[[Any], Any],
) -> None:
    """What compares dtypes by identity must know them again."""
    for space in (
        Box(0, 1, (3,)),
        Box(0, 255, (3,), np.uint8),
        MultiBinary(4),
        MultiDiscrete([3, 4], dtype=np.int32, start=[1, 1]),
    ):
        assert travel(space).sample().dtype is np.dtype(space.dtype.str)


def test_space_repr_shows_the_attributes_of_a_subclass() -> None:
    class Colour(Space[str]):
        def __init__(self, names: list[str], weights: Any, inner: Space[Any]) -> None:
            super().__init__(seed=0)
            self.names, self.weights, self.inner, self._cache = names, weights, inner, 3

    space = Colour(["red", "blue"], np.ones(2), Discrete(3))
    expected = (
        "Colour(names=['red', 'blue'], weights=float64 array of shape (2,), inner=Discrete(3))"
    )
    assert repr(space) == expected
    assert repr(Space((2, 3), "float32")) == "Space(shape=(2, 3), dtype=float32)"


def test_space_repr_ends_if_it_refers_to_itself() -> None:
    class Node(Space[Any]):
        parent: Any

    space = Node()
    space.parent = Tuple([space])
    assert repr(space) == "Node(parent=Tuple(...))"
