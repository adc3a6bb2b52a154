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

    env_ids: Sequence[int]  # all environments of the worker if the busy one is unknown
    text: str = ""  # empty if the position is not known
    episode: int | None = None  # distinguishes episodes; None if they are not counted
    function: str = "env_fn"  # what runs while the environment is built


_SEED, _BEFORE, _BEGAN, _COUNT = range(4)
_NO_SEED, _LARGEST = -(2**63), 2**63 - 1
_NOT_COUNTED = -1

#: Numbers per environment: the last seed, the number of episodes before the one with this seed, the
#: worker's steps before the last episode, and the number of all episodes.
POSITION_SHAPE = (4,)
_WIDTH = POSITION_SHAPE[0]


class Positions:
    """The positions of all environments, of shape `(num_envs, *POSITION_SHAPE)`.

    `steps` counts how many steps of all its rows each worker has begun.
    """

    def __init__(self, steps: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        # Memoryviews of one dimension store and return ints in a third of the time of arrays.
        self.steps, self._numbers = steps.data, rows.reshape(-1).data
        self._began, self._counts = rows[:, _BEGAN].data, rows[:, _COUNT].data

    def clear(self) -> None:
        """Note that no environment was reset yet."""
        np.asarray(self._numbers).reshape(-1, _WIDTH)[:] = (_NO_SEED, 0, 0, 0)

    def begin(self, worker: int, row: int, seed: Any, counts: bool = True) -> None:
        """Note that an episode begins.

        `counts`: False for environments that reset themselves, whose episodes are not counted.
        """
        first = row * _WIDTH
        if seed is not None:
            self._numbers[first + _SEED] = max(_NO_SEED + 1, min(int(seed), _LARGEST))
            self._numbers[first + _BEFORE] = self._counts[row]
        if not counts:
            self._numbers[first + _BEFORE] = _NOT_COUNTED
        self.begin_next(worker, row)

    def begin_next(self, worker: int, row: int) -> None:
        """Note that an episode begins, without a seed."""
        self._began[row] = self.steps[worker]
        self._counts[row] += 1

    def step(self, rows: Sequence[int]) -> None:
        """Note that some rows step, and others of their worker do not."""
        began = self._began
        for row in rows:
            began[row] -= 1

    def save(self, worker: int, row: int, step: int | None) -> list[int]:
        """Return the position of an environment, in this step if it is known, for `load`."""
        first = row * _WIDTH
        numbers = self._numbers[first : first + _WIDTH].tolist()
        numbers[_BEGAN] = self.steps[worker] - numbers[_BEGAN] if step is None else step
        return numbers

    def load(self, worker: int, row: int, numbers: Sequence[int]) -> int:
        """Note the position of an environment whose state was loaded; return its step."""
        first = row * _WIDTH
        for place, number in enumerate(numbers):
            began = self.steps[worker] - number
            self._numbers[first + place] = began if place == _BEGAN else number
        return numbers[_BEGAN]

    def place(self, worker: int, row: int) -> Place:
        """Return the position of the environment that a worker is busy with."""
        first = row * _WIDTH
        is_counted = self._numbers[first + _BEFORE] != _NOT_COUNTED
        episode = self._numbers[first + _COUNT] if is_counted else None
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
        first = row * _WIDTH
        seed, before, began, count = self._numbers[first : first + _WIDTH]
        if count == 0:
            return "not reset yet"
        known = "no seed" if seed == _NO_SEED else f"last seed {seed}"
        if before == _NOT_COUNTED:
            return known
        episodes, step = count - before - 1, self.steps[worker] - began
        return f"{known}, episodes since then: {episodes}, step {step}"
