"""EpisodeStatistics: steps, returns and lengths of all episodes of a rollout, as running totals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class Summary:
    """Number, mean, least and greatest of the values so far, in constant memory.

    Example:
        >>> summary = Summary()
        >>> summary.add([3.0, 5.0])
        >>> summary.add([1.0])
        >>> summary.count, summary.mean, summary.least, summary.greatest
        (3, 3.0, 1.0, 5.0)
    """

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf

    def add(self, values: list[float]) -> None:
        """Take in values; a list, as few come at a time and NumPy's reductions cost more than them.

        Args:
            values: At least one.
        """
        self.count += len(values)
        self.total += sum(values)
        self.least = min(self.least, *values)
        self.greatest = max(self.greatest, *values)

    @property
    def mean(self) -> float:
        """The mean of the values; NaN if there are none."""
        return self.total / self.count if self.count else math.nan


@dataclass
class EpisodeStatistics:
    """Counts the environment steps and the episodes of a vector env in NEXT_STEP autoreset mode.

    In that mode the step after an episode's end resets the environment and ignores its action: the
    row is the new episode's first observation, no step, and is counted nowhere.

    Args:
        num_envs: How many environments there are.

    Attributes:
        steps: Environment steps so far, summed over the environments.
        returns: The returns of the episodes that have ended.
        lengths: Their lengths in steps.

    Example:
        >>> statistics = EpisodeStatistics(num_envs=2)
        >>> no, yes = np.array([False, False]), np.array([False, True])
        >>> statistics.update(np.array([1.0, 1.0]), yes, no)
        >>> statistics.update(np.array([1.0, 0.0]), no, no)
        >>> statistics.steps, statistics.returns.count, statistics.returns.mean
        (3, 1, 1.0)
    """

    num_envs: int
    steps: int = 0
    returns: Summary = field(default_factory=Summary)
    lengths: Summary = field(default_factory=Summary)

    def __post_init__(self) -> None:
        self._return = np.zeros(self.num_envs, np.float64)
        self._length = np.zeros(self.num_envs, np.int64)
        self._stepped = np.ones(self.num_envs, np.bool_)  # False where the next row is a reset's

    def update(
        self,
        rewards: NDArray[np.float64],
        terminations: NDArray[np.bool_],
        truncations: NDArray[np.bool_],
    ) -> None:
        """Take in what a step returned.

        Args:
            rewards: An array `(num_envs,)`.
            terminations: An array `(num_envs,)` of bool.
            truncations: An array `(num_envs,)` of bool.
        """
        stepped = self._stepped
        self.steps += int(np.count_nonzero(stepped))
        self._length += stepped
        np.add(self._return, rewards, out=self._return, where=stepped)
        ended = (terminations | truncations) & stepped
        self._stepped = ~ended
        rows = ended.nonzero()[0]
        if len(rows):
            self.returns.add(self._return[rows].tolist())
            self.lengths.add(self._length[rows].tolist())
            self._return[rows] = 0.0
            self._length[rows] = 0
