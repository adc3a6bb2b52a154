"""Steps a second on a Ray cluster, next to what users write by hand.

    python -m benchmarks.ray

By hand: one actor for each Gymnasium environment, and per step one `ray.get` of one call to each.
Ours: `RayVectorEnv` with a few actors that carry many environments each. Both step the same
environments with the same actions on the same Ray, in turns, round after round, so that a busy
machine slows both; the speed is the median of the rounds, the ratio the median of theirs.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import ray
from rich.console import Console
from rich.table import Table

from vecspaces import make_vec

ENV = "CartPole-v1"


@ray.remote(num_cpus=0)
class ByHand:
    """The actor that everybody writes."""

    def __init__(self, env_id: str) -> None:
        self.env = gymnasium.make(env_id)

    def reset(self, seed: int) -> Any:
        return self.env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        if result[2] or result[3]:
            return self.env.reset()[0], *result[1:]
        return result


class BareLoop:
    """One actor per environment, one `ray.get` per step."""

    def __init__(self, num_envs: int) -> None:
        self.actors = [ByHand.remote(ENV) for _ in range(num_envs)]
        self.reset(0)  # so that what starts next need not share the cores with it

    def reset(self, seed: int) -> Any:
        results = ray.get([actor.reset.remote(seed + i) for i, actor in enumerate(self.actors)])
        return np.stack([observation for observation, _ in results])

    def step(self, actions: Any) -> Any:
        calls = [
            actor.step.remote(action) for actor, action in zip(self.actors, actions, strict=True)
        ]
        observations, rewards, terminations, truncations, infos = zip(*ray.get(calls), strict=True)
        return (
            np.stack(observations),
            np.array(rewards),
            np.array(terminations),
            np.array(truncations),
            infos,
        )

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)


def rounds(
    contenders: dict[str, Any], actions: Any, count: int, seconds: float
) -> dict[str, list[float]]:
    """Environment steps a second of each contender, in each round."""
    num_envs = actions.shape[1]
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(count + 1):
        for name, envs in contenders.items():
            steps, began = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - began) < seconds:
                envs.step(actions[steps % len(actions)])
                steps += 1
            if number:  # the first round warms up
                speeds[name].append(steps * num_envs / elapsed)
    return speeds


def compare(args: argparse.Namespace, console: Console) -> None:
    """The table of the two, and of a few ways to divide ours."""
    ways: dict[str, dict[str, Any]] = {
        f"RayVectorEnv, {args.actors} actors": {"num_workers": args.actors},
        f"RayVectorEnv, 1 actor of {args.actors} processes": {
            "num_workers": 1,
            "processes_per_actor": args.actors,
        },
    }
    contenders: dict[str, Any] = {"by hand, one actor per environment": BareLoop(args.num_envs)}
    for name, how in ways.items():
        contenders[name] = make_vec(ENV, args.num_envs, backend="ray", vector_kwargs=how)
    for envs in contenders.values():
        envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(2, size=(64, args.num_envs))
    speeds = rounds(contenders, actions, args.rounds, args.seconds)
    for envs in contenders.values():
        envs.close()
    base = next(iter(speeds.values()))
    table = Table(title=f"{args.num_envs} × {ENV}, {args.rounds} rounds", title_justify="left")
    for column in ("", "steps/s", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for name, found in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(found, base, strict=True))
        table.add_row(name, f"{statistics.median(found):,.0f}", f"{ratio:.1f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round and contender")
    args = parser.parse_args()
    # Room for every contender at once; what is idle costs nothing.
    ray.init(num_cpus=4 * args.actors, include_dashboard=False, log_to_driver=False)
    console = Console()
    console.print(
        f"Ray {ray.__version__}, Gymnasium {version('gymnasium')}, NumPy {np.__version__}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores",
        highlight=False,
    )
    compare(args, console)
    ray.shutdown()


if __name__ == "__main__":
    main()
