"""Rollouts: what the contract does not have, which reads them while they are complete."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv, Rollout, SyncVectorEnv


def test_rollout_view_copies_rewards_and_flags() -> None:
    with SyncVectorEnv(ledgers(2), copy=False, buffers=2) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        rollout = envs.rollout_view()
        assert isinstance(rollout, Rollout)
        kept = [array.copy() for array in rollout[1:4]]
        for _ in range(3):
            envs.step([1, 1])
        for array, copy in zip(rollout[1:4], kept, strict=True):
            assert_identical(array, copy)
        with pytest.raises(ValueError, match=r"needs 1 steps .* found 3"):
            envs.rollout_view()


def test_rollout_view_needs_all_environments_in_each_batch() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1, buffers=2, batch_size=1) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        with pytest.raises(ValueError, match="batch_size"):
            envs.rollout_view()


def test_rollout_str_shows_dtypes_and_shapes() -> None:
    arrays = np.zeros((3, 2), np.float32), np.zeros((2, 2)), np.zeros((2, 2), np.bool_)
    rollout = Rollout({"camera": (arrays[0],)}, arrays[1], arrays[2], arrays[2], {})
    assert str(rollout) == (
        "Rollout(observations={'camera': (float32(3, 2))}, rewards=float64(2, 2), "
        "terminations=bool(2, 2), truncations=bool(2, 2), infos={})"
    )


def test_rollout_view_needs_more_than_one_slot() -> None:
    with SyncVectorEnv(ledgers(2)) as envs, pytest.raises(ValueError, match="buffers=T"):
        envs.reset(seed=0)
        envs.rollout_view()
