"""The position of each environment: its last seed, the episodes since then, and the step.

Workers write it when episodes begin, so that a step needs one store; the caller reads it after an
environment hangs or has died.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Place(NamedTuple):
    """The environment that a worker is busy with, and its position."""

    env_ids: Sequence[int]  # all of the worker's if it is not known which
    text: str = ""  # empty if the position is not known
    episode: int | None = None  # distinguishes episodes; None if they are not counted


_SEED, _EPISODES, _BEGAN, _COUNT = range(4)
_NO_SEED, _LARGEST = -(2**63), 2**63 - 1
_NOT_COUNTED = -2

#: Numbers per environment: the last seed, the episodes since, the worker's steps before the last
#: episode, and the number of all episodes, since a seed may be used again.
POSITION_SHAPE = (4,)


class Positions:
    """The positions of all environments, of shape `(num_envs, *POSITION_SHAPE)`.

    `steps` counts how many steps of all its rows each worker has begun.
    """

    def __init__(self, steps: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        # Memoryviews store and return single ints in half the time of arrays.
        self.steps, self._rows = steps.data, rows.data

    def clear(self) -> None:
        """Note that no environment was reset yet."""
        np.asarray(self._rows)[:] = (_NO_SEED, -1, 0, 0)

    def begin(self, worker: int, row: int, seed: Any, counts: bool = True) -> None:
        """Note that an episode begins.

        `counts`: whether its end will be noted, by the next call.
        """
        rows = self._rows
        if seed is not None:
            rows[row, _SEED] = max(_NO_SEED + 1, min(int(seed), _LARGEST))
            rows[row, _EPISODES] = -1
        rows[row, _EPISODES] = rows[row, _EPISODES] + 1 if counts else _NOT_COUNTED
        rows[row, _BEGAN] = self.steps[worker]
        rows[row, _COUNT] += 1

    def step(self, rows: Sequence[int], count: int = 1) -> None:
        """Note that some rows step, and others of their worker do not."""
        for row in rows:
            self._rows[row, _BEGAN] -= count

    def place(self, worker: int, row: int) -> Place:
        """Return the position of the environment that a worker is busy with."""
        is_counted = self._rows[row, _EPISODES] != _NOT_COUNTED
        episode = self._rows[row, _COUNT] if is_counted else None
        return Place((row,), self.describe(worker, row), episode)

    def describe(self, worker: int, row: int) -> str:
        """Describe the position of an environment.

        Example:
            >>> positions = Positions(np.zeros(1, np.int64), np.zeros((2, 4), np.int64))
            >>> positions.clear()
            >>> positions.begin(0, 1, 7)
            >>> positions.steps[0] += 4
            >>> positions.describe(0, 0), positions.describe(0, 1)
            ('not reset yet', 'last seed 7, episodes since then: 0, step 4')
        """
        seed, episodes, began = (self._rows[row, at] for at in range(3))
        if episodes == -1:
            return "not reset yet"
        known = "no seed" if seed == _NO_SEED else f"last seed {seed}"
        if episodes == _NOT_COUNTED:
            return known
        return f"{known}, episodes since then: {episodes}, step {self.steps[worker] - began}"
