"""SyncVectorEnv and AsyncVectorEnv keep the contract, however workers divide and share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contract import RulesContract, VectorEnvContract, WorkersContract
from tests.contract import workers as contract_of_workers
from tests.crosses import FASTEST, METHODS, NEWEST
from tests.envs.faulty import FAULTS, arm, disarmed
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, ThreadVectorEnv


class TestSync(VectorEnvContract, RulesContract):
    test_a_run_equals_syncs_to_the_last_bit: Any = None

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        return SyncVectorEnv(env_fns, **arguments)


class Threads:
    """Makes a ThreadVectorEnv; class attributes say how."""

    workers: int | None = 2

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        env_fns = list(env_fns)
        workers = self.workers and min(self.workers, len(env_fns))
        return ThreadVectorEnv(env_fns, num_workers=workers, **arguments)


class TestTwoThreads(Threads, VectorEnvContract, RulesContract):
    pass


class TestThreadsOfOneEnvironment(Threads, VectorEnvContract):
    workers = None


class Hurried(WorkersContract):
    """What hangs overruns its bound at once."""

    patience = 30.0

    @pytest.fixture(autouse=True)
    def hurried(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, hurry: Any
    ) -> None:
        def arm_and_hurry(folder: Path) -> None:
            arm(folder)
            hurry(partial(disarmed, folder), 1)

        if "hang" in request.node.name:
            monkeypatch.setattr(contract_of_workers, "arm", arm_and_hurry)


class TestFaultsOfThreads(Threads, Hurried):
    """What hangs returns at the end of the test, in a thread that was abandoned."""

    test_what_cannot_travel_is_reported_as_text: Any = None

    def make(self, env_fns: Any, on_worker_death: str = "raise", **arguments: Any) -> Any:
        return super().make(env_fns, **arguments)

    @pytest.fixture(autouse=True)
    def released(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        if "SIGKILL" in request.node.name:
            pytest.skip("a thread does not die alone")
        gate, before = threading.Event(), set(threading.enumerate())
        monkeypatch.setitem(FAULTS, "hang", gate.wait)
        yield
        gate.set()
        for thread in set(threading.enumerate()) - before:
            thread.join(30)


class Workers:
    """Makes an AsyncVectorEnv; class attributes say how."""

    workers = 2
    arguments: dict[str, Any] = {"context": FASTEST}  # noqa: RUF012

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        env_fns = list(env_fns)
        workers = max(1, min(self.workers, len(env_fns)))
        return AsyncVectorEnv(env_fns, num_workers=workers, **{**self.arguments, **arguments})


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
class TestFaultsOfWorkers(Workers, Hurried):
    pass


@pytest.mark.full
class TestFaultsOfWorkersOfAForkServerOverPipes(TestFaultsOfWorkers):
    arguments = {"context": NEWEST, "shared_memory": False}  # noqa: RUF012


@pytest.mark.full
class TestOneWorker(Workers, VectorEnvContract):
    """With a slot more, and with little memory for values of variable size."""

    workers = 1
    arguments = {  # noqa: RUF012
        "context": FASTEST,
        "on_worker_death": "restart",
        "variable_capacity": 24,
    }


# The ordinary run has one class for each of Python's defaults on Linux: up to 3.13 it is fork.
class TestTwoWorkers(Workers, VectorEnvContract):
    arguments = {"context": NEWEST}  # noqa: RUF012


@pytest.mark.full
class TestRules(Workers, RulesContract):
    """With the engine, the caller's part of both links is one, which `TestSync` runs."""

    workers = 1


@pytest.mark.full
@pytest.mark.skipif("spawn" not in METHODS, reason="the platform has no spawn")
class TestSpawn(Workers, VectorEnvContract):
    arguments = {"context": "spawn"}  # noqa: RUF012


@pytest.mark.full
@pytest.mark.skipif("forkserver" not in METHODS, reason="the platform has no forkserver")
class TestForkserver(Workers, VectorEnvContract):
    workers = 99
    arguments = {"context": "forkserver", "shared_memory": False}  # noqa: RUF012
