"""Native code in workers: a step that keeps the interpreter's lock, and the threads of PyTorch."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import pytest

from tests.vector.bounds import stretched, within
from vecspaces import Env, spaces
from vecspaces.errors import StepTimeoutError
from vecspaces.vector import AsyncVectorEnv


class LockKeeper(Env[np.ndarray, int]):
    """Action 1 sleeps for a minute and keeps Python's global interpreter lock."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action:
            ctypes.PyDLL(None).sleep(60)
        return np.ones(1, np.float32), 0.0, False, False, {}

    def count_threads(self) -> int:
        import torch

        return int(torch.get_num_threads())


@pytest.mark.skipif(sys.platform == "win32", reason="the C library's sleep")
def test_a_worker_that_keeps_the_interpreters_lock_is_killed() -> None:
    envs = AsyncVectorEnv([LockKeeper] * 2, num_workers=2, context="fork")
    late = stretched(1.0)  # in which the other one steps and closes
    with within(10.0):
        envs.reset()
        envs.step_async(np.array([1, 0]))
        with pytest.raises(StepTimeoutError, match="environment 0 still busy"):
            envs.step_wait(timeout=late)
        envs.reset()  # replaces the worker
        assert envs.step(np.array([0, 0]))[0].ravel().tolist() == [1, 1]
        envs.step_async(np.array([0, 1]))
        with pytest.warns(RuntimeWarning, match="environment 1 did not close"):
            envs.close(timeout=late)


@pytest.mark.parametrize(
    ("context", "threads", "found"),
    [("fork", 1, 1), ("fork", None, 3), pytest.param("spawn", 2, 2, marks=pytest.mark.full)],
)
def test_pytorch_runs_with_the_threads_of_a_worker(
    context: Any, threads: int | None, found: int
) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with AsyncVectorEnv([LockKeeper], context=context, worker_threads=threads) as envs:
            assert envs.call("count_threads") == (found,)
    finally:
        torch.set_num_threads(before)
