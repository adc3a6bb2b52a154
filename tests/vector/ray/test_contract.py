"""RayVectorEnv keeps the contract, seed for seed.

An actor takes a second and more to start, so that the quick runs lend each test the same two; what
a new actor does differently is seen in the other files, and in the full run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.vector.contract import VectorEnvContract
from vecspaces.vector import RayVectorEnv
from vecspaces.vector.backends.actor import GroupActor

pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

if TYPE_CHECKING:
    from collections.abc import Iterator


class LentRoom:
    """Stands in for a `Room` whose actors outlive their vector env."""

    actors: list[Any] = []  # noqa: RUF012

    def __init__(self, *arguments: Any) -> None:
        pass

    def start(self, kind: type, place: int) -> Any:
        return self.actors[place]

    def end(self, actor: Any) -> None:
        """The next test takes it."""

    def close(self) -> None:
        """The next test takes it."""


@pytest.fixture(scope="module")
def two_actors(cluster: Any) -> Iterator[None]:
    import ray

    LentRoom.actors = [ray.remote(GroupActor).remote() for _ in range(2)]
    ray.get([actor.close.remote() for actor in LentRoom.actors])
    yield
    for actor in LentRoom.actors:
        ray.kill(actor)
    LentRoom.actors = []


class RayContract(VectorEnvContract):
    """RayVectorEnv, told how by class attributes."""

    arguments: dict[str, Any] = {}  # noqa: RUF012

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        env_fns = list(env_fns)
        workers = max(1, min(2, len(env_fns)))
        return RayVectorEnv(env_fns, num_workers=workers, **{**self.arguments, **arguments})


class LentContract(RayContract):
    """The same, with actors that outlive a test."""

    @pytest.fixture(autouse=True)
    def lend(self, two_actors: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("vecspaces.vector.backends.ray.Room", LentRoom)


class TestTwoActors(LentContract):
    pass


class TestWithRestarts(LentContract):
    arguments = {"on_worker_death": "restart"}  # noqa: RUF012


@pytest.mark.full
class TestNewActors(RayContract):
    arguments = {"resources_per_worker": {"num_cpus": 0.5}}  # noqa: RUF012


@pytest.mark.full
class TestProcessesInActors(LentContract):
    arguments = {"processes_per_actor": 2}  # noqa: RUF012
