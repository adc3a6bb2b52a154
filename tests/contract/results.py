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
from tests.envs import Chosen, Echo, failing, observing, rewarding
from vecspaces import spaces
from vecspaces.errors import InvalidObservationError, InvalidRewardError, ResetNeededError


class ResultsContract(Part):
    """What environments may return, and what becomes of what they raise."""

    # ------------------------------------------------------------------ rewards, observations

    def test_rewards_are_anything_that_converts_to_float(self) -> None:
        arrays = [np.array(2.0), np.array([2.0]), np.array([2], np.uint8)]
        given: list[Any] = [2, 2.0, np.float32(2), np.int8(2), *arrays, Fraction(4, 2), Decimal(2)]
        given += [10**30, True, np.nan, -np.inf]
        expected = np.array([2.0] * 9 + [1e30, 1.0, np.nan, -np.inf])
        for others, middle in ((given, expected), ([0.5] * len(given), [0.5] * len(given))):
            with self.make([partial(rewarding, *each) for each in (given, others, given)]) as envs:
                envs.reset()
                for outer, inner in zip(expected, middle, strict=True):
                    assert_identical(envs.step([0, 0, 0])[1], np.array([outer, inner, outer]))

    def test_a_reward_that_is_no_number_names_the_environment(self) -> None:
        rewards: list[Any] = [1.0, None, "2", [2.0], 1j, 10**400, np.array([1.0, 2.0]), {}]
        rewards.append(np.zeros((1, 1)))
        with self.make([partial(rewarding, *rewards, kind=Chosen)] * 3) as envs:
            for number in range(1, len(rewards)):
                envs.reset()
                with pytest.raises(InvalidRewardError, match="environment 1 returned"):
                    envs.step([0, number, 0])

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
                _, _, terminated, truncated, _ = envs.step([0, 0])
                assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False] * 2)
                _, _, terminated, truncated, _ = envs.step([0, 0])
                assert (terminated.tolist(), truncated.tolist()) == ([False] * 2, [True, False])

    def test_observations_of_the_same_kind_are_cast(self) -> None:
        small = spaces.Box(0, 255, (2,), np.uint8)
        env = partial(observing, small, np.array([3, 255], np.int64), [7, 8])
        with self.make([env] * 2) as envs:
            assert_identical(envs.reset()[0][1], np.array([3, 255], np.uint8))
            assert_identical(envs.step([0, 0])[0][1], np.array([7, 8], np.uint8))
        real = spaces.Box(0, 1, (2,), np.float32)
        with self.make([partial(observing, real, np.array([0.1, 1], np.float64))]) as envs:
            assert_identical(envs.reset()[0][0], np.array([0.1, 1], np.float32))

    def test_an_observation_outside_its_space_names_environment_and_path(self) -> None:
        left = spaces.Dict(camera=spaces.Dict(left=spaces.Box(0, 255, (2,), np.uint8)))
        values: list[Any] = [
            np.zeros(2, np.uint8),
            np.zeros(3, np.uint8),
            np.zeros(1, np.uint8),
            np.array([300, 0]),
            np.array([0.5, 0]),
            None,
            "ab",
        ]
        observations = [{"camera": {"left": value}} for value in values]
        env_fn = partial(observing, left, observations[0], *observations, kind=Chosen)
        with self.make([env_fn] * 2) as envs:
            for number in range(1, len(values)):
                envs.reset()
                with pytest.raises(InvalidObservationError) as caught:
                    envs.step([0, number])
                assert "environment 1" in str(caught.value)
                assert "observation['camera']['left']: expected uint8" in str(caught.value)

    # ------------------------------------------------------------------ exceptions of environments

    def test_an_exception_in_step_has_its_own_type_and_names_the_environment(self) -> None:
        with self.begun(failing(4)) as envs:
            with pytest.raises(FloatingPointError, match=r"^number 1 got a four$") as caught:
                envs.step([0, 4, 0, 0])
            cause = str(caught.value.__cause__)
            assert "environment 1" in cause and "in step" in cause and "got a four" in cause

    def test_after_an_exception_in_step_a_full_reset_is_needed(self) -> None:
        with self.begun(failing(3)) as envs:
            with pytest.raises(FloatingPointError):
                envs.step([0, 4, 0])
            with pytest.raises(ResetNeededError, match="reset"):
                envs.step([0, 0, 0])
            with pytest.raises(ResetNeededError, match="reset"):
                envs.call("number")
            with pytest.raises(ResetNeededError, match="reset"):
                envs.reset(options={"reset_mask": np.array([False, True, False])})
            observations, _ = envs.reset(seed=0)
            assert observations[1, :4].tolist() == [1, 1, 0, -1], "it was built again"
            others = [1 if row in self.built_again_with_1_of_3 else 2 for row in (0, 2)]
            assert observations[[0, 2], 1].tolist() == others, "the others were not"
            assert envs.step([1, 1, 1])[0][:, 2].tolist() == [1, 1, 1]

    def test_an_exception_in_reset_breaks_too(self) -> None:
        space = spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))))
        each = [partial(observing, space, {"a": value}) for value in ((1, 2), (1,))]
        with self.make(each) as envs:
            for _ in range(2):  # of another nesting
                with pytest.raises(InvalidObservationError, match=r"environment 1.*in reset") as no:
                    envs.reset()
                assert "observation['a']" in str(no.value)
            with pytest.raises(ResetNeededError):
                envs.step([0, 0])
