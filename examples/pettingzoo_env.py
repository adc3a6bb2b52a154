"""A PettingZoo parallel environment as one environment of all its agents.

Dict spaces over `possible_agents`; zeros for agents that have left; the sum of the rewards, and
each agent's own in the infos. Run: python examples/pettingzoo_env.py, or with any module of
PettingZoo that has a `parallel_env`: --module pettingzoo.butterfly.knights_archers_zombies_v11
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from vecspaces import Env, make_vec, spaces
from vecspaces.interop import native_space
from vecspaces.vector.utils import batch_space, create_empty_array, iterate


class PettingZooEnv(Env[dict[str, Any], dict[str, Any]]):
    """All agents of a parallel environment as one; `infos["living"]` says which are there."""

    def __init__(self, parallel_env: Any) -> None:
        self.env, self.agents = parallel_env, list(parallel_env.possible_agents)
        self.observation_space = self._gather(parallel_env.observation_space)
        self.action_space = self._gather(parallel_env.action_space)
        empty = create_empty_array(self.observation_space, 1)
        self.absent = next(iterate(batch_space(self.observation_space, 1), empty))

    def _gather(self, space_of: Any) -> spaces.Dict:
        each = {agent: native_space(space_of(agent)) for agent in self.agents}
        return spaces.Dict(each, sort_keys=False)

    def _result(self, seen: dict[str, Any], rewards: dict[str, float]) -> Any:
        living = np.array([agent in self.env.agents for agent in self.agents])
        each = np.array([rewards.get(agent, 0.0) for agent in self.agents])
        return {**self.absent, **seen}, {"living": living, "rewards": each}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observations, _ = self.env.reset(seed=seed, options=options)
        return self._result(observations, {})

    def step(self, action: dict[str, Any]) -> Any:
        actions = {agent: action[agent] for agent in self.env.agents}
        observations, rewards, terminations, truncations, _ = self.env.step(actions)
        observation, info = self._result(observations, rewards)
        over = not self.env.agents
        truncated = over and not all(terminations.values()) and any(truncations.values())
        return observation, sum(rewards.values()), over and not truncated, truncated, info

    def close(self) -> None:
        self.env.close()


class Tag:
    """What PettingZoo asks of a parallel environment: agents on a line that leave at its ends."""

    possible_agents: Sequence[str] = ("red", "green", "blue")

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-3, 3, (len(self.possible_agents),), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.places = dict.fromkeys(self.agents, 0)
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        for agent, action in actions.items():
            self.places[agent] += int(action) - 1
        gone = {agent: abs(self.places[agent]) == 3 for agent in self.agents}
        rewards = {agent: float(gone[agent]) for agent in self.agents}
        observations = self._observe()
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not gone[agent]]
        return observations, rewards, gone, dict.fromkeys(gone, False), infos

    def _observe(self) -> Any:
        places = np.array(list(self.places.values()), np.float32)
        return dict.fromkeys(self.agents, places)

    def close(self) -> None:
        pass


def make(module: str | None) -> PettingZooEnv:
    return PettingZooEnv(importlib.import_module(module).parallel_env() if module else Tag())


def main(module: str | None, num_envs: int, steps: int) -> None:
    with make_vec(partial(make, module), num_envs) as envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        assert isinstance(envs.single_action_space, spaces.Dict)
        agents = list(envs.single_action_space.spaces)
        total, finished = np.zeros(len(agents)), 0
        for _ in range(steps):
            _, _, terminations, truncations, infos = envs.step(envs.action_space.sample())
            total += infos["rewards"].sum(axis=0)
            finished += int((terminations | truncations).sum())
        names = ", ".join(agents)
        print(f"{finished} episodes of the agents {names}; rewards {total.round(2).tolist()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", help="default: a small environment of this file")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=500)
    main(**vars(parser.parse_args()))
