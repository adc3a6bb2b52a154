"""A Ray cluster: the connection, the places reserved for actors, the names of nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vecspaces.interop import require_extra

# Arguments of `ray.remote`, and Ray's other names of these resources; every other resource is
# defined by the user.
_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


class Connection:
    """The connection to a cluster; a Ray instance that was started here ends with its last user.

    Without an `address`, this process's cluster is used, else that of the environment variable
    RAY_ADDRESS, else a cluster that runs on this machine, else a local cluster is started.
    """

    _users = 0

    def __init__(self, address: str | None) -> None:
        self.ray = require_extra("ray", "ray")
        there = self.ray.is_initialized()
        # A Ray instance that existed before is not ended.
        self._ours = not there or bool(Connection._users)
        if there:
            self._check_same(address)
        elif address is None and "RAY_ADDRESS" not in os.environ:
            self.ray.init(include_dashboard=False)
        else:
            self.ray.init(address=address)
        Connection._users += self._ours

    def _check_same(self, address: str | None) -> None:
        """Refuse a second cluster: a process is connected to one cluster."""
        connected = self.ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise ValueError(
                f"address={address!r}, but this process is connected to the Ray cluster at "
                f"{connected!r} already: leave address out, or call ray.shutdown() first"
            )

    @property
    def open(self) -> bool:
        """Whether Ray still runs; its user may have shut it down."""
        return bool(self.ray.is_initialized())

    def room_for(self, resources: Mapping[str, float]) -> int:
        """Return the number of actors that would fit into the empty cluster."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(
            min(
                int(node.get(_NAMES.get(name, name), 0) / amount + 1e-9)
                for name, amount in resources.items()
            )
            for node in nodes
        )

    def close(self) -> None:
        """Leave the cluster; a second call does nothing."""
        if not self._ours:
            return
        self._ours = False
        Connection._users -= 1
        if not Connection._users and self.open:
            self.ray.shutdown()


def choose_resources(resources: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the resources of one actor by name, checked, without those that are 0."""
    wanted = {"num_cpus": 1, **(resources or {})}
    for name, amount in wanted.items():
        if not isinstance(amount, (int, float)) or isinstance(amount, bool) or amount < 0:
            raise ValueError(
                f"resources_per_worker[{name!r}] must be a number of at least 0, found {amount!r}"
            )
    needed = {name: amount for name, amount in wanted.items() if amount}
    if not needed:
        raise ValueError(
            "resources_per_worker must request something, found nothing but zeros: "
            "{'num_cpus': 0.01} leaves nearly all of a CPU to others"
        )
    return needed


class Reservation:
    """Reserved places in a cluster, one for each actor: a placement group of Ray's.

    If a node dies, Ray moves its places to other nodes.
    """

    def __init__(self, connection: Connection, count: int, resources: Mapping[str, float]) -> None:
        self._connection = connection
        self._ray = connection.ray
        self._count = count
        self._amounts = {_NAMES.get(name, name): amount for name, amount in resources.items()}
        options: dict[str, Any] = {
            name: amount for name, amount in resources.items() if name in _NAMES
        }
        options["resources"] = {
            name: amount for name, amount in resources.items() if name not in _NAMES
        }
        # Without a number of CPUs, Ray reserves one CPU.
        self._options = {"num_cpus": 0, **options}
        self._group = self._ray.util.placement_group([self._amounts] * count, strategy="SPREAD")

    def start(self, kind: type, place: int) -> Any:
        """Start an actor in a reserved place, and return its handle without waiting for it."""
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=place
        )
        actor = self._ray.remote(kind).options(scheduling_strategy=strategy, **self._options)
        return actor.remote()

    def end(self, actor: Any) -> None:
        """End an actor, whatever it is doing."""
        self._ray.kill(actor)

    def shortage(self) -> str:
        """Return the requested and the existing resources, as text for errors."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        size = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        free = self._ray.available_resources()
        lines = []
        for name, amount in self._amounts.items():
            there = [node.get(name, 0) for node in nodes]
            lines.append(
                f"{name}: {self._count} x {amount:g} asked for; {sum(there):g} in the cluster of "
                f"{size}, {max(there, default=0):g} on the largest, "
                f"{free.get(name, 0):g} free now"
            )
        return "; ".join(lines)

    def close(self) -> None:
        """Give the places back; actors that are still in them end."""
        if self._connection.open:
            self._ray.util.remove_placement_group(self._group)


def name_node(ray: Any) -> str:
    """Return the address of this process's node, and the beginning of its id in Ray."""
    return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:12]})"
