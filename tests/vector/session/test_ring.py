"""The ring of observation slots: counted by itself, and as an on-policy rollout uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv, Rollout, SyncVectorEnv
from vecspaces.vector.session.ring import SlotRing


def walk(ring: SlotRing, steps: int) -> list[int]:
    """Take steps as the session does; return the slots that they write."""
    slots = []
    for _ in range(steps):
        slots.append(ring.after[ring.current])
        ring.current = slots[-1]
        ring.steps += 1
    return slots


@pytest.mark.parametrize("buffers", [1, 2, 5])
def test_step_t_writes_slot_t_modulo_the_buffers(buffers: int) -> None:
    assert walk(SlotRing(buffers, buffers), 12) == [(step + 1) % buffers for step in range(12)]


@pytest.mark.parametrize("buffers", [1, 2, 5])
def test_one_slot_more_keeps_what_a_dying_worker_wrote_in_part(buffers: int) -> None:
    before = 0
    for slot in walk(SlotRing(buffers, buffers + 1), 12):
        assert slot != before
        before = slot


def test_a_rollout_is_complete_after_as_many_steps_as_it_has() -> None:
    ring = SlotRing(4, 4)
    for taken in range(3):
        with pytest.raises(ValueError, match=f"found {taken}"):
            _ = ring.rollout_steps
        walk(ring, 1)
    assert ring.rollout_steps == 3
    walk(ring, 1)
    with pytest.raises(ValueError, match="found 4"):
        _ = ring.rollout_steps


def make(kind: type, env_fns: Any, **arguments: Any) -> Any:
    if kind is AsyncVectorEnv:
        arguments["num_workers"] = 2
    return kind(env_fns, **arguments)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_ppo_rollout_copies_no_observation_but_the_bootstrap(kind: type) -> None:
    length, rollouts = 8, 3
    with make(kind, ledgers(4), copy=False, buffers=length + 1) as envs:
        observations, _ = envs.reset(seed=0)
        first = observations
        for _ in range(rollouts):
            views = [observations]
            begun = observations.copy()
            for _ in range(length):
                observations, *_ = envs.step(observations[:, 2] % 5)
                views.append(observations)
            rollout = envs.rollout_view()
            assert isinstance(rollout, Rollout)
            assert_identical(rollout.observations[0], begun)
            for time, view in enumerate(views[1:], start=1):
                assert_identical(rollout.observations[time], view)
                assert np.shares_memory(rollout.observations[time], view)
            assert np.shares_memory(rollout.observations[0], first)
            bootstrap = observations.copy()
            # The next step begins the next rollout, whose first observation is the last of this.
            observations, *_ = envs.step(np.zeros(4, int))
            assert_identical(rollout.observations[0], bootstrap)
            for _ in range(length - 1):
                observations, *_ = envs.step(np.zeros(4, int))
            assert_identical(envs.rollout_view().observations[0], bootstrap)


def test_rewards_and_flags_of_a_rollout_are_the_callers_own() -> None:
    with SyncVectorEnv(ledgers(2), copy=False, buffers=2) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        rollout = envs.rollout_view()
        kept = [array.copy() for array in rollout[1:]]
        for _ in range(3):
            envs.step([1, 1])
        for array, copy in zip(rollout[1:], kept, strict=True):
            assert_identical(array, copy)


def test_a_rollout_needs_all_environments_in_each_batch() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1, buffers=2, batch_size=1) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        with pytest.raises(ValueError, match="batch_size"):
            envs.rollout_view()


def test_a_rollout_is_shown_by_dtypes_and_shapes() -> None:
    arrays = np.zeros((3, 2), np.float32), np.zeros((2, 2)), np.zeros((2, 2), np.bool_)
    rollout = Rollout({"camera": (arrays[0],)}, arrays[1], arrays[2], arrays[2], {})
    assert str(rollout) == (
        "Rollout(observations={'camera': (float32(3, 2))}, rewards=float64(2, 2), "
        "terminations=bool(2, 2), truncations=bool(2, 2), infos={})"
    )
