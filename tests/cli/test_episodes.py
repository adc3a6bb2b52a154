"""EpisodeStatistics: the same as counting each environment by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vecspaces.cli.episodes import EpisodeStatistics, Summary


def count_by_hand(
    rewards: np.ndarray, terminations: np.ndarray, truncations: np.ndarray
) -> tuple[int, list[float], list[int]]:
    """Walk the columns of `(T, n)` arrays one environment at a time."""
    steps, returns, lengths = 0, [], []
    for column in range(rewards.shape[1]):
        total, length, resetting = 0.0, 0, False
        for row in range(rewards.shape[0]):
            if resetting:
                resetting = False
                continue
            steps += 1
            length += 1
            total += rewards[row, column]
            if terminations[row, column] or truncations[row, column]:
                returns.append(total)
                lengths.append(length)
                total, length, resetting = 0.0, 0, True
    return steps, returns, lengths


SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 5))


@given(data=st.data(), shape=SHAPES)
def test_it_agrees_with_counting_by_hand(data: st.DataObject, shape: tuple[int, int]) -> None:
    rewards = data.draw(hnp.arrays(np.float64, shape, elements=st.integers(-9, 9).map(float)))
    terminations = data.draw(hnp.arrays(np.bool_, shape))
    truncations = data.draw(hnp.arrays(np.bool_, shape))
    statistics = EpisodeStatistics(shape[1])
    for row in range(shape[0]):
        statistics.update(rewards[row], terminations[row], truncations[row])

    steps, returns, lengths = count_by_hand(rewards, terminations, truncations)
    assert statistics.steps == steps
    assert statistics.returns.count == statistics.lengths.count == len(returns)
    if returns:
        assert statistics.returns.mean == pytest.approx(np.mean(returns))
        assert statistics.lengths.mean == pytest.approx(np.mean(lengths))
        assert (statistics.returns.least, statistics.returns.greatest) == (
            min(returns),
            max(returns),
        )
        assert (statistics.lengths.least, statistics.lengths.greatest) == (
            min(lengths),
            max(lengths),
        )


def test_the_row_of_an_autoreset_is_no_step_whatever_it_says() -> None:
    statistics = EpisodeStatistics(1)
    yes, no = np.array([True]), np.array([False])
    statistics.update(np.array([1.0]), yes, no)
    statistics.update(np.array([100.0]), yes, no)
    statistics.update(np.array([2.0]), no, yes)
    assert statistics.steps == 2
    assert statistics.returns == Summary(count=2, total=3.0, least=1.0, greatest=2.0)


def test_no_episode_has_no_mean() -> None:
    assert math.isnan(EpisodeStatistics(3).returns.mean)


def test_the_arrays_of_the_caller_are_left_alone() -> None:
    rewards, flags = np.ones(2), np.array([True, False])
    EpisodeStatistics(2).update(rewards, flags, flags)
    assert rewards.tolist() == [1.0, 1.0]
    assert flags.tolist() == [True, False]
