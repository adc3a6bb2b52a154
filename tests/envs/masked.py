"""Environments that refuse what their action masks exclude."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecspaces import Env, spaces

LENGTH = 6
SPACES: dict[str, Any] = {
    "Discrete": spaces.Discrete(5, start=2),
    "MultiDiscrete": spaces.MultiDiscrete([4, 3], start=[1, -1]),
    "MultiBinary": spaces.MultiBinary(4),
    "Dict": spaces.Dict(
        move=spaces.Discrete(4), hands=spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, ())])
    ),
}


class Strict(Env[Any, Any]):
    """Draws a mask in each step, raises for an action outside of it, and allows none at the end.

    Args:
        kind: The action space, by its name in `SPACES`.
        declared: Whether there is an `info_space`, which a Discrete alone has here.
        dtype: Of the masks.
        empty: The step after which no action is allowed although the episode goes on.
    """

    observation_space = spaces.Box(0, 9, (2,), np.float64)
    gaps = True
    info_space: Any = None

    def __init__(
        self, kind: str = "Discrete", declared: bool = False, dtype: Any = np.int8, empty: int = -1
    ) -> None:
        self.action_space = SPACES[kind]
        self.dtype, self.empty, self.time = dtype, empty, 0
        if declared:
            self.info_space = spaces.Dict(action_mask=spaces.MultiBinary(5))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.length = 0, LENGTH + int(self.np_random.integers(LENGTH))
        return self.observe(), self.inform()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        if self.mask is not None and not self.allows(self.action_space, self.mask, action):
            raise ValueError(f"{action} is not allowed by {self.mask}")
        self.time += 1
        reward = float(np.sum(spaces.utils.flatten(self.action_space, action)))
        return self.observe(), reward, self.time == self.length, False, self.inform()

    def observe(self) -> Any:
        """Return what tells rows and steps apart."""
        return np.array([self.time % 10, self.length % 10], np.float64)

    def inform(self) -> dict[str, Any]:
        """Draw the next mask; with `gaps`, every third info has none."""
        self.mask = self.draw(self.action_space, self.time in (self.empty, self.length))
        if self.gaps and self.time % 3 == 2:
            self.mask = None
            return {"time": self.time}
        return {"time": self.time, "action_mask": self.mask}

    def draw(self, space: Any, empty: bool) -> Any:
        """Draw a mask of the form that a space takes."""
        if isinstance(space, spaces.Discrete):
            mask = self.np_random.integers(0, 2, int(space.n))
            mask[self.np_random.integers(int(space.n))] = 1
            return (mask * (not empty)).astype(self.dtype)
        if isinstance(space, spaces.MultiDiscrete):
            return tuple(self.draw(spaces.Discrete(int(n)), empty) for n in space.nvec)
        if isinstance(space, spaces.MultiBinary):
            return self.np_random.integers(0, 3, space.shape)
        if isinstance(space, spaces.Dict):
            return {key: self.draw(member, empty) for key, member in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self.draw(member, empty) for member in space.spaces)
        return None

    def allows(self, space: Any, mask: Any, action: Any) -> bool:
        """Whether a mask allows an action."""
        if isinstance(space, spaces.Discrete):
            return bool(mask[int(action) - int(space.start)])
        if isinstance(space, spaces.MultiDiscrete):
            places = action - space.start
            return all(part[place] for part, place in zip(mask, places, strict=True))
        if isinstance(space, spaces.MultiBinary):
            return bool(np.all((mask == 2) | (mask == action)))
        if isinstance(space, spaces.Dict):
            return all(self.allows(space[key], mask[key], action[key]) for key in space)
        if isinstance(space, spaces.Tuple):
            parts = zip(space.spaces, mask, action, strict=True)
            return all(self.allows(member, part, value) for member, part, value in parts)
        return True


class Always(Strict):
    """Has a mask in each info, and actions from 0 on, as Stable-Baselines3 has them."""

    gaps = False
    space: Any = spaces.Discrete(5)

    def __init__(self) -> None:
        super().__init__()
        self.action_space = self.space


class Unequal(Always):
    """Has masks of unequal lengths for the entries of its actions."""

    space = spaces.MultiDiscrete([4, 3])


class Later(Always):
    """Has a mask in each info but that of a reset."""

    def inform(self) -> dict[str, Any]:
        info = super().inform()
        if self.time == 0:
            self.mask = None
            del info["action_mask"]
        return info


class Never(Strict):
    """Has a mask in no info."""

    def inform(self) -> dict[str, Any]:
        self.mask = None
        return {}
