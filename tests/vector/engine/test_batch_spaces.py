"""Environments whose spaces differ: the error names the path, and the comparison is linear."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.crosses import diagonal
from vecspaces import Env, spaces
from vecspaces.spaces import Box, Dict, Discrete, Space
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class Robot(Env[Any, Any]):
    """An environment that is never stepped."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space


@pytest.mark.parametrize(
    ("dtype", "action", "expected"),
    [("float32", 2, r"\['camera'\]: dtype uint8, found float32"), ("uint8", 3, "n 2, found 3")],
)
def test_the_first_difference_but_for_bounds_is_named(
    dtype: str, action: int, expected: str
) -> None:
    cameras = Box(0, 255, (2, 2), np.uint8), Box(0, 1, (2, 2), np.dtype(dtype))
    env_fns = [
        partial(Robot, Dict(camera=camera), Discrete(n))
        for camera, n in zip(cameras, (2, action), strict=True)
    ]
    with pytest.raises(RuntimeError, match=rf"environment 1 has .*first difference: {expected}$"):
        SyncVectorEnv(env_fns, observation_mode="different")


class Silent(gymnasium.Space[str]):
    """Words; the class says nothing about equality."""

    def __init__(self, length: int = 3) -> None:
        super().__init__(dtype=str)
        self.length = length


class Plain(Space[Any]):
    """The same as a space of vecspaces."""

    def __init__(self, length: int = 3) -> None:
        super().__init__()
        self.length = length


KINDS = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)]


@diagonal(
    kind=KINDS, make=[Silent, Plain, lambda length=3: gymnasium.spaces.Dict(word=Silent(length))]
)
def test_spaces_without_equality_are_compared_by_their_attributes(kind: Any, make: Any) -> None:
    kind([lambda: Robot(make(), Discrete(2))] * 3).close()
    with pytest.raises(RuntimeError, match="environment 2 has observation space"):
        kind([lambda length=length: Robot(make(length), Discrete(2)) for length in (3, 3, 4)])


def bounded(library: Any, number: int) -> Robot:
    return Robot(library.Box(-1.0 - number, 1.0, (3,)), library.Discrete(2))


@diagonal(
    mode=["same", "different"],
    kind=KINDS,
    library={"vecspaces": spaces, "gymnasium": gymnasium.spaces},
)
def test_the_time_to_compare_spaces_grows_with_their_number(
    mode: Any, kind: Any, library: Any
) -> None:
    count = 1000
    env_fns = [partial(bounded, library, n if mode == "different" else 0) for n in range(count)]
    began = time.process_time()
    with kind(env_fns, observation_mode=mode) as envs:
        assert time.process_time() - began < 2  # comparing all pairs takes 9
        lowest = -1.0 - np.arange(count) if mode == "different" else np.full(count, -1.0)
        assert np.array_equal(envs.observation_space.low[:, 0], lowest)
