"""RayVectorEnv keeps the contract, seed for seed.

An actor takes a second and more to start, so that the quick runs lend each test the same two; what
a new actor does differently is seen in the other files, and in the full run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.contract import VectorEnvContract
from tests.envs import Ledger
from vecspaces.vector import RayVectorEnv

pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')


class RayContract(VectorEnvContract):
    """RayVectorEnv, told how by class attributes."""

    arguments: dict[str, Any] = {}  # noqa: RUF012

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        env_fns = list(env_fns)
        workers = max(1, min(2, len(env_fns)))
        return RayVectorEnv(env_fns, num_workers=workers, **{**self.arguments, **arguments})


@pytest.mark.usefixtures("lent_actors")
class LentContract(RayContract):
    """The same, with actors that outlive a test."""


class TestTwoActors(LentContract):
    pass


@pytest.mark.full
class TestWithRestarts(LentContract):
    arguments = {"on_worker_death": "restart"}  # noqa: RUF012


@pytest.mark.full
class TestProcessesInActors(LentContract):
    """An actor's environments are one vector env there, which is built and reset as a whole."""

    arguments = {"processes_per_actor": 2}  # noqa: RUF012
    built_again_with_1_of_3 = (1, 2)
    # The environments of an actor step together: `send` takes all of their actions.
    test_declared_infos_of_some_environments: Any = None

    def test_stats_count_steps_and_resets_of_each_environment(self) -> None:
        env_fns = [partial(Ledger, number, length=3 + number) for number in range(3)]
        with self.make(env_fns, stats=True) as envs:
            envs.reset(seed=0)
            for _ in range(12):
                envs.step([0, 0, 0])
            stats = envs.stats()
            assert stats.resets.tolist() == [0, 0, 0], "what a vector env resets itself is a step"
            assert stats.steps.tolist() == [12, 12, 12]
            for times in (stats.step_mean, stats.step_max):
                assert times.shape == (3,) and (times > 0).all()
