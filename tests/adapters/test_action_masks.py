"""Action masks of an info_space: Stable-Baselines3 gets them without a call into the workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.programs import load_example
from vecspaces import Env, spaces
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidActionError,
    ResetNeededError,
)
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from vecspaces.adapters.stable_baselines3 import as_vec_env

MODES = list(AutoresetMode)


class Door(Env[Any, Any]):
    """Its mask is drawn at random in each step; it has the method that sb3-contrib calls.

    Args:
        silent: The step whose info lacks the mask.
    """

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(5)
    info_space = spaces.Dict(action_mask=spaces.MultiBinary(5))

    def __init__(self, length: int = 3, silent: int = -1) -> None:
        self.length, self.silent = length, silent

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), self._info()

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(1, np.float32), 0.0, self.time == self.length, False, self._info()

    def _info(self) -> dict[str, Any]:
        self.mask = self.np_random.integers(0, 2, 5).astype(np.int8)
        return {} if self.time == self.silent else {"action_mask": self.mask}

    def action_masks(self) -> Any:
        return self.mask

    def change(self) -> None:
        self.mask = 1 - self.mask


def refuse(*arguments: Any, **named: Any) -> Any:
    raise AssertionError("a call into the workers")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
def test_the_masks_are_those_of_the_environments_and_need_no_call(
    kind: Any, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_fns = [partial(Door, 2 + number) for number in range(3)]
    vec_env = as_vec_env(kind(env_fns, autoreset_mode=mode))
    vec_env.seed(3)
    vec_env.reset()
    for _ in range(9):
        expected = np.stack(vec_env.vector_env.call("action_masks"))
        with monkeypatch.context() as patched:
            patched.setattr(vec_env.vector_env, "call", refuse)
            assert vec_env.has_attr("action_masks")
            masks = vec_env.env_method("action_masks")
            assert [mask.dtype for mask in masks] == [np.int8] * 3
            assert np.array_equal(np.stack(masks), expected)
            assert np.array_equal(np.stack(vec_env.get_attr("action_mask")), expected)
            (last,) = vec_env.env_method("action_masks", indices=-1)
            assert np.array_equal(last, expected[2])
            last[:] = 7  # what was given belongs to the caller
            assert np.array_equal(vec_env.env_method("action_masks", indices=[2])[0], expected[2])
        vec_env.step(np.zeros(3, np.int64))
    vec_env.close()


def masks_of(vec_env: Any) -> Any:
    return np.stack(vec_env.env_method("action_masks"))


@pytest.mark.parametrize("mode", MODES)
def test_unknown_masks_are_read_from_the_environments(mode: AutoresetMode) -> None:
    env_fns = [partial(Door, 2 + number, silent=1) for number in range(3)]
    vec_env = as_vec_env(SyncVectorEnv(env_fns, autoreset_mode=mode))
    vec_env.reset()
    before = masks_of(vec_env)
    vec_env.env_method("change")
    assert np.array_equal(masks_of(vec_env), 1 - before)
    vec_env.step(np.zeros(3, np.int64))
    expected = np.stack([env.mask for env in vec_env.vector_env.envs])
    assert np.array_equal(masks_of(vec_env), expected)
    vec_env.step(np.zeros(3, np.int64))
    vec_env.set_attr("mask", np.ones(5, np.int8))
    assert masks_of(vec_env).all()
    vec_env.close()


@pytest.mark.parametrize("mode", MODES)
def test_masks_of_before_are_no_answer_during_a_step_and_after_an_error(
    mode: AutoresetMode,
) -> None:
    class Jammed(Door):
        def step(self, action: Any) -> Any:
            if action == 4:
                raise OSError("jammed")
            return super().step(action)

    vec_env = as_vec_env(AsyncVectorEnv([Jammed] * 2, num_workers=1, autoreset_mode=mode))
    vec_env.reset()
    with pytest.raises(InvalidActionError):
        vec_env.step_async(["no", "action"])
    assert len(vec_env.env_method("action_masks")) == 2  # no environment was stepped
    vec_env.step_async(np.array([0, 4]))
    for ask in (
        partial(vec_env.env_method, "action_masks"),
        partial(vec_env.get_attr, "action_mask"),
    ):
        with pytest.raises(AlreadyPendingCallError):
            ask()
    with pytest.raises(OSError, match="jammed"):
        vec_env.step_wait()
    with pytest.raises(ResetNeededError):
        vec_env.env_method("action_masks")
    vec_env.reset()
    assert np.array_equal(masks_of(vec_env), np.stack(vec_env.vector_env.call("action_masks")))
    vec_env.close()
    with pytest.raises(ClosedEnvironmentError):
        vec_env.env_method("action_masks")


def test_masked_ppo_trains_and_takes_allowed_actions_alone() -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

    class Strict(Door):
        def step(self, action: Any) -> Any:
            assert self.mask[action] or not self.mask.any()
            return super().step(action)

        def _info(self) -> dict[str, Any]:
            info = super()._info()
            self.mask[0] = 1
            return info

    vec_env = as_vec_env(AsyncVectorEnv([Strict] * 4, num_workers=2, autoreset_mode="SameStep"))
    model = contrib.MaskablePPO("MlpPolicy", vec_env, n_steps=32, batch_size=32, device="cpu")
    assert model.learn(256).num_timesteps == 256
    vec_env.close()


@pytest.mark.full
def test_the_example_learns_the_shortest_way() -> None:
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    mean = load_example("masked_ppo").main(num_envs=64, timesteps=60_000, seed=1, compare=False)
    assert mean > -0.35  # the shortest way is worth -0.3
