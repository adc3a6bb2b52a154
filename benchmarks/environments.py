"""Environments for benchmarks, derived from Gymnasium's, so that every library can step them.

They return values prepared at construction, so that the vector env takes nearly all of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vecspaces.make import find_factory

_IMAGE_SECONDS = 100e-6
_SHORT_SECONDS, _LONG_SECONDS, _LONG_SHARE = 200e-6, 2e-3, 0.1


class Prepared(gymnasium.Env[Any, Any]):
    """An environment that always returns one sample of its observation space, and never ends."""

    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        self.observation_space = observation_space
        observation_space.seed(0)
        self._observation = observation_space.sample()
        self._info: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return self._observation, self._info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do nothing."""
        return self._observation, 0.0, False, False, {}


class Nothing(Prepared):
    """Four numbers."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(-1, 1, (4,), np.float32))


class Robot(Prepared):
    """A nested Dict."""

    def __init__(self) -> None:
        joints = spaces.Dict(
            position=spaces.Box(-1, 1, (7,), np.float32),
            velocity=spaces.Box(-1, 1, (7,), np.float32),
        )
        super().__init__(
            spaces.Dict(
                camera=spaces.Box(0, 255, (64, 64, 3), np.uint8),
                joints=joints,
                gripper=spaces.Discrete(3),
                contacts=spaces.MultiBinary(8),
            )
        )


class Infos(Nothing):
    """Three numbers at every step, as Atari environments report them."""

    def __init__(self) -> None:
        super().__init__()
        self._frame = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count frames."""
        self._frame += 1
        info = {"lives": 3, "episode_frame_number": self._frame, "frame_number": self._frame}
        return self._observation, 0.0, False, False, info


class Image(Prepared):
    """A stack of four frames after some work, given as a number of additions."""

    def __init__(self, additions: int) -> None:
        super().__init__(spaces.Box(0, 255, (84, 84, 4), np.uint8))
        self._additions = additions

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Work."""
        _work(self._additions)
        return self._observation, 0.0, False, False, {}


class Skewed(Nothing):
    """Waits, as an environment behind a server does: mostly briefly, sometimes long."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait."""
        time.sleep(_LONG_SECONDS if self.np_random.random() < _LONG_SHARE else _SHORT_SECONDS)
        return self._observation, 0.0, False, False, {}


def image() -> Image:
    """Return the image environment, calibrated in this process: a factory for `vecspaces bench`."""
    return Image(_additions_in(_IMAGE_SECONDS))


_OWN = {"nothing": Nothing, "robot": Robot, "infos": Infos, "skewed": Skewed}
#: What the benchmarks measure; `find_environment` knows others too.
NAMES = ("nothing", "robot", "infos", "image", "CartPole-v1", "skewed")


def find_environment(name: str) -> Callable[[], Any]:
    """Return the picklable factory of one of `NAMES`, or of any name that `make_vec` takes."""
    if name == "image":  # measured here, once, so that every environment of a run does the same
        return partial(Image, _additions_in(_IMAGE_SECONDS))
    return _OWN.get(name) or find_factory(name)


def _work(additions: int) -> int:
    total = 0
    for _ in range(additions):
        total += 1
    return total


def _additions_in(seconds: float) -> int:
    """Return how many additions take this long, at best."""
    trial = 10_000
    fastest = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        _work(trial)
        fastest = min(fastest, time.perf_counter() - began)
    return max(1, round(trial * seconds / fastest))
