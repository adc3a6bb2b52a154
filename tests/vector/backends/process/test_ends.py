"""However workers end, it is noticed at once, and of all.

That their children hold pipes open changes nothing: test_tree.py.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
from typing import Any

import pytest

from tests.crosses import START_METHODS
from tests.envs import ledgers
from tests.vector.bounds import stretched, within
from vecspaces.errors import WorkerDiedError
from vecspaces.vector import AsyncVectorEnv

methods = pytest.mark.parametrize("method", START_METHODS)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without process descriptors")


def stop(envs: Any) -> None:
    for process in envs.processes:
        os.kill(process.pid, signal.SIGSTOP)


@methods
def test_stopped_workers_are_replaced_and_ended_together(method: str) -> None:
    with AsyncVectorEnv(ledgers(6), num_workers=6, context=method) as envs:
        envs.reset()
        stop(envs)
        with pytest.raises(TimeoutError):
            envs.call_async("number")
            envs.call_wait(timeout=0.05)
        with within(4.0):
            envs.reset()
        stop(envs)
        with within(1.4), pytest.warns(RuntimeWarning, match="environments 0 to 5 did not close"):
            envs.close(timeout=stretched(0.2))
        assert envs.processes == []


@methods
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_a_system_without_descriptors_of_processes_is_served_too(
    method: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(pid: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    with AsyncVectorEnv(ledgers(3), num_workers=3, context=method) as envs:
        envs.reset()
        os.kill(envs.processes[1].pid, signal.SIGKILL)
        with within(1.0), pytest.raises(WorkerDiedError, match="SIGKILL") as caught:
            envs.step([0] * 3)
        assert caught.value.exitcode == -signal.SIGKILL
        envs.reset()
        stop(envs)
        with within(1.4), pytest.warns(RuntimeWarning, match="environments 0 to 2 did not close"):
            envs.close(timeout=0.2)


@methods
def test_a_signal_never_reaches_another_process_of_the_same_number(method: str) -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, context=method) as envs:
        envs.reset()
        first, second = envs.processes
        pid = second.pid
        os.kill(first.pid, signal.SIGKILL)
        first.join(10)
        # As if the number had been given to another process since.
        first._popen.pid, first._popen.returncode = os.getpid(), None
        with pytest.raises(WorkerDiedError):
            envs.step([0, 0])
        first._popen.returncode = -9
        envs.close()
        assert pid not in [child.pid for child in multiprocessing.active_children()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_worker_whose_exit_code_others_took_is_freed() -> None:
    """The system returns it once, perhaps to an `os.wait` of the program."""
    envs = AsyncVectorEnv(ledgers(1), context="fork")
    envs.reset()
    (worker,) = envs.processes
    os.kill(worker.pid, signal.SIGKILL)
    os.waitpid(worker.pid, 0)
    with pytest.raises(WorkerDiedError, match="ended"):
        envs.step([0])
    envs.close()
    assert envs.processes == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_exit_codes_that_the_system_drops_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vecspaces.vector.backends.process.processes._CODE_SECONDS", 30.0)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        envs = AsyncVectorEnv(ledgers(8), num_workers=8, context="fork")
        with within(10.0):
            envs.close()
        assert envs.processes == []
    finally:
        signal.signal(signal.SIGCHLD, before)
