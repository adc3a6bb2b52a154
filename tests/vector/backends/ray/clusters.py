"""Clusters of several nodes on one machine, for tests."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from vecspaces.vector import AsyncVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ray.cluster_utils import Cluster

#: The first node: room for a few actors, and a nose for dead nodes quicker than Ray's own.
HEAD: dict[str, Any] = {
    "num_cpus": 4,
    "include_dashboard": False,
    "_system_config": {
        "health_check_initial_delay_ms": 500,
        "health_check_period_ms": 1000,
        "health_check_failure_threshold": 4,
    },
}

#: What only the nodes of `more_nodes` have.
BERTH = {"num_cpus": 0, "berth": 1}


class Nodes:
    """Nodes that a test added.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes: list[Any] = []

    def add(self, berths: int) -> str:
        """Add a node for so many actors that ask for a `BERTH`; give its id."""
        node = self._cluster.add_node(num_cpus=0, resources={"berth": berths})
        self._nodes.append(node)
        return str(node.node_id)

    def remove(self, node_id: str) -> None:
        """Let a node die at once, as by a power cut."""
        node = next(node for node in self._nodes if node.node_id == node_id)
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def remove_all(self) -> None:
        for node in self._nodes:
            self._cluster.remove_node(node)
        self._nodes = []


@contextlib.contextmanager
def more_nodes(cluster: Cluster, *berths: int) -> Iterator[tuple[Nodes, list[str]]]:
    """Add nodes for a while."""
    nodes = Nodes(cluster)
    try:
        yield nodes, [nodes.add(count) for count in berths]
    finally:
        nodes.remove_all()


class LentRoom:
    """Stands in for a `Reservation` whose actors outlive their vector env."""

    actors: list[Any] = []  # noqa: RUF012

    def __init__(self, *arguments: Any) -> None:
        pass

    def start(self, kind: type, place: int) -> Any:
        return self.actors[place]

    def end(self, actor: Any) -> None:
        """The next test takes it."""

    def close(self) -> None:
        """The next test takes it."""


def node_of(env: Any) -> str:
    """The node that an environment runs on: to be sent into it with `call`."""
    return str(sys.modules["ray"].get_runtime_context().get_node_id())


def actor_of(env: Any) -> str:
    """The actor that an environment runs in: to be sent into it with `call`."""
    return str(sys.modules["ray"].get_runtime_context().get_actor_id())


def in_processes(env_fns: Sequence[Callable[[], Any]], **arguments: Any) -> Any:
    """Make the vector env of one actor: two processes, which share its environments."""
    return AsyncVectorEnv(env_fns, num_workers=2, context="forkserver", **arguments)
