"""Tests: what the caller's side decides before a command goes out: what it takes and refuses."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.contract.comparing import Part
from tests.envs import Ledger, Sampler, Unlike, ledgers
from vecspaces import spaces
from vecspaces.errors import InvalidActionError, NoAsyncCallError

_TWO = spaces.Discrete(2)
_SINGLE = Ledger.observation_space
_PAIR = (spaces.Box(0, 9, (2, 6), np.int64), spaces.Box(0, 9, (6,), np.int64))
#: Factories and arguments, and what the error says.
ARGUMENTS: list[tuple[Any, dict[str, Any], Any, str]] = [
    ([], {}, ValueError, "at least one factory"),
    (ledgers(2), {"observation_mode": 3}, ValueError, "observation_mode"),
    (ledgers(2), {"observation_mode": _PAIR}, RuntimeError, "environment 0"),
    (
        ledgers(2),
        {"observation_mode": (_SINGLE, _SINGLE)},
        (RuntimeError, ValueError),
        "observation_space",
    ),
    (
        [partial(Sampler, _TWO, _TWO), partial(Sampler, _TWO, spaces.Discrete(3))],
        {},
        RuntimeError,
        r"environment 1.*Discrete\(3\).*Discrete\(2\)",
    ),
]
#: Arguments of a reset, and what the error says.
RESETS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"options": {"reset_mask": [True, False]}}, TypeError, "numpy array, found list"),
    ({"options": {"reset_mask": np.array([1, 0])}}, TypeError, "dtype bool, found int64"),
    ({"options": {"reset_mask": np.array([True])}}, ValueError, r"shape \(2,\), found \(1,\)"),
    ({"options": {"reset_mask": np.array([False, False])}}, ValueError, "at least one"),
    ({"options": [{}]}, ValueError, r"expected 2 options.*found 1"),
    ({"options": [{}, 1]}, TypeError, r"options\[1\].*found int"),
    ({"options": 3}, TypeError, r"mapping.*found int"),
]


class CallerContract(Part):
    """What the caller's side takes and refuses."""

    def test_different_takes_other_bounds_and_a_pair_gives_the_spaces_themselves(self) -> None:
        boxes = [spaces.Box(0, high, (5,), np.int64) for high in (8, 9)]
        env_fns = [partial(Unlike, box, number) for number, box in enumerate(boxes)]
        with self.make(env_fns, observation_mode="different") as envs:
            assert envs.single_observation_space == boxes[0]
            assert envs.observation_space.high.tolist() == [[8] * 5, [9] * 5]
            assert envs.reset(seed=0)[0][:, 0].tolist() == [0, 1]
        single = spaces.Box(0, 9, (5,), np.int64)
        batched = spaces.Box(0, 9, (2, 5), np.int64)
        with self.make(env_fns, observation_mode=(batched, single)) as envs:
            assert envs.observation_space == batched
            assert envs.single_observation_space == single
            assert envs.reset(seed=0)[0][:, 0].tolist() == [0, 1]

    def test_seeds_are_an_int_a_sequence_or_a_seed_sequence(self) -> None:
        sequence, other = np.random.SeedSequence(3), np.random.SeedSequence(3)
        spawned = [
            int(child.generate_state(1)[0]) & 0x7FFFFFFF
            for _ in range(2)
            for child in other.spawn(3)
        ]
        assert len(set(spawned)) == 6
        seeds: list[Any] = [np.int64(5), (1, None, 3), np.array([4, 5, 6]), sequence, sequence]
        expected = [[5, 6, 7], [1, None, 3], [4, 5, 6], spawned[:3], spawned[3:]]
        with self.make(ledgers(3)) as envs:
            for seed in seeds:
                envs.reset(seed=seed)
            assert envs.get_attr("seeds") == tuple(map(list, zip(*expected, strict=True)))

    def test_wrong_arguments_are_refused(self) -> None:
        for env_fns, arguments, error, text in ARGUMENTS:
            with pytest.raises(error, match=text):
                self.make(env_fns, **arguments)

    def test_a_wrong_reset_is_refused_and_nothing_happens(self) -> None:
        with self.begun(ledgers(2)) as envs:
            for arguments, error, text in RESETS:
                with pytest.raises(error, match=text):
                    envs.reset(**arguments)
            assert envs.get_attr("episode") == (1, 1)
            envs.step([0, 0])

    def test_actions_of_another_form_name_the_path_and_no_environment_is_stepped(self) -> None:
        space = spaces.Dict(
            move=spaces.Box(-1, 1, (2,), np.float32),
            grip=spaces.Tuple((spaces.Discrete(3), spaces.Text(4))),
        )
        with self.begun(ledgers(3)) as envs:
            for actions in (np.zeros(2, int), np.zeros(4, int), np.int64(0), [0, 0], (), None):
                with pytest.raises(InvalidActionError, match="actions"):
                    envs.step(actions)
            assert envs.step([1, 1, 1])[0][:, 2].tolist() == [1, 1, 1]
        moves, grips = np.zeros((2, 2)), np.zeros(2, np.int64)
        wrong: list[Any] = [
            {"move": np.zeros((2, 3)), "grip": (grips, ["a", "b"])},
            {"move": moves, "grip": (np.zeros(2), ["a", "b"])},
            {"move": moves, "grip": (grips, ["a"])},
            {"move": moves, "grip": (grips,)},
            {"move": moves},
            {"move": moves.astype(complex), "grip": (grips, ["a", "b"])},
            [moves, (grips, ["a", "b"])],
        ]
        with self.begun([partial(Sampler, _TWO, space)] * 2) as envs:
            for actions in wrong:
                with pytest.raises(InvalidActionError, match=r"^actions.*expected.*found"):
                    envs.step(actions)
            with pytest.raises(InvalidActionError, match=r"actions\['grip'\]\[1\].*environment 1"):
                envs.step({"move": moves, "grip": (grips, ["a", 5])})
            assert envs.get_attr("action") == (None, None)
            envs.step(envs.action_space.sample())

    def test_wrong_calls_are_refused(self) -> None:
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
            for name in ("reset", "step", "close"):
                with pytest.raises(ValueError, match=name):
                    envs.call(name)
            for wait in (envs.reset_wait, envs.step_wait, envs.call_wait):
                with pytest.raises(NoAsyncCallError, match="_async first"):
                    wait()
            with pytest.raises(ValueError, match="stats=True"):
                envs.stats()
            assert envs.call("number") == (0, 1, 2)
