"""Bounds on time, from zero to infinity, wherever one is taken."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from tests.envs import ledgers
from vecspaces.errors import AlreadyPendingCallError, StepTimeoutError
from vecspaces.vector import AsyncVectorEnv


def test_timeout_may_be_any_number_of_seconds_and_none() -> None:
    seconds: Any = np.float32(1e30)
    bounds = {"start_timeout": seconds, "step_timeout": seconds, "restart_window": math.inf}
    with AsyncVectorEnv(ledgers(2), num_workers=2, on_worker_death="restart", **bounds) as envs:
        envs.reset_async(seed=0)
        envs.reset_wait(timeout=seconds)
        envs.step_async([1, 1])
        envs.step_wait(math.inf)
        envs.call_async("number")
        assert envs.call_wait(timeout=seconds) == (0, 1)
        envs.send([1, 1])
        envs.recv(timeout=seconds)
        envs.reset(seed=0)
        envs.step_async([1, 1])
        give_up = time.monotonic() + 10
        while time.monotonic() < give_up:  # a wait of no time takes what is there
            try:
                observations, *_ = envs.step_wait(timeout=0)
            except StepTimeoutError:
                continue
            break
        assert observations[:, 3].tolist() == [1, 1]
        envs.close(timeout=seconds)
    assert not envs.processes


def test_timeout_that_is_no_time_is_refused() -> None:
    wrong: list[Any] = [-1, math.nan, -math.inf, "1", [1], True]
    with AsyncVectorEnv(ledgers(2), num_workers=1) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        for timeout in wrong:
            for wait in (envs.step_wait, envs.close):
                with pytest.raises((TypeError, ValueError), match=r"^timeout must be"):
                    wait(timeout=timeout)
            with pytest.raises(AlreadyPendingCallError):  # after an interrupt, a reset is taken
                envs.reset()
        assert envs.step_wait(timeout=10**400)[0][:, 3].tolist() == [1, 1]
