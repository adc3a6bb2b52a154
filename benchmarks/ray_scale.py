"""What a step on a Ray cluster costs the caller, measured, and what follows for many nodes.

    python -m benchmarks.ray_scale

Measures the constants of the model behind docs/scale.md on this machine, compares the model's
predictions with measurements of other cases, and prints the model's tables. Both Ray nodes run on
this machine: Ray transfers objects between their stores over the loopback device.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

from benchmarks.common import versions
from vecspaces import Env, make_vec, spaces
from vecspaces.vector import AsyncVectorEnv, RayVectorEnv

ACTORS = (1, 2, 4, 8)
MORE_ACTORS = (16, 32)
# Ray sends replies of up to 100 KB along with the message that they are there; others are stored.
SMALL = (8, 80_000)
LARGE = (500_000, 2_000_000, 8_000_000, 16_000_000)
BETWEEN = 4_000_000
CARTPOLES = (16, 64, 256)
CARTPOLES_BETWEEN = 128
PROCESSES = (2, 8, 32)
MORE_PROCESSES = (16, 64)
OPEN = (100, 1000)
SECONDS = 1.0  # of each measurement

# The network, which two nodes on one machine do not have: 25 Gbit/s and a round trip.
NETWORK_BYTE = 8 / 25e9
ROUND_TRIP = 0.2e-3
INLINE_BYTES = 100 * 1024

# How many nodes have a caller of their own.
SHARD = 10


class Blank(Env[Any, Any]):
    """An environment that does nothing but return an array of so many bytes."""

    action_space = spaces.Discrete(2)

    def __init__(self, size: int) -> None:
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)
        self._observation = np.zeros(size, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        return self._observation, 0.0, False, False, {}


class Cost(NamedTuple):
    """Seconds of a step: by the clock, of the caller's processor (all threads), of its raylet's."""

    wall: float
    caller: float
    raylet: float


class Bench:
    """A cluster of two nodes on this machine, for actors of blank environments and CartPoles."""

    def __init__(self) -> None:
        head = {"num_cpus": 0, "resources": {"here": 64}}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._cluster.add_node(num_cpus=0, resources={"there": 64})
        raylet = self._cluster.head_node.all_processes["raylet"][0].process.pid
        self._raylet = raylet
        ray.init(address=self._cluster.address, log_to_driver=False)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()

    def measure(self, envs: Any) -> Cost:
        """Return medians of many steps; processor times are means, as those clocks are coarse."""
        envs.reset(seed=0)
        actions = envs.action_space.sample()
        for _ in range(20):
            envs.step(actions)
        walls = []
        caller, raylet = time.process_time(), processor_time(self._raylet)
        end = time.perf_counter() + SECONDS
        while (began := time.perf_counter()) < end:
            envs.step(actions)
            walls.append(time.perf_counter() - began)
        return Cost(
            statistics.median(walls),
            (time.process_time() - caller) / len(walls),
            (processor_time(self._raylet) - raylet) / len(walls),
        )

    def blanks(self, size: int, actors: int = 1, where: str = "here") -> Cost:
        """Measure actors of one blank environment each."""
        env_fns = [functools.partial(Blank, size)] * actors
        resources = {"num_cpus": 0, where: 1}
        with RayVectorEnv(
            env_fns, num_workers=actors, resources_per_worker=resources, copy=False
        ) as envs:
            return self.measure(envs)

    def cartpoles(self, num_envs: int) -> tuple[Cost, int]:
        """Measure one actor of CartPoles; return the bytes of its reply too."""
        how = {"num_workers": 1, "resources_per_worker": {"num_cpus": 0, "here": 1}}
        with make_vec("CartPole-v1", num_envs, backend="ray", vector_kwargs=how) as envs:
            cost = self.measure(envs)
            reply = envs.step(envs.action_space.sample())[:4]
            return cost, sum(array.nbytes for array in reply)

    def processes(self, count: int) -> float:
        """Measure the processor time of a step in one actor that has so many worker processes."""
        env_fns = [functools.partial(Blank, 8)] * count
        how = {"num_cpus": 0, "here": 1}
        inside = functools.partial(AsyncVectorEnv, env_fns, num_workers=count, context="forkserver")
        with RayVectorEnv([inside], resources_per_worker=how) as envs:
            envs.reset(seed=0)
            (actor,) = set(envs.call(find_actor))
            actions = envs.action_space.sample()
            for _ in range(50):
                envs.step(actions)
            before, steps = main_thread_time(actor), 0
            end = time.perf_counter() + 3 * SECONDS
            while time.perf_counter() < end:
                envs.step(actions)
                steps += 1
            return (main_thread_time(actor) - before) / steps


def find_actor(env: Any) -> int:
    """Return the process of the actor of an environment's process: runs there."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    return parent.pid


def processor_time(pid: int) -> float:
    """Return the processor time of a process on this machine, of all its threads."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main_thread_time(pid: int) -> float:
    """Return the processor time of a process's main thread, which executes an actor's methods."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@ray.remote(num_cpus=0)
class Sleeper:
    """An actor whose replies stay open."""

    def sleep(self) -> None:
        time.sleep(1000)


def look(count: int) -> float:
    """Return the time of one check of a number of open replies."""
    sleeper = Sleeper.remote()
    replies = [sleeper.sleep.remote() for _ in range(count)]
    times = []
    for _ in range(100):
        began = time.perf_counter()
        ray.wait(replies, num_returns=count, timeout=0)
        times.append(time.perf_counter() - began)
    ray.kill(sleeper)
    return statistics.median(times)


def fit(points: tuple[int, ...], values: list[float]) -> tuple[float, float]:
    """Return the value at 0 and the slope of a line by least squares."""
    slope, start = np.polyfit(points, values, 1)
    return float(start), max(0.0, float(slope))


class Way(NamedTuple):
    """Seconds that a reply takes on one way to the caller: a constant, and per byte.

    `wall` is by the clock, of an actor whose environments take no time; `caller` is of the caller's
    processor for one more actor, `raylet` of its raylet's.
    """

    wall: tuple[float, float]
    caller: tuple[float, float]
    raylet: tuple[float, float]


@dataclass
class Constants:
    """The constants of the model, in seconds and bytes.

    Attributes:
        inline: Replies of up to 100 KB, from whatever node.
        store: Larger ones, from the store of the caller's node.
        transfer: Larger ones, from the store of another node.
        per_open: One look at the open replies, for each of them.
        cartpole: A step of one CartPole in an actor.
        cartpole_bytes: Its reply.
        actor: The processor time of a step in an actor, however many processes it has.
        process: The same for each process in it.
    """

    inline: Way
    store: Way
    transfer: Way
    per_open: float
    cartpole: float
    cartpole_bytes: float
    actor: float
    process: float

    def way(self, size: float, alone: bool) -> Way:
        """Return the way of a reply of this size."""
        if size <= INLINE_BYTES:
            return self.inline
        return self.store if alone else self.transfer

    def reply(self, size: float, alone: bool) -> float:
        """Return the clock's time for a reply."""
        start, byte = self.way(size, alone).wall
        return start + size * byte

    def occupied(self, actors: int, size: float, alone: bool) -> float:
        """Return how long one of a number of actors keeps the caller busy.

        At worst each reply wakes the caller by itself, which then looks twice at those still open,
        of which there are half as many on average. Caller and raylet work side by side.
        """
        way = self.way(size, alone)
        caller = way.caller[0] + size * way.caller[1] + actors * self.per_open
        return max(caller, way.raylet[0] + size * way.raylet[1])


class Check(NamedTuple):
    """The model's prediction for a case that its constants do not come from, in seconds."""

    case: str
    predicted: float
    measured: float


def find_constants(bench: Bench) -> tuple[Constants, list[Check]]:
    """Measure everything."""
    few = [bench.blanks(8, actors) for actors in ACTORS]
    _, per_actor = fit(ACTORS, [cost.caller for cost in few])
    # Of the first actor's time, what a step costs the caller whatever the number of actors.
    once = few[0].caller - per_actor

    def measure_way(sizes: tuple[int, ...], where: str) -> Way:
        wall, caller, raylet = zip(*(bench.blanks(size, 1, where) for size in sizes), strict=True)
        start, byte = fit(sizes, list(caller))
        return Way(fit(sizes, list(wall)), (start - once, byte), fit(sizes, list(raylet)))

    actor, process = fit(PROCESSES, [bench.processes(count) for count in PROCESSES])
    poles = [bench.cartpoles(num_envs) for num_envs in CARTPOLES]
    model = Constants(
        inline=measure_way(SMALL, "here"),
        store=measure_way(LARGE, "here"),
        transfer=measure_way(LARGE, "there"),
        per_open=fit(OPEN, [look(count) for count in OPEN])[1],
        cartpole=fit(CARTPOLES, [cost.wall for cost, _ in poles])[1],
        cartpole_bytes=fit(CARTPOLES, [float(size) for _, size in poles])[1],
        actor=actor,
        process=process,
    )
    checks = [
        Check(
            f"the caller's processor, {actors} actors",
            once + actors * model.occupied(actors, 8, True),
            bench.blanks(8, actors).caller,
        )
        for actors in MORE_ACTORS
    ]
    checks += [
        Check(
            f"processor time in an actor of {count} processes",
            actor + count * process,
            bench.processes(count),
        )
        for count in MORE_PROCESSES
    ]
    for where, name in (("here", "the caller's"), ("there", "another")):
        checks.append(
            Check(
                f"a step, {BETWEEN / 1e6:.0f} MB from {name} node",
                model.reply(BETWEEN, where == "here"),
                bench.blanks(BETWEEN, 1, where).wall,
            )
        )
    checks.append(
        Check(
            f"a step, one actor of {CARTPOLES_BETWEEN} CartPoles",
            model.inline.wall[0] + CARTPOLES_BETWEEN * model.cartpole,
            bench.cartpoles(CARTPOLES_BETWEEN)[0].wall,
        )
    )
    return model, checks


@dataclass
class Workload:
    """What each node steps: seconds are those of one environment's step, on one of its cores."""

    name: str
    envs: int
    cores: int
    seconds: float
    size: float


@dataclass
class Prediction:
    """A prediction of the model.

    Attributes:
        step: A `step` of all environments, in seconds.
        together: Environment steps per second of `step`.
        streaming: The same of `send` and `recv`.
        share: The caller's share of a `step`.
        most: So many actors keep the caller busy without a pause; more make it no faster.
    """

    step: float
    together: float
    streaming: float
    share: float
    most: float


def predict(work: Workload, model: Constants, nodes: int, actors: int = 1) -> Prediction:
    """Apply the model to some nodes, whose actors share the environments of each."""
    alone = nodes == 1  # then everything crosses the caller's own store, and no network
    count = nodes * actors
    size = work.envs * work.size / actors
    reply = model.reply(size, alone) + work.envs / work.cores * work.seconds
    if actors < work.cores:
        reply += work.cores / actors * model.process
    busy = model.occupied(count, size, alone)
    if not alone:
        reply += ROUND_TRIP
        busy = max(busy, size * NETWORK_BYTE)
    step = reply + (count - 1) * busy
    envs = nodes * work.envs
    return Prediction(
        step, envs / step, envs / max(reply, count * busy), count * busy / step, reply / busy
    )


def show(console: Console, work: Workload, model: Constants) -> None:
    """Print the table of a workload."""
    size = work.envs * work.size / 1e3
    table = Table(
        title=f"{work.name}: {work.envs} on a node of {work.cores} cores, {size:,.0f} KB per step",
        title_justify="left",
    )
    columns = (
        "nodes",
        "actors",
        "ms per step",
        "step",
        "send/recv",
        "caller",
        "full at",
        "sharded",
    )
    for column in [*columns, "sharded"]:
        table.add_column(column, justify="right")
    for nodes, actors in ((1, 1), (10, 1), (100, 1), (1000, 1), (10, work.cores)):
        predicted = predict(work, model, nodes, actors)
        shards = max(1, nodes // SHARD)
        sharded = shards * predict(work, model, min(nodes, SHARD), actors).streaming
        table.add_row(
            f"{nodes:,}",
            f"{nodes * actors:,}",
            f"{predicted.step * 1e3:,.1f}",
            f"{predicted.together:,.0f}",
            f"{predicted.streaming:,.0f}",
            f"{predicted.share:.0%}",
            f"{predicted.most:,.1f}",
            f"{sharded:,.0f}",
        )
    console.print(table)


def main() -> None:
    console = Console(highlight=False, width=110)
    bench = Bench()
    try:
        model, checks = find_constants(bench)
    finally:
        bench.close()
    console.print(f"Ray {ray.__version__}, {versions()}, {os.cpu_count()} cores")
    table = Table(title="constants: µs + ns per byte", title_justify="left")
    for column in ("replies", "clock", "caller", "raylet"):
        table.add_column(column, justify="right" if column != "replies" else "left")
    for name in ("inline", "store", "transfer"):
        way = getattr(model, name)
        table.add_row(name, *(f"{start * 1e6:,.0f} + {byte * 1e9:.3f}" for start, byte in way))
    console.print(table)
    console.print(f"one look at the open replies: {model.per_open * 1e9:.0f} ns each")
    console.print(
        f"a step in an actor: {model.actor * 1e6:.0f} µs of processor time, and "
        f"{model.process * 1e6:.1f} µs per process of the actor"
    )
    console.print(f"one CartPole: {model.cartpole * 1e6:.2f} µs, {model.cartpole_bytes:.0f} bytes")
    table = Table(title="not used for the constants", title_justify="left")
    for column in ("", "model, ms", "measured, ms", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    for case, predicted, seen in checks:
        table.add_row(
            case, f"{predicted * 1e3:.2f}", f"{seen * 1e3:.2f}", f"{predicted / seen:.2f}"
        )
    console.print(table)
    for work in (
        Workload("CartPole", 1024, 64, model.cartpole, model.cartpole_bytes),
        Workload("physics, 1 KB and 5 ms each", 256, 64, 5e-3, 1024),
        Workload("images, 28 KB and 1 ms each", 256, 64, 1e-3, 84 * 84 * 4),
    ):
        show(console, work, model)


if __name__ == "__main__":
    main()
