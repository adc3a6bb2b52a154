"""One Ray for all of these tests, and the check that a test leaves none of its actors behind."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.leaks import descendants
from tests.vector.backends.ray import clusters
from vecspaces.vector.backends.ray.actor import GroupActor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ray.cluster_utils import Cluster

_PATIENCE_SECONDS = 10.0

#: Of the contract's part on faults of workers, what the ordinary run has with actors.
ORDINARY = (
    "test_a_lost_step_is_a_truncation[SIGKILL-AutoresetMode.SAME_STEP]",
    "test_a_loss_in_a_stream_is_a_truncation[hang]",
    "test_a_loss_in_a_full_reset_repeats_it[SIGKILL]",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests that start several actors to the full run, but for a few."""
    for item in items:
        if "TestFaultsOfActors" in item.nodeid and item.name not in ORDINARY:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """A cluster of one node, which this process is connected to; a test may add nodes."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args=clusters.HEAD)
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture(scope="package")
def two_actors(cluster: Cluster) -> Iterator[list[Any]]:
    """Two actors that outlive a test: a new one takes seconds to start."""
    import ray

    actors = [ray.remote(num_cpus=0)(GroupActor).remote() for _ in range(2)]
    ray.get([actor.here.remote() for actor in actors])
    yield actors
    for actor in actors:
        ray.kill(actor)


@pytest.fixture
def lent_actors(two_actors: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vector envs of at most two actors borrow these, instead of starting their own."""
    monkeypatch.setattr(clusters.LentRoom, "actors", two_actors)
    monkeypatch.setattr("vecspaces.vector.backends.ray.backend.Reservation", clusters.LentRoom)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(cluster: Cluster) -> Iterator[None]:
    """Fail a test after which an actor of its own, or a place reserved for one, is left.

    Ray's own threads, descriptors and processes come and go with Ray; the check of all other tests
    would count them.
    """
    before = _actors()
    yield
    gc.collect()
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while (left := (_actors() - before) | _places()) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not left, f"the test left behind: {', '.join(sorted(left))}"


def _actors() -> set[str]:
    """The processes of our actors: Ray names them by their class."""
    return {f"actor {pid}" for pid, name in descendants().items() if name == "ray::GroupActor"}


def _places() -> set[str]:
    """Placement groups that were not removed."""
    import ray

    table: dict[str, Any] = ray.util.placement_group_table()
    return {f"place {name}" for name, group in table.items() if group["state"] != "REMOVED"}
