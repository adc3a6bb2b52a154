"""Parallel environments for tests: agents that die, come late and come back, with masks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces import spaces


class Crowd:
    """Agents observe (number, time, last action, noise), and live as the seed decides.

    Each agent has spans of life. The environment is over when none is left, after at most `length`
    steps. `masks`: "infos", "observations" or "" for none. `different`: the observations of the
    last agent have another shape.
    """

    metadata = {"render_modes": ["rgb_array"], "name": "crowd"}  # noqa: RUF012
    render_mode = "rgb_array"
    state_space = spaces.Box(-1, 1000, (2,), np.float32)

    def __init__(
        self, count: int = 3, length: int = 6, masks: str = "", different: bool = False
    ) -> None:
        self.possible_agents = [f"{'red' if n % 2 else 'blue'}_{n}" for n in range(count)]
        self.length, self.masks, self.different = length, masks, different
        self.agents: list[str] = []
        self.rng = np.random.default_rng(0)
        self.options: list[Any] = []
        self.closed = False

    def observation_space(self, agent: str) -> Any:
        width = 5 if self.different and agent == self.possible_agents[-1] else 4
        plain = spaces.Box(-1e6, 1e6, (width,), np.float64)
        if self.masks != "observations":
            return plain
        return spaces.Dict(observation=plain, action_mask=spaces.MultiBinary(3))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.options.append(options)
        self.time = 0
        self.last = dict.fromkeys(self.possible_agents, -1)
        # By agent and time, whether it acts; the first agent is there from the beginning.
        acts = self.rng.random((len(self.possible_agents), self.length)) < 0.7
        acts[0, 0] = True
        self.acts = acts
        self.agents = self._living()
        return self._observe(self.agents), self._infos(self.agents)

    def _living(self) -> list[str]:
        if self.time >= self.length or not self.acts[:, self.time :].any():
            return []
        return [a for n, a in enumerate(self.possible_agents) if self.acts[n, self.time]]

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        before = self.agents
        self.last.update({agent: int(action) for agent, action in actions.items()})
        self.time += 1
        if not before and not self.acts[:, self.time :].any():
            raise AssertionError("stepped after the end")
        self.agents = self._living()
        gone = [agent for agent in before if agent not in self.agents]
        seen = list(dict.fromkeys([*before, *self.agents]))
        number = {agent: n for n, agent in enumerate(self.possible_agents)}
        return (
            self._observe(seen),
            {agent: number[agent] + 0.25 * self.time for agent in before},
            {agent: agent in gone and (number[agent] + self.time) % 2 == 0 for agent in before},
            {agent: agent in gone and (number[agent] + self.time) % 2 == 1 for agent in before},
            self._infos(seen),
        )

    def _observe(self, agents: list[str]) -> Any:
        seen = {}
        for agent in agents:
            number = self.possible_agents.index(agent)
            row = np.array([number, self.time, self.last[agent], self.rng.random()])
            row = np.resize(row, 5 if self.different and number == len(self.last) - 1 else 4)
            seen[agent] = row
            if self.masks == "observations":
                seen[agent] = {"observation": row, "action_mask": self._mask(number)}
        return seen

    def _mask(self, number: int) -> Any:
        return np.array([1, (number + self.time) % 2, 0], np.int8)

    def _infos(self, agents: list[str]) -> Any:
        infos: dict[str, dict[str, Any]] = {}
        for agent in agents:
            number = self.possible_agents.index(agent)
            infos[agent] = {"age": self.time} if (number + self.time) % 3 else {}
            if self.masks == "infos":
                infos[agent]["action_mask"] = self._mask(number)
        return infos

    def state(self) -> Any:
        return np.array([self.time, len(self.agents)], np.float32)

    def render(self) -> Any:
        return np.full((2, 2, 3), self.time, np.uint8)

    def close(self) -> None:
        self.closed = True


class Steady(Crowd):
    """Agents without infos, who all live until two steps before the end: most steps are plain."""

    def __init__(self, count: int = 3, length: int = 6, masks: str = "") -> None:
        super().__init__(count, length, masks)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed, options)
        self.acts[:, : self.length - 2] = True
        self.agents = self._living()
        return self._observe(self.agents), {}

    def _infos(self, agents: list[str]) -> Any:
        return {agent: {} for agent in agents}


class Changed:
    """A parallel environment of which functions change the results of steps, or of resets.

    They are called with the environment and the result, and return another one.
    """

    def __init__(self, make: Callable[[], Any], step: Any = None, reset: Any = None) -> None:
        self.env, self._step, self._reset = make(), step, reset

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":  # a copy has none at first
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        result = self.env.reset(seed, options)
        return result if self._reset is None else self._reset(self.env, result)

    def step(self, actions: dict[str, Any]) -> Any:
        result = self.env.step(actions)
        return result if self._step is None else self._step(self.env, result)


def give(part: int, value: Any, env: Any, result: Any) -> Any:
    """Let one part of a step's result be a value, for its first agent."""
    result[part]["blue_0"] = value
    return result


def die(order: Path, env: Any, result: Any) -> Any:
    """Kill the worker in the step that follows the creation of a file, once."""
    if order.exists():
        order.unlink(missing_ok=True)  # another environment may have read it too
        signal.raise_signal(signal.SIGKILL)
    return result
