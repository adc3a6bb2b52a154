"""AsyncVectorEnv keeps the contract, however it divides its environments and whatever it shares."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from tests.vector.contract import VectorEnvContract
from vecspaces.vector import AsyncVectorEnv

METHODS = multiprocessing.get_all_start_methods()
FASTEST = "fork" if "fork" in METHODS else "spawn"


class AsyncContract(VectorEnvContract):
    """AsyncVectorEnv, told how by class attributes."""

    workers = 2
    arguments: dict[str, Any] = {"context": FASTEST}  # noqa: RUF012

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        env_fns = list(env_fns)
        workers = max(1, min(self.workers, len(env_fns)))
        return AsyncVectorEnv(env_fns, num_workers=workers, **{**self.arguments, **arguments})


class TestOneWorker(AsyncContract):
    workers = 1


class TestTwoWorkers(AsyncContract):
    pass


class TestOneWorkerEach(AsyncContract):
    workers = 99


class TestWithoutSharedMemory(AsyncContract):
    arguments = {"context": FASTEST, "shared_memory": False}  # noqa: RUF012


@pytest.mark.full
class TestWithRestarts(AsyncContract):
    arguments = {"context": FASTEST, "on_worker_death": "restart"}  # noqa: RUF012


@pytest.mark.full
@pytest.mark.skipif("spawn" not in METHODS, reason="the platform has no spawn")
class TestSpawn(AsyncContract):
    arguments = {"context": "spawn"}  # noqa: RUF012


@pytest.mark.full
@pytest.mark.skipif("forkserver" not in METHODS, reason="the platform has no forkserver")
class TestForkserver(AsyncContract):
    arguments = {"context": "forkserver", "shared_memory": False}  # noqa: RUF012


@pytest.mark.full
@pytest.mark.skipif("forkserver" not in METHODS, reason="the platform has no forkserver")
class TestForkserverSharing(AsyncContract):
    workers = 99
    arguments = {"context": "forkserver"}  # noqa: RUF012
