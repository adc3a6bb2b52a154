"""Steps per second on a Ray cluster, next to what users write by hand.

    python -m benchmarks.ray

By hand: one actor per Gymnasium environment, and per step one `ray.get` of one call to each.
vecspaces: `RayVectorEnv` with a few actors of many environments each. Both step the same
environments with the same actions on the same Ray, in turns, round after round, so that a busy
machine slows both; the speed is the median of the rounds, the ratio the median of theirs.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Any

import numpy as np
import ray
import typer

from benchmarks.common import cart_pole, race, repeat, show
from vecspaces import make_vec
from vecspaces.vector import RayVectorEnv


@ray.remote(num_cpus=0)
class ByHand:
    """The actor that users write."""

    def __init__(self) -> None:
        self.env = cart_pole()

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
        self.num_envs = num_envs
        self.actors = [ByHand.remote() for _ in range(num_envs)]
        self.reset(0)  # so that nothing still runs when the next measurement starts

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


def main(
    num_envs: int = 64,
    actors: int = 2,
    rounds: int = 7,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 2.0,
) -> None:
    """Compare the two, and a few ways to divide vecspaces' environments."""
    # Room for every way at once; idle actors cost nothing.
    ray.init(num_cpus=4 * actors, include_dashboard=False, log_to_driver=False)
    print(f"Ray {ray.__version__}, {os.cpu_count()} cores, {num_envs} CartPoles")
    make = partial(make_vec, "CartPole-v1", num_envs, backend="ray")
    # One actor, whose factory makes a vector env of processes.
    inside = partial(make_vec, "CartPole-v1", num_envs, num_workers=actors, context="forkserver")
    opened: dict[str, Any] = {
        "by hand, one actor per environment": BareLoop(num_envs),
        f"RayVectorEnv, {actors} actors": make(vector_kwargs={"num_workers": actors}),
        f"RayVectorEnv, 1 actor of {actors} processes": RayVectorEnv([inside]),
    }
    for envs in opened.values():
        envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(2, size=(64, num_envs))

    def speed(envs: Any, seconds: float) -> float:
        return num_envs * repeat(lambda turn: envs.step(actions[turn % 64]), seconds)

    ways = {name: partial(speed, envs) for name, envs in opened.items()}
    race(ways, 1, seconds)  # warms up
    show(race(ways, rounds, seconds))
    for envs in opened.values():
        envs.close()
    ray.shutdown()


if __name__ == "__main__":
    typer.run(main)
