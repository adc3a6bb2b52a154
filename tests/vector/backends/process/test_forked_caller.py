"""A process that the user forks: vector envs stay those of the process that made them."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Patient, ledgers
from vecspaces.errors import ClosedEnvironmentError
from vecspaces.vector import AsyncVectorEnv, ThreadVectorEnv

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

ACTIONS = np.zeros(2, np.int64)


def _refused(envs: Any) -> None:
    for call in (
        lambda: envs.reset(),
        lambda: envs.step(ACTIONS),
        lambda: envs.send(ACTIONS),
        lambda: envs.get_attr("number"),
    ):
        with pytest.raises(ClosedEnvironmentError, match="was forked"):
            call()


def _close(envs: Any) -> None:
    envs.close()
    envs.close()


def _exit(envs: Any) -> None:
    """Do what Python does at the end of a process, multiprocessing's part included."""
    from multiprocessing import util

    gc.collect()
    util._exit_function()


def _make_another(envs: Any) -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, context="fork") as others:
        others.reset()
        others.step(ACTIONS)


def in_child(do: Callable[[Any], None], envs: Any) -> int:
    """Run a function in a forked process, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do(envs)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


two_workers = partial(AsyncVectorEnv, num_workers=2)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on
@pytest.mark.parametrize(
    "kind",
    [
        partial(two_workers, context="fork"),
        pytest.param(partial(two_workers, context="fork", daemon=False), marks=pytest.mark.full),
        partial(two_workers, context="forkserver"),
        ThreadVectorEnv,
    ],
    ids=["fork", "no daemons", "forkserver", "threads"],
)
def test_what_a_forked_process_does_leaves_the_workers_alone(kind: Any) -> None:
    with kind(ledgers(2)) as envs:
        envs.reset(seed=1)
        pids = envs.call("process")
        envs.step_async(ACTIONS)
        for do in (_refused, _close, _exit, _make_another):
            assert in_child(do, envs) == 0
        observations = envs.step_wait()[0]
        assert observations[:, 2].tolist() == [1, 1]
        assert envs.call("process") == pids


def _close_without_waiting(envs: Any) -> None:
    signal.alarm(10)
    envs.close(timeout=math.inf)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on
def test_a_thread_may_fork_during_a_step() -> None:
    codes: list[int] = []
    with AsyncVectorEnv([Patient] * 2, num_workers=2, context="fork") as envs:
        envs.reset()
        thread = threading.Thread(
            target=lambda: codes.extend(in_child(_close_without_waiting, envs) for _ in range(4))
        )
        thread.start()
        while thread.is_alive():
            envs.step([50, 50])
    assert codes == [0, 0, 0, 0]
