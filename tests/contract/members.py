"""Tests: vector envs among the environments."""

from __future__ import annotations

from functools import partial

from tests.compare import assert_identical
from tests.contract.comparing import Part, samples
from tests.envs import Drift


class MembersContract(Part):
    """Vector envs among the environments."""

    def test_a_vectorised_simulator_runs_as_it_is(self) -> None:
        alone = Drift(3)
        with self.make([partial(Drift, 3)] * 2) as envs:
            assert envs.num_envs == 6
            observations, _ = envs.reset(seed=4)
            assert_identical(observations[:3], alone.reset(seed=4)[0])
            for actions in samples(envs, 1, 11):
                result = envs.step(actions)
                expected = alone.step(actions[:3])
                for ours, theirs in zip(result[:4], expected[:4], strict=True):
                    assert_identical(ours[:3], theirs)
                if "sum" in expected[4]:
                    assert_identical(result[4]["sum"][:3], expected[4]["sum"])
