"""Evaluation: its statistics, its JSON, and the progress until there."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Echo
from tests.evaluation.envs import Errand, assert_same, errand_policy
from vecspaces import Evaluation, evaluate, make_vec
from vecspaces.errors import InvalidObservationError
from vecspaces.spaces import Box


def made(returns: Any, infos: dict[str, Any] | None = None) -> Evaluation:
    """An evaluation with these returns."""
    returns = np.array(returns, np.float64)
    count = len(returns)
    zeros = np.zeros(count, np.int64)
    return Evaluation(
        returns, zeros + 1, zeros, zeros, np.ones(count, bool), infos or {}, count, 1.0
    )


def test_the_statistics_are_those_of_numpy() -> None:
    returns = np.random.default_rng(0).gamma(2.0, size=203)
    result = made(returns)
    assert result.mean_return == returns.mean()
    assert result.std_return == returns.std()
    assert result.success_rate is None
    unknown, known = np.array([np.nan, np.nan]), np.array([np.nan, 1.0])
    assert made([1, 2], {"is_success": unknown, "success": known}).success_rate == 1.0
    assert made([1, 2], {"success": unknown}).success_rate is None


def test_the_interval_has_the_quantiles_of_seeded_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    returns = np.random.default_rng(1).gamma(2.0, size=50)
    result = made(returns)
    for seed, level in ((0, 0.95), (1, 0.5)):
        drawn = returns[np.random.default_rng(seed).integers(50, size=(10_000, 50))].mean(axis=1)
        expected = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
        assert result.confidence_interval(level, seed=seed) == tuple(expected)
    once = result.confidence_interval()
    monkeypatch.setattr("vecspaces.evaluation.result._DRAWN", 70)
    assert result.confidence_interval() == once
    assert made([3.0]).confidence_interval() == (3.0, 3.0)


def test_as_json_is_plain_and_complete(expected: Evaluation) -> None:
    document = json.loads(json.dumps(expected.as_json(), allow_nan=False))
    assert document["mean_return"] == expected.mean_return
    assert document["success_rate"] == expected.success_rate == expected.terminated.mean()
    assert [episode["return"] for episode in document["episodes"]] == expected.returns.tolist()
    assert document["episodes"][3]["infos"]["parcels"] == expected.lengths[3]
    assert "of 40 episodes: mean return" in repr(expected)


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    report: Any = lambda *counts: seen.append(counts)  # noqa: E731
    evaluate(errand_policy, Errand, episodes=5, seed=3, backend="sync", progress=report)
    assert seen == [(done, 5) for done in range(6)]


def test_env_kwargs_and_vector_kwargs_reach_environment_and_vector_env() -> None:
    play: Any = partial(evaluate, errand_policy, Errand, episodes=3, seed=0, backend="sync")
    assert play(env_kwargs={"shortest": 1}).lengths.max() <= 10
    with pytest.raises(TypeError, match="bufers"):
        play(vector_kwargs={"bufers": 2})
    beyond = partial(Echo, Box(-1, 1, ()), [(0.0, {})], [(2.0, 0.0, True, False, {})])
    assert evaluate("random", beyond, episodes=3, backend="sync").steps == 3
    with pytest.raises(InvalidObservationError, match="in step 1 of its episode"):
        evaluate("random", beyond, episodes=3, vector_kwargs={"validate": True})


def test_the_spec_of_a_vector_env_stands_for_its_environment_alone() -> None:
    with make_vec("CartPole-v1", 3, backend="sync", autoreset_mode="SameStep") as envs:
        spec = envs.spec
    result = evaluate("random", spec, episodes=5, seed=0, backend="sync")
    assert_same(result, evaluate("random", "CartPole-v1", episodes=5, seed=0, num_workers=2))
