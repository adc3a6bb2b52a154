"""Wrappers with a state: what they count, keep, share and save, in every mode and every way."""

from __future__ import annotations

import copy
import os
import pickle
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd as TheirMeanStd

from tests.compare import assert_identical
from tests.envs import Drift, Ledger, failing, ledgers
from tests.vector.bounds import kill
from tests.vector.ways import WAYS, run_by
from vecspaces import wrappers as ours
from vecspaces.errors import AlreadyPendingCallError, StepTimeoutError
from vecspaces.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorEnv,
    VectorWrapper,
    infos_as_list,
)

MODES = list(AutoresetMode)


def zeros(envs: Any) -> Any:
    return np.zeros(envs.num_envs, np.int64)


def stacked(envs: Any) -> Any:
    """Every wrapper with a state."""
    envs = ours.RecordEpisodeStatistics(envs)
    return ours.NormalizeReward(ours.NormalizeObservation(envs))


# ---------------------------------------------------------------------- statistics


def counted(way: str, mode: AutoresetMode) -> Any:
    """A wrapper after a run through one way, and how many observations it should have seen."""
    with ours.NormalizeObservation(SyncVectorEnv(ledgers(4), autoreset_mode=mode)) as envs:
        shown = run_by(envs, way)
    finals = sum("final_obs" in row[-1] for rows in shown for row in rows)
    resets = [rows for rows in shown if len(rows[0]) == 2]
    # A reset of some rows shows the others again, and tells nothing of them.
    begun = sum("episode" in row[-1] for rows in resets for row in rows)
    return envs.obs_rms, 4 * (len(shown) - len(resets)) + begun + finals


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_every_observation_is_counted_once_whichever_way_it_comes(mode: AutoresetMode) -> None:
    expected, count = counted("step", mode)
    assert expected.count == pytest.approx(count + 1e-4)
    for way in WAYS:
        mean, _ = counted(way, mode)
        assert mean.count == pytest.approx(expected.count)
        np.testing.assert_allclose(mean.mean, expected.mean, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(mean.var, expected.var, rtol=1e-3, atol=1e-3)


def test_first_observations_count_when_they_are_first_returned() -> None:
    with ours.NormalizeObservation(SyncVectorEnv(ledgers(3))) as envs:
        envs.reset(seed=1)
        envs.recv()
        assert envs.obs_rms.count == 3 + 1e-4
        envs.send_reset([1])
        envs.recv(1)
        assert envs.obs_rms.count == 4 + 1e-4


def test_final_observations_are_normalised_by_what_they_belong_to() -> None:
    inner = SyncVectorEnv([partial(Ledger, 3, 2)], autoreset_mode="SameStep")
    with ours.NormalizeObservation(inner, epsilon=1.0) as envs:
        envs.reset(seed=1)
        envs.step([1])
        observations, *_, infos = envs.step([2])
        rms = envs.obs_rms
        # The time is 0, 1, 2 and, after the reset, 0.
        assert rms.mean[2] == pytest.approx(0.75, abs=1e-3) and rms.count == 4 + 1e-4
        scale = np.sqrt(rms.var[2] + 1.0)
        assert observations[0, 2] == pytest.approx((0 - rms.mean[2]) / scale)
        assert infos["final_obs"][0][2] == pytest.approx((2 - rms.mean[2]) / scale)
        assert infos["final_obs"][0].dtype == np.float32


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "Gymnasium's"])
def test_statistics_are_saved_assigned_and_frozen(foreign: bool) -> None:
    with stacked(SyncVectorEnv(ledgers(3, talks=False))) as envs:
        run_by(envs, "step")
        saved = pickle.dumps((envs.env.obs_rms, envs.return_rms))
    observed, returned = pickle.loads(saved)
    if foreign:
        observed, returned = TheirMeanStd(), TheirMeanStd()
        for target, other in zip((observed, returned), pickle.loads(saved), strict=True):
            target.mean, target.var, target.count = other.mean, other.var, other.count
    shown = []
    for update in (False, True):
        with stacked(SyncVectorEnv(ledgers(3, talks=False))) as envs:
            envs.env.obs_rms, envs.return_rms = copy.deepcopy((observed, returned))
            envs.env.update_running_mean = envs.update_running_mean = update
            shown.append(run_by(envs, "step"))
            assert (envs.env.obs_rms.count > observed.count) is update
            assert (envs.return_rms.count > returned.count) is update
    assert not np.array_equal(shown[0][-1][0][0], shown[1][-1][0][0])


def test_a_reset_by_mask_begins_the_sums_of_its_rows_alone() -> None:
    with ours.NormalizeReward(SyncVectorEnv([partial(Ledger, 1, 9)] * 2), gamma=1.0) as envs:
        envs.reset(seed=1)
        envs.step(zeros(envs))
        before = envs.accumulated_reward.tolist()
        envs.reset(options={"reset_mask": np.array([True, False])})
        assert envs.accumulated_reward.tolist() == [0.0, before[1]]
        envs.send_reset([1])
        envs.recv(2)
        assert envs.accumulated_reward.tolist() == [0.0, 0.0]


# ---------------------------------------------------------------------- episodes


def test_returns_lengths_and_times_are_arrays_with_a_mask() -> None:
    inner = SyncVectorEnv(ledgers(3, talks=False))
    with ours.RecordEpisodeStatistics(inner, stats_key="run") as envs:
        began = time.perf_counter()
        envs.reset(seed=1)
        for _ in range(2):
            *_, infos = envs.step(zeros(envs))
        took = time.perf_counter() - began
    episode = infos["run"]
    assert infos["_run"].tolist() == [True, False, False]
    assert [episode[key].dtype for key in "rlt"] == [np.float64, np.int64, np.float64]
    assert episode["l"].tolist() == [2, 0, 0] and episode["r"].tolist() == [0.375, 0.0, 0.0]
    assert 0 < episode["t"][0] <= round(took, 6) and episode["t"][1:].tolist() == [0.0, 0.0]
    assert list(envs.time_queue) == [episode["t"][0]]
    singles = infos_as_list(infos, 3)
    assert singles[0]["run"]["l"] == 2 and "run" not in singles[1]


def test_without_a_mode_in_the_metadata_next_step_is_assumed() -> None:
    drift = Drift(2, length=2)
    del drift.metadata["autoreset_mode"]
    envs = ours.RecordEpisodeStatistics(drift)
    envs.reset()
    for _ in range(2):
        *_, infos = envs.step(np.ones((2, 2)))
    assert infos["episode"]["l"].tolist() == [2, 2]


# ---------------------------------------------------------------------- what surrounds them


def test_a_copy_goes_on_as_the_original_would() -> None:
    with stacked(SyncVectorEnv(ledgers(3, talks=False))) as envs:
        run_by(envs, "step")
        for copied in (copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))):
            with copied:
                expected = run_by(copy.deepcopy(envs), "step")
                for rows, others in zip(run_by(copied, "step"), expected, strict=True):
                    assert_identical([row[0] for row in rows], [row[0] for row in others])


@pytest.mark.parametrize(
    ("wrap", "changed"),
    [
        (ours.NormalizeReward, "rewards"),
        (partial(ours.ClipReward, min_reward=0), "rewards"),
        (ours.NormalizeObservation, "observations"),
        (ours.FlattenObservation, "observations"),
    ],
)
def test_a_rollout_that_they_would_have_to_change_is_refused(wrap: Any, changed: str) -> None:
    with wrap(SyncVectorEnv(ledgers(2), buffers=2)) as envs:
        envs.reset(seed=1)
        envs.step(zeros(envs))
        with pytest.raises(ValueError, match=rf"rollout_view\(\) would return {changed}"):
            envs.rollout_view()


def test_wrong_environments_are_refused_as_without_wrappers_and_none_may_be_stepped() -> None:
    calls: list[Any] = [
        lambda envs, env_ids: envs.step([1, 1], env_ids=env_ids),
        lambda envs, env_ids: envs.send([1, 1], env_ids),
        lambda envs, env_ids: envs.send_reset(env_ids),
    ]
    with SyncVectorEnv(ledgers(3)) as bare, stacked(SyncVectorEnv(ledgers(3, talks=False))) as envs:
        bare.reset(seed=1), envs.reset(seed=1)
        for call, env_ids in product(calls, (3, [True, False], [-1], [0, 0], "0")):
            with pytest.raises((TypeError, ValueError)) as expected:
                call(bare, env_ids)
            with pytest.raises(expected.type) as caught:
                call(envs, env_ids)
            assert str(caught.value) == str(expected.value)
        observations, rewards, *_ = envs.step([], env_ids=[])
        assert observations.shape == (0, *envs.single_observation_space.shape)
        assert rewards.shape == (0,) and envs.episode_lengths.tolist() == [0, 0, 0]
        envs.send([], [])
        envs.send_reset([])


class Mortal(Ledger):
    """Dies or hangs in a step while a file is there."""

    def __init__(self, path: Path, hangs: bool, number: int) -> None:
        super().__init__(number, length=99)
        self._path, self._hangs = path, hangs

    def step(self, action: Any) -> Any:
        if self.number == 0 and self._path.exists():
            self._path.unlink()
            if self._hangs:
                time.sleep(1000)
            os._exit(5)
        return super().step(action)


@pytest.mark.parametrize("hangs", [False, True])
def test_an_episode_that_is_lost_with_its_worker_is_followed_by_a_new_one(
    hangs: bool, tmp_path: Path, hurry: Any
) -> None:
    sign = tmp_path / "die"
    env_fns = [partial(Mortal, sign, hangs, number) for number in range(2)]
    arguments: Any = {"on_worker_death": "restart"}
    if hangs:
        arguments = {"on_step_timeout": "restart", "step_timeout": 60.0}
    inner = AsyncVectorEnv(env_fns, num_workers=2, **arguments)
    with ours.RecordEpisodeStatistics(inner) as envs:
        envs.reset(seed=1)
        envs.step([1, 1])
        sign.touch()
        if hangs:
            hurry(lambda: not sign.exists(), 0)
        lost, *_, infos = envs.step([2, 2])  # what was known last is shown again
        assert lost[:, 2].tolist() == [1, 2]
        assert infos["episode"]["l"].tolist() == [2, 0]
        begun, *_ = envs.step([3, 3])
        assert begun[:, 2].tolist() == [0, 3]
        assert envs.episode_lengths.tolist() == [0, 3]


def test_an_episode_whose_reset_is_lost_with_its_worker_is_not_counted() -> None:
    inner = AsyncVectorEnv(ledgers(2, talks=False), num_workers=2, on_worker_death="restart")
    with ours.RecordEpisodeStatistics(inner) as envs:
        envs.reset(seed=1)
        envs.step([1, 1])
        kill(envs.processes[:1])
        envs.send_reset([0])
        lost = envs.recv(1)
        assert lost.truncations.tolist() == lost.infos["worker_restarted"].tolist() == [True]
        assert lost.begins.tolist() == [True] and "episode" not in lost.infos
        assert envs.episode_count == 0 and envs.episode_lengths.tolist() == [0, 1]


# ---------------------------------------------------------------------- calls that do not return


class Late(VectorWrapper[Any, Any, Any, Any, Any]):
    """Sends steps of some environments, and has no time to wait for them."""

    def step(self, actions: Any, env_ids: Any = None) -> Any:
        self._wrapped.send(actions, env_ids)
        raise StepTimeoutError("late")

    def recv(self, count: int | None = None, timeout: float | None = None) -> Any:
        return self._wrapped.recv(count, timeout)


def test_a_step_of_some_environments_that_was_late_counts_as_a_step() -> None:
    with SyncVectorEnv(ledgers(3, talks=False)) as inner:
        envs = ours.RecordEpisodeStatistics(Late(inner))
        envs.reset(seed=1)
        with pytest.raises(StepTimeoutError):
            envs.step([1], env_ids=[2])
        envs.recv(3)
        assert envs.episode_lengths.tolist() == [0, 0, 1]


def test_rows_beside_one_that_failed_in_a_step_of_some_have_stepped() -> None:
    with ours.RecordEpisodeStatistics(SyncVectorEnv(failing(3))) as envs:
        envs.reset(seed=1)
        with pytest.raises(FloatingPointError):
            envs.step([4, 1], env_ids=[0, 1])
        assert envs.recv(2).env_ids.tolist() == [2, 1]
        assert envs.episode_lengths.tolist() == [0, 1, 0]


class Ahead(VectorWrapper[Any, Any, Any, Any, Any]):
    """Sends the next actions, or resets, within `recv`."""

    def recv(self, count: int | None = None, timeout: float | None = None) -> Any:
        result = super().recv(count, timeout)
        over = result.terminations | result.truncations
        if over.any():
            self.send_reset(result.env_ids[over])
        if not over.all():
            self.send(np.ones(np.sum(~over), np.int64), result.env_ids[~over])
        return result


def test_what_a_wrapper_inside_sends_meanwhile_changes_no_result_that_came() -> None:
    inner = Ahead(SyncVectorEnv([partial(Ledger, 0, length=3)] * 2, autoreset_mode="Disabled"))
    with ours.RecordEpisodeStatistics(inner) as envs:
        envs.reset(seed=1)
        lengths = [envs.recv(2) and envs.episode_lengths.tolist() for _ in range(4)]
        assert lengths == [[0, 0], [1, 1], [2, 2], [3, 3]]
        assert envs.episode_count == 2


class Own(VectorEnv[Any, Any, Any]):
    """A vector env of a user's own, with `send` and `recv`."""

    def __init__(self) -> None:
        self.inner = SyncVectorEnv(ledgers(2))
        for name in ("num_envs", "single_observation_space", "single_action_space"):
            setattr(self, name, getattr(self.inner, name))
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space
        self.reset: Any = self.inner.reset
        self.send, self.send_reset = self.inner.send, self.inner.send_reset
        self.recv = self.inner.recv


def test_a_vector_env_of_a_users_own_can_be_stepped_row_by_row() -> None:
    mine = Own()
    with ours.RecordEpisodeStatistics(mine) as envs, mine.inner:
        envs.reset(seed=1)
        envs.recv(2)
        assert envs.episode_lengths.tolist() == [0, 0]
        envs.send([1, 1])
        envs.recv(2)
        envs.send_reset([0])
        envs.recv(1)
        assert envs.episode_lengths.tolist() == [0, 1]


def test_a_reset_that_is_refused_changes_nothing_about_the_one_that_is_pending() -> None:
    inner = AsyncVectorEnv(ledgers(2, talks=False), num_workers=1)
    with ours.RecordEpisodeStatistics(inner) as envs:
        envs.reset(seed=0)
        envs.step(zeros(envs))
        envs.reset_async(options={"reset_mask": np.array([True, False])})
        with pytest.raises(AlreadyPendingCallError):
            envs.reset(seed=3)
        envs.reset_wait()
        assert envs.episode_lengths.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [ours.TransformObservation, ours.TransformReward])
def test_step_raises_if_a_function_returns_nothing(kind: Any) -> None:
    envs = kind(SyncVectorEnv(ledgers(2)), lambda batch: batch.sort())
    with envs, pytest.raises(TypeError, match=rf"{kind.__name__}: func must return"):
        envs.reset(seed=0), envs.step([1, 1])
