"""Evaluation: the result of each episode, and the statistics of the returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# The number of values that the bootstrap draws at a time, which bounds its memory to a few
# megabytes.
_DRAWN = 500_000
_SAMPLES = 10_000
_SUCCESS_KEYS = ("is_success", "success")
# Returns may be infinite, and the mean of both infinities is NaN.
_quiet = np.errstate(invalid="ignore")


class EpisodeResult(NamedTuple):
    """One finished episode."""

    #: Its number.
    episode: int
    seed: int
    #: The sum of its rewards.
    total: float
    #: The number of its steps.
    length: int
    #: Whether the environment ended it.
    terminated: bool
    #: How often it began again.
    retries: int
    #: The numbers of its final info.
    infos: dict[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `evaluate`; every array has one entry per episode, in the order of `seeds`.

    Attributes:
        returns: Sums of rewards, float64.
        lengths: Numbers of steps, int64.
        seeds: The seed of each episode's reset, int64.
        retries: How often each episode began again because its worker had died, int64.
        terminated: True if the episode was terminated, False if it was truncated, bool.
        infos: For each key with a number in a final info, the numbers, float64; NaN for episodes
            whose final info has no number there.
        steps: The sum of `lengths`.
        seconds: The duration of the call.
    """

    returns: Floats
    lengths: npt.NDArray[np.int64]
    seeds: npt.NDArray[np.int64]
    retries: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    infos: dict[str, Floats]
    steps: int
    seconds: float

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return len(self.returns)

    @property
    @_quiet
    def mean_return(self) -> float:
        """The mean of the returns."""
        return float(self.returns.mean())

    @property
    @_quiet
    def std_return(self) -> float:
        """The standard deviation of the returns, with n in the denominator."""
        return float(self.returns.std())

    @property
    @_quiet
    def success_rate(self) -> float | None:
        """The mean of `infos["is_success"]` or `infos["success"]`; None if there is neither.

        Episodes whose final info has no number there are not counted.
        """
        for key in _SUCCESS_KEYS:
            values = self.infos.get(key, np.zeros(0))
            if not np.isnan(values).all():
                return float(np.nanmean(values))
        return None

    @_quiet
    def confidence_interval(self, level: float = 0.95, *, seed: int = 0) -> tuple[float, float]:
        """Return a bootstrap confidence interval of the mean, by the percentile method.

        10,000 times, n of the n returns are drawn with replacement; the interval is between the
        quantiles (1 - level) / 2 and (1 + level) / 2 of the means of these samples (B. Efron, R. J.
        Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13). With fewer than about 20
        episodes, intervals of this kind are too narrow.

        Args:
            level: The probability of the interval, between 0 and 1.
            seed: The seed of the draws, so that equal evaluations have equal intervals.

        Returns:
            The lower and the upper end.

        Raises:
            ValueError: `level` is out of its range.

        Example:
            >>> from vecspaces import evaluate
            >>> result = evaluate("random", "CartPole-v1", episodes=40, seed=1, backend="sync")
            >>> low, high = result.confidence_interval()
            >>> low < result.mean_return < high
            True
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, found {level}")
        count = len(self.returns)
        generator = np.random.default_rng(seed)
        means: list[Floats] = []
        size = max(1, _DRAWN // count)
        for begin in range(0, _SAMPLES, size):
            shape = min(size, _SAMPLES - begin), count
            means.append(self.returns[generator.integers(count, size=shape)].mean(axis=-1))
        low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics, and under `"episodes"` each episode, in plain types."""
        low, high = self.confidence_interval()
        episodes = [
            {
                "episode": k,
                "seed": int(self.seeds[k]),
                "return": plain(self.returns[k]),
                "length": int(self.lengths[k]),
                "terminated": bool(self.terminated[k]),
                "retries": int(self.retries[k]),
                "infos": {key: plain(values[k]) for key, values in self.infos.items()},
            }
            for k in range(self.episodes)
        ]
        summary = {
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "confidence_interval_low": low,
            "confidence_interval_high": high,
            "success_rate": self.success_rate,
            "mean_length": float(self.lengths.mean()),
        }
        return {
            **{key: plain(value) for key, value in summary.items()},
            "steps": self.steps,
            "seconds": self.seconds,
            "episodes": episodes,
        }

    def __repr__(self) -> str:
        low, high = self.confidence_interval()
        return (
            f"<Evaluation of {self.episodes} episodes: mean return {self.mean_return:.6g}, "
            f"95 % interval {low:.6g} to {high:.6g}>"
        )


def summarize(episodes: Mapping[int, EpisodeResult], seconds: float) -> Evaluation:
    """Return the evaluation of finished episodes, which are given by their numbers."""
    played = [episodes[k] for k in range(len(episodes))]
    keys = dict.fromkeys(key for episode in played for key in sorted(episode.infos))
    return Evaluation(
        returns=np.array([episode.total for episode in played], np.float64),
        lengths=np.array([episode.length for episode in played], np.int64),
        seeds=np.array([episode.seed for episode in played], np.int64),
        retries=np.array([episode.retries for episode in played], np.int64),
        terminated=np.array([episode.terminated for episode in played], np.bool_),
        infos={
            key: np.array([episode.infos.get(key, math.nan) for episode in played]) for key in keys
        },
        steps=sum(episode.length for episode in played),
        seconds=seconds,
    )


def plain(value: Any) -> float | None:
    """Return a number for JSON: None if it is not finite."""
    return float(value) if value is not None and np.isfinite(value) else None
