"""`validate=True`: what lies outside of its space is an error that says what, where and when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.calls import CASES, measure
from tests.contract import ALL_SPACES, assert_same_run
from tests.crosses import diagonal
from tests.envs import Echo, Sampler
from tests.vector.ways import WAYS, step_by
from vecspaces import spaces
from vecspaces.errors import (
    InvalidActionError,
    InvalidFlagError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
)
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics

MODES = list(AutoresetMode)
MAKERS: list[Callable[..., Any]] = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)]

# Space, an observation inside, one outside, and what the error names.
BOX = spaces.Box(-1, 1, (2,), np.float32)
INSIDE = np.zeros(2, np.float32)
OBSERVATIONS: dict[str, tuple[Any, Any, Any, str]] = {
    "bounds": (BOX, INSIDE, np.array([5, 0], np.float32), "observation: expected"),
    "nan": (BOX, INSIDE, np.array([0, np.nan], np.float32), "observation: expected"),
    "dtype": (BOX, INSIDE, np.zeros(2), "observation: expected dtype float32, found dtype float64"),
    "Discrete": (spaces.Discrete(3), 0, 17, "observation: expected an integer from 0 to 2"),
    "characters": (spaces.Text(3, charset="ab"), "ab", "abc", "observation: "),
    "length": (spaces.Text(3, min_length=2), "ab", "a", "observation: "),
    "path": (
        spaces.Dict(camera=spaces.Dict(left=spaces.Box(0, 1, (1,)))),
        {"camera": {"left": np.zeros(1, np.float32)}},
        {"camera": {"left": np.ones(1, np.float32) * 2}},
        r"observation\['camera'\]\['left'\]: expected",
    ),
    "Sequence": (spaces.Sequence(spaces.Discrete(2)), (0, 1), (0, 2), r"observation\[1\]: "),
}
FIRST = 3  # the step that goes wrong


def lapsing(
    space: Any, right: Any, wrong: Any, part: int = 0, step: int = FIRST, ends: bool = False
) -> Echo:
    """Return an environment that is wrong in one part of one step, which `ends` its episode."""
    good = [right, 1.0, False, False, {}]
    bad = [right, 1.0, ends, False, {}]
    bad[part] = wrong
    return Echo(space, [(right, {})], [*[tuple(good)] * (step - 1), tuple(bad)])


def among_right_ones(space: Any, right: Any, wrong: Any, part: int = 0) -> list[Any]:
    """Four environments, of which number 2 lapses."""
    sound = partial(lapsing, space, right, right)
    return [sound, sound, partial(lapsing, space, right, wrong, part), sound]


@pytest.mark.parametrize("case", OBSERVATIONS)
def test_validate_names_an_observation_outside_of_its_space(case: str) -> None:
    space, right, wrong, said = OBSERVATIONS[case]
    with SyncVectorEnv(among_right_ones(space, right, wrong), validate=True) as envs:
        envs.reset(seed=0)
        for _ in range(FIRST - 1):
            envs.step([0] * 4)
        where = f"environment 2 returned an invalid observation in step {FIRST} of its episode: "
        with pytest.raises(InvalidObservationError, match=f"{where}{said}.*observation_space"):
            envs.step([0] * 4)
        envs.reset(seed=0)
        envs.step([0] * 4)
    if case not in ("characters", "length"):  # a text is encoded by its characters
        with SyncVectorEnv([partial(lapsing, space, right, wrong, step=1)]) as envs:
            envs.reset(seed=0)
            envs.step([0])  # without `validate`, only the form is checked


@diagonal(make=MAKERS, way=WAYS)
def test_validate_checks_every_way_of_stepping(make: Any, way: str) -> None:
    space, right, wrong, _ = OBSERVATIONS["bounds"]
    env_fns = among_right_ones(space, right, wrong)
    with make(env_fns, validate=True) as envs:
        envs.reset(seed=0)
        step_by(envs, way, np.zeros(4, int))
        step_by(envs, way, np.zeros(4, int))
        with pytest.raises(InvalidObservationError, match=r"^environment 2 .* in step 3 of") as e:
            step_by(envs, way, np.zeros(4, int))
        assert make is SyncVectorEnv or "worker 1" in str(e.value.__cause__)


@pytest.mark.parametrize("mode", MODES)
def test_validate_checks_the_last_observation_of_an_episode(mode: AutoresetMode) -> None:
    space, right, wrong, _ = OBSERVATIONS["path"]
    env_fns = [partial(lapsing, space, right, wrong, step=2, ends=True)]
    with SyncVectorEnv(env_fns, autoreset_mode=mode, validate=True) as envs:
        envs.reset(seed=0)
        envs.step([0])
        with pytest.raises(InvalidObservationError, match=r"environment 0 .* in step 2 of"):
            envs.step([0])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_validate_checks_observations_of_resets_and_autoresets(mode: str) -> None:
    space, right, wrong, said = OBSERVATIONS["path"]
    match = f"environment 0 returned an invalid observation in reset: {said}"
    echo = partial(Echo, space, [(right, {}), (wrong, {})], [(right, 0.0, True, False, {})])
    with SyncVectorEnv([echo], autoreset_mode=mode, validate=True) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidObservationError, match=match):
            envs.reset(seed=0)
        envs.reset(seed=0)
        with pytest.raises(InvalidObservationError, match=match):
            envs.step([0])
            envs.step([0])


PARTS: dict[str, tuple[int, Any, type[Exception], str]] = {
    "nan": (1, float("nan"), InvalidRewardError, "returned nan as its reward in step 3 of"),
    "inf": (1, np.float32("inf"), InvalidRewardError, "returned inf as its reward in step 3"),
    "array": (1, np.array([np.nan]), InvalidRewardError, "returned nan as its reward in step 3"),
    "no number": (1, None, InvalidRewardError, "returned None as its reward in step 3"),
    "int": (2, 0, InvalidFlagError, "returned 0 of type int as terminated in step 3 of its"),
    "None": (3, None, InvalidFlagError, "returned None as truncated in step 3 .* a bool"),
    "key": (4, {1: 2}, InvalidInfoError, "returned an info with the key 1 of type int in step 3"),
    "nested": (4, {"a": {None: 2}}, InvalidInfoError, "the key None in step 3 of its episode"),
    "list": (4, [], InvalidInfoError, "as its info in step 3 .*: expected a dict"),
}


@pytest.mark.parametrize("case", PARTS)
def test_validate_checks_rewards_flags_and_infos(case: str) -> None:
    part, wrong, kind, said = PARTS[case]
    with SyncVectorEnv(among_right_ones(BOX, INSIDE, wrong, part), validate=True) as envs:
        envs.reset(seed=0)
        for _ in range(FIRST - 1):
            envs.step([0] * 4)
        with pytest.raises(kind, match=f"environment 2:? ?.*{said}"):
            envs.step([0] * 4)


def test_validate_takes_numbers_and_bools_of_all_kinds() -> None:
    rewards = [1, 1.5, np.float32(2), np.int64(3), np.array([4.0]), True]
    flags = [False, True, np.False_, np.True_]
    steps = [(INSIDE, r, flag, False, {"a": {"b": 1}}) for flag in flags for r in rewards]
    make = partial(Echo, BOX, [(INSIDE, {})], steps)
    with SyncVectorEnv([make], autoreset_mode="SameStep", validate=True) as envs:
        envs.reset(seed=0)
        assert [envs.step([0])[1].item() for _ in steps] == [1, 1.5, 2, 3, 4, 1] * 4


ACTIONS: dict[str, tuple[Any, Any, str]] = {
    "Discrete": (spaces.Discrete(3), [0, 9], r"actions\[1\]: expected an integer from 0 to 2"),
    "nested": (
        spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)])),
        {"a": (np.array([1, 2]),)},
        r"actions\[1\]\['a'\]\[0\]: expected an integer from 0 to 1",
    ),
    "Box": (BOX, [[0, 0], [0, np.nan]], r"actions\[1\]: expected"),
    "Text": (spaces.Text(3, min_length=1), ("a", ""), r"actions\[1\]: "),
}


@pytest.mark.parametrize(
    ("make", "case"), [*product(MAKERS[:1], ACTIONS), (MAKERS[1], "nested"), (MAKERS[1], "Text")]
)
def test_validate_refuses_actions_outside_of_their_space(make: Any, case: str) -> None:
    space, actions, said = ACTIONS[case]
    env_fns = [partial(Sampler, spaces.Discrete(9), space, shortest=99)] * 2
    with make(env_fns, validate=True) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match=f"step: {said}.* for environment 1: no env"):
            envs.step(actions)
        with pytest.raises(InvalidActionError, match=f"step_async: {said}.* for environment 1"):
            envs.step_async(actions)
        with pytest.raises(InvalidActionError, match=rf"send: {said}.* for environment 0"):
            envs.send(actions, env_ids=[1, 0])
        with pytest.raises(InvalidActionError, match=rf"step: {said}.* for environment 0"):
            envs.step(actions, env_ids=[1, 0])
        assert envs.get_attr("action") == (None, None), "no environment was stepped"
        envs.step(envs.action_space.sample())


def recorded(*arguments: Any, **options: Any) -> Any:
    """Make a wrapped vector env."""
    return RecordEpisodeStatistics(SyncVectorEnv(*arguments, **options))


@diagonal(make=[*MAKERS, recorded], way=WAYS)
def test_validate_takes_any_action_that_is_ignored(make: Any, way: str) -> None:
    env_fns = [partial(lapsing, BOX, INSIDE, INSIDE, step=last, ends=True) for last in (2, 99)]

    def step(*actions: int) -> list[bool]:
        return [bool(row[2]) for row in step_by(envs, way, np.array(actions))]

    def refused(row: int) -> Any:
        return pytest.raises(InvalidActionError, match=f"for environment {row}: no environment")

    with make(env_fns, validate=True) as envs:
        envs.reset(seed=0)
        assert step(0, 0) == [False, False]
        for _ in range(2):  # episodes of environment 0
            assert step(0, 0) == [True, False]
            with refused(1):
                step(9, 9)
            assert step(9, 1) == [False, False]  # which resets environment 0
            with refused(0):
                step(9, 1)
            assert step(0, 0) == [False, False]
        assert step(0, 0) == [True, False]
        envs.reset(options={"reset_mask": np.array([True, False])})  # in place of that step
        with refused(0):
            step(9, 1)


@diagonal(name=list(ALL_SPACES), mode=MODES)
def test_validate_takes_samples_and_changes_no_result(name: str, mode: AutoresetMode) -> None:
    space = ALL_SPACES[name]
    env_fns = [partial(Sampler, space, space)] * 3
    with (
        SyncVectorEnv(env_fns, autoreset_mode=mode, validate=True) as envs,
        SyncVectorEnv(env_fns, autoreset_mode=mode) as reference,
    ):
        assert_same_run(envs, reference)


def test_validate_holds_environments_to_their_own_bounds() -> None:
    wrong = np.full(2, 1.5, np.float32)
    env_fns = [
        partial(lapsing, spaces.Box(-high, high, (2,)), INSIDE, wrong, step=1) for high in (2, 1)
    ]
    with SyncVectorEnv(env_fns, observation_mode="different", validate=True) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidObservationError, match="environment 1 "):
            envs.step([0, 0])
    with SyncVectorEnv(env_fns[:1] * 2, validate=True) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])


def test_validate_makes_no_call_if_it_is_false() -> None:
    files = {file for name in CASES for file, _ in measure(*CASES[name])}
    assert files and not any("validation" in file for file in files)
