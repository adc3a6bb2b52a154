"""The environment that the tests of other libraries' vector envs step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

# A space that it may observe in instead of a Box.
DICT = gymnasium.spaces.Dict(
    array=gymnasium.spaces.Box(-100, 100, (2,), np.float32), time=gymnasium.spaces.Discrete(5)
)


class Course(gymnasium.Env[Any, Any]):
    """Ends after 3 + its number steps, with an odd number by truncation; talks at each call."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, number: int, space: Any = None, render_mode: str | None = None) -> None:
        box = gymnasium.spaces.Box(-100, 100, (2,), np.float32)
        self.observation_space = box if space is None else space
        # Not of the class: what samples from one would move the others of its process.
        self.action_space = gymnasium.spaces.Discrete(3)
        self.number, self.render_mode = number, render_mode
        self.time = 0
        self.options: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.options.append(options)
        return self._observe(), {"start": int(self.np_random.integers(100))}

    def step(self, action: Any) -> Any:
        self.time += 1
        over = self.time > 2 + self.number
        cut = over and self.number % 2 == 1
        info = {"time": self.time, "action": int(action)}
        return self._observe(), 0.1 * self.number, over and not cut, cut, info

    def _observe(self) -> Any:
        array = np.array([self.time, self.np_random.random()], np.float32)
        if isinstance(self.observation_space, gymnasium.spaces.Dict):
            return {"array": array, "time": self.time % 5}
        if isinstance(self.observation_space, gymnasium.spaces.Discrete):
            return self.time % 5
        return array

    def render(self) -> Any:
        return np.full((4, 6, 3), self.number, np.uint8)

    def multiply(self, factor: int, plus: int = 0) -> int:
        return self.number * factor + plus
