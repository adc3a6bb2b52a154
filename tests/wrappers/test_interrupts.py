"""An interrupt at any point of a wrapper's own work: the result is there when the wait is repeated.

The wrapped vector env is never interrupted here; tests/test_interrupts.py does that.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.test_interrupts import Counting, check_run
from vecspaces import wrappers
from vecspaces.errors import AlreadyPendingCallError, NoAsyncCallError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals")

COUNT = 4
ACTIONS = np.arange(COUNT)
SOME = [3, 1]


class Point:
    """Interrupts where Python runs signal handlers for the k-th time since it was switched on."""

    def __init__(self, k: int) -> None:
        self.left = k

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and argument is not sys.setprofile:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


class Inside:
    """Interrupts where a wrapper in the middle of the stack begins to change a result."""

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        wrapper = wrappers.TimeAwareObservation
        hooks = wrapper._begin.__code__, wrapper._follow.__code__
        if event == "call" and frame.f_code in hooks:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)


def _undisturbed(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        sys.setprofile(None)
        result = getattr(self.envs, name)(*args, **kwargs)
        sys.setprofile(self.point)
        return result

    return method


class Undisturbed(VectorEnv[Any, Any, Any]):
    """The vector env that is wrapped: interrupts come only after its calls have ended."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.point: Point | Inside | None = None
        self.num_envs, self.metadata, self.batch_size = envs.num_envs, envs.metadata, COUNT
        self.single_observation_space = envs.single_observation_space
        self.single_action_space = envs.single_action_space
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.spec = SimpleNamespace(max_episode_steps=100)

    step, step_async, step_wait = map(_undisturbed, ("step", "step_async", "step_wait"))
    reset, reset_async, reset_wait = map(_undisturbed, ("reset", "reset_async", "reset_wait"))
    send, send_reset, recv = map(_undisturbed, ("send", "send_reset", "recv"))

    def close_extras(self, **kwargs: Any) -> None:
        self.envs.close(**kwargs)


def stacked(mode: str) -> tuple[Undisturbed, Any]:
    """A vector env in every kind of wrapper with a state, and in some without."""
    env_fns = [partial(Counting, number) for number in range(COUNT)]
    inner = Undisturbed(SyncVectorEnv(env_fns, autoreset_mode=mode))
    envs: Any = VectorWrapper(wrappers.RecordEpisodeStatistics(inner))
    envs = wrappers.FrameStackObservation(wrappers.ClipReward(envs, max_reward=8.5), 3)
    envs = wrappers.DtypeObservation(wrappers.TimeAwareObservation(envs), np.float32)
    envs = wrappers.NormalizeObservation(wrappers.TransformAction(envs, np.flip))
    return inner, wrappers.NormalizeReward(envs)


STATE = ("accumulated_reward", "timesteps", "prev_dones", "episode_returns", "episode_lengths")
STATE += ("episode_count", "return_queue", "length_queue")


def shown(envs: Any, result: Any) -> Any:
    """What a call returned and what the wrappers know, but for durations."""
    known = {}
    while isinstance(envs, VectorWrapper):
        for name in ("obs_rms", "return_rms"):
            if name in vars(envs):
                known[name] = [*map(np.asarray, vars(vars(envs)[name]).values())]
        for name in STATE:
            if name in vars(envs):
                known[f"{type(envs).__name__}.{name}"] = np.array(vars(envs)[name])
        envs = envs.env
    *arrays, infos = result[:5]
    if "episode" in infos:
        infos = {**infos, "episode": {key: infos["episode"][key] for key in "rl"}}
    return arrays, infos, known


MASK = np.array([True, False, True, False])
# How a call begins, what is interrupted, and how it is repeated.
CALLS: dict[str, tuple[Any, Any, Any]] = {
    "step": (None, lambda envs: envs.step(ACTIONS), lambda envs: envs.step_wait()),
    "step_wait": (lambda envs: envs.step_async(ACTIONS), *[lambda envs: envs.step_wait()] * 2),
    "reset": (None, lambda envs: envs.reset(seed=5), lambda envs: envs.reset_wait()),
    "reset_wait": (
        lambda envs: envs.reset_async(options={"reset_mask": MASK}),
        *[lambda envs: envs.reset_wait()] * 2,
    ),
    "recv": (lambda envs: envs.send(ACTIONS), *[lambda envs: envs.recv()] * 2),
    "first recv": (lambda envs: envs.send_reset(SOME), *[lambda envs: envs.recv(2)] * 2),
    "step some": (
        None,
        lambda envs: envs.step(ACTIONS[:2], env_ids=SOME),
        lambda envs: envs.recv(2),
    ),
}


@pytest.mark.parametrize("stride", [31, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_inside_wrappers_loses_nothing(name: str, mode: str, stride: int) -> None:
    begin, call, repeat = CALLS[name]
    (inner, envs), (_, model) = stacked(mode), stacked(mode)
    with envs, model:
        envs.reset(seed=1), model.reset(seed=1)
        reached, k = True, 1
        while reached:
            for one in (envs, model):
                one.step(ACTIONS)
                if begin is not None:
                    begin(one)
            expected = shown(model, call(model))
            point = inner.point = Point(k)
            try:
                result = call(envs)
            except KeyboardInterrupt:
                result = repeat(envs)
            finally:
                inner.point = None
                sys.setprofile(None)
            assert_identical(shown(envs, result), expected)
            reached, k = point.left <= 0, k + stride
        assert k > 100


def interrupted(name: str) -> Any:
    """A stack whose call was interrupted inside its wrappers."""
    begin, call, _ = CALLS[name]
    inner, envs = stacked("NextStep")
    envs.reset(seed=1)
    if begin is not None:
        begin(envs)
    inner.point = Inside()
    with pytest.raises(KeyboardInterrupt):
        call(envs)
    inner.point = None
    return envs


@pytest.mark.parametrize("name", CALLS)
def test_after_an_interrupt_other_calls_are_refused_and_a_reset_begins_anew(name: str) -> None:
    with interrupted(name) as envs:
        calls: list[Callable[[], Any]] = [
            lambda: envs.step(ACTIONS),
            lambda: envs.step(ACTIONS[:1], env_ids=[0]),
            lambda: envs.step_async(ACTIONS),
            lambda: envs.send(ACTIONS),
            lambda: envs.send_reset([0]),
            lambda: envs.reset(options={"reset_mask": MASK}),
        ]
        for call in calls:
            with pytest.raises(AlreadyPendingCallError, match=r"is still pending: .* or reset\(\)"):
                call()
        first, _ = envs.reset(seed=1)
        assert first.shape == envs.observation_space.shape
        assert envs.timesteps.tolist() == [0] * COUNT
        envs.step(ACTIONS)


@pytest.mark.parametrize("name", ["recv", "first recv", "step some"])
def test_recv_of_another_number_says_how_many_are_there(name: str) -> None:
    count = 4 if name == "recv" else 2
    with interrupted(name) as envs:
        with pytest.raises(AlreadyPendingCallError, match=rf"recv\({count}\) returns them"):
            envs.recv(3)
        assert len(envs.recv(count).env_ids) == count


def test_recv_does_not_return_an_interrupted_step() -> None:
    with interrupted("step") as envs:
        with pytest.raises(NoAsyncCallError, match="call step_wait first"):
            envs.recv()
        assert len(envs.step_wait()) == 5


def test_an_interrupted_reset_is_not_mistaken_for_the_next_one() -> None:
    with interrupted("reset") as envs:
        envs.reset_async(options={"reset_mask": np.ones(COUNT, bool)})
        envs.reset_wait()
        with pytest.raises(NoAsyncCallError):
            envs.reset_wait()


class Silent(VectorWrapper[Any, Any, Any, Any, Any]):
    """Takes the statistics of episodes out of the infos again."""

    def _after_step(self, result: Any, env_ids: Any) -> Any:
        observations, rewards, terminations, truncations, infos = result
        infos = {key: value for key, value in infos.items() if "episode" not in key}
        return observations, rewards, terminations, truncations, infos


@pytest.mark.parametrize("rounds", [30, pytest.param(3000, marks=pytest.mark.full)])
def test_interrupts_at_random_moments_lose_nothing_either(rounds: int) -> None:
    def made(env_fns: Any) -> Any:
        envs: Any = wrappers.RecordEpisodeStatistics(AsyncVectorEnv(env_fns, num_workers=2))
        envs = wrappers.TransformObservation(Silent(envs), np.positive)
        return wrappers.TransformReward(VectorWrapper(envs), np.positive)

    check_run(made, rounds, 2e-4, seed=5)
