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
BOUNDS: dict[str, dict[str, Any]] = {
    "no bound": {},
    "step_timeout": {"step_timeout": 60.0},
}


def text(number: int, size: int) -> str:
    """A text that depends on where it comes from."""
    return f"{number:04}" * (size // 4) + "x" * (size % 4)


def is_same(one: Any, other: Any) -> bool:
    """Whether two arrays, or tuples of one array, hold the same."""
    return bool(np.array_equal(np.ravel(one), np.ravel(other)))


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
        same = action == self.value() if self.kind == "text" else is_same(action, self.value())
        info = {"text": text(self.number, self.size)}
        return self.value(), float(same), self.time == 2, False, info

    def echo(self, value: Any) -> tuple[int, Any]:
        return self.number, value

    def fail(self) -> None:
        raise ValueError(text(self.number, self.size))


# Where the bound cannot make a difference, or what another size shows too.
REST = [
    ("100 B", "step_timeout"),
    ("64 KiB - 1", "step_timeout"),
    ("1 MB", "no bound"),
    ("5 MB", "no bound"),
    ("5 MB", "step_timeout"),
]


@pytest.fixture(
    params=ordinarily(
        lambda pair: pair not in REST, zip(itertools.product(SIZES, BOUNDS), strict=True)
    ),
    ids=" ".join,
)
def size_and_bound(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param  # type: ignore[no-any-return]  # pytest does not know


@pytest.fixture
def size(size_and_bound: tuple[str, str]) -> int:
    return SIZES[size_and_bound[0]]


@pytest.fixture
def bound(size_and_bound: tuple[str, str]) -> dict[str, Any]:
    return BOUNDS[size_and_bound[1]]


def make(size: int, kind: str = "array", num_workers: int = 2, **arguments: Any) -> Any:
    env_fns = [partial(Sized, number, size, kind) for number in range(3)]
    return AsyncVectorEnv(env_fns, num_workers=num_workers, **arguments)


def values(size: int, kind: str, time: int) -> list[Any]:
    """What the three environments observe at a time."""
    found = []
    for number in range(3):
        env = Sized(number, size, kind)
        env.time = time
        found.append(env.value())
    return found


def assert_batch(observations: Any, size: int, kind: str, time: int) -> None:
    for found, expected in zip(observations, values(size, kind, time), strict=True):
        if kind == "text":
            assert found == expected
        else:
            assert is_same(found, expected)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("array", {"shared_memory": False}),
        pytest.param("array", {}, marks=pytest.mark.full),
        ("sequence", {"variable_capacity": 50}),
        pytest.param(
            "sequence",
            {"autoreset_mode": "SameStep", "variable_capacity": 50},
            marks=pytest.mark.full,
        ),
        ("text", {"shared_memory": False}),
    ],
    ids=["pipes", "shared", "spilled", "spilled finals", "text over pipes"],
)
def test_observations_actions_and_infos(
    kind: str, arguments: dict[str, Any], size: int, bound: dict[str, Any]
) -> None:
    with make(size, kind, **arguments, **bound) as envs:
        observations, _ = envs.reset(seed=0)
        assert_batch(observations, size, kind, 0)
        for time in (1, 2):
            actions = values(size, kind, time)
            batch = np.stack(actions) if kind == "array" else tuple(actions)
            observations, rewards, terminations, _, infos = envs.step(batch)
            assert rewards.tolist() == [1.0] * 3
            assert terminations.tolist() == [time == 2] * 3
            ended = time == 2 and "autoreset_mode" in arguments
            assert_batch(observations, size, kind, 0 if ended else time)
            if ended:
                assert_batch(infos["final_obs"], size, kind, 2)
                infos = infos["final_info"]
            assert list(infos["text"]) == [text(number, size) for number in range(3)]


def test_calls_exceptions_and_streams(size: int, bound: dict[str, Any]) -> None:
    value = text(7, size)
    with make(size, shared_memory=False, **bound) as envs:
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
        envs.send(np.stack(values(size, "array", 1))[[2, 0]], env_ids=[2, 0])
        got = envs.recv(2)
        for row, observation in zip(got.env_ids, got.observations, strict=True):
            assert np.array_equal(observation, values(size, "array", 1)[row])
        assert sorted(got.env_ids.tolist()) == [0, 2]
        assert got.rewards.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_a_large_message_goes_out_while_another_comes_in(bound: dict[str, Any]) -> None:
    value = text(7, 2_000_000)
    with make(10, num_workers=1, **bound) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            assert envs.call("echo", value)[1] == (1, value)
