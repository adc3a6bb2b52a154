"""Tests: how episodes begin and end: autoreset, seeds and options."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contract.comparing import Part
from tests.envs import Reusing, ledgers


class EpisodesContract(Part):
    """How episodes begin and end: autoreset, seeds and options."""

    def test_final_observations_are_copied_before_the_reset_and_stay(self) -> None:
        with self.make([Reusing] * 2, autoreset_mode="SameStep", copy=False) as envs:
            envs.reset()
            results = [envs.step([0, 0]) for _ in range(9)]
            assert results[-1][0]["count"].tolist() == [[0, 0], [0, 0]]
            for *_, infos in results[2::3]:
                assert [final["count"].tolist() for final in infos["final_obs"]] == [[3, 3]] * 2

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
