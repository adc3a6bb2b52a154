"""Copies of a SyncVectorEnv, by copy.deepcopy and by pickle.

That a copy goes on as the original would is a rule of the state machine.
"""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import assert_same_step
from tests.envs import Ledger, Sampler, ledgers
from vecspaces import spaces
from vecspaces.errors import ClosedEnvironmentError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, ThreadVectorEnv

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda envs: pickle.loads(pickle.dumps(envs))}


@pytest.fixture(params=COPIES)
def copied(request: pytest.FixtureRequest) -> Any:
    return COPIES[request.param]


def test_values_that_did_not_fit_the_rows_are_copied(copied: Any) -> None:
    space = spaces.Sequence(spaces.Box(0, 1, (20_000,), np.float64))
    with SyncVectorEnv([partial(Sampler, space, spaces.Discrete(2), shortest=9)] * 2) as envs:
        envs.reset(seed=1)
        envs.step(np.zeros(2, np.int64))
        with copied(envs) as twin:
            mask = np.array([True, False])  # the other row is read again as it is
            results = [e.reset(seed=3, options={"reset_mask": mask}) for e in (envs, twin)]
            assert_same_step(*results)


def test_last_observations_that_were_not_received_are_copied(copied: Any) -> None:
    env_fns = [partial(Ledger, number, length=1) for number in range(3)]
    with SyncVectorEnv(env_fns, autoreset_mode="same_step") as envs:
        envs.reset(seed=1)
        envs.send([1, 2, 3])
        with copied(envs) as twin:
            (*_, infos, _), (*_, others, _) = envs.recv(), twin.recv()
            for last, other in zip(infos["final_obs"], others["final_obs"], strict=True):
                assert_identical(last, other)
                assert not np.shares_memory(last, other)


def test_both_live_apart(copied: Any) -> None:
    env_fns = [partial(Ledger, number, length=9) for number in range(2)]
    with SyncVectorEnv(env_fns, copy=False, stats=True) as envs:
        observations, _ = envs.reset(seed=1)
        before = observations.copy()
        with copied(envs) as twin:
            for _ in range(3):
                shown, *_ = twin.step([4, 4])
                assert not np.shares_memory(shown, observations)
            assert_identical(observations, before)
            twin.set_attr("length", 1)
            assert envs.step([1, 2])[0][:, 2:4].tolist() == [[1, 1], [1, 2]]
            assert envs.get_attr("length") == (9, 9)
            assert twin.stats().steps.tolist() == [3, 3]
        assert envs.step([1, 2])[0][:, 2].tolist() == [2, 2]
        assert envs.envs[0].closed is False
        assert envs.stats().steps.tolist() == [2, 2]
        with copied(envs) as twin:
            twin.step([1, 2])
            assert twin.stats().steps.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AsyncVectorEnv, r"cannot be copied or pickled.* use SyncVectorEnv"),
        (ThreadVectorEnv, "threads of the caller's process"),
    ],
)
def test_workers_are_not_copied(kind: Any, text: str) -> None:
    with kind(ledgers(1)) as envs:
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=text):
                copying(envs)


def test_what_is_closed_is_not_copied(copied: Any) -> None:
    envs = SyncVectorEnv(ledgers(1))
    envs.close()
    assert envs.envs == []
    with pytest.raises(ClosedEnvironmentError, match="nothing to copy"):
        copied(envs)
