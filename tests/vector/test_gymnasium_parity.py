"""Side by side with Gymnasium's SyncVectorEnv: same seeds and actions, same results to the bit.

Other vector envs of ours give what SyncVectorEnv gives, by the contract and the state machine.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import ALL_SPACES, assert_same_infos
from tests.crosses import diagonal
from tests.envs import Ledger, Sampler, failing
from vecspaces.adapters.gymnasium import to_gymnasium
from vecspaces.vector import AutoresetMode, SyncVectorEnv

MODES = list(AutoresetMode)
theirs_spaces = gymnasium.spaces


def foreign(env: Ledger) -> Ledger:
    """An environment whose spaces are Gymnasium's."""
    env.observation_space = to_gymnasium(env.observation_space)  # type: ignore[assignment]
    env.action_space = to_gymnasium(env.action_space)  # type: ignore[assignment]
    return env


def foreign_ledgers(count: int, **arguments: Any) -> list[Any]:
    return [
        lambda number=number: foreign(
            Ledger(number, length=2 + number % 3, truncates=number % 2 == 1, **arguments)
        )
        for number in range(count)
    ]


def assert_parity(ours: Any, theirs: Any) -> None:
    """Everything that reset or step returned is Gymnasium's."""
    for number, (array, other) in enumerate(zip(ours[:-1], theirs[:-1], strict=True)):
        assert_identical(array, other, f"result {number}")
    assert_same_infos(_with_plain_finals(ours[-1]), _with_plain_finals(theirs[-1]))


def _with_plain_finals(infos: dict[str, Any]) -> dict[str, Any]:
    """Gymnasium hands out the environment's own final observation, we a value of the space.

    They differ in what a value without axes is: a scalar of Python or NumPy, or an array.
    """
    if "final_obs" not in infos:
        return infos
    return {**infos, "final_obs": [_plain(value) for value in infos["final_obs"]]}


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    return np.asarray(value) if isinstance(value, (int, np.generic)) else value


def assert_parity_of_a_run(ours: Any, theirs: Any, steps: int, seed: int = 11) -> None:
    """Reset and step both with the same seeds and with samples of their own action spaces."""
    assert_identical(type(ours.observation_space).__name__, type(theirs.observation_space).__name__)
    assert repr(ours.observation_space) == repr(theirs.observation_space)
    assert repr(ours.action_space) == repr(theirs.action_space)
    assert_parity(ours.reset(seed=seed), theirs.reset(seed=seed))
    ours.action_space.seed(seed)
    theirs.action_space.seed(seed)
    for _ in range(steps):
        actions, expected = ours.action_space.sample(), theirs.action_space.sample()
        assert_identical(actions, expected, "actions")
        result = theirs.step(expected)
        assert_parity(ours.step(actions), result)
        ended = result[2] | result[3]
        if ours.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            assert_parity(
                ours.reset(options={"reset_mask": ended}),
                theirs.reset(options={"reset_mask": ended}),
            )


@diagonal(name=["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"], mode=MODES)
def test_classic_control(name: str, mode: AutoresetMode) -> None:
    arguments = {"max_episode_steps": 12} if name != "CartPole-v1" else {}
    env_fns = [partial(gymnasium.make, name, **arguments)] * 4
    theirs = gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode.value)
    with SyncVectorEnv(env_fns, autoreset_mode=mode) as ours:
        assert_parity_of_a_run(ours, theirs, 60)
        assert ours.metadata == {**theirs.metadata, "autoreset_mode": mode}
        assert ours.render_mode == theirs.render_mode
        for generator, other in zip(ours.np_random, theirs.np_random, strict=True):
            assert generator.bit_generator.state == other.bit_generator.state
        assert ours.np_random_seed == theirs.np_random_seed
    theirs.close()


@diagonal(name=list(ALL_SPACES), mode=MODES)
def test_all_ten_spaces_as_observation_and_action(name: str, mode: AutoresetMode) -> None:
    space = to_gymnasium(ALL_SPACES[name])
    env_fns = [partial(Sampler, space, space)] * 3
    theirs = gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode.value)
    with SyncVectorEnv(env_fns, autoreset_mode=mode) as ours:
        assert_parity_of_a_run(ours, theirs, 8)
        for action, other in zip(ours.get_attr("action"), theirs.get_attr("action"), strict=True):
            assert_identical(action, other, "what the environment got")


@pytest.mark.parametrize("mode", MODES)
def test_infos_options_and_masks(mode: AutoresetMode) -> None:
    env_fns = foreign_ledgers(5)
    theirs = gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode.value)
    with SyncVectorEnv(env_fns, autoreset_mode=mode) as ours:
        for options in (None, {}, {"time": 1}):
            assert_parity(
                ours.reset(seed=2, options=options), theirs.reset(seed=2, options=options)
            )
            for number in range(6):
                mask = np.arange(5) % 2 == number % 2
                seeds = [number, None, 3, 4, None]
                chosen = {"reset_mask": mask, "time": 0}
                assert_parity(
                    ours.reset(seed=seeds, options=dict(chosen)),
                    theirs.reset(seed=seeds, options=dict(chosen)),
                )
                if mode is AutoresetMode.DISABLED and theirs._autoreset_envs.any():
                    every = {"reset_mask": theirs._autoreset_envs.copy()}
                    assert_parity(
                        ours.reset(options=dict(every)), theirs.reset(options=dict(every))
                    )
                actions = np.full(5, number % 5)
                assert_parity(ours.step(actions), theirs.step(actions))
        for name in ("seeds", "options", "episode"):
            assert ours.get_attr(name) == theirs.get_attr(name)


def test_calls_attributes_and_frames() -> None:
    env_fns = [partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")] * 2
    theirs = gymnasium.vector.SyncVectorEnv(env_fns)
    with SyncVectorEnv(env_fns) as ours:
        for envs in (ours, theirs):
            envs.reset(seed=4)
            envs.set_attr("gravity", [9.0, 10.0])
            envs.set_attr("length", 0.7)
        for name in ("gravity", "length", "np_random_seed", "metadata", "render_mode"):
            assert ours.get_attr(name) == theirs.get_attr(name)
        assert ours.call("has_wrapper_attr", "gravity") == theirs.call(
            "has_wrapper_attr", "gravity"
        )
        assert_identical(ours.render(), theirs.render())
        actions = np.array([0, 1])
        assert_parity(ours.step(actions), theirs.step(actions))
        # docs/gymnasium.md: ours also names the mode.
        assert repr(ours) == f"{repr(theirs).removesuffix(')')}, autoreset_mode='NextStep')"
    theirs.close()


def refused(use: Any) -> Exception:
    """What a call raises."""
    try:
        use()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


MISUSES: list[Any] = [
    lambda envs: envs.reset(seed=[1]),
    lambda envs: envs.reset(options={"reset_mask": [True, False]}),
    lambda envs: envs.reset(options={"reset_mask": np.array([True])}),
    lambda envs: envs.reset(options={"reset_mask": np.array([1, 0])}),
    lambda envs: envs.reset(options={"reset_mask": np.array([False, False])}),
    lambda envs: envs.set_attr("length", [1]),
    lambda envs: envs.set_attr("length", (1, 2, 3)),
    lambda envs: envs.call("no_such_name"),
    lambda envs: envs.get_attr("no_such_name"),
    lambda envs: envs.step([4, 0]),
]


def test_error_types_are_gymnasiums() -> None:
    env_fns = [lambda env_fn=env_fn: foreign(env_fn()) for env_fn in failing(2)]
    theirs = gymnasium.vector.SyncVectorEnv(env_fns)
    theirs.reset(seed=0)
    with SyncVectorEnv(env_fns) as ours:
        ours.reset(seed=0)
        for use in MISUSES:
            expected = refused(partial(use, theirs))
            assert isinstance(refused(partial(use, ours)), type(expected))


@pytest.mark.parametrize(
    "arguments",
    [
        {"observation_mode": "no"},
        {"observation_mode": ("a", "b")},
        {"autoreset_mode": "no"},
        {"observation_mode": (theirs_spaces.Discrete(2), theirs_spaces.Discrete(2))},
    ],
)
def test_error_types_of_the_constructor_are_gymnasiums(arguments: dict[str, Any]) -> None:
    env_fns = foreign_ledgers(2)
    expected = refused(lambda: gymnasium.vector.SyncVectorEnv(env_fns, **arguments))
    assert isinstance(refused(lambda: SyncVectorEnv(env_fns, **arguments)), type(expected))
