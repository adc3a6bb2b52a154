"""Environments whose spaces differ: the error names the path to the first difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vecspaces import Env
from vecspaces.spaces import Box, Dict, Discrete, Space
from vecspaces.vector import SyncVectorEnv


class Robot(Env[Any, Any]):
    """An environment that is never stepped."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def camera(dtype: str = "uint8", high: float = 255) -> Dict[Any]:
    return Dict(camera=Box(0, high, (2, 2), np.dtype(dtype)), speed=Box(0, 1))


def opening(spaces: list[tuple[Space[Any], Space[Any]]], **options: Any) -> None:
    SyncVectorEnv([lambda pair=pair: Robot(*pair) for pair in spaces], **options).close()


@pytest.mark.parametrize(
    ("mode", "other", "expected"),
    [
        ("same", camera("float32"), r"\['camera'\]: dtype uint8, found float32"),
        ("same", camera(high=1), r"\['camera'\]: high\[0\]\[0\] 255, found 1"),
        ("different", camera("float32", high=1), r"\['camera'\]: dtype uint8, found float32"),
    ],
)
def test_observations_name_the_first_difference(mode: str, other: Any, expected: str) -> None:
    action = Discrete(2)
    with pytest.raises(RuntimeError, match=rf"environment 1 has .*first difference: {expected}$"):
        opening([(camera(), action), (other, action)], observation_mode=mode)


def test_bounds_may_differ_in_the_mode_for_that() -> None:
    action = Discrete(2)
    opening([(camera(), action), (camera(high=1), action)], observation_mode="different")


def test_actions_name_the_first_difference() -> None:
    spaces = [(camera(), Discrete(2)), (camera(), Discrete(3))]
    with pytest.raises(RuntimeError, match=r"the first difference: n 2, found 3$"):
        opening(spaces)
