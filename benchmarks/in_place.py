"""Environments that write their observations in place, against twins that return new arrays.

    python -m benchmarks.in_place

Each makes an image with NumPy. All take turns; the ratios are to the first.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import race, repeat, show
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

SHAPE = (84, 84, 4)


class Image(Env[Any, Any]):
    """Rolls a picture and adds the action to it, into a new array."""

    observation_space = spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._picture = np.random.default_rng(0).integers(0, 255, SHAPE, np.uint8)

    def _draw(self, action: Any) -> Any:
        return np.add(self._picture, np.uint8(action))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._draw(0), {}

    def step(self, action: Any) -> Any:
        return self._draw(action), 0.0, False, False, {}


class ImageInPlace(Image):
    """The same, into the memory of the vector env."""

    def bind(self, observation: Any) -> None:
        self._out = observation

    def _draw(self, action: Any) -> Any:
        return np.add(self._picture, np.uint8(action), out=self._out)


def main(
    num_envs: int = 64,
    num_workers: int = 2,
    rounds: int = 9,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 0.3,
) -> None:
    """Time every way in turns."""
    actions = np.zeros(num_envs, np.int64)

    def speed(envs: Any, seconds: float) -> float:
        return num_envs * repeat(lambda turn: envs.step(actions), seconds)

    kinds: dict[str, Any] = {
        "sync": SyncVectorEnv,
        "async": partial(AsyncVectorEnv, num_workers=num_workers),
    }
    for kind, make in kinds.items():
        for copies in (True, False):
            ways = {}
            with ExitStack() as stack:
                for name, env in {"new arrays": Image, "in place": ImageInPlace}.items():
                    envs = stack.enter_context(make([env] * num_envs, copy=copies))
                    envs.reset(seed=0)
                    ways[f"{kind}, copy={copies}, {name}"] = partial(speed, envs)
                show(race(ways, rounds, seconds))


if __name__ == "__main__":
    typer.run(main)
