"""Bounds on time, from zero to infinity, wherever one is taken."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import ledgers
from vecspaces.errors import StepTimeoutError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.exchange.deadline import Deadline

LONG = [1e6, 2_147_484, 1e9, 1e300, math.inf, np.float32(1e30)]


@pytest.mark.parametrize("seconds", [*LONG, None])
def test_a_far_deadline_has_time_left_that_a_system_call_takes(seconds: float | None) -> None:
    deadline = Deadline(seconds)
    assert not deadline.passed
    assert deadline.left is None or 0 < deadline.left * 1000 < 2**31


def test_a_deadline_passes() -> None:
    assert 0 < Deadline(60).left <= 60  # type: ignore[operator]  # not None
    deadline = Deadline(0.005)
    time.sleep(0.006)
    assert deadline.passed
    assert deadline.left == 0.0
    assert Deadline(0) < Deadline(1) < Deadline(None)


@pytest.mark.parametrize("seconds", [2_147_484, math.inf, np.float32(1e30)])
def test_every_wait_takes_any_number_of_seconds(seconds: float) -> None:
    bounds = {"start_timeout": seconds, "step_timeout": seconds}
    with AsyncVectorEnv(
        ledgers(2), num_workers=2, on_worker_death="restart", restart_window=seconds, **bounds
    ) as envs:
        envs.reset_async(seed=0)
        envs.reset_wait(timeout=seconds)
        envs.step_async([1, 1])
        envs.step_wait(seconds)
        envs.call_async("number")
        assert envs.call_wait(timeout=seconds) == (0, 1)
        envs.send([1, 1])
        envs.recv(timeout=seconds)
        envs.close(timeout=seconds)
    assert not envs.processes


def test_a_wait_of_no_time_takes_what_is_there() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        give_up = time.monotonic() + 10
        while time.monotonic() < give_up:
            try:
                observations, *_ = envs.step_wait(timeout=0)
            except StepTimeoutError:
                continue
            break
        assert observations[:, 3].tolist() == [1, 1]


@pytest.mark.parametrize("value", ["3", None, True, [1]])
@pytest.mark.parametrize("name", ["start_timeout", "restart_window"])
def test_a_bound_that_is_no_number_is_named(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number of seconds, found"):
        AsyncVectorEnv(ledgers(1), on_worker_death="restart", **{name: value})


@pytest.mark.parametrize("value", [-1, math.nan, -math.inf])
def test_a_wait_refuses_what_is_no_time_and_goes_on(value: float) -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        for wait in (envs.step_wait, partial(envs.close)):
            with pytest.raises(ValueError, match="timeout must be at least 0 seconds"):
                wait(timeout=value)
        with pytest.raises(TypeError, match="timeout must be a number of seconds"):
            envs.step_wait(timeout="soon")  # type: ignore[arg-type]  # what is tested
        assert envs.step_wait()[0][:, 3].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "found"),
    [
        ({"max_restarts": 1.5}, TypeError, "max_restarts"),
        ({"max_restarts": "3"}, TypeError, "max_restarts"),
        ({"max_restarts": -1}, ValueError, "max_restarts"),
        ({"restart_window": math.nan}, ValueError, "restart_window"),
        ({"restart_window": "a"}, TypeError, "restart_window"),
        ({"step_timeout": 0}, ValueError, "step_timeout must be more than 0"),
    ],
)
def test_restart_arguments_that_mean_nothing_are_refused(
    arguments: dict[str, Any], error: type[Exception], found: str
) -> None:
    with pytest.raises(error, match=found):
        AsyncVectorEnv(ledgers(1), **arguments)


def test_sync_waits_take_bounds_too() -> None:
    with SyncVectorEnv(ledgers(2)) as envs:
        envs.reset_async(seed=0)
        envs.reset_wait(timeout=0)
        envs.step_async([1, 1])
        envs.step_wait(timeout=0)
        envs.close(timeout=math.inf)
