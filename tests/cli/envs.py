"""Environments and policies that tests of commands name, such as `tests.cli.envs:Plain`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vecspaces import Env, make_vec, spaces


class Plain(Env[Any, Any]):
    """Always shows the same; its episodes do not end."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action: Any) -> Any:
        return self.observation_space.low, 1.0, False, False, {}


class Brief(Plain):
    """Its episodes end in their first step."""

    def step(self, action: Any) -> Any:
        return self.observation_space.low, 0.0, True, False, {}


class Sized(Brief):
    """Needs arguments."""

    def __init__(self, size: int, name: str = "moon", home: Any = (1, None)) -> None:
        assert (name, home) == ("moon", (1, None))
        self.observation_space = spaces.Box(0, 1, (size,))


class Falling(Plain):
    """Fails in each step."""

    def step(self, action: Any) -> Any:
        return self.fall()

    def fall(self) -> Any:
        raise KeyError("gravity")


class Dying(Falling):
    def fall(self) -> Any:
        os._exit(3)


class Hanging(Falling):
    """Hangs in one step, until the file `noticed` has been there for some seconds."""

    def __init__(self, linger: float = 0.0) -> None:
        self.linger = linger

    def fall(self) -> Any:
        if not Path("asleep").exists():
            Path("asleep").touch()
            give_up = time.monotonic() + 60
            while not Path("noticed").exists() and time.monotonic() < give_up:
                time.sleep(0.01)
            time.sleep(self.linger)
        return Plain.step(self, 0)


def is_noticed() -> bool:
    """Whether an environment hangs, which goes on now: for the fixture `hurry`."""
    if not Path("asleep").exists():
        return False
    Path("noticed").touch()
    return True


class Unbuildable(Plain):
    def __init__(self) -> None:
        raise OSError("no\nlicence")


class Exits(Plain):
    def __init__(self) -> None:
        raise SystemExit(3)


class Alone(Falling):
    """Can be built once per process."""

    built: list[Any] = []  # noqa: RUF012  # of the class

    def __init__(self) -> None:
        if self.built:
            raise OSError("one emulator per process")
        self.built.append(self)

    def close(self) -> None:
        self.built.clear()


class Busy(Plain):
    """Notes in the folder `stepped` which processes step it."""

    seconds = 0.0

    def step(self, action: Any) -> Any:
        Path("stepped").mkdir(exist_ok=True)
        Path("stepped", str(os.getpid())).touch()
        time.sleep(self.seconds)
        return super().step(action)


class Stuck(Busy):
    seconds = 60.0


class Scripted(Plain):
    """Has episodes of one to four steps, whose rewards count down to one."""

    episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.left = self.length = 1 + self.episode % 4
        self.episode += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.left -= 1
        ended = self.left == 0
        return self.observation_space.low, 1.0 + self.left, ended, ended and self.length == 3, {}


class Told(Plain):
    """Its options say how long an episode is."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.left = options["length"]
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self.observation_space.low, 1.0, self.left == 0, False, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), self.left, np.uint8)


class Rarely(Plain):
    """Waits in one of a hundred steps."""

    every, seconds = 100, 0.02
    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps % self.every == 0:
            time.sleep(self.seconds)
        return super().step(action)


class Waits(Plain):
    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return super().step(action)


class Counted(Plain):
    """Notes in a file how many environments are open, in all processes."""

    def __init__(self) -> None:
        Path("open").mkdir(exist_ok=True)
        self.file = Path("open", f"{os.getpid()}-{id(self)}")
        self.file.touch()
        with Path("open.txt").open("a") as notes:
            print(len([*Path("open").iterdir()]), file=notes)

    def close(self) -> None:
        self.file.unlink()


def two_cart_poles() -> Any:
    return make_vec("CartPole-v1", 2, backend="sync")


def failing(observations: Any) -> Any:
    return 1 // 0


def too_many(observations: Any) -> Any:
    return [0] * (len(observations) + 1)
