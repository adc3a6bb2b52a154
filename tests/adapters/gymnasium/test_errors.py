"""Errors of the Gymnasium interface: what catches Gymnasium's catches ours, and the other way."""

from __future__ import annotations

import pickle
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.envs import Drift, ledgers
from vecspaces import errors, spaces
from vecspaces.adapters import gymnasium as adapter
from vecspaces.adapters.gymnasium.errors import AlreadyPendingCallError

ENV_FNS = [partial(gymnasium.make, "CartPole-v1")] * 2


def step_twice(envs: Any) -> None:
    envs.step_async(np.zeros(2, np.int64))
    try:
        envs.step_async(np.zeros(2, np.int64))
    finally:
        envs.step_wait()


def after_close(envs: Any) -> None:
    envs.close()
    envs.step_async(np.zeros(2, np.int64))


MISUSE: dict[str, Any] = {
    "two steps at once": (step_twice, errors.AlreadyPendingCallError),
    "no step to wait for": (lambda envs: envs.step_wait(), errors.NoAsyncCallError),
    "no reset to wait for": (lambda envs: envs.reset_wait(), errors.NoAsyncCallError),
    "no call to wait for": (lambda envs: envs.call_wait(), errors.NoAsyncCallError),
    "scalar actions": (lambda envs: envs.step(0), errors.InvalidActionError),
    "closed": (after_close, errors.ClosedEnvironmentError),
}


def test_misuse_is_the_error_that_gymnasium_raises() -> None:
    theirs = gymnasium.vector.AsyncVectorEnv(ENV_FNS, shared_memory=False)
    theirs.reset(seed=1)
    with adapter.AsyncVectorEnv(ENV_FNS, num_workers=1) as envs:
        envs.reset(seed=1)
        for name, (use, ours) in MISUSE.items():
            with pytest.raises(Exception) as expected:
                use(theirs)
            with pytest.raises(type(expected.value)) as caught:
                use(envs)
            assert isinstance(caught.value, ours), name
            assert getattr(caught.value, "name", None) == getattr(expected.value, "name", None)


def test_a_wrong_seed_is_gymnasiums_error() -> None:
    class Simulator(gymnasium.vector.VectorEnv[Any, Any, Any]):
        num_envs = 1

    with pytest.raises(gymnasium.error.Error):
        Simulator().reset(seed=-1)
    with (
        closing(adapter.as_gymnasium(Drift(1))) as envs,
        pytest.raises(gymnasium.error.Error, match="seed") as caught,
    ):
        envs.reset(seed=-1)
    assert isinstance(caught.value, errors.VecspacesError)


def test_a_finished_environment_is_a_reset_that_is_needed() -> None:
    with adapter.SyncVectorEnv(ledgers(1), autoreset_mode="Disabled") as envs:
        envs.reset(seed=1)
        envs.step([0])
        envs.step([0])
        with pytest.raises(gymnasium.error.ResetNeeded) as caught:
            envs.step([0])
    assert isinstance(caught.value, (errors.ResetNeededError, AssertionError))


@pytest.mark.parametrize("convert", [adapter.from_gymnasium, adapter.to_gymnasium])
def test_an_unknown_space_is_both_libraries_error(convert: Any) -> None:
    class Mine(spaces.Box[Any]):
        pass

    with pytest.raises(gymnasium.error.CustomSpaceError) as caught:
        convert(Mine(0, 1))
    assert isinstance(caught.value, errors.CustomSpaceError)


def test_they_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(AlreadyPendingCallError("wait", "step")))
    assert (str(error), error.name) == ("wait", "step")
