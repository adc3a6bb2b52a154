"""close() while a call runs: from a signal handler, another thread, or a function of the user."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger, ledgers
from vecspaces.errors import AlreadyPendingCallError, ClosedEnvironmentError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and fork")

ACTIONS = np.array([1, 0])
CALLER = os.getpid()


class Signalling(Ledger):
    """Sends a signal to the caller in each reset, step and call, and then works for a moment."""

    def reset(self, **arguments: Any) -> Any:
        self._signal()
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._signal()
        return super().step(action)

    def work(self) -> None:
        self._signal()

    def _signal(self) -> None:
        os.kill(self.caller, signal.SIGUSR1)
        time.sleep(0.02)

    caller = CALLER


class Killable(Ledger):
    def step(self, action: Any) -> Any:
        if action == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def make(backend: str, kind: Any, **arguments: Any) -> Any:
    if backend == "sync":
        return SyncVectorEnv([kind] * 2)
    return AsyncVectorEnv([kind] * 2, num_workers=2, context="fork", **arguments)


CALLS = {
    "reset": lambda envs: envs.reset(),
    "step": lambda envs: envs.step(ACTIONS),
    "step of some": lambda envs: envs.step(ACTIONS[:1], env_ids=[1]),
    "send and recv": lambda envs: (envs.send(ACTIONS), envs.recv(2)),
    "call": lambda envs: envs.call("work"),
}


@pytest.fixture
def handler() -> Iterator[list[Any]]:
    """Return the list of what the handler of SIGUSR1 closes, at first nothing."""
    found: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: found and found.pop().close())
    yield found
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("what", CALLS)
def test_a_signal_handler_that_closes_ends_the_call(
    what: str, backend: str, handler: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Signalling, "caller", os.getpid())
    envs = make(backend, Signalling)
    envs.reset()
    handler.append(envs)
    with pytest.raises(ClosedEnvironmentError, match=r"close\(\)"):
        CALLS[what](envs)
    with pytest.raises(ClosedEnvironmentError, match="after close"):
        envs.reset()
    envs.close()


@pytest.mark.parametrize("terminate", [False, True])
@pytest.mark.parametrize("what", ["reset", "step", "step of some", "send and recv"])
def test_another_thread_may_close(what: str, terminate: bool) -> None:
    envs = make("async", Ledger)
    envs.reset()
    ended: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                CALLS[what](envs)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.02)
    envs.close(terminate=terminate)
    thread.join(20)
    assert not thread.is_alive()
    assert [type(error) for error in ended] == [ClosedEnvironmentError]


@pytest.mark.parametrize("terminate", [False, True])
def test_on_worker_death_may_close(terminate: bool) -> None:
    envs: Any = None
    envs = make("async", Killable, on_worker_death=lambda error: envs.close(terminate=terminate))
    envs.reset()
    with pytest.raises(ClosedEnvironmentError, match=r"during step"):
        envs.step(ACTIONS)
    assert envs.closed
    assert envs.processes == []


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", [1], True])
def test_a_wait_with_a_timeout_that_is_none_changes_nothing(timeout: Any) -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1, context="fork") as envs:
        envs.reset()
        envs.step_async(ACTIONS)
        with pytest.raises((TypeError, ValueError), match=r"^timeout must be"):
            envs.step_wait(timeout=timeout)
        with pytest.raises(AlreadyPendingCallError):  # after an interrupt, a reset is taken
            envs.reset()
        assert envs.step_wait(timeout=10**400)[0].shape == (2, 5)
