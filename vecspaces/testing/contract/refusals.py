"""Tests: calls and arguments that are refused before a command is sent."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from vecspaces import spaces
from vecspaces.errors import AlreadyPendingCallError, InvalidActionError, NoAsyncCallError
from vecspaces.testing.contract.comparing import Part
from vecspaces.testing.envs import Ledger, Sampler, Unlike, ledgers


class RefusalContract(Part):
    """What the caller's side refuses before a command goes out, so that it is the same everywhere.

    One vector env in this process and one with workers run it: how environments are divided, what
    they share and how workers start cannot change the answer.
    """

    def test_an_unknown_mode_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="Sometimes"):
            self.make(ledgers(1), autoreset_mode="Sometimes")

    def test_no_environments_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="at least one factory"):
            self.make([])

    def test_a_wrong_mask_is_refused_and_nothing_happens(self) -> None:
        wrong: list[tuple[Any, Any, str]] = [
            ([True, False], TypeError, "numpy array, found list"),
            (np.array([1, 0]), TypeError, "dtype bool, found int64"),
            (np.array([True]), ValueError, r"shape \(2,\), found \(1,\)"),
            (np.array([False, False]), ValueError, "at least one"),
        ]
        with self.begun(ledgers(2)) as envs:
            for mask, error, text in wrong:
                with pytest.raises(error, match=text):
                    envs.reset(options={"reset_mask": mask})
            assert envs.get_attr("episode") == (1, 1)
            envs.step([0, 0])

    def test_a_wrong_seed_is_refused(self) -> None:
        with self.make(ledgers(2)) as envs:
            for seed, error in (([1], ValueError), ("12", TypeError), (1.5, TypeError)):
                with pytest.raises(error, match="seed"):
                    envs.reset(seed=seed)
            envs.reset(seed=1)

    def test_wrong_options_are_refused(self) -> None:
        with self.make(ledgers(2)) as envs:
            with pytest.raises(ValueError, match=r"expected 2 options.*found 1"):
                envs.reset(options=[{}])
            with pytest.raises(TypeError, match=r"options\[1\].*found int"):
                envs.reset(options=[{}, 1])
            with pytest.raises(TypeError, match=r"mapping.*found int"):
                envs.reset(options=3)

    def test_other_bounds_do_not_fit_in_the_mode_same(self) -> None:
        other = spaces.Box(0, 9, (5,), np.int64)
        with pytest.raises(RuntimeError, match=r"environment 1.*use observation_mode='different'"):
            self.make([Ledger, partial(Unlike, other)])

    def test_a_pair_that_does_not_fit_names_the_environment(self) -> None:
        pair = (spaces.Box(0, 9, (2, 6), np.int64), spaces.Box(0, 9, (6,), np.int64))
        with pytest.raises(RuntimeError, match="environment 0"):
            self.make(ledgers(2), observation_mode=pair)

    def test_a_pair_whose_batch_is_no_batch_is_refused(self) -> None:
        single = Ledger.observation_space
        with pytest.raises((RuntimeError, ValueError), match="observation_space"):
            self.make(ledgers(2), observation_mode=(single, single))

    def test_action_spaces_must_be_equal(self) -> None:
        pair = [partial(Sampler, spaces.Discrete(2), spaces.Discrete(n)) for n in (2, 3)]
        with pytest.raises(RuntimeError, match=r"environment 1.*Discrete\(3\).*Discrete\(2\)"):
            self.make(pair)

    def test_an_unknown_observation_mode_is_refused(self) -> None:
        for mode, error in (("alike", ValueError), (("a", "b"), TypeError), (3, ValueError)):
            with pytest.raises(error, match="observation_mode"):
                self.make(ledgers(2), observation_mode=mode)

    def test_actions_of_another_form_name_the_path_and_no_environment_is_stepped(self) -> None:
        space = spaces.Dict(
            move=spaces.Box(-1, 1, (2,), np.float32),
            grip=spaces.Tuple((spaces.Discrete(3), spaces.Text(4))),
        )
        moves, grips = np.zeros((2, 2)), np.zeros(2, np.int64)
        wrong: list[Any] = [
            {"move": np.zeros((2, 3)), "grip": (grips, ["a", "b"])},
            {"move": moves, "grip": (np.zeros(2), ["a", "b"])},
            {"move": moves, "grip": (grips, ["a"])},
            {"move": moves, "grip": (grips, ["a", 3])},
            {"move": moves, "grip": (grips,)},
            {"move": moves},
            {"move": moves.astype(complex), "grip": (grips, ["a", "b"])},
            [moves, (grips, ["a", "b"])],
        ]
        with self.begun([partial(Sampler, spaces.Discrete(2), space)] * 2) as envs:
            for actions in wrong:
                with pytest.raises(InvalidActionError, match=r"^actions.*expected.*found"):
                    envs.step(actions)
            assert envs.get_attr("action") == (None, None)
            envs.step(envs.action_space.sample())

    def test_an_action_of_one_environment_that_does_not_fit_names_it(self) -> None:
        space = spaces.Dict(say=spaces.Text(3))
        with (
            self.begun([partial(Sampler, spaces.Discrete(2), space)] * 3) as envs,
            pytest.raises(InvalidActionError, match=r"actions\['say'\].*environment 2"),
        ):
            envs.step({"say": ("a", "b", 5)})

    def test_wrong_env_ids_are_refused(self) -> None:
        with self.make(ledgers(3)) as envs:
            for ids in ([3], [-1], [0, 0]):
                with pytest.raises(ValueError, match="env_ids"):
                    envs.call("number", env_ids=ids)
                with pytest.raises(ValueError, match="env_ids"):
                    envs.set_attr("number", 0, env_ids=ids)
            others: list[Any] = [1, [1.5], "01", np.array([1.0])]
            for ids in others:
                with pytest.raises(TypeError, match="env_ids must be the numbers of environments"):
                    envs.call("number", env_ids=ids)
            masks: list[Any] = [[True, False, True], np.array([True, False, True])]
            for ids in masks:
                with pytest.raises(TypeError, match="flatnonzero"):
                    envs.call("number", env_ids=ids)
            assert envs.call("number") == (0, 1, 2)

    def test_call_refuses_reset_step_and_close(self) -> None:
        with self.make(ledgers(2)) as envs:
            for name in ("reset", "step", "close"):
                with pytest.raises(ValueError, match=name):
                    envs.call(name)
            envs.reset()

    def test_two_calls_at_once_are_refused_and_the_first_goes_on(self) -> None:
        with self.begun(ledgers(2)) as envs:
            envs.step_async([1, 2])
            for second in (
                partial(envs.step_async, [0, 0]),
                envs.reset_async,
                partial(envs.call_async, "number"),
                partial(envs.set_attr, "number", 5),
            ):
                with pytest.raises(AlreadyPendingCallError, match="step"):
                    second()
            with pytest.raises(NoAsyncCallError, match="call_wait"):
                envs.call_wait()
            assert envs.step_wait()[0][:, 3].tolist() == [1, 2]
            assert envs.get_attr("number") == (0, 1)

    def test_waiting_for_nothing_is_refused(self) -> None:
        with self.make(ledgers(2)) as envs:
            for wait in (envs.reset_wait, envs.step_wait, envs.call_wait):
                with pytest.raises(NoAsyncCallError, match="_async first"):
                    wait()
            envs.reset(seed=0)

    def test_a_rollout_that_is_not_whole_is_refused(self) -> None:
        with self.begun(ledgers(2), buffers=3) as envs:
            envs.step([0, 0])
            with pytest.raises(ValueError, match=r"2 steps.*found 1"):
                envs.rollout_view()
            envs.step([0, 0])
            envs.rollout_view()
            envs.step([0, 0])
            with pytest.raises(ValueError, match=r"2 steps.*found 1"):
                envs.rollout_view()
        with self.begun(ledgers(2)) as envs, pytest.raises(ValueError, match="buffers=T"):
            envs.rollout_view()

    def test_a_rollout_of_environments_that_were_stepped_alone_is_refused(self) -> None:
        with self.begun(ledgers(2), buffers=3) as envs:
            envs.step([0, 0])
            envs.step([1], env_ids=[1])
            envs.step([0, 0])
            with pytest.raises(ValueError, match="some were stepped alone"):
                envs.rollout_view()
            envs.reset(seed=0)
            for _ in range(2):
                envs.step([0, 0])
            assert envs.rollout_view().rewards.shape == (2, 2)

    def test_a_rollout_of_variable_observations_is_refused(self) -> None:
        space = spaces.Sequence(spaces.Discrete(3))
        with self.begun([partial(Sampler, space, spaces.Discrete(2))], buffers=2) as envs:
            envs.step([0])
            with pytest.raises(ValueError, match="Sequence"):
                envs.rollout_view()
            envs.step([0])

    def test_wrong_buffers_and_stats_that_are_not_measured_are_refused(self) -> None:
        for buffers in (0, -1):
            with pytest.raises(ValueError, match="buffers must be an integer of at least 1"):
                self.make(ledgers(1), buffers=buffers)
        with self.make(ledgers(1)) as envs, pytest.raises(ValueError, match="stats=True"):
            envs.stats()
