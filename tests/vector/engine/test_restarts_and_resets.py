"""Resets after interrupts, and what is logged of restarts."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from tests.envs import Failing, ledgers
from tests.vector.bounds import kill
from vecspaces.errors import ResetNeededError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


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
        assert [new is old for new, old in zip(envs.envs, before, strict=True)] == [
            True,
            False,
            True,
        ]


def test_a_restart_that_the_system_refuses_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    caplog.set_level(logging.WARNING, "vecspaces")
    with AsyncVectorEnv(ledgers(2), num_workers=2, on_worker_death="restart") as envs:
        envs.reset(seed=0)
        kill(envs.processes[:1])
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no more"):
            patch.setattr(envs._backend, "start", refuse)
            envs.step([1, 1])
        assert "restarted" not in caplog.text
        envs.reset(seed=0)
        assert envs.step([1, 1])[3].tolist() == [False, False]
