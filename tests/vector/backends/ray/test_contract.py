"""RayVectorEnv keeps the contract, seed for seed.

An actor takes a second and more to start, so that the quick runs lend each test the same two; what
a new actor does differently is seen in the other files, and in the full run.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract import VectorEnvContract
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
