"""Environments that tests step: small, deterministic, picklable; observations tell what happened.

They are classes of a module, so that workers of every start method can build them. The module
imports neither Gymnasium nor Hypothesis, so that workers start fast. Their spaces may be those of
either library.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces import Env, spaces
from vecspaces.testing.recording import digest
from vecspaces.vector import AutoresetMode, SyncVectorEnv, VectorEnv


class Ledger(Env[Any, Any]):
    """Observes what happened to it: (number, episode, time, action, noise).

    Episodes have `length` steps; with `truncates`, they are cut off instead of ended. With `talks`,
    there are infos.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012
    observation_space = spaces.Box(-(2**31), 2**31, (5,), np.int64)
    action_space = spaces.Discrete(5)

    def __init__(
        self,
        number: int = 0,
        length: int = 3,
        truncates: bool = False,
        talks: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.number, self.length = number, length
        self.truncates, self.talks, self.render_mode = truncates, talks, render_mode
        self.episode = self.time = 0
        self.seeds: list[int | None] = []
        self.options: list[Any] = []
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options.append(options)
        self.episode += 1
        self.time = (options or {}).get("time", 0)
        return self._observe(-1), {"episode": self.episode} if self.talks else {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over, cut = self.time >= self.length, self.truncates
        info = {"time": self.time, "of": {"number": self.number}} if self.talks else {}
        reward = self.number + self.time / 8
        return self._observe(int(action)), reward, over and not cut, over and cut, info

    def _observe(self, action: int) -> Any:
        noise = int(self.np_random.integers(1000))
        return np.array([self.number, self.episode, self.time, action, noise], np.int64)

    def render(self) -> Any:
        return np.full((2, 3, 3), self.number, np.uint8)

    def close(self) -> None:
        self.closed = True

    def multiply(self, factor: int, plus: int = 0) -> int:
        """Something to call."""
        return self.number * factor + plus

    def fail(self, numbers: tuple[int, ...] = ()) -> str:
        """Raise in the environments of these numbers."""
        if self.number in numbers:
            raise KeyError(f"number {self.number}")
        return "fine"

    def process(self) -> int:
        """The process that it runs in."""
        return os.getpid()

    def variable(self, name: str) -> str | None:
        """A variable of its process's environment."""
        return os.environ.get(name)


def ledgers(count: int, **arguments: Any) -> list[Any]:
    """Factories of ledgers whose episodes end at different times."""
    return [
        partial(Ledger, number, length=2 + number % 3, truncates=number % 2 == 1, **arguments)
        for number in range(count)
    ]


class Noted(Ledger):
    """A ledger that logs its constructions in a file: number, process."""

    def __init__(self, path: Path, number: int, **arguments: Any) -> None:
        super().__init__(number, **arguments)
        with path.open("a") as file:
            file.write(f"{number} {os.getpid()}\n")


class Passing:
    """A wrapper that belongs to no library, passes everything on, and has its own attribute."""

    def __init__(self, env: Any) -> None:
        self.env, self.layers = env, 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":  # a copy has none at first
            raise AttributeError(name)
        return getattr(self.env, name)

    def has_wrapper_attr(self, name: str) -> bool:
        return name in vars(self) or bool(self.env.has_wrapper_attr(name))

    def get_wrapper_attr(self, name: str) -> Any:
        return vars(self)[name] if name in vars(self) else self.env.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        if name in vars(self):
            setattr(self, name, value)
            return True
        return bool(self.env.set_wrapper_attr(name, value, force=force))


def wrapped_ledger(number: int, **arguments: Any) -> Passing:
    """A ledger inside a wrapper."""
    return Passing(Ledger(number, **arguments))


class Sampler(Env[Any, Any]):
    """Observes samples of its space, rewards with a digest of the action, ends and talks at random.

    The shortest episodes have `shortest` steps, the longest four more.
    """

    def __init__(self, observation_space: Any, action_space: Any, shortest: int = 1) -> None:
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = copy.deepcopy(action_space)
        self.shortest = shortest
        self.action: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = self.shortest + int(self.np_random.integers(5))
        return self.observation_space.sample(), {**self._talk(), **(options or {})}

    def step(self, action: Any) -> Any:
        self.action = copy.deepcopy(action)
        self.left -= 1
        ended, cut = self.left <= 0, bool(self.np_random.integers(2))
        observation = self.observation_space.sample()
        reward = int.from_bytes(digest(action)[:4], "big") / 2**32
        return observation, reward, ended and not cut, ended and cut, self._talk()

    def _talk(self) -> dict[str, Any]:
        random = self.np_random
        everything = {
            "int": int(random.integers(-9, 9)),
            "float": float(random.random()),
            "bool": bool(random.integers(2)),
            "float32": np.float32(random.random()),
            "int8": np.int8(random.integers(9)),
            "bool_": np.bool_(random.integers(2)),
            "text": "abc"[: random.integers(4)],
            "none": None,
            "list": [1, "two"],
            "array": random.random((2, 3)),
            "nested": {"deep": {"int": int(random.integers(9))}, "text": "t"},
        }
        return {key: value for key, value in everything.items() if random.integers(2)}


class Echo(Env[Any, Any]):
    """Returns given results: a list of results of `reset`, and one of results of `step`.

    The lists are repeated.
    """

    def __init__(
        self, observation_space: Any, resets: list[Any], steps: list[Any], action_space: Any = None
    ) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self._resets, self._steps = resets, steps
        self._reset_count = self._step_count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._reset_count += 1
        return self._resets[(self._reset_count - 1) % len(self._resets)]

    def step(self, action: Any) -> Any:
        self._step_count += 1
        return self._steps[(self._step_count - 1) % len(self._steps)]


class Chosen(Echo):
    """Returns the result of `step` whose number is the action."""

    def __init__(self, observation_space: Any, resets: list[Any], steps: list[Any]) -> None:
        super().__init__(observation_space, resets, steps, spaces.Discrete(len(steps)))

    def step(self, action: Any) -> Any:
        return self._steps[action]


_UNIT, _NOTHING = spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)


def talking(*infos: Any, kind: type[Echo] = Echo) -> Echo:
    """An environment with these infos, one per step."""
    steps: list[Any] = [(_NOTHING, 0.0, False, False, info) for info in infos]
    return kind(_UNIT, [(_NOTHING, {})], steps)


def rewarding(*rewards: Any, kind: type[Echo] = Echo) -> Echo:
    """An environment with these rewards, one per step."""
    steps: list[Any] = [(_NOTHING, reward, False, False, {}) for reward in rewards]
    return kind(_UNIT, [(_NOTHING, {})], steps)


def observing(space: Any, first: Any, *observations: Any, kind: type[Echo] = Echo) -> Echo:
    """An environment with these observations: the first after a reset, then one per step."""
    later = observations or (first,)
    steps: list[Any] = [(observation, 0.0, False, False, {}) for observation in later]
    return kind(space, [(first, {})], steps)


class Reusing(Env[Any, Any]):
    """Writes every observation into the same array, as fast simulators do; counts from 0 to 3."""

    observation_space = spaces.Dict({"count": spaces.Box(0, 9, (2,), np.int64)})
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._array = np.zeros(2, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._array[:] = 0
        return {"count": self._array}, {}

    def step(self, action: Any) -> Any:
        self._array += 1
        return {"count": self._array}, 1.0, bool(self._array[0] == 3), False, {}


class Failing(Ledger):
    """A ledger that raises a `FloatingPointError` in step at the action 4."""

    def step(self, action: Any) -> Any:
        if action == 4:
            raise FloatingPointError(f"number {self.number} got a four")
        return super().step(action)


INFO_SPACE = spaces.Dict(
    mask=spaces.Box(0, 1, (4,), np.bool_),
    cost=spaces.Box(-9, 9, (), np.float64),
    level=spaces.Discrete(7),
    binary=spaces.MultiBinary(3),
    parts=spaces.MultiDiscrete([3, 4]),
)
_SAMPLED = spaces.Dict(
    {
        **INFO_SPACE.spaces,
        "inner": spaces.Dict(
            where=spaces.Box(-1, 1, (2,)), deep=spaces.Dict(text=spaces.Text(6, charset="abc"))
        ),
        "pair": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
    }
)


class Informing(Ledger):
    """A ledger whose infos contain samples of `INFO_SPACE` and more, with and without each key.

    There are further keys, and all infos are one dict, whose arrays are overwritten. With
    `declares`, it has an info_space.
    """

    def __init__(self, declares: bool, number: int = 0, **arguments: Any) -> None:
        super().__init__(number, **arguments)
        if declares:
            self.info_space = INFO_SPACE
        self._samples = copy.deepcopy(_SAMPLED)
        self._info: dict[str, Any] = {}
        self._mask = np.zeros(4, np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        if seed is not None:
            self._samples.seed(seed)
        return observation, self._inform()

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], self._inform()

    def _inform(self) -> dict[str, Any]:
        self._info.clear()
        self._fill(self._info, self._samples.sample())
        if "mask" in self._info:
            self._mask[:] = self._info["mask"]
            self._info["mask"] = self._mask
        return self._info

    def _fill(self, info: dict[str, Any], values: dict[str, Any]) -> None:
        for key, value in values.items():
            if self.np_random.integers(4):
                info[key] = value
                if isinstance(value, dict):
                    info[key] = {}
                    self._fill(info[key], value)
        if not self.np_random.integers(3):
            info["besides"] = int(self.np_random.integers(9))


def informing(count: int, declares: bool) -> list[Any]:
    """Factories of environments whose infos hold samples, and whose episodes end apart."""
    return [partial(Informing, declares, n, length=2 + n % 3) for n in range(count)]


def failing(count: int) -> list[Any]:
    """Factories of failing ledgers."""
    return [partial(Failing, number, length=9) for number in range(count)]


class Unlike(Ledger):
    """A ledger with another observation space."""

    def __init__(self, observation_space: Any, number: int = 0, **arguments: Any) -> None:
        super().__init__(number, **arguments)
        self.observation_space = observation_space


def ledger_vector(
    first: int,
    count: int,
    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    **arguments: Any,
) -> VectorEnv[Any, Any, Any]:
    """A vector env of the ledgers `first` to `first + count - 1` of `ledgers`."""
    env_fns = ledgers(first + count, **arguments)[first:]
    return SyncVectorEnv(env_fns, autoreset_mode=autoreset_mode)


class Tag:
    """A parallel environment: agents on a line, which leave at its ends, at different times."""

    possible_agents = ("red", "green", "blue")
    agents: Any = ()

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-3, 3, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.places = dict.fromkeys(self.agents, 0)
        return self._by_agent(self._observe), self._by_agent(dict)

    def step(self, actions: dict[str, Any]) -> Any:
        for agent, action in actions.items():
            self.places[agent] += int(action) - 1
        gone = {agent: abs(self.places[agent]) == 3 for agent in self.agents}
        rewards = {agent: float(is_gone) for agent, is_gone in gone.items()}
        result = self._by_agent(self._observe), rewards, gone, self._by_agent(bool)
        infos = self._by_agent(dict)
        self.agents = [agent for agent in self.agents if not gone[agent]]
        return *result, infos

    def _observe(self) -> Any:
        return np.array(list(self.places.values()), np.float32)

    def _by_agent(self, make: Callable[[], Any]) -> Any:
        return {agent: make() for agent in self.agents}

    def close(self) -> None:
        pass


class Drift(VectorEnv[Any, Any, Any]):
    """A vectorised simulator: adds up actions; truncates at `length`.

    Its reset takes an int as its seed, and it has no `reset_mask`.
    """

    def __init__(self, num_envs: int, length: int = 4, mode: str = "NextStep") -> None:
        self.num_envs, self.length = num_envs, length
        self.metadata = {"autoreset_mode": AutoresetMode(mode)}
        self.single_observation_space = spaces.Box(-100, 100, (2,), np.float64)
        self.observation_space = spaces.Box(-100, 100, (num_envs, 2), np.float64)
        self.single_action_space = spaces.Box(-1, 1, (2,), np.float64)
        self.action_space = spaces.Box(-1, 1, (num_envs, 2), np.float64)
        self.closes = 0
        self.gain = 1.0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.ended = False
        self.sum = self.np_random.random((self.num_envs, 2))
        return self.sum.copy(), {}

    def step(self, actions: Any) -> Any:
        assert actions.shape == (self.num_envs, 2)
        if self.ended:
            self.sum, self.time, self.ended = self.np_random.random((self.num_envs, 2)), 0, False
            zeros = np.zeros(self.num_envs)
            return self.sum.copy(), zeros, zeros.astype(bool), zeros.astype(bool), {}
        self.sum += self.gain * actions
        self.time += 1
        self.ended = self.time == self.length
        truncated = np.full(self.num_envs, self.ended)
        infos = {"sum": self.sum.sum(1), "_sum": np.ones(self.num_envs, bool)}
        return self.sum.copy(), self.sum[:, 0].copy(), np.zeros_like(truncated), truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        self.closes += 1


_GATE_SECONDS = 30.0


class Gated(Ledger):
    """A ledger that waits in step at the action 4, until a file exists.

    Any other step takes longer than a worker gathers steps for before it reports them.
    """

    def __init__(self, gate: Path, number: int, **arguments: Any) -> None:
        super().__init__(number, **arguments)
        self._gate = gate

    def step(self, action: Any) -> Any:
        give_up = time.monotonic() + _GATE_SECONDS
        time.sleep(0.0005)
        while action == 4 and not self._gate.exists() and time.monotonic() < give_up:
            time.sleep(0.002)
        return super().step(action)


class Global(Env[Any, Any]):
    """Observes the next numbers of the global generators, as careless environments do."""

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> Any:
        import random

        return np.array([random.random(), np.random.random()])


class Parent(Ledger):
    """A ledger that starts a process of its own when it is called."""

    def child(self) -> int:
        """Start a process, wait for it, and give its exit code."""
        import multiprocessing

        process = multiprocessing.get_context("spawn").Process(target=os.getpid)
        process.start()
        process.join(20)
        code = process.exitcode
        process.close()
        assert code is not None
        return code


class Patient(Ledger):
    """A ledger whose steps take as many milliseconds as their actions say."""

    action_space = spaces.Discrete(1000)

    def step(self, action: Any) -> Any:
        time.sleep(action / 1000)
        return super().step(action)


def telling(infos: Iterable[dict[str, Any]]) -> list[Any]:
    """Factories of environments that return these infos in every reset and step."""
    unit, zero = spaces.Box(0, 1, (1,)), np.zeros(1, np.float32)
    return [
        partial(Echo, unit, [(zero, info)], [(zero, 0.0, False, False, info)]) for info in infos
    ]
