"""Shared memory for all ten spaces: what one process writes is what another one reads."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from ctypes import c_ubyte, sizeof
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import gymnasium.vector.utils as theirs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import assert_identical
from tests.crosses import START_METHODS
from tests.leaks import made_here, shared_memory
from tests.strategies import FUNDAMENTAL, Recipe, recipes, seeds
from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Space,
    Text,
    Tuple,
)
from vecspaces.vector.utils import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)


class Colour(Space[Any]):
    """A space that nobody described."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return {"any": ["object"] * self.np_random.integers(9)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colour)


SPACE = Dict(
    box=Box(0, 9, (2, 3)),
    half=Box(0, 9, (3,), np.float16),
    bool=Box(0, 1, (3,), bool),
    multi_discrete=MultiDiscrete([[2, 3], [4, 5]]),
    multi_binary=MultiBinary(4),
    text=Text(9, min_length=0, charset="aé漢😀"),
    nested=Dict(a=Tuple((Discrete(3), Text(5))), b=Box(0, 9, (2,))),
    sequence=Sequence(Box(0, 9, (2,))),
    stacked=Sequence(Dict(a=Box(0, 9, (2,))), stack=True),
    graph=Graph(Box(0, 9, (2,)), Discrete(3)),
    one_of=OneOf([Discrete(3), Text(5), Box(0, 9, (2,)), Sequence(Discrete(3))]),
    unknown=Colour(),
)


@given(recipes((*FUNDAMENTAL, "Dict", "Tuple")), seeds, st.integers(1, 3))
@pytest.mark.filterwarnings("ignore")
def test_reading_gives_what_gymnasium_gives(recipe: Recipe, seed: int, n: int) -> None:
    space, gym_space = recipe.build(seed=seed), recipe.build(gymnasium.spaces)
    memory = create_shared_memory(space, n)
    gym_memory = theirs.create_shared_memory(gym_space, n, PrivateMemory)
    for row in range(n):
        value = space.sample()
        write_to_shared_memory(space, row, value, memory)
        theirs.write_to_shared_memory(gym_space, row, value, gym_memory)
    expected = theirs.read_from_shared_memory(gym_space, gym_memory, n)
    assert_identical(read_from_shared_memory(space, memory, n), expected)


class PrivateMemory:
    """A context for Gymnasium that leaves nothing behind, as multiprocessing's heap would."""

    @staticmethod
    def Array(kind: Any, size: int) -> Any:  # noqa: N802 (multiprocessing's name)
        # As bytes, since ctypes has no float16; Gymnasium reads them by the space's dtype.
        item_size = sizeof(kind) if isinstance(kind, type) else np.dtype(kind).itemsize
        block = (c_ubyte * (item_size * size))()
        return SimpleNamespace(get_obj=lambda: block)


@pytest.mark.parametrize("space", [Discrete(9), Text(3, charset="4"), Sequence(Discrete(9))])
def test_write_to_shared_memory_takes_one_number_as_index(space: Any) -> None:
    value = space.sample()
    for index in (True, np.int8(1), np.array(1)):
        memory = create_shared_memory(space, 3)
        untouched = read_from_shared_memory(space, memory, 3)[2]
        write_to_shared_memory(space, index, value, memory)
        _, written, other = read_from_shared_memory(space, memory, 3)
        assert_identical((written, other), (value, untouched))
    for wrong in (1.0, None, "1", [1], np.array([1])):
        with pytest.raises(TypeError):
            write_to_shared_memory(space, wrong, value, memory)  # type: ignore[arg-type]


def test_create_shared_memory_takes_a_subclass_as_its_parent() -> None:
    for kind, arguments in ((Box, (0, 1, (2,))), (Discrete, (3,)), (Text, (3,))):
        child = type("Child", (kind,), {})
        spaces = [Tuple((child(*arguments),)) for _ in range(3)]
        memory = create_shared_memory(spaces[0], 2)
        value = spaces[0].sample()
        write_to_shared_memory(spaces[1], 1, value, memory)
        assert memory.layout.has_variable is False
        assert_identical(memory.rows.item(1), value)
        assert_identical(read_from_shared_memory(spaces[2], memory, 2), memory.rows.read())


def _write_and_die(memory: Any, value: Any) -> None:
    write_to_shared_memory(SPACE, 1, value, memory)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
@pytest.mark.parametrize("method", START_METHODS)
def test_write_to_shared_memory_outlives_its_process(method: str) -> None:
    before = shared_memory()
    context = multiprocessing.get_context(method)
    memory = create_shared_memory(SPACE, 3, context)
    untouched, value = memory.rows.item(0), SPACE.sample()
    writer = context.Process(target=_write_and_die, args=(memory, value))
    writer.start()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    writer.close()
    assert_identical(memory.rows.reader(0, 3)(), [untouched, value, untouched])
    # Only the semaphores that multiprocessing itself may keep could be here, and none is.
    assert made_here(shared_memory() - before) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_create_shared_memory_makes_one_block_that_goes_with_it() -> None:
    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:vecspaces")

    gc.collect()  # else memory of other tests may go in between
    before = mappings()
    memory = create_shared_memory(SPACE, 4)
    assert mappings() == before + 1
    view = read_from_shared_memory(SPACE, memory, 4)["box"]
    del memory
    assert mappings() == before + 1
    del view
    assert mappings() == before
