"""Tests: vector envs among the environments."""

from __future__ import annotations

from functools import partial

import pytest

from tests.compare import assert_identical
from tests.contract.comparing import MODES, Part, assert_same_run, samples
from tests.envs import Drift, ledger_vector, ledgers
from vecspaces.vector import AutoresetMode, SyncVectorEnv


class MembersContract(Part):
    """Vector envs among the environments."""

    @pytest.mark.parametrize("mode", MODES)
    def test_an_env_fn_may_return_a_vector_env(self, mode: AutoresetMode) -> None:
        flat = ledgers(7)
        mixed = [*flat[:2], partial(ledger_vector, 2, 3, mode), *flat[5:]]
        with (
            self.make(mixed, autoreset_mode=mode) as envs,
            SyncVectorEnv(flat, autoreset_mode=mode) as reference,
        ):
            assert envs.num_envs == 7
            assert envs.observation_space == reference.observation_space
            assert envs.action_space == reference.action_space
            assert_same_run(envs, reference)
            assert envs.get_attr("number") == tuple(range(7))

    def test_a_vectorised_simulator_runs_as_it_is(self) -> None:
        alone = Drift(3)
        with self.make([partial(Drift, 3)] * 2) as envs:
            assert envs.num_envs == 6
            observations, _ = envs.reset(seed=4)
            assert_identical(observations[:3], alone.reset(seed=4)[0])
            for actions in samples(envs, 1, 11):
                found = envs.step(actions)
                expected = alone.step(actions[:3])
                for ours, theirs in zip(found[:4], expected[:4], strict=True):
                    assert_identical(ours[:3], theirs)
                if "sum" in expected[4]:
                    assert_identical(found[4]["sum"][:3], expected[4]["sum"])
