"""Tests: how episodes begin and end: autoreset, seeds and options."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import Part
from tests.envs import Ledger, Reusing, ledgers
from vecspaces.errors import ResetNeededError


class EpisodesContract(Part):
    """How episodes begin and end: autoreset, seeds and options."""

    def test_next_step_resets_in_the_step_after_the_end(self) -> None:
        with self.begun([partial(Ledger, 7, length=2)], autoreset_mode="NextStep") as envs:
            envs.step([1])
            observations, _, terminations, _, infos = envs.step([2])
            assert observations[0, :4].tolist() == [7, 1, 2, 2]
            assert (terminations.tolist(), infos["time"].tolist()) == ([True], [2])
            observations, *rest, infos = envs.step([3])
            assert observations[0, :4].tolist() == [7, 2, 0, -1]
            assert [array.tolist() for array in rest] == [[0.0], [False], [False]]
            assert infos["episode"].tolist() == [2] and "time" not in infos
            assert envs.step([4])[0][0, :4].tolist() == [7, 2, 1, 4]

    def test_same_step_gives_final_observation_and_info(self) -> None:
        env_fns = [partial(Ledger, 7, length=2), partial(Ledger, 8, length=3)]
        with self.begun(env_fns, autoreset_mode="SameStep") as envs:
            assert "final_obs" not in envs.step([1, 1])[4]
            observations, rewards, terminations, _, infos = envs.step([2, 2])
            assert observations[:, :4].tolist() == [[7, 2, 0, -1], [8, 1, 2, 2]]
            assert rewards.tolist() == [7.25, 8.25]
            assert infos["final_obs"][0][:4].tolist() == [7, 1, 2, 2]
            assert infos["final_obs"][0].dtype == np.int64
            assert infos["final_obs"][1] is None
            assert infos["final_info"]["time"].tolist() == [2, 0]
            assert infos["episode"].tolist() == [2, 0]
            masks = [infos["_final_obs"], infos["_final_info"], infos["final_info"]["_time"]]
            for mask in (terminations, *masks, infos["_episode"], ~infos["_time"]):
                assert mask.tolist() == [True, False]

    def test_final_observations_are_copied_before_the_reset_and_stay(self) -> None:
        with self.make([Reusing] * 2, autoreset_mode="SameStep", copy=False) as envs:
            envs.reset()
            results = [envs.step([0, 0]) for _ in range(9)]
            assert results[-1][0]["count"].tolist() == [[0, 0], [0, 0]]
            for *_, infos in results[2::3]:
                assert [final["count"].tolist() for final in infos["final_obs"]] == [[3, 3]] * 2

    def test_disabled_leaves_the_reset_to_the_caller(self) -> None:
        env_fns = [partial(Ledger, number, length=2 + number) for number in range(3)]
        with self.begun(env_fns, autoreset_mode="Disabled") as envs:
            envs.step([0, 0, 0])
            observations, _, terminations, _, _ = envs.step([1, 1, 1])
            assert terminations.tolist() == [True, False, False]
            for _ in range(2):
                with pytest.raises(ResetNeededError, match=r"^environment 0 finished.*reset_mask"):
                    envs.step([1, 1, 1])
            options = {"reset_mask": terminations, "time": 1}
            after, infos = envs.reset(seed=[9, None, 9], options=options)
            assert options == {"reset_mask": terminations, "time": 1}
            assert after[0, :4].tolist() == [0, 2, 1, -1]
            assert_identical(after[1:], observations[1:])
            assert infos["_episode"].tolist() == [True, False, False]
            assert envs.get_attr("seeds") == ([0, 9], [1], [2])
            assert envs.get_attr("options") == ([None, {"time": 1}], [None], [None])
            assert envs.step([2, 2, 2])[0][:, :3].tolist() == [[0, 2, 2], [1, 1, 3], [2, 1, 3]]

    def test_seeds_are_an_int_a_sequence_or_a_seed_sequence(self) -> None:
        sequence, other = np.random.SeedSequence(3), np.random.SeedSequence(3)
        spawned = [
            int(child.generate_state(1)[0]) & 0x7FFFFFFF
            for _ in range(2)
            for child in other.spawn(3)
        ]
        assert len(set(spawned)) == 6
        given: list[Any] = [np.int64(5), (1, None, 3), np.array([4, 5, 6]), sequence, sequence]
        expected = [[5, 6, 7], [1, None, 3], [4, 5, 6], spawned[:3], spawned[3:]]
        with self.make(ledgers(3)) as envs:
            for seed in given:
                envs.reset(seed=seed)
            assert envs.get_attr("seeds") == tuple(map(list, zip(*expected, strict=True)))
