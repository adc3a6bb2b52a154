"""What a step on a Ray cluster costs the caller, measured here, and what follows for many nodes.

    python -m benchmarks.ray_scale

Measures the constants of the model in docs/scale.md on this machine, compares what the model says
of cases that they do not come from with measurements of these, then prints the model's tables. Two
Ray nodes on one machine stand in for two machines: what crosses between their object stores takes
Ray's own way, over the loopback device instead of a network.
"""

from __future__ import annotations

import functools
import os
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
MORE_ACTORS = (16, 32)
SIZES = (1_000_000, 4_000_000, 16_000_000)
SIZE_BETWEEN = 8_000_000
CARTPOLES = (16, 64, 256)
CARTPOLES_BETWEEN = 128
OPEN = (100, 1000)
SECONDS = 1.5  # of each measurement

# Of the caller's network, which two nodes on one machine do not have: 25 Gbit/s and a round trip.
NETWORK_BYTE = 8 / 25e9
ROUND_TRIP = 0.2e-3


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


def cartpoles(num_envs: int, resources: dict[str, float]) -> tuple[Cost, int]:
    """Measure one actor of CartPoles; give the bytes of its answer too."""
    how = {"num_workers": 1, "resources_per_worker": resources}
    with make_vec("CartPole-v1", num_envs, backend="ray", vector_kwargs=how) as envs:
        cost = measure(envs)
        answer = envs.step(envs.action_space.sample())[:4]
        return cost, sum(array.nbytes for array in answer)


@ray.remote(num_cpus=0)
class Sleeper:
    """An actor that owes answers."""

    def sleep(self) -> None:
        time.sleep(1000)


def look(count: int) -> float:
    """The time of one look at so many open answers."""
    sleeper = Sleeper.remote()
    answers = [sleeper.sleep.remote() for _ in range(count)]
    times = []
    for _ in range(100):
        began = time.perf_counter()
        ray.wait(answers, num_returns=count, timeout=0)
        times.append(time.perf_counter() - began)
    ray.kill(sleeper)
    return statistics.median(times)


def slope(at: tuple[int, ...], values: list[float]) -> float:
    """Least squares."""
    return float(np.polyfit(at, values, 1)[0])


@dataclass
class Constants:
    """What the model calculates with, in seconds and bytes.

    Attributes:
        latency: A step of one actor whose environments take no time.
        per_actor: The caller's processor time for one more actor.
        per_open: For each answer that is still open, one look at them.
        per_byte: The caller's processor time for one more byte from its own node's store.
        store: The clock's time for one more byte through its own node's store.
        transfer: The clock's time for one more byte from another node's store.
        cartpole: A step of one CartPole in an actor.
        cartpole_bytes: Its answer.
    """

    latency: float
    per_actor: float
    per_open: float
    per_byte: float
    store: float
    transfer: float
    cartpole: float
    cartpole_bytes: float

    def each(self, actors: int, size: float, byte: float) -> float:
        """The caller's time for one of so many actors whose answers have so many bytes.

        At worst each answer wakes the caller by itself, which then looks twice at those still open,
        of which there are half as many on average.
        """
        return self.per_actor + actors * self.per_open + size * byte


@dataclass
class Check:
    """What the model says of a case that its constants do not come from, in seconds."""

    case: str
    said: float
    found: float


def find_constants() -> tuple[Constants, list[Check]]:
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
    poles = [cartpoles(num_envs, here) for num_envs in CARTPOLES]
    found = Constants(
        latency=few[0].wall,
        per_actor=slope(ACTORS, [cost.caller for cost in few]),
        per_open=slope(OPEN, [look(count) for count in OPEN]),
        per_byte=slope(SIZES, [cost.caller for cost in near]),
        store=slope(SIZES, [cost.wall for cost in near]),
        transfer=slope(SIZES, [cost.wall for cost in far]),
        cartpole=slope(CARTPOLES, [cost.wall for cost, _ in poles]),
        cartpole_bytes=slope(CARTPOLES, [float(size) for _, size in poles]),
    )
    checks = [
        Check(
            f"the caller's processor, {actors} actors",
            few[0].caller + (actors - 1) * found.each(actors, 0, 0),
            blanks(8, actors, here).caller,
        )
        for actors in MORE_ACTORS
    ]
    megabytes = SIZE_BETWEEN // 1_000_000
    for where, resources, byte in (("own", here, found.store), ("other", there, found.transfer)):
        checks.append(
            Check(
                f"a step, {megabytes} MB from the {where} node",
                found.latency + SIZE_BETWEEN * byte,
                blanks(SIZE_BETWEEN, 1, resources).wall,
            )
        )
    checks.append(
        Check(
            f"a step, one actor of {CARTPOLES_BETWEEN} CartPoles",
            found.latency + CARTPOLES_BETWEEN * found.cartpole,
            cartpoles(CARTPOLES_BETWEEN, here)[0].wall,
        )
    )
    ray.shutdown()
    cluster.shutdown()
    return found, checks


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


@dataclass
class Prediction:
    """What the model says.

    Attributes:
        step: A `step` of all environments, in seconds.
        together: Environment steps a second of `step`.
        streaming: The same of `send` and `recv`.
        share: The caller's share of a `step`.
        most: So many actors keep the caller busy without a pause.
    """

    step: float
    together: float
    streaming: float
    share: float
    most: float


def predict(work: Workload, found: Constants, nodes: int, actors: int = 1) -> Prediction:
    """Apply the model.

    Args:
        work: The workload.
        found: The constants.
        nodes: The number of nodes.
        actors: The number of actors on each, which share its environments.
    """
    alone = nodes == 1  # then everything crosses the caller's own store, and no network
    count = nodes * actors
    size = work.envs * work.size / actors
    answer = found.latency + work.envs / work.cores * work.seconds
    answer += size * found.store if alone else size * found.transfer + ROUND_TRIP
    # The caller's processor and its network work side by side.
    each = found.each(count, size, found.per_byte)
    each = each if alone else max(each, size * NETWORK_BYTE)
    step = answer + (count - 1) * each
    envs = nodes * work.envs
    return Prediction(
        step, envs / step, envs / max(answer, count * each), count * each / step, answer / each
    )


def show(console: Console, work: Workload, found: Constants) -> None:
    """Print the table of a workload."""
    kilobytes = work.envs * work.size / 1e3
    table = Table(
        title=f"{work.name}: {work.envs} on a node of {work.cores} cores, {kilobytes:,.0f} KB a step",
        title_justify="left",
    )
    for column in ("nodes", "actors", "ms a step", "steps/s, step", "send/recv", "caller", "most"):
        table.add_column(column, justify="right")
    for actors in (1, work.cores):
        for nodes in (1, 10, 100, 1000):
            said = predict(work, found, nodes, actors)
            table.add_row(
                f"{nodes:,}",
                f"{nodes * actors:,}",
                f"{said.step * 1e3:,.1f}",
                f"{said.together:,.0f}",
                f"{said.streaming:,.0f}",
                f"{said.share:.0%}",
                f"{said.most:,.1f}",
            )
        table.add_section()
    console.print(table)


def main() -> None:
    console = Console(highlight=False)
    found, checks = find_constants()
    console.print(
        f"Ray {ray.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores"
    )
    for name, value, unit in (
        ("latency: a step of one actor", found.latency * 1e6, "us"),
        ("per_actor: caller's processor, each actor", found.per_actor * 1e6, "us"),
        ("per_open: one look, each open answer", found.per_open * 1e6, "us"),
        ("per_byte: caller's processor, each byte", found.per_byte * 1e9, "ns"),
        ("store: clock, each byte through the node's store", found.store * 1e9, "ns"),
        ("transfer: clock, each byte from another node's store", found.transfer * 1e9, "ns"),
        ("one CartPole", found.cartpole * 1e6, "us"),
        ("its answer", found.cartpole_bytes, "bytes"),
    ):
        console.print(f"{name}: {value:.3g} {unit}")
    table = Table(title="not used for the constants", title_justify="left")
    for column in ("", "model, ms", "measured, ms", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for case, said, seen in ((one.case, one.said, one.found) for one in checks):
        table.add_row(case, f"{said * 1e3:.2f}", f"{seen * 1e3:.2f}", f"{said / seen:.2f}")
    console.print(table)
    for work in (
        Workload("CartPole", 1024, 64, found.cartpole, found.cartpole_bytes),
        Workload("physics, 1 KB and 5 ms each", 256, 64, 5e-3, 1024),
        Workload("images, 28 KB and 1 ms each", 256, 64, 1e-3, 84 * 84 * 4),
    ):
        show(console, work, found)


if __name__ == "__main__":
    main()
