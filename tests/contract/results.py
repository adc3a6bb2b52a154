"""Tests: what environments may return, and which errors their exceptions become."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.comparing import Part
from tests.envs import Chosen, Echo, failing, rewarding
from vecspaces import spaces
from vecspaces.errors import InvalidRewardError, ResetNeededError

#: Values that are no rewards.
_REWARDS = [None, "2", [2.0], 1j, 10**400, np.array([1.0, 2.0]), {}, np.zeros((1, 1))]


class ResultsContract(Part):
    """What environments may return."""

    def test_rewards_are_anything_that_converts_to_float(self) -> None:
        arrays = [np.array(2.0), np.array([2.0]), np.array([2], np.uint8)]
        valid: list[Any] = [2, 2.0, np.float32(2), np.int8(2), *arrays, Fraction(4, 2), Decimal(2)]
        valid += [10**30, True, np.nan, -np.inf]
        expected = np.array([2.0] * 9 + [1e30, 1.0, np.nan, -np.inf])
        for others, middle in ((valid, expected), ([0.5] * len(valid), [0.5] * len(valid))):
            with self.make([partial(rewarding, *row) for row in (valid, others, valid)]) as envs:
                envs.reset()
                for outer, inner in zip(expected, middle, strict=True):
                    assert_identical(envs.step([0, 0, 0])[1], np.array([outer, inner, outer]))

    def test_flags_are_anything_that_is_true_or_false(self) -> None:
        zero = np.zeros(1, np.float32)
        flags: list[Any] = [np.bool_(True), 1, np.array(True), np.array([True])]
        steps: list[Any] = [
            (zero, 0.0, *pair, {}) for flag in flags for pair in ((flag, False), (False, flag))
        ]
        echo = partial(Echo, spaces.Box(0, 1, (1,)), [(zero, {})], steps)
        with self.make([echo, partial(rewarding, 1.0)], autoreset_mode="SameStep") as envs:
            envs.reset()
            for _ in flags:
                for expected in ([[True, False], [False] * 2], [[False] * 2, [True, False]]):
                    assert [array.tolist() for array in envs.step([0, 0])[2:4]] == expected

    def test_a_reward_that_is_no_number_names_the_environment(self) -> None:
        with self.make([partial(rewarding, 1.0, *_REWARDS, kind=Chosen)] * 2) as envs:
            for number in range(1, len(_REWARDS) + 1):
                envs.reset()
                with pytest.raises(InvalidRewardError, match="environment 1 returned"):
                    envs.step([0, number])


class FailuresContract(Part):
    """What becomes of what environments raise."""

    def test_an_exception_in_step_has_its_own_type_and_a_full_reset_is_needed(self) -> None:
        with self.begun(failing(3)) as envs:
            with pytest.raises(FloatingPointError, match=r"^number 1 got a four$") as caught:
                envs.step([0, 4, 0])
            cause = str(caught.value.__cause__)
            assert "environment 1" in cause and "in step" in cause and "got a four" in cause
            for call in (
                partial(envs.step, [0, 0, 0]),
                partial(envs.call, "number"),
                partial(envs.reset, options={"reset_mask": np.array([False, True, False])}),
            ):
                with pytest.raises(ResetNeededError, match="reset"):
                    call()
            observations, _ = envs.reset(seed=0)
            assert observations[1, :4].tolist() == [1, 1, 0, -1], "it was built again"
            others = [1 if row in self.built_again_with_1_of_3 else 2 for row in (0, 2)]
            assert observations[[0, 2], 1].tolist() == others, "the others were not"
            assert envs.step([1, 1, 1])[0][:, 2].tolist() == [1, 1, 1]
