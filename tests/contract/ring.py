"""Tests: how long results stay valid, and rollouts in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import Part
from tests.envs import ledgers


class RingContract(Part):
    """How long results stay valid, and rollouts in shared memory."""

    @pytest.mark.parametrize("views_rollouts", [False, True])
    def test_with_copy_false_a_result_is_valid_for_the_next_buffers_minus_one_steps(
        self, views_rollouts: bool
    ) -> None:
        """A rollout_view in between costs one of these steps; it has them in order, not copied."""
        steps = 3
        valid = steps if views_rollouts else steps + 1
        with self.make(ledgers(2, talks=False), copy=False, buffers=steps + 1) as envs:
            views = [envs.reset(seed=0)[0]]
            kept = [views[0].copy()]
            results: list[Any] = []
            for number in range(4 * steps):
                results.append(envs.step([number % 5] * 2))
                views.append(results[-1][0])
                kept.append(views[-1].copy())
                for view, copy in zip(views[-valid:], kept[-valid:], strict=True):
                    assert_identical(view, copy)
                if views_rollouts and number % steps == steps - 1:
                    rollout = envs.rollout_view()
                    assert_identical(rollout.observations, np.stack(kept[-1 - steps :]))
                    for part, column in zip(
                        rollout[1:4], [*zip(*results[-steps:], strict=True)][1:4], strict=True
                    ):
                        assert_identical(part, np.stack(column))
                    assert np.shares_memory(rollout.observations, views[-1])
            assert any(np.shares_memory(views[-1], view) for view in views[:-1])

    def test_with_copy_false_a_partial_reset_writes_over_the_rows_that_it_chooses(self) -> None:
        with self.begun(ledgers(2), copy=False, buffers=3, autoreset_mode="Disabled") as envs:
            last = envs.step([1, 1])[0]
            before = last.copy()
            first, _ = envs.reset(options={"reset_mask": np.array([True, False])})
            assert_identical(last, first)
            assert_identical(last[1], before[1])
            assert not np.array_equal(last[0], before[0])

    def test_with_copy_false_a_step_of_some_rows_writes_over_these_rows(self) -> None:
        with self.make(ledgers(2), copy=False, buffers=4) as envs:
            ways: tuple[Callable[[], Any], ...] = (
                lambda: envs.step([2], env_ids=[0])[0],
                lambda: envs.send([2], [0]) or envs.recv(1).observations,
                lambda: envs.send_reset([0]) or envs.recv(1).observations,
            )
            for step in ways:
                views = [envs.reset(seed=0)[0], envs.step([1, 1])[0]]
                older, newer = (view.copy() for view in views)
                shown = step()
                assert_identical(views[0], older)
                assert_identical(views[1], np.stack([shown[0], newer[1]]))
                assert not np.array_equal(views[1][0], newer[0])
