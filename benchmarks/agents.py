"""Many agents: rows per agent beside SuperSuit's vector envs and bare loops.

    python -m benchmarks.agents

64 of PettingZoo's simple_spread (3 agents), and 64 environments of 8 agents that do nothing, where
the vectoriser is all there is; each in two processes. The limit is bare loops over the parallel
environments in two processes, without any exchange. Needs mpe2 and supersuit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import mpe2.simple_spread_v3
import numpy as np
import supersuit
import typer
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from benchmarks.common import BareLoops, race, repeat, show
from vecspaces import make_vec


class Idle(ParallelEnv):  # type: ignore[misc]  # PettingZoo's classes have no types
    """Agents to whom nothing happens."""

    metadata = {"name": "idle", "render_modes": []}  # noqa: RUF012

    def __init__(self, count: int = 8) -> None:
        self.render_mode = None
        self.possible_agents = [f"agent_{number}" for number in range(count)]
        self.agents = list(self.possible_agents)
        self._observation_space, self._action_space = Box(-1, 1, (4,)), Discrete(3)
        self._observations = {agent: np.zeros(4, np.float32) for agent in self.agents}
        self._rewards = dict.fromkeys(self.agents, 0.0)
        self._flags = dict.fromkeys(self.agents, False)
        self._infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def observation_space(self, agent: str) -> Any:
        return self._observation_space

    def action_space(self, agent: str) -> Any:
        return self._action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return self._observations, self._infos

    def step(self, actions: Any) -> Any:
        return self._observations, self._rewards, self._flags, self._flags, self._infos

    def close(self) -> None:
        pass


def spread() -> Any:
    return mpe2.simple_spread_v3.parallel_env()


FACTORIES = {"simple_spread": spread, "idle": Idle}


def open_loops(make: Any, share: int) -> tuple[Callable[[int], None], int]:
    """Return what steps parallel environments, one after the other."""
    envs = [make() for _ in range(share)]
    for env in envs:
        env.reset(seed=0)

    def step(turn: int) -> None:
        for env in envs:
            env.step(dict.fromkeys(env.agents, turn % 3))
            if not env.agents:
                env.reset()

    return step, share


def compare(name: str, num_envs: int, workers: int, rounds: int, seconds: float) -> Any:
    make = FACTORIES[name]
    bare = BareLoops(partial(open_loops, make), num_envs, workers)
    ours = make_vec(make, num_envs, agents="rows", num_workers=workers)
    ours.reset(seed=0)
    single = supersuit.pettingzoo_env_to_vec_env_v1(make())
    theirs = supersuit.concat_vec_envs_v1(
        single, num_envs, num_cpus=workers, base_class="gymnasium"
    )
    theirs.reset(seed=0)
    actions = [np.full(ours.num_envs, turn % 3) for turn in range(3)]

    def speed(envs: Any) -> Any:
        def measure(seconds: float) -> float:
            return num_envs * repeat(lambda turn: envs.step(actions[turn % 3]), seconds)

        return measure

    ways = {
        "SuperSuit": speed(theirs),
        "vecspaces": speed(ours),
        "loops in step": bare.speed_in_step,
    }
    ways["bare loops"] = bare.speed
    try:
        return race(ways, rounds, seconds)
    finally:
        bare.close()
        ours.close()
        theirs.close()


def main(
    num_envs: Annotated[int, typer.Option(min=2)] = 64,
    num_workers: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    seconds: Annotated[float, typer.Option(min=0.01)] = 0.5,
) -> None:
    """Environment steps per second; the ratios are those to SuperSuit."""
    for name in FACTORIES:
        print(f"{num_envs} {name}, {num_workers} processes")
        show(compare(name, num_envs, num_workers, rounds, seconds))


if __name__ == "__main__":
    typer.run(main)
