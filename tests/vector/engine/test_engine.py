"""Commands that meet restarts, deaths and interrupts of other commands."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest

from tests.crosses import FASTEST
from tests.envs import Failing, Gated, ledgers
from tests.envs.faulty import GATE, arm, factories, open_gate
from tests.vector.bounds import kill as kill_processes
from tests.vector.bounds import overrun
from tests.vector.engine.states import Late
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, ThreadVectorEnv
from vecspaces.vector.backends.process.channel import Poller
from vecspaces.vector.engine import supervisor
from vecspaces.vector.engine.rows import RowTable

BACKENDS = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)]
_SECONDS = 20.0


def gated(gate: Path) -> list[Any]:
    """Two factories; environment 1 waits at the action 4, until the gate exists."""
    return [partial(Gated, gate, number, length=99) for number in range(2)]


def kill(env: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_rows_that_answered_a_pending_step_need_a_reset_after_a_restart(tmp_path: Path) -> None:
    with AsyncVectorEnv(gated(tmp_path / "gate"), num_workers=2) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 4])
        with pytest.raises(StepTimeoutError):
            envs.step_wait(timeout=0.3)
        envs.restart([0])
        (tmp_path / "gate").touch()
        assert envs.step_wait(timeout=_SECONDS)[0][:, 3].tolist() == [1, 4]
        with pytest.raises(ResetNeededError, match="environment 0 must be reset first"):
            envs.step([1, 1])
        envs.send_reset([0])
        envs.recv(1)
        assert envs.step([1, 1])[0][:, 2].tolist() == [1, 2]


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("end", ["restart", "reset"])
def test_results_that_were_not_received_end_with_a_restart_or_reset(make: Any, end: str) -> None:
    with make(ledgers(2)) as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send_call([0, 1], "multiply", 2)
        envs.recv(1)
        if end == "restart":
            envs.restart()
            envs.send_reset()
        else:
            envs.reset()
        received = envs.recv(2)
        assert (received.env_ids.tolist(), received.results) == ([0, 1], {})


@pytest.mark.parametrize("make", BACKENDS)
def test_an_exception_of_a_call_in_a_stream_concerns_its_row_alone(make: Any) -> None:
    with make(ledgers(3)) as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send_call([0, 1, 2], "fail", (1,))
        received = envs.recv(3, return_errors=True)
        assert (received.results, [*received.errors]) == ({0: "fine", 2: "fine"}, [1])


def test_an_exception_in_a_call_breaks_nothing_beside_a_dead_worker() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, stats=True) as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send_call([0], kill)
        assert isinstance(envs.recv(1, return_errors=True).errors[0], WorkerDiedError)
        with pytest.raises(KeyError):
            envs.call("fail", (1,), env_ids=[1])
        assert envs.step([2], env_ids=[1])[0][:, 3].tolist() == [2]
        assert envs.stats().steps.tolist() == [0, 1]  # which asks no dead worker


def test_reset_replaces_the_worker_of_a_row_that_was_late() -> None:
    env_fns = [partial(Late, number, length=9) for number in range(2)]
    with AsyncVectorEnv(env_fns, num_workers=2, step_timeout=1.0) as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send([3, 1])
        assert isinstance(envs.recv(2, return_errors=True).errors[0], StepTimeoutError)
        assert envs.reset(seed=0)[0][:, 1].tolist() == [1, 2]


@pytest.mark.parametrize("returns", [False, True])
def test_recv_is_bounded_by_start_timeout_in_first_resets(returns: bool, hurry: Any) -> None:
    env_fns = [partial(Late, number, length=9) for number in range(2)]
    with AsyncVectorEnv(env_fns, num_workers=2, slow_warning=None) as envs:
        envs.send_reset([0])
        envs.recv(1)
        envs.send_reset([1], options={"late": True})
        hurry(lambda: True, 1)
        if returns:
            assert isinstance(envs.recv(1, return_errors=True).errors[1], StepTimeoutError)
        else:
            with pytest.raises(StepTimeoutError, match=r"environment 1 .*\(start_timeout bounds"):
                envs.recv(1)
        envs.send([1], [0])
        assert envs.recv(1).env_ids.tolist() == [0]
        envs.close(terminate=True)


def test_a_worker_that_is_built_too_late_ends_no_other_call(tmp_path: Path) -> None:
    env_fns = factories(2, tmp_path, GATE, "build", row=0)
    (tmp_path / "trigger").unlink()  # it is armed when the worker is replaced
    with AsyncVectorEnv(env_fns, num_workers=2, start_timeout=overrun(1.0)) as envs:
        envs.reset(seed=0)
        envs.recv()
        arm(tmp_path)
        envs.restart([0])
        envs.send_reset([0])
        assert isinstance(envs.recv(1, return_errors=True).errors[0], StepTimeoutError)
        open_gate(tmp_path)
        for _ in range(100):  # the answer of the worker comes meanwhile
            envs.send([1], [1])
            assert envs.recv(1, _SECONDS, return_errors=True).env_ids.tolist() == [1]
            time.sleep(0.001)
        assert envs.reset(seed=0)[0]["place"][:, 2].tolist() == [0, 0]


def test_a_call_starts_a_worker_whose_restart_failed() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, step_timeout=_SECONDS, context=FASTEST) as envs:
        envs.reset(seed=0)
        envs.recv()
        refused = mock.patch.object(BaseProcess, "start", side_effect=OSError("no process"))
        with refused, pytest.raises(OSError):
            envs.restart([0])
        assert envs.call("multiply", 3) == (0, 3)
        envs.send_call([0], "multiply", 3, 1)
        assert envs.recv(1).results == {0: 1}


def test_a_call_that_was_interrupted_while_it_was_sent_needs_a_reset() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2) as envs:
        envs.reset(seed=0)
        line = envs._backend._handles[0].channel.line
        interrupted = mock.patch.object(line, "write", side_effect=KeyboardInterrupt)
        with interrupted, pytest.raises(KeyboardInterrupt):
            envs.call("multiply", 3)
        with pytest.raises(ResetNeededError):
            envs.step([1, 1])
        assert envs.reset(seed=0)[0][:, 1].tolist() == [1, 1]


def test_a_restart_that_was_interrupted_while_workers_close_starts_them_in_the_next_reset() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2) as envs:
        envs.reset(seed=0)
        envs.recv()
        interrupted = mock.patch.object(Poller, "wait", side_effect=KeyboardInterrupt)
        with interrupted, pytest.raises(KeyboardInterrupt):
            envs.restart([0])
        envs.send([2], [1])
        assert envs.recv(1).observations[:, 3].tolist() == [2]
        assert envs.reset(seed=0)[0][:, 1].tolist() == [1, 2]


def test_close_in_another_thread_ends_restarts() -> None:
    for seconds in (0.0, 0.01, 0.02, 0.04):
        envs = AsyncVectorEnv(ledgers(3), num_workers=3)
        thread = threading.Timer(seconds, envs.close)
        thread.start()
        with pytest.raises(ClosedEnvironmentError):
            while True:
                envs.restart(terminate=True)
        thread.join(_SECONDS)
        assert not thread.is_alive() and not envs.processes
        envs.close()


def test_a_worker_that_is_closed_while_its_state_changes_stays_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Transitions(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            if key[1] == "end":
                engine.supervisor.close()  # as another thread does
            return super().get(key, default)

    with SyncVectorEnv(ledgers(2)) as envs:
        engine = envs._engine
        monkeypatch.setattr(supervisor, "TRANSITIONS", Transitions(supervisor.TRANSITIONS))
        engine.supervisor.move(0, "end")
        assert engine.supervisor.is_closed(0)


def test_the_answer_of_send_reset_must_be_received() -> None:
    """A row that was reset by itself refuses what would drop its answer."""
    with SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3) as envs:
        envs.reset(seed=1)
        envs.send_reset([0, 1])
        assert envs.recv(2).env_ids.tolist() == [2, 0]  # 2 was not received after the reset
        actions = envs.action_space.sample()
        mask = np.array([True, False, False])
        for call in (
            lambda: envs.step(actions),
            lambda: envs.send(actions[1:2], [1]),
            lambda: envs.send_reset([1]),
            lambda: envs.reset(options={"reset_mask": mask}),
        ):
            with pytest.raises((AlreadyPendingCallError, ResetNeededError)):
                call()
        assert envs.recv(1).env_ids.tolist() == [1]
        envs.step(actions)


def test_a_step_that_was_interrupted_builds_its_own_environment_again() -> None:
    class Interrupted(Failing):
        armed = True

        def step(self, action: int) -> object:
            if self.number == 1 and Interrupted.armed:
                Interrupted.armed = False
                raise KeyboardInterrupt
            return super().step(action)

    with SyncVectorEnv([partial(Interrupted, number) for number in range(3)]) as envs:
        envs.reset(seed=0)
        before = envs.envs
        with pytest.raises(KeyboardInterrupt):
            envs.step([1, 1, 1])
        with pytest.raises(ResetNeededError):
            envs.step_wait()
        envs.reset(seed=0)
        kept = [new is old for new, old in zip(envs.envs, before, strict=True)]
        assert kept == [True, False, True]


def test_a_restart_that_the_system_refuses_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    caplog.set_level(logging.WARNING, "vecspaces")
    with AsyncVectorEnv(ledgers(2), num_workers=2, on_worker_death="restart") as envs:
        envs.reset(seed=0)
        kill_processes(envs.processes[:1])
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no more"):
            patch.setattr(envs._backend, "start", refuse)
            envs.step([1, 1])
        assert "restarted" not in caplog.text
        envs.reset(seed=0)
        assert envs.step([1, 1])[3].tolist() == [False, False]


class Nesting(Failing):
    """Environment 1 calls `hook`, once, in its next step."""

    hook: Any = None

    def step(self, action: int) -> Any:
        if self.number == 1 and Nesting.hook is not None:
            hook, Nesting.hook = Nesting.hook, None
            hook()
        return super().step(action)


_MASK = {"reset_mask": np.array([True, False, True])}


@pytest.mark.parametrize(
    "call",
    [
        lambda envs: envs.step([1, 1, 1]),
        lambda envs: envs.step([1], env_ids=[0]),
        lambda envs: envs.send([1], [0]),
        lambda envs: envs.recv(timeout=0, at_least=0),
        lambda envs: (envs.reset(), envs.step([1, 1, 1])),
        lambda envs: envs.reset(options=_MASK),
        lambda envs: envs.call("observe"),
        lambda envs: envs.restart([0]),
    ],
)
@pytest.mark.parametrize("is_raised", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_step_needs_a_reset_if_an_environment_called_its_vector_env(
    call: Any, is_raised: bool, stream: bool
) -> None:
    def nested() -> None:
        with contextlib.nullcontext() if is_raised else contextlib.suppress(ResetNeededError):
            call(envs)

    with SyncVectorEnv([partial(Nesting, number) for number in range(3)]) as envs:
        for _ in range(2):  # the second step uses the ticket of the first
            envs.reset(seed=0)
            envs.step([1, 1, 1])
            Nesting.hook = nested
            with pytest.raises(ResetNeededError, match="called another method"):
                envs.send([1, 1, 1]) if stream else envs.step([1, 1, 1])
            with pytest.raises(ResetNeededError):
                envs.step([1, 1, 1])
        envs.reset(seed=0)
        assert envs.step([1, 1, 1])[1].shape == (3,)


def test_reset_drops_the_failure_of_a_step_that_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def fail() -> None:
        monkeypatch.setattr(RowTable, "memory", property(interrupt), raising=False)
        raise OSError("no picture")

    with SyncVectorEnv([partial(Nesting, number) for number in range(3)]) as envs:
        envs.reset(seed=0)
        memory = vars(envs._engine.rows).pop("memory")
        Nesting.hook = fail
        with pytest.raises(KeyboardInterrupt):
            envs.step([1, 1, 1])
        monkeypatch.undo()
        envs._engine.rows.memory = memory
        with pytest.raises(ResetNeededError):
            envs.step([1, 1, 1])
        envs.reset(seed=0)
        assert envs.step([1, 1, 1])[1].shape == (3,)


@pytest.mark.parametrize("kind", [ThreadVectorEnv, AsyncVectorEnv])
def test_step_wait_ends_if_another_thread_used_the_vector_env(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories = [partial(Gated, tmp_path / "gate", number, length=99) for number in range(2)]
    with kind(factories, num_workers=2, slow_warning=0.4) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 4])
        wait, lose = envs._backend.wait, envs._engine._lose
        with monkeypatch.context() as patch:
            # As a call does that comes while this thread reads replies.
            patch.setattr(envs._backend, "wait", lambda seconds: (lose(), wait(seconds))[1])
            with pytest.raises(ResetNeededError, match="another thread"):
                envs.step_wait()
        (tmp_path / "gate").touch()
        envs.reset(seed=0)
        assert envs.step([1, 1])[1].shape == (2,)
