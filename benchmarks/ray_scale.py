"""What a step on a Ray cluster costs the caller, measured here, and what follows for many nodes.

    python -m benchmarks.ray_scale

Measures the constants of the model in docs/scale.md on this machine, then prints the model's table
with them. Two Ray nodes on one machine stand in for two machines: what crosses between their object
stores takes Ray's own way, over the loopback device instead of a network.
"""

from __future__ import annotations

import functools
import os
import pickle
import platform
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

from vecspaces import Env, make_vec, spaces
from vecspaces.vector import RayVectorEnv

ACTORS = (1, 2, 4, 8)
SIZES = (1_000_000, 4_000_000, 16_000_000)
SECONDS = 1.5  # of each measurement


class Blank(Env[Any, Any]):
    """An environment that does nothing but hand out an array of so many bytes."""

    action_space = spaces.Discrete(2)

    def __init__(self, size: int) -> None:
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self._observation = np.zeros(size, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        return self._observation, 0.0, False, False, {}


@dataclass
class Cost:
    """Of one step, in seconds: by the clock, and of the caller's processor, all threads."""

    wall: float
    caller: float


def measure(envs: Any) -> Cost:
    """The median of many steps; the caller's time is their mean, as its clock is coarse."""
    envs.reset(seed=0)
    actions = envs.action_space.sample()
    for _ in range(20):
        envs.step(actions)
    walls = []
    used, end = time.process_time(), time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < end:
        envs.step(actions)
        walls.append(time.perf_counter() - began)
    return Cost(statistics.median(walls), (time.process_time() - used) / len(walls))


def blanks(size: int, actors: int, resources: dict[str, float]) -> Cost:
    """Measure actors of one blank environment each."""
    env_fns = [functools.partial(Blank, size)] * actors
    with RayVectorEnv(
        env_fns, num_workers=actors, resources_per_worker=resources, copy=False
    ) as envs:
        return measure(envs)


def slope(at: tuple[int, ...], values: list[float]) -> float:
    """Least squares."""
    return float(np.polyfit(at, values, 1)[0])


@dataclass
class Constants:
    """What the model calculates with, in seconds and bytes.

    Attributes:
        latency: A step of one actor whose environments take no time.
        per_actor: The caller's processor time for one more actor.
        per_byte: The caller's processor time for one more byte from its own node's store.
        store: The clock's time for one more byte through its own node's store.
        transfer: The clock's time for one more byte from another node's store.
        cartpole: A step of one CartPole in an actor.
        cartpole_bytes: What its answer takes, of 64 together.
    """

    latency: float
    per_actor: float
    per_byte: float
    store: float
    transfer: float
    cartpole: float
    cartpole_bytes: float


def find_constants() -> Constants:
    """Measure everything, on a cluster of two nodes on this machine."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "resources": {"here": 64}}
    )
    cluster.add_node(num_cpus=0, resources={"there": 64})
    ray.init(address=cluster.address, log_to_driver=False)
    here, there = {"num_cpus": 0, "here": 1}, {"num_cpus": 0, "there": 1}
    few = [blanks(8, actors, here) for actors in ACTORS]
    near = [blanks(size, 1, here) for size in SIZES]
    far = [blanks(size, 1, there) for size in SIZES]
    how = {"num_workers": 1, "resources_per_worker": here}
    times, sizes = [], []
    for num_envs in (16, 64, 256):
        with make_vec("CartPole-v1", num_envs, backend="ray", vector_kwargs=how) as envs:
            times.append(measure(envs).wall)
            sizes.append(len(pickle.dumps(envs.step(envs.action_space.sample())[:4], 5)))
    ray.shutdown()
    cluster.shutdown()
    return Constants(
        latency=few[0].wall,
        per_actor=slope(ACTORS, [cost.caller for cost in few]),
        per_byte=slope(SIZES, [cost.caller for cost in near]),
        store=slope(SIZES, [cost.wall for cost in near]),
        transfer=slope(SIZES, [cost.wall for cost in far]),
        cartpole=slope((16, 64, 256), times),
        cartpole_bytes=slope((16, 64, 256), [float(size) for size in sizes]),
    )


@dataclass
class Workload:
    """What each node steps.

    Args:
        name: What it is.
        envs: Environments on a node.
        cores: Its cores, which share the environments.
        seconds: One step of one environment, on one core.
        size: Bytes of an environment's answer.
    """

    name: str
    envs: int
    cores: int
    seconds: float
    size: float


def predict(work: Workload, found: Constants, nodes: int, network: float) -> tuple[float, ...]:
    """Say what the model says.

    Args:
        work: The workload.
        found: The constants.
        nodes: The number of nodes, an actor on each.
        network: Seconds for a byte on the caller's wire.

    Returns:
        Milliseconds of a step; steps a second of `step`, and of `send` and `recv`; the caller's
        share of the time that it takes.
    """
    node = work.envs / work.cores * work.seconds
    size = work.envs * work.size
    answer = found.latency + node + size * (found.store if nodes == 1 else found.transfer)
    # The caller's processor and its wire work side by side.
    byte = found.per_byte if nodes == 1 else max(found.per_byte, network)
    caller = nodes * (found.per_actor + size * byte)
    together = answer + caller
    envs = nodes * work.envs
    return together * 1e3, envs / together, envs / max(answer, caller), caller / together


def main() -> None:
    console = Console()
    found = find_constants()
    console.print(
        f"Ray {ray.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores",
        highlight=False,
    )
    for name, value, unit in (
        ("latency of a step of one actor", found.latency * 1e6, "us"),
        ("caller, for each actor", found.per_actor * 1e6, "us"),
        ("caller, for each byte", found.per_byte * 1e9, "ns"),
        ("clock, for each byte through the store of the node", found.store * 1e9, "ns"),
        ("clock, for each byte from another node's store", found.transfer * 1e9, "ns"),
        ("one CartPole", found.cartpole * 1e6, "us"),
        ("its answer", found.cartpole_bytes, "bytes"),
    ):
        console.print(f"{name}: {value:.3g} {unit}", highlight=False)
    network = 8 / 25e9  # 25 Gbit/s
    for work in (
        Workload("CartPole", 1024, 64, found.cartpole, found.cartpole_bytes),
        Workload("images, 28 KB and 1 ms each", 256, 64, 1e-3, 84 * 84 * 4),
        Workload("physics, 1 KB and 5 ms each", 256, 64, 5e-3, 1024),
    ):
        table = Table(title=f"{work.name}: {work.envs} on a node of {work.cores} cores")
        for column in ("nodes", "ms a step", "steps/s, step", "steps/s, send/recv", "caller"):
            table.add_column(column, justify="right")
        for nodes in (1, 10, 100, 1000):
            step, together, first, share = predict(work, found, nodes, network)
            table.add_row(
                f"{nodes:,}", f"{step:.1f}", f"{together:,.0f}", f"{first:,.0f}", f"{share:.0%}"
            )
        console.print(table)


if __name__ == "__main__":
    main()
