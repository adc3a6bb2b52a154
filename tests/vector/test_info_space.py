"""info_space: what it may be, what environments may return, and what is left after a death."""

from __future__ import annotations

import copy
import pickle
import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import ALL_SPACES, assert_same_infos
from tests.crosses import diagonal
from tests.envs import informing, talking
from vecspaces import Env, spaces
from vecspaces.errors import InvalidInfoError
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.exchange.info_space import KEY_SPACES

MODES = list(AutoresetMode)
ZERO = np.zeros(1, np.float32)
FLOAT = spaces.Box(-np.inf, np.inf, (), np.float64)


def run(info_space: Any, *infos: Any, **arguments: Any) -> dict[str, Any]:
    """The infos of a step of one environment for each of some infos."""
    with SyncVectorEnv(
        [partial(talking, *row) for row in infos], info_space=info_space, **arguments
    ) as e:
        e.reset(seed=0)
        return e.step(np.zeros(len(infos), np.int64))[4]


def declaring(space: Any) -> Any:
    """An environment whose attribute `info_space` is anything."""
    env = talking({})
    env.info_space = space
    return env


KINDS = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)]


# What else is refused is in tests/golden/messages.txt.
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_attribute_is_refused_unless_the_argument_overrides_it(kind: Any) -> None:
    for key in ("_final_obs", "final_obs", "worker_restarted"):
        with pytest.raises(ValueError, match="info_space"):
            SyncVectorEnv([partial(talking, {})], info_space=spaces.Dict({key: FLOAT}))
    env_fns = [partial(talking, {}), partial(declaring, 3)]
    with pytest.raises(TypeError, match=r"env_fns\[1\].*info_space"):
        kind(env_fns)
    # The attribute may be about something else, and the environment another's.
    for info_space in (spaces.Dict(), spaces.Dict(x=FLOAT)):
        with kind(env_fns, info_space=info_space) as envs:
            assert envs.info_space == (info_space or None)


class Plain(gymnasium.Env[Any, Any]):
    """An environment of Gymnasium's, whose infos are wrapped."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    info_space = gymnasium.spaces.Dict({"cost": gymnasium.spaces.Box(0, 9, (), np.float64)})

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return ZERO, {}

    def step(self, action: Any) -> Any:
        return ZERO, 0.0, False, False, {"cost": 2.5}


def test_it_is_found_through_wrappers() -> None:
    def make() -> Any:
        return gymnasium.wrappers.OrderEnforcing(gymnasium.wrappers.TimeLimit(Plain(), 9))

    with SyncVectorEnv([make] * 2) as envs:
        envs.reset(seed=0)
        assert envs.step([0, 0])[4]["cost"].tolist() == [2.5, 2.5]
        assert envs.info_space == spaces.Dict(cost=spaces.Box(0, 9, (), np.float64))


def test_environments_must_agree() -> None:
    env_fns = [partial(declaring, spaces.Dict(cost=FLOAT))] * 2 + [partial(talking, {})]
    for kind in KINDS:
        with pytest.raises(RuntimeError, match=r"environment 2 has info_space None.*argument"):
            kind(env_fns)


@pytest.mark.parametrize("name", ALL_SPACES)
def test_keys_are_arrays_of_one_shape(name: str) -> None:
    space = copy.deepcopy(ALL_SPACES[name])
    if not isinstance(space, KEY_SPACES):
        with pytest.raises(TypeError, match=r"info_space\['x'\]: expected a Box, Discrete,"):
            run(spaces.Dict(x=space), [{}])
        return
    space.seed(3)
    infos = [*([{"x": space.sample()}] for _ in range(3)), [{}]]
    merged = run(spaces.Dict(x=space), *infos)
    assert merged["_x"].tolist() == [True, True, True, False]
    assert_same_infos(merged, run(None, *infos))


NUMBERS = spaces.Dict(
    flag=spaces.Box(0, 1, (), np.bool_),
    small=spaces.Box(0, 255, (), np.uint8),
    count=spaces.Discrete(9),
    real=spaces.Box(-9, 9, (), np.float32),
    mask=spaces.MultiBinary(2),
)


def test_numbers_of_python_and_numpy_become_those_of_the_space() -> None:
    infos: list[Any] = [
        {"flag": True, "small": 3, "count": True, "real": 1, "mask": np.array([True, False])},
        {"flag": np.bool_(False), "small": np.int64(255), "count": 4, "real": 0.5, "mask": [0, 1]},
        {"flag": 1, "small": True, "count": np.uint8(8), "real": np.float64(2.5), "mask": (1, 1)},
    ]
    expected: dict[str, Any] = {
        "flag": np.array([True, False, True]),
        "small": np.array([3, 255, 1], np.uint8),
        "count": np.array([1, 4, 8]),
        "real": np.array([1, 0.5, 2.5], np.float32),
        "mask": np.array([[1, 0], [0, 1], [1, 1]], np.int8),
    }
    for count in (1, 3):
        merged = run(NUMBERS, *([info] for info in infos[:count]))
        for key, values in expected.items():
            assert_identical(merged[key], values[:count])


@pytest.mark.parametrize("validate", [False, True])
def test_a_copy_of_a_vector_env_goes_on_by_itself(validate: bool) -> None:
    with SyncVectorEnv(informing(3, True), buffers=3, validate=validate) as envs:
        envs.reset(seed=0)
        envs.step([0, 1, 2])
        with copy.deepcopy(envs) as twin, pickle.loads(pickle.dumps(envs)) as other:
            expected = envs.step([1, 1, 1])[4]
            assert_same_infos(twin.step([1, 1, 1])[4], expected)
            assert_same_infos(other.step([1, 1, 1])[4], expected)
            assert_same_infos(twin.rollout_view().infos, envs.rollout_view().infos)


def test_views_are_valid_for_the_next_buffers_minus_one_steps() -> None:
    with SyncVectorEnv([partial(Ticking, 9)] * 2, copy=False, buffers=3) as envs:
        views = [envs.reset(seed=0)[1]]
        kept = [copy.deepcopy(views[0])]
        for _ in range(7):
            views.append(envs.step([0, 0])[4])
            kept.append(copy.deepcopy(views[-1]))
            for view, before in zip(views[-3:], kept[-3:], strict=True):
                assert_same_infos(view, before)
        assert np.shares_memory(views[-1]["time"], views[-4]["time"])
        assert np.shares_memory(views[-1]["_time"], views[-4]["_time"])


@pytest.mark.parametrize("chosen", [[True, False], [True, True]])
def test_infos_of_a_reset_with_a_mask_are_copies(chosen: list[bool]) -> None:
    with SyncVectorEnv(
        [partial(Ticking, 9)] * 2, copy=False, buffers=2, autoreset_mode="Disabled"
    ) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        infos = envs.reset(options={"reset_mask": np.array(chosen)})[1]
        before = copy.deepcopy(infos)
        assert infos["_time"].tolist() == chosen
        for _ in range(3):
            envs.step([0, 0])
            assert_same_infos(infos, before)


class Ticking(Env[Any, Any]):
    """Tells its time, and its mask, in each info; of some length."""

    observation_space = spaces.Box(0, 99, (1,))
    action_space = spaces.Discrete(3)
    info_space = spaces.Dict(time=spaces.Discrete(99), mask=spaces.MultiBinary(3))

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 1
        return np.ones(1, np.float32), self._info()

    def step(self, action: Any) -> Any:
        self.time += 1
        observation = np.full(1, self.time, np.float32)
        return observation, 1.0, self.time == self.length, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"time": self.time, "mask": np.ones(3, np.int8), "besides": self.time}


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
@diagonal(mode=MODES, shared_memory=[True, False])
def test_a_row_that_was_lost_has_no_infos(mode: AutoresetMode, shared_memory: bool) -> None:
    arguments: Any = {"shared_memory": shared_memory, "on_worker_death": "restart"}
    with AsyncVectorEnv(
        [partial(Ticking, 99)] * 4, num_workers=2, autoreset_mode=mode, **arguments
    ) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            assert envs.step([0] * 4)[4]["_time"].all()
        envs.processes[1].kill()
        infos = envs.step([0] * 4)[4]
        assert infos["_worker_restarted"].tolist() == [False, False, True, True]
        if mode is AutoresetMode.SAME_STEP:  # the infos of the resets that follow
            assert infos["_time"].all()
            assert infos["time"].tolist() == [5, 5, 1, 1]
            assert infos["_final_info"].tolist() == [False, False, True, True]
            assert infos["final_info"] == {}
        else:
            assert infos["_time"].tolist() == [True, True, False, False]
            assert infos["time"].tolist() == [5, 5, 0, 0]
            assert infos["_mask"].tolist() == [True, True, False, False]
            assert infos["mask"].sum(1).tolist() == [3, 3, 0, 0]
        if mode is AutoresetMode.DISABLED:
            lost = np.array([False, False, True, True])
            infos = envs.reset(options={"reset_mask": lost})[1]
            assert infos["_time"].tolist() == lost.tolist()
            assert infos["time"].tolist() == [0, 0, 1, 1]
            infos = envs.step([0] * 4)[4]
            assert infos["time"].tolist() == [6, 6, 2, 2]
        else:
            infos = envs.step([0] * 4)[4]
            begun = 1 if mode is AutoresetMode.NEXT_STEP else 2
            assert infos["time"].tolist() == [6, 6, begun, begun]
        assert infos["_time"].all()


def test_an_error_and_a_reset_leave_nothing_behind() -> None:
    right, wrong = {"cost": 1.0}, {"cost": "none"}
    env_fns = [partial(talking, right, right, {}), partial(talking, right, wrong, {})]
    with SyncVectorEnv(env_fns, info_space=spaces.Dict(cost=FLOAT)) as envs:
        envs.reset()
        assert envs.step([0, 0])[4]["cost"].tolist() == [1, 1]
        with pytest.raises(InvalidInfoError, match="environment 1"):
            envs.step([0, 0])
        assert envs.reset()[1] == {}
