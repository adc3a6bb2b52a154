"""Environments with one fault each, as people write them; `Sound` has none.

The decorator `fault` names the finding that `check_env` must report.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from vecspaces import Env, spaces

LENGTH = 7


class Sound(Env[Any, Any]):
    """A random walk in a box; terminates or is truncated after a few steps; renders."""

    finding: ClassVar[str | None] = None
    also: ClassVar[tuple[str, ...]] = ()  # further findings that the fault may cause
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi", "human"]}
    observation_space = spaces.Dict(
        place=spaces.Box(-100, 100, (2,), np.float32), time=spaces.Discrete(LENGTH + 1)
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.place = np.zeros(2, np.float32)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.random(2).astype(np.float32)
        self.time = 0
        return self.observe(), {"fresh": True}

    def step(self, action: Any) -> Any:
        self.place = self.place + action + self.noise()
        self.time = min(self.time + 1, LENGTH)
        over = self.time == LENGTH
        cut = bool(self.place[0] > 0)
        return self.observe(), self.reward(), over and not cut, over and cut, self.info()

    def noise(self) -> Any:
        return (self.np_random.random(2) / 10).astype(np.float32)

    def observe(self) -> Any:
        return {"place": self.place.copy(), "time": self.time}

    def reward(self) -> Any:
        return float(self.place.sum())

    def info(self) -> Any:
        return {"time": self.time, "path": [self.time]}

    def render(self) -> Any:
        assert self.render_mode != "human"  # which needs a screen
        if self.render_mode == "ansi":
            return f"at {self.place}"
        return np.full((4, 4, 3), self.time, np.uint8)


FAULTS: list[type[Sound]] = []


def fault(finding: str, *also: str) -> Any:
    """Register a class, and what must be found in it."""

    def register(kind: Any) -> Any:
        kind.finding, kind.also = finding, also
        FAULTS.append(kind)
        return kind

    return register


def faulty(name: str, finding: str, *also: str, **members: Any) -> Any:
    """Register a subclass with these members; `globals` lets other processes find it."""
    kind = type(name, (Sound,), {"__module__": __name__, **members})
    globals()[name] = fault(finding, *also)(kind)
    return kind


def observing(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an `observe` with other members, made by functions of the environment."""

    def observe(env: Any) -> Any:
        return Sound.observe(env) | {key: change(env) for key, change in changes.items()}

    return observe


def last_step_value(env: Any, value: Any, otherwise: Any) -> Any:
    return value if env.time == LENGTH else otherwise


def doing(method: str, deed: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a method that does something else first."""

    def do(env: Any, *arguments: Any, **named: Any) -> Any:
        deed(env)
        return getattr(Sound, method)(env, *arguments, **named)

    return do


def returning(method: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that returns what a function makes of the parts of its result."""

    def returned(env: Any, *arguments: Any, **named: Any) -> Any:
        return change(*getattr(Sound, method)(env, *arguments, **named))

    return returned


def keeping(size: int) -> Callable[[Any], Any]:
    return lambda env: vars(env).setdefault("kept", []).append(np.ones(size))


# ---------------------------------------------------------------------- what is returned

FAR = np.full(2, 200, np.float32)
DECLARED = spaces.Dict(time=spaces.Discrete(LENGTH + 1), cost=spaces.Box(0, 1, (), np.float64))

faulty(
    "OutOfBoundsAtTheEnd",
    "observation",
    observe=observing(place=lambda env: last_step_value(env, FAR, env.place)),
)
faulty(
    "NotANumber",
    "observation",
    observe=observing(place=lambda env: env.place * np.float32(np.nan if env.time == 3 else 1)),
)
faulty("RewardNotFinite", "reward", reward=lambda env: float("-inf") if env.time == 4 else 0.0)
faulty("NestedNumberedInfo", "info", info=lambda env: {"agents": {0: env.time}})
faulty("InfoWithALock", "info", info=lambda env: {"simulator": threading.Lock()})
faulty(
    "InfoOutOfBounds",
    "info-space",
    info_space=DECLARED,
    info=lambda env: {"time": env.time, "cost": float(env.time)},
)
faulty("NoInfoSpace", "info-space", info_space=spaces.Discrete(3))
faulty("GlobalRandom", "global-random", noise=lambda env: np.float32(np.random.random(2)) / 10)
faulty(
    "Clock",
    "nondeterministic",
    noise=lambda env: np.full(2, time.perf_counter_ns() % 1000 / 1e4, np.float32),
)
faulty(
    "WrongFrame",
    "render",
    render=lambda env: "" if env.render_mode == "ansi" else np.zeros((4, 4, 3)),
)


faulty(
    "WrongDtypeAtReset",
    "observation",
    reset=returning(
        "reset", lambda seen, info: ({**seen, "place": np.float64(seen["place"])}, info)
    ),
)
faulty(
    "IntegerFlag",
    "flag",
    step=returning("step", lambda *result: (*result[:2], int(result[2]), *result[3:])),
)
faulty("OldReset", "reset-form", reset=returning("reset", lambda seen, info: seen))
faulty(
    "OldStep",
    "step-form",
    step=returning("step", lambda *result: (*result[:2], result[2] or result[3], result[4])),
)


@fault("raises")
class LyingActionSpace(Sound):
    """Half of the action space is not for it."""

    def step(self, action: Any) -> Any:
        if action[0] < 0:
            raise ValueError("actions must not be negative")
        return super().step(action)


# ---------------------------------------------------------------------- what is kept and touched


@fault("action-written")
class WrittenAction(Sound):
    """Actions are scaled in place."""

    def step(self, action: Any) -> Any:
        action *= 0.5
        return super().step(action)


def reused_array(env: Any) -> Any:
    """Return the place, in the array of the observation before."""
    array = vars(env).setdefault("array", np.zeros(2, np.float32))
    array[:] = env.place
    return array


def reused_dict(env: Any) -> Any:
    info = vars(env).setdefault("last_info", {})
    info["time"] = env.time
    return info


# As simulators do that change to their folder and stay there, and levels that are read from a path
# relative to the working directory.
faulty("ReusedObservation", "reused-observation", observe=observing(place=reused_array))
faulty("ReusedInfo", "reused-info", info=reused_dict)
faulty("ChangedDirectory", "changes-directory", reset=doing("reset", lambda env: os.chdir("/")))
faulty("RelativePath", "working-directory", reset=doing("reset", lambda env: os.stat("tests")))


# ---------------------------------------------------------------------- randomness

faulty("GlobalSeeding", "touches-globals", reset=doing("reset", lambda env: np.random.seed(0)))


@fault("global-random")
class GlobalRandomSeeded(Sound):
    """The global generator, seeded in reset: alone, all is well."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            random.seed(seed)
        return super().reset(seed=seed)

    def noise(self) -> Any:
        return np.full(2, random.random() / 10, np.float32)


@fault("seed-ignored")
class IgnoredSeed(Sound):
    """A generator of its own, with entropy of its own."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.np_random = np.random.default_rng()
        return super().reset()


@fault("seed-ignored")
class FixedSeed(Sound):
    """A generator with a constant seed."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.np_random = np.random.default_rng(42)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset()


@fault("nondeterministic")
class FreshEntropy(Sound):
    """A reset without a seed starts anew with fresh entropy, and the run cannot be repeated."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is None:
            self.np_random = np.random.default_rng()
        return super().reset(seed=seed)


@fault("unseeded-reset")
class SameEpisode(Sound):
    """A reset without a seed begins the last episode again."""

    last: int | None = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.last = self.last if seed is None else seed
        return super().reset(seed=self.last)


@fault("same-seed")
class CarriedOver(Sound):
    """Something of the last episode stays."""

    speed = 0.0

    def noise(self) -> Any:
        self.speed += 0.125
        return np.full(2, self.speed % 1, np.float32)


# The order of a set of strings is another one in each process that is no fork.
faulty(
    "HashOrder",
    "start-method",
    noise=lambda env: np.float32([len(name) for name in {"a" * n for n in range(1, 40)}][:2]) / 100,
)


# ---------------------------------------------------------------------- company


@fault("company")
class SharedCounter(Sound):
    """State in the class."""

    steps = 0

    def step(self, action: Any) -> Any:
        type(self).steps += 1
        return super().step(action)

    def reset(self, **arguments: Any) -> Any:
        type(self).steps = 0
        return super().reset(**arguments)

    def reward(self) -> Any:
        return float(self.steps)


_CANVAS = np.zeros((4, 4, 3), np.uint8)
_WORLD: dict[str, Any] = {}


def count_in_module(env: Any) -> float:
    _WORLD["time"] += 1
    return float(_WORLD["time"])


faulty(
    "SharedModule",
    "company",
    reset=doing("reset", lambda env: _WORLD.update(time=0)),
    reward=count_in_module,
)


@fault("spaces-differ")
class GrowingSpace(Sound):
    """Each environment of a process has a larger space."""

    count = 0

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        type(self).count += 1
        time = spaces.Discrete(LENGTH + type(self).count)
        self.observation_space = spaces.Dict(place=Sound.observation_space["place"], time=time)


faulty("Exclusive", "construction", __init__=lambda env, render_mode=None: 1 // 0)


# ---------------------------------------------------------------------- render

faulty(
    "NoFrame",
    "render",
    render=doing("render", lambda env: {"rgb_array": "a mode that works"}[env.render_mode]),
)
faulty(
    "RandomFrame",
    "render-changes-episode",
    render=doing("render", lambda env: env.np_random.random()),
)


@fault("render-company")
class SharedCanvas(Sound):
    """All environments draw on one canvas, and erase none."""

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return ""
        _CANVAS[:] += np.uint8(self.time + 1)
        return _CANVAS.copy()


# ---------------------------------------------------------------------- ends and leaks

faulty("FailingClose", "close", close=lambda env: os.close(-1))
faulty("ClosedOnce", "close-twice", close=lambda env: vars(env).pop("place"))


def leaking(env: Any) -> None:
    os.open(os.devnull, os.O_RDONLY)


LeakingDescriptors = faulty(
    "LeakingDescriptors", "leaks-descriptors", reset=doing("reset", leaking)
)
LeakingInSteps = faulty("LeakingInSteps", "leaks-descriptors", step=doing("step", leaking))
LeakingMemory = faulty("LeakingMemory", "leaks-memory", reset=doing("reset", keeping(40_000)))
HoardingInSteps = faulty("HoardingInSteps", "leaks-memory", step=doing("step", keeping(20_000)))


def waiting(env: Any) -> None:
    threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()


faulty("LeakingThreads", "leaks-threads", "leaks-memory", reset=doing("reset", waiting))


@fault("leaks-processes")
class LeakingProcesses(Sound):
    """The simulator is a process, and nothing ends it."""

    started = False

    def reset(self, **arguments: Any) -> Any:
        if not self.started:
            self.started = True
            self.simulator = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
        return super().reset(**arguments)


@fault("died")
class Exiting(Sound):
    """The process ends in a reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is None:
            os._exit(3)
        return super().reset(seed=seed)


@fault("hangs")
class Hanging(Sound):
    """A step waits for a simulator that does not answer."""

    def step(self, action: Any) -> Any:
        if self.time == 3:
            time.sleep(600)
        return super().step(action)
