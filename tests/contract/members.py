"""Tests: a vector env as the environments of a worker."""

from __future__ import annotations

from functools import partial

from tests.compare import assert_identical
from tests.contract.comparing import Part, samples
from tests.envs import Drift


class MembersContract(Part):
    """A vector env as the environments of a worker."""

    def test_a_vectorised_simulator_runs_as_it_is(self) -> None:
        alone = Drift(3)
        with self.make([partial(Drift, 3)]) as envs:
            assert envs.num_envs == 3
            observations, _ = envs.reset(seed=4)
            assert_identical(observations, alone.reset(seed=4)[0])
            for actions in samples(envs, 1, 11):
                result = envs.step(actions)
                expected = alone.step(actions)
                for ours, theirs in zip(result[:4], expected[:4], strict=True):
                    assert_identical(ours, theirs)
                if "sum" in expected[4]:
                    assert_identical(result[4]["sum"], expected[4]["sum"])
