"""RecordEpisodeStatistics: Gymnasium's numbers, on every backend, in every autoreset mode."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.adapters.side_by_side import MODES
from tests.compare import assert_identical
from tests.envs import Drift, ledgers
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, infos_as_list
from vecspaces.wrappers import RecordEpisodeStatistics

BACKENDS = {"sync": SyncVectorEnv, "async": partial(AsyncVectorEnv, num_workers=2)}
QUEUES = ("return_queue", "length_queue")
RUNNING = ("episode_returns", "episode_lengths", "prev_dones", "episode_count")


@pytest.fixture(params=BACKENDS)
def constructor(request: pytest.FixtureRequest) -> Any:
    return BACKENDS[request.param]


def silent(count: int) -> list[Any]:
    """Factories of environments whose episodes last 2, 3, 4, 2, ... steps, with no infos."""
    return ledgers(count, talks=False)


def no_actions(envs: Any) -> Any:
    return np.zeros(envs.num_envs, np.int64)


# ---------------------------------------------------------------------- beside Gymnasium's


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_it_records_what_gymnasiums_records(constructor: Any, mode: Any) -> None:
    env_fns = [partial(gymnasium.make, "CartPole-v1")] * 3
    theirs = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode), buffer_length=4
    )
    # Gymnasium takes the mask out of the caller's dict before its own wrapper looks for it.
    keep = theirs.env.reset
    theirs.env.reset = lambda *, seed=None, options=None: keep(
        seed=seed, options=dict(options or {})
    )
    ours = RecordEpisodeStatistics(constructor(env_fns, autoreset_mode=mode), buffer_length=4)
    theirs.reset(seed=1)
    ours.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(120):
        actions = rng.integers(2, size=3)
        *_, terminations, truncations, mine = ours.step(actions)
        *_, expected = theirs.step(actions)
        assert_identical(without_times(mine), without_times(expected))
        for name in RUNNING:
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
        ended = terminations | truncations
        if mode is MODES[-1] and ended.any():
            theirs.reset(options={"reset_mask": ended.copy()})
            ours.reset(options={"reset_mask": ended})
    assert ours.episode_count > 6
    for name in QUEUES:
        assert list(getattr(ours, name)) == list(getattr(theirs, name)), name
    assert len(ours.time_queue) == len(theirs.time_queue) == 4
    ours.close()
    theirs.close()


def without_times(infos: dict[str, Any]) -> dict[str, Any]:
    kept = {key: infos[key] for key in ("episode", "_episode") if key in infos}
    if "episode" in kept:
        kept["episode"] = {key: kept["episode"][key] for key in ("r", "l")}
    return kept


# ---------------------------------------------------------------------- what it tells


def test_returns_lengths_and_times_are_arrays_with_a_mask() -> None:
    with RecordEpisodeStatistics(SyncVectorEnv(silent(3))) as envs:
        began = time.perf_counter()
        envs.reset(seed=1)
        for _ in range(2):
            *_, infos = envs.step(no_actions(envs))
        took = time.perf_counter() - began
    episode = infos["episode"]
    assert infos["_episode"].tolist() == [True, False, False]
    assert [episode[key].dtype for key in "rlt"] == [np.float64, np.int64, np.float64]
    assert episode["l"].tolist() == [2, 0, 0]
    assert episode["r"].tolist() == [0.375, 0.0, 0.0]
    assert 0 < episode["t"][0] <= round(took, 6)
    assert episode["t"][1:].tolist() == [0.0, 0.0]
    singles = infos_as_list(infos, 3)
    assert singles[0]["episode"]["l"] == 2
    assert "episode" not in singles[1]


def test_the_key_may_be_another_and_an_action_sent_before_the_first_recv_counts() -> None:
    with RecordEpisodeStatistics(SyncVectorEnv(silent(1)), stats_key="run") as envs:
        envs.reset()
        envs.send(no_actions(envs))
        envs.recv()
        assert envs.episode_lengths.tolist() == [1]
        *_, infos = envs.step(no_actions(envs))
    assert infos["run"]["l"].tolist() == [2]


def test_without_a_mode_in_the_metadata_next_step_is_assumed() -> None:
    drift = Drift(2, length=2)
    del drift.metadata["autoreset_mode"]
    envs = RecordEpisodeStatistics(drift)
    envs.reset()
    for _ in range(2):
        *_, infos = envs.step(np.ones((2, 2)))
    assert infos["episode"]["l"].tolist() == [2, 2]
