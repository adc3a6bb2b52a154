"""Environments and policies for tests of evaluation, and the comparison of two evaluations."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.compare import assert_identical
from vecspaces import Env, Episode, Evaluation, collect, spaces

WORDS = ("fetch the red ball", "go to the door", "open the box")


def seeds_of(seed: int, episodes: int) -> list[int]:
    """Return the seeds of an evaluation's episodes, as its docstring defines them."""
    state = np.random.SeedSequence(seed).generate_state(episodes)
    return [int(number) & 0x7FFFFFFF for number in state]


def assert_same(result: Evaluation, other: Evaluation) -> None:
    """Compare bit for bit all that does not depend on the clock and on deaths."""
    for name in ("returns", "lengths", "seeds", "terminated"):
        mine, theirs = getattr(result, name), getattr(other, name)
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes(), name
    assert list(result.infos) == list(other.infos)
    for key, values in result.infos.items():
        assert values.tobytes() == other.infos[key].tobytes(), key
    assert result.steps == other.steps


FIELDS = (
    "observations", "actions", "rewards", "terminations", "truncations", "infos", "seed", "number",
)  # fmt: skip


def assert_same_episodes(episodes: list[Episode], expected: list[Episode]) -> None:
    """Compare bit for bit, with all types."""
    assert len(episodes) == len(expected)
    for mine, other in zip(episodes, expected, strict=True):
        for name in FIELDS:
            assert_identical(_in_order(getattr(mine, name)), _in_order(getattr(other, name)))


def _in_order(value: Any) -> Any:
    """Sort the keys of dicts in infos: their order depends on how many are sent together."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=str)}
    return [_in_order(part) for part in value] if isinstance(value, list) else value


def numbered(k: int) -> dict[str, int]:
    """Return options of episode k that tell an errand its number."""
    return {"number": k}


def gathered(*arguments: Any, **options: Any) -> list[Episode]:
    """Return what `collect` yields, forty episodes in order if nothing else is said."""
    return list(collect(*arguments, **{"episodes": 40, "seed": 3, "ordered": True, **options}))


class Errand(Env[Any, Any]):
    """Gives a mission, as MiniGrid does; lengths vary tenfold, and rewards depend on the actions.

    Infos tell the number of the episode, if the options have it.

    Args:
        shortest: The steps of the shortest episode.
        endless: Whether episodes never end by themselves.
        pause: The seconds that a step takes.
    """

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "battery": spaces.Discrete(10),
            "mission": spaces.Text(32),
        }
    )
    action_space = spaces.Discrete(3)

    def __init__(self, shortest: int = 2, endless: bool = False, pause: float = 0.0) -> None:
        self.shortest, self.endless, self.pause = shortest, endless, pause

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed = seed
        # Options are a copy, which an environment may change.
        self.number = options.pop("number", -1) if options else -1
        self.time = 0
        self.length = int(self.np_random.integers(self.shortest, 10 * self.shortest + 1))
        self.mission = WORDS[int(self.np_random.integers(3))]
        self.place = self.np_random.normal(size=2)
        return self._observe(), {"begun": self.number}

    def step(self, action: Any) -> Any:
        time.sleep(self.pause)
        self.time += 1
        self.place = self.place * 0.9 + self.np_random.normal(size=2) * (int(action) + 0.1)
        over = self.time >= self.length and not self.endless
        won = bool(self.place[0] > 0)
        info: dict[str, Any] = {"distance": np.float32(np.abs(self.place).sum()), "note": "ok"}
        if over:
            info |= {"is_success": won, "parcels": self.time, "of": {"nested": 1}}
            info["number"] = self.number
            if won:
                info["tip"] = 0.25
        return self._observe(), self.place[0] / 3, over and won, over and not won, info

    def _observe(self) -> Any:
        return {"place": self.place, "battery": self.time % 10, "mission": self.mission}


def errand_policy(observations: Any) -> Any:
    """Choose each row's action from its own observation."""
    words = np.array([len(mission) for mission in observations["mission"]])
    return (np.signbit(observations["place"][:, 0]) + words + observations["battery"]) % 3


class Turns:
    """A policy with a state: the action is the number of the row's step."""

    def __init__(self) -> None:
        self.times = np.zeros(0, np.int64)
        self.sizes: set[int] = set()

    def reset(self, rows: Any) -> None:
        if not len(self.times):
            self.times = np.zeros(len(rows), np.int64)
        self.times[rows] = 0

    def __call__(self, observations: Any) -> Any:
        self.sizes.add(len(observations["mission"]))
        # Fails unless each row is in one call per step, and is reset in time.
        playing = self.times % 10 == observations["battery"]
        assert playing.any()
        self.times += 1
        return self.times % 3


class Poisoned(Errand):
    """An errand that does a deed, once or always, in the episodes of some seeds.

    A deed is a signal to its process, or "raise". Files in the folder `once` mark the seeds that
    have done it. A process that is stopped hangs.
    """

    def __init__(
        self,
        poison: tuple[int, ...],
        where: str = "step",
        once: Path | None = None,
        deed: str = "SIGKILL",
    ) -> None:
        super().__init__()
        self.poison, self.where, self.once, self.deed = poison, where, once, deed

    def _strike(self, where: str, seed: int | None) -> None:
        if where != self.where or seed not in self.poison:
            return
        if self.once is not None:
            mark = self.once / str(seed)
            if mark.exists():
                return
            mark.touch()
        if self.deed == "raise":
            raise FloatingPointError("the parcel burst")
        os.kill(os.getpid(), getattr(signal, self.deed))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._strike("reset", seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.time == 3:
            self._strike("step", self.seed)
        return result


class Raising(Poisoned):
    """An errand that raises in the episodes of one seed."""

    def __init__(self, bad: int) -> None:
        super().__init__((bad,), deed="raise")


class Leaky(Errand):
    """An errand whose memory is full after some episodes; what it leaks stays with its process."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room, self._leaked = room, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._leaked += 1
        if self._leaked > self._room:
            raise MemoryError(f"{self._leaked} episodes of one simulator")
        return super().reset(seed=seed, options=options)


class Counted(Errand):
    """An errand that appends each construction and each episode to a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._note("built")

    def _note(self, what: str) -> None:
        with (self._folder / "notes").open("a") as file:
            file.write(f"{what}\n")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._note(f"reset {seed}")
        return super().reset(seed=seed, options=options)
