"""Messages of every size arrive whole, with a bound on time and without one.

A pipe holds 64 KiB: what is larger is read and written in parts.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.crosses import ordinarily
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv

SIZES = {
    "100 B": 100,
    "64 KiB - 1": 2**16 - 1,
    "64 KiB + 1": 2**16 + 1,
    "1 MB": 1_000_000,
    "5 MB": 5_000_000,
}
BOUNDS: dict[str, dict[str, Any]] = {"no bound": {}, "step_timeout": {"step_timeout": 60.0}}


def text(number: int, size: int) -> str:
    """A text that depends on where it comes from."""
    return f"{number:04}" * (size // 4) + "x" * (size % 4)


def is_same(value: Any, other: Any) -> bool:
    """Whether two arrays, tuples of one array, or texts hold the same."""
    return bool(np.array_equal(np.ravel(value), np.ravel(other)))


class Sized(Env[Any, Any]):
    """Everything that it gives or takes has a size.

    Args:
        number: Which one it is.
        size: In bytes.
        kind: What its observations are: `"array"`, `"sequence"` or `"text"`.
    """

    def __init__(self, number: int, size: int, kind: str) -> None:
        self.number, self.size = number, size
        self.observation_space = {
            "array": spaces.Box(0, 255, (size,), np.uint8),
            "sequence": spaces.Sequence(spaces.Box(0, 255, (size,), np.uint8)),
            "text": spaces.Text(size),
        }[kind]
        self.action_space = self.observation_space
        self.kind = kind
        self.time = 0

    def value(self) -> Any:
        array = np.full(self.size, (self.number + self.time) % 256, np.uint8)
        if self.kind == "array":
            return array
        return (array,) if self.kind == "sequence" else text(self.number + self.time, self.size)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.time = 0
        info = {} if options is None else {"got": options["text"]}
        return self.value(), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        info = {"text": text(self.number, self.size)}
        return self.value(), float(is_same(action, self.value())), self.time == 2, False, info

    def echo(self, value: Any) -> tuple[int, Any]:
        return self.number, value

    def fail(self) -> None:
        raise ValueError(text(self.number, self.size))


HOW: dict[str, tuple[str, dict[str, Any]]] = {
    "pipes": ("array", {"shared_memory": False}),
    "shared": ("array", {}),
    "spilled": ("sequence", {"variable_capacity": 50}),
    "spilled finals": ("sequence", {"variable_capacity": 50, "autoreset_mode": "SameStep"}),
    "text over pipes": ("text", {"shared_memory": False}),
}
ORDINARY = (
    ("pipes", "100 B", "no bound"),
    ("pipes", "64 KiB + 1", "step_timeout"),
    ("spilled", "64 KiB - 1", "no bound"),
    ("spilled", "1 MB", "step_timeout"),
    ("text over pipes", "64 KiB + 1", "no bound"),
)


def make(size: int, kind: str, **arguments: Any) -> Any:
    env_fns = [partial(Sized, number, size, kind) for number in range(3)]
    return AsyncVectorEnv(env_fns, num_workers=2, **arguments)


def values(size: int, kind: str, time: int) -> list[Any]:
    """What the three environments observe at a time."""
    return [Sized(number + time, size, kind).value() for number in range(3)]


def assert_same(batch: Any, expected: list[Any]) -> None:
    assert all(map(is_same, batch, expected)) and len(batch) == len(expected)


@pytest.mark.parametrize(
    ("how", "size_name", "bound"),
    ordinarily(lambda *cell: cell in ORDINARY, itertools.product(HOW, SIZES, BOUNDS)),
)
def test_every_size_arrives_by_every_call(how: str, size_name: str, bound: str) -> None:
    size, (kind, arguments) = SIZES[size_name], HOW[how]
    value = text(7, size)
    first, second, third = (values(size, kind, time) for time in range(3))
    batch: Any = np.stack if kind == "array" else tuple
    with make(size, kind, **arguments, **BOUNDS[bound]) as envs:
        assert list(envs.reset(options={"text": value})[1]["got"]) == [value] * 3
        assert envs.call("echo", value) == tuple((number, value) for number in range(3))
        envs.set_attr("mark", value)
        assert envs.get_attr("mark") == (value,) * 3
        envs.call_async("echo", value)
        assert envs.call_wait(timeout=60)[2] == (2, value)
        with pytest.raises(ValueError, match="0001") as caught:
            envs.call("fail", env_ids=[1])
        assert str(caught.value) == text(1, size)
        envs.recv()
        envs.send(batch([second[2], second[0]]), env_ids=[2, 0])
        got = envs.recv(2)
        assert sorted(got.env_ids.tolist()) == [0, 2]
        assert_same(got.observations, [second[row] for row in got.env_ids])
        assert got.rewards.tolist() == [1.0, 1.0]

        assert_same(envs.reset(seed=0)[0], first)
        for shown, ends in ((second, False), (third, True)):
            observations, rewards, terminations, _, infos = envs.step(batch(shown))
            assert rewards.tolist() == [1.0] * 3
            assert terminations.tolist() == [ends] * 3
            if ends and "autoreset_mode" in arguments:
                assert_same(infos["final_obs"], shown)
                shown, infos = first, infos["final_info"]
            assert_same(observations, shown)
            assert list(infos["text"]) == [text(number, size) for number in range(3)]
