"""Every wrapper beside Gymnasium's: the same numbers, dtypes and spaces, seed for seed."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers as theirs_single
from gymnasium.wrappers import vector as theirs

from tests.adapters.side_by_side import MODES
from tests.compare import assert_identical
from tests.crosses import diagonal
from vecspaces import spaces
from vecspaces import wrappers as ours
from vecspaces.adapters.gymnasium import to_gymnasium
from vecspaces.vector import SyncVectorEnv
from vecspaces.vector.utils import iterate

NEXT_STEP, SAME_STEP, DISABLED = MODES
COUNT = 3
Spaces = gymnasium.spaces


class Noise(gymnasium.Env[Any, Any]):
    """Shows samples of a space; its episodes end or are cut short after a few steps."""

    def __init__(self, space: Any, number: int = 0, action_space: Any = None) -> None:
        self.observation_space = copy.deepcopy(space)
        self.action_space = action_space or Spaces.Discrete(2)
        self.number, self.time = number, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        done = self.time >= 3 + self.number
        reward = float(np.sum(action)) + 3 * self.np_random.normal()
        return self.observation_space.sample(), reward, done and self.number != 1, done, {}


SMALL = Spaces.Box(0, 5, (2,), np.int32)
IMAGE = Spaces.Box(0, 255, (12, 10, 3), np.uint8)
NESTED = Spaces.Dict(
    image=Spaces.Box(-1, 1, (2, 3), np.float32),
    mark=Spaces.Discrete(4, start=2),
    pair=Spaces.Tuple((Spaces.MultiBinary(3), Spaces.MultiDiscrete([2, 5]))),
)
WITH_TEXT = Spaces.Dict(a=Spaces.Box(0, 1, (2,)), text=Spaces.Text(5, min_length=1))
BOX = Spaces.Box(-2.0, 5.0, (4,), np.float32)
MIXED = Spaces.Box(np.array([-1, -np.inf]), np.array([3, np.inf]), dtype=np.float64)
TORQUE = Spaces.Box(np.array([-2, 0], np.float32), np.array([2, 9], np.float32))


def noise(space: Any, action_space: Any = None, wrap: Any = lambda env: env) -> list[Any]:
    """Environments with a limit of steps, each in a wrapper of its own."""
    return [
        lambda number=number: wrap(theirs_single.TimeLimit(Noise(space, number, action_space), 4))
        for number in range(COUNT)
    ]


# The wrapper, its arguments, and the spaces of observations and, if they matter, of actions.
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "statistics": ("RecordEpisodeStatistics", {"buffer_length": 4}, [BOX]),
    "statistics of one": ("RecordEpisodeStatistics", {"buffer_length": 1}, [BOX]),
    "clip reward": ("ClipReward", {"min_reward": -1, "max_reward": 0.5}, [BOX]),
    "clip reward below": ("ClipReward", {"min_reward": np.float32(0.1)}, [BOX]),
    "clip action": ("ClipAction", {}, [BOX, TORQUE]),
    "rescale action": ("RescaleAction", {"min_action": -0.5, "max_action": 2}, [BOX, TORQUE]),
    "rescale": ("RescaleObservation", {"min_obs": 0, "max_obs": 1}, [BOX]),
    "rescale mixed": (
        "RescaleObservation",
        {"min_obs": np.array([0, -np.inf]), "max_obs": np.array([1, np.inf])},
        [MIXED],
    ),
    "rescale integers": ("RescaleObservation", {"min_obs": 3, "max_obs": 28}, [SMALL]),
    "dtype box": ("DtypeObservation", {"dtype": np.float64}, [BOX]),
    "dtype discrete": ("DtypeObservation", {"dtype": np.uint8}, [Spaces.Discrete(5, start=1)]),
    "dtype bits": ("DtypeObservation", {"dtype": np.float32}, [Spaces.MultiBinary((2, 2))]),
    "dtype numbers": ("DtypeObservation", {"dtype": np.int32}, [Spaces.MultiDiscrete([3, 9])]),
    "flatten image": ("FlattenObservation", {}, [IMAGE]),
    "flatten nested": ("FlattenObservation", {}, [NESTED]),
    "flatten discrete": ("FlattenObservation", {}, [Spaces.Discrete(5, start=-2)]),
    "flatten text": ("FlattenObservation", {}, [WITH_TEXT]),
    "filter dict": ("FilterObservation", {"filter_keys": ["image", "pair"]}, [NESTED]),
    "filter tuple": ("FilterObservation", {"filter_keys": [-1]}, [NESTED["pair"]]),
    "filter in order": ("FilterObservation", {"filter_keys": [-1, 0]}, [NESTED["pair"]]),
    "normalize": ("NormalizeObservation", {"epsilon": 1e-6}, [BOX]),
    "normalize wide": ("NormalizeObservation", {}, [MIXED]),
    "normalize reward": ("NormalizeReward", {"gamma": 0.9}, [BOX]),
}  # fmt: skip
# What RecordEpisodeStatistics shows beside its infos.
COUNTS = ("episode_returns", "episode_lengths", "prev_dones", "episode_count")
QUEUES = ("return_queue", "length_queue")


class Kept(dict[str, Any]):
    """Options whose mask Gymnasium's own wrapper finds after its vector env has taken it out."""

    pop = dict.get


def check_beside(mine: Any, other: Any, mode: Any, *, steps: int = 14) -> None:
    """Reset and step both; everything that they show is the same."""
    for name in ("single_observation_space", "observation_space", "single_action_space"):
        assert to_gymnasium(getattr(mine, name)) == getattr(other, name), name
    mine.action_space.seed(1)
    assert_identical(mine.reset(seed=7)[0], other.reset(seed=7)[0])
    for _ in range(steps):
        # Gymnasium's wrappers write over the actions that they are given.
        actions = mine.action_space.sample()
        if mine.action_space.dtype == np.float32:
            actions = 3 * actions  # outside of the bounds
        result, expected = mine.step(actions), other.step(actions.copy())
        assert_identical(result[:4], expected[:4])
        assert result[4].keys() == expected[4].keys()
        for key, values in expected[4].items():
            if key == "final_obs":
                for ours, its in zip(result[4][key], values, strict=True):
                    assert_identical(ours, its)
            elif key == "episode":
                assert_identical(*({**of, "t": None} for of in (result[4][key], values)))
            elif key != "final_info":
                assert_identical(result[4][key], values)
        for name in COUNTS if hasattr(mine, "episode_count") else ():
            assert np.array_equal(getattr(mine, name), getattr(other, name)), name
        for name in QUEUES if hasattr(mine, "episode_count") else ():
            assert list(getattr(mine, name)) == list(getattr(other, name)), name
        ended = result[2] | result[3]
        if mode is DISABLED and ended.any():
            everyone = np.ones(COUNT, bool)
            mask = everyone if "Normalize" in type(mine).__name__ else ended
            again = mine.reset(seed=3, options={"reset_mask": mask})[0]
            assert_identical(again, other.reset(seed=3, options=Kept(reset_mask=mask.copy()))[0])


@diagonal(
    name=list(CASES),
    mode={mode.value: mode for mode in MODES},
    copy={"copies": True, "views": False},
)
def test_it_does_what_gymnasiums_wrapper_does(name: str, mode: Any, copy: bool) -> None:
    kind, arguments, spaces = CASES[name]
    if kind == "NormalizeObservation" and mode is not NEXT_STEP:
        pytest.skip("Gymnasium's refuses other modes")
    make = partial(gymnasium.vector.SyncVectorEnv, autoreset_mode=mode)
    # Gymnasium has no vector form of some, and refuses this mode with others.
    if not hasattr(theirs, kind) or (kind.endswith("Observation") and mode is SAME_STEP):
        wrap = partial(getattr(theirs_single, kind), **arguments)
        other: Any = make(noise(*spaces, wrap=wrap))
    else:
        other = getattr(theirs, kind)(make(noise(*spaces)), **arguments)
    inner = SyncVectorEnv(noise(*spaces), autoreset_mode=mode, copy=copy)
    with getattr(ours, kind)(inner, **arguments) as mine:
        check_beside(mine, other, mode)


@pytest.mark.parametrize("passed", [(), ("single",), ("batch", "single")], ids=str)
@pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED], ids=lambda mode: mode.value)
def test_functions_of_batches_are_called_as_gymnasiums_are(mode: Any, passed: Any) -> None:
    single = Spaces.Box(-20.0, 50.0, (4,), np.float32)
    arguments = {
        "single_observation_space": single if "single" in passed else None,
        "observation_space": (
            gymnasium.vector.utils.batch_space(single, COUNT) if "batch" in passed else None
        ),
    }
    env_fns = noise(BOX)
    other: Any = gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode)
    other = theirs.TransformReward(theirs.TransformAction(other, np.flip), np.square)
    other = theirs.TransformObservation(other, lambda batch: batch * 10, **arguments)
    mine: Any = SyncVectorEnv(env_fns, autoreset_mode=mode)
    mine = ours.TransformReward(ours.TransformAction(mine, np.flip), np.square)
    with ours.TransformObservation(mine, lambda batch: batch * 10, **arguments) as mine:
        check_beside(mine, other, mode)


def test_one_bound_of_rewards_in_an_array_leaves_their_shape() -> None:
    with ours.ClipReward(SyncVectorEnv(noise(BOX)), max_reward=np.array([[0.5]])) as envs:
        envs.reset(seed=1)
        rewards = envs.step(envs.action_space.sample())[1]
        assert rewards.shape == (COUNT,) and rewards.dtype == np.float64
        assert rewards.max() == 0.5


@pytest.mark.parametrize("kind", ["RescaleObservation", "RescaleAction"])
def test_integers_are_not_rescaled_to_fractions(kind: str) -> None:
    # Gymnasium's map every observation to one number, and divide actions by zero.
    with SyncVectorEnv(noise(IMAGE, SMALL)) as envs:
        with pytest.raises(ValueError, match=r"whole multiples .* found 0.0 and 1.0: cast"):
            getattr(ours, kind)(envs, 0.0, 1.0)
        floats = ours.DtypeObservation(envs, np.float32)
        assert ours.RescaleObservation(floats, 0.0, 1.0).reset(seed=1)[0].max() > 0.5


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict(a=spaces.Dict({}), b=spaces.Discrete(3)),
        spaces.Tuple((spaces.Tuple(()), spaces.Box(0, 1, (2,)))),
        spaces.Dict(a=spaces.Dict(c=spaces.Dict({})), b=spaces.Text(2), c=spaces.MultiBinary(2)),
    ],
    ids=str,
)
def test_members_without_data_do_not_count_the_rows(space: Any) -> None:
    with SyncVectorEnv(noise(to_gymnasium(space))) as plain_envs:
        observations = plain_envs.reset(seed=0)[0]
    with ours.FlattenObservation(SyncVectorEnv(noise(to_gymnasium(space)))) as envs:
        flat = envs.reset(seed=0)[0]
        assert flat.shape == (COUNT, spaces.flatdim(space))
        rows = iterate(plain_envs.observation_space, observations)
        for value, row in zip(flat, rows, strict=True):
            assert_identical(value, spaces.flatten(space, row))
