"""Environments that write into their rows: results are those of twins that return new arrays."""

from __future__ import annotations

import copy
import gc
import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import (
    DelayObservation,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    TimeLimit,
)

from tests.contract import ALL_SPACES, assert_same_run, assert_same_step, samples
from tests.crosses import diagonal
from tests.envs import Drift, Placing, Sampler, put
from vecspaces import spaces
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from vecspaces.vector.group.in_place import InPlace
from vecspaces.wrappers import FrameStackObservation

MODES = list(AutoresetMode)
ACTION = spaces.Box(-1, 1, (2,))
FIXED = {
    name: space
    for name, space in ALL_SPACES.items()
    if name not in ("Text", "Sequence", "stacked", "Graph", "OneOf", "all")
}


class PlacingSampler(Placing, Sampler):
    """A sampler that writes where it is told to."""


class PlacingDrift(Placing, Drift):
    """A simulator that writes where it is told to."""


def twins(space: Any, count: int = 3) -> tuple[list[Any], list[Any]]:
    """Factories of environments with `bind`, and of the same ones without."""
    return [partial(PlacingSampler, space, ACTION)] * count, [
        partial(Sampler, space, ACTION)
    ] * count


@diagonal(space=ALL_SPACES, options={"copy": {}, "ring": {"buffers": 3, "copy": False}}, mode=MODES)
def test_in_this_process(space: Any, options: Any, mode: AutoresetMode) -> None:
    placing, plain = twins(space)
    with (
        SyncVectorEnv(placing, autoreset_mode=mode, **options) as envs,
        SyncVectorEnv(plain, autoreset_mode=mode) as twin,
    ):
        assert_same_run(envs, twin)


@diagonal(
    arguments={
        "shared": {},
        "pipe": {"shared_memory": False},
        "ring": {"buffers": 3, "on_worker_death": "restart", "validate": True},
    },
    mode=MODES,
)
def test_in_workers(arguments: Any, mode: AutoresetMode) -> None:
    placing, plain = twins(spaces.Dict(FIXED))
    with (
        AsyncVectorEnv(placing, num_workers=2, autoreset_mode=mode, **arguments) as envs,
        SyncVectorEnv(plain, autoreset_mode=mode) as twin,
    ):
        assert_same_run(envs, twin)


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
def test_steps_of_some_partial_resets_and_streams(make: Any) -> None:
    placing, plain = twins(FIXED["Dict"])
    with make(placing, buffers=2) as envs, SyncVectorEnv(plain, buffers=2) as twin:
        assert_same_step(envs.reset(seed=5), twin.reset(seed=5))
        for turn, actions in enumerate(samples(twin, 5, 12)):
            ids = [[2, 0], [1], [0, 1, 2]][turn % 3]
            assert_same_step(envs.step(actions[ids], ids), twin.step(actions[ids], ids))
            assert_same_step(envs.step(actions), twin.step(actions))
            mask = {"reset_mask": np.array([turn % 2 == 0, True, False])}
            assert_same_step(
                envs.reset(seed=turn, options=mask), twin.reset(seed=turn, options=dict(mask))
            )


def test_what_is_written_in_place_is_not_copied() -> None:
    space = FIXED["image"]
    with SyncVectorEnv([partial(PlacingSampler, space, ACTION)], copy=False, buffers=2) as envs:
        first, _ = envs.reset(seed=1)
        (env,) = envs.envs
        assert np.shares_memory(env.view, first)
        second = envs.step(np.zeros((1, 2)))[0]
        assert np.shares_memory(env.view, second)
        assert not np.shares_memory(first, second)
        in_place = InPlace.of([SimpleNamespace(env=env)], envs._buffers, range(1))
        assert in_place is not None
        in_place.turn_to(0)

        def refuse(*arguments: Any) -> None:
            raise AssertionError(arguments)

        in_place.writer(refuse, refuse, 0)([env.view])
        with pytest.raises(AssertionError):
            in_place.writer(refuse, refuse, 0)([env.view.copy()])


@pytest.mark.parametrize(("buffers", "binds"), [(1, 1), (3, 8)])
def test_it_is_told_where_to_write_only_where_that_changes(buffers: int, binds: int) -> None:
    placing, _ = twins(FIXED["Box"], 2)
    with SyncVectorEnv(placing, buffers=buffers) as envs:
        envs.reset(seed=1)
        for actions in samples(envs, 1, 7):
            envs.step(actions)
        assert envs.get_attr("binds") == (binds, binds)


class Placed(gymnasium.Env[Any, Any]):
    """Gymnasium's, with one array."""

    observation_space = gymnasium.spaces.Box(-100, 100, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # Gymnasium's own form
    view: Any = None

    def bind(self, observation: Any) -> None:
        self.view = observation

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._observe(), 1.0, False, False, {}

    def _observe(self) -> Any:
        out = np.empty(3) if self.view is None else self.view
        out[:] = self.time
        return out


def test_wrappers_that_hand_observations_on_are_looked_through() -> None:
    def make() -> Any:
        return RecordEpisodeStatistics(OrderEnforcing(PassiveEnvChecker(TimeLimit(Placed(), 3))))

    with SyncVectorEnv([make] * 2, copy=False) as envs:
        seen = [envs.reset(seed=1)[0].copy()]
        seen += [envs.step(np.zeros(2, int))[0].copy() for _ in range(5)]
        assert [found[1, 2] for found in seen] == [0, 1, 2, 3, 0, 1]
        assert envs.call(lambda env: env.unwrapped.view is not None) == (True, True)


class Replacing(PlacingSampler):
    """Puts something else into the dict that it was given, now at one key and now at the other."""

    count = 0

    def bind(self, observation: Any) -> None:
        super().bind(observation)
        self.arrays = dict(observation)

    def place(self, observation: Any) -> Any:
        if self.view is None:
            return observation
        self.count += 1
        key, other = ("a", "b") if self.count % 2 else ("b", "a")
        self.view[key], self.view[other] = observation[key], self.arrays[other]
        put(self.view[other], observation[other])
        return self.view


@pytest.mark.parametrize("mode", MODES)
def test_dicts_whose_arrays_were_replaced_are_written(mode: AutoresetMode) -> None:
    space = FIXED["Dict"]
    factories = [partial(Replacing, space, ACTION), partial(PlacingSampler, space, ACTION)]
    _, plain = twins(space, 2)
    with (
        SyncVectorEnv(factories, autoreset_mode=mode, buffers=2) as envs,
        SyncVectorEnv(plain, autoreset_mode=mode) as twin,
    ):
        assert_same_run(envs, twin)
        if mode is not AutoresetMode.DISABLED:
            ids = [1, 0]
            actions = twin.action_space.sample()
            assert_same_step(envs.step(actions, ids), twin.step(actions, ids))


class Late:
    """Returns the observation before the last, and passes on what it has not itself."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> Any:
        self.last, info = self.env.reset(**arguments)
        return self.last, info

    def step(self, action: Any) -> Any:
        before, (self.last, *rest) = self.last, self.env.step(action)
        return before, *rest


@pytest.mark.parametrize("wrap", [lambda env: DelayObservation(env, 1), Late])
def test_other_wrappers_are_not(wrap: Any) -> None:
    """One that keeps observations would find them changed."""
    with SyncVectorEnv([lambda: wrap(Placed())]) as envs:
        envs.reset(seed=1)
        assert [envs.step(np.zeros(1, int))[0][0, 0] for _ in range(4)] == [0, 1, 2, 3]
        assert envs.call(lambda env: getattr(env, "unwrapped", env.env).view) == (None,)


def test_neither_has_a_wrapper_of_a_vector_env() -> None:
    members = [
        lambda: FrameStackObservation(PlacingDrift(3), 2),
        lambda: VectorWrapper(PlacingDrift(2)),
    ]
    plain = [lambda: FrameStackObservation(Drift(3), 2), lambda: VectorWrapper(Drift(2))]
    for member, other in zip(members, plain, strict=True):
        with SyncVectorEnv([member]) as envs, SyncVectorEnv([other]) as twin:
            assert_same_run(envs, twin)
            assert envs.get_attr("view") == (None,) * envs.num_envs


def test_attributes_of_environments_stay_fast() -> None:
    # CPython keeps those of an object in a form that it reads faster, until someone asks for its
    # `__dict__`; some versions keep them in a dict from the start.
    make = partial(Sampler, spaces.Box(-1, 1, (4,)), ACTION)
    with SyncVectorEnv([make]) as envs:
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        untouched = make()
        untouched.reset(seed=0)
        assert has_dict(envs.envs[0]) == has_dict(untouched)


def has_dict(env: Any) -> bool:
    """Whether an object keeps its attributes in a dict."""
    return any(
        "observation_space" in found for found in gc.get_referents(env) if type(found) is dict
    )


class OtherMethod(Sampler):
    """Has a method of this name that is about something else."""

    def bind(self, port: int) -> None:
        raise AssertionError(port)


def test_what_cannot_be_bound_is_left_alone() -> None:
    for name in ALL_SPACES.keys() - FIXED.keys():  # observations that are no arrays
        with SyncVectorEnv(twins(ALL_SPACES[name], 1)[0]) as envs:
            envs.reset(seed=1)
            assert envs.get_attr("binds") == (0,), name
    with SyncVectorEnv([partial(OtherMethod, ACTION, ACTION)]) as envs:
        envs.reset(seed=1)


class Refusing(PlacingSampler):
    """Cannot write where it is told to."""

    def bind(self, observation: Any) -> None:
        raise OSError("no such memory")


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_what_bind_raises_is_the_environments_own(make: Any) -> None:
    factories = [partial(PlacingSampler, ACTION, ACTION), partial(Refusing, ACTION, ACTION)]
    with make(factories) as envs:
        with pytest.raises(OSError, match="no such memory") as found:
            envs.reset(seed=1)
        assert make is SyncVectorEnv or "environment 1 " in str(found.value.__cause__)


def test_after_close_and_in_a_copy_an_environment_goes_on() -> None:
    envs = SyncVectorEnv([partial(PlacingSampler, FIXED["Dict"], ACTION)] * 2, copy=False)
    envs.reset(seed=1)
    twin = copy.deepcopy(envs)
    actions = samples(envs, 1, 6)
    kept, env = envs.step(actions[0])[0], envs.envs[0]
    before = copy.deepcopy(kept)
    for action in actions[1:]:
        twin.step(action)  # writes into memory of its own
    np.testing.assert_array_equal(kept["b"], before["b"])
    twin.close()
    envs.close()
    env.reset(seed=2)
    env.step(np.zeros(2))


class Mortal(PlacingSampler):
    """Is killed once, half-way through what it writes."""

    def __init__(self, folder: Path, space: Any) -> None:
        super().__init__(space, ACTION, 9)
        self.folder, self.steps = folder, 0

    def place(self, observation: Any) -> Any:
        self.steps += 1
        if self.view is not None and self.steps == 4 and not list(self.folder.iterdir()):
            (self.folder / "died").touch()
            self.view[:1] = 77
            os.kill(os.getpid(), signal.SIGKILL)
        return super().place(observation)


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_was_half_written_is_never_seen(mode: AutoresetMode, tmp_path: Path) -> None:
    space = spaces.Box(0, 1, (2,))
    with AsyncVectorEnv(
        [partial(Mortal, tmp_path, space), partial(PlacingSampler, space, ACTION)],
        num_workers=2,
        on_worker_death="restart",
        autoreset_mode=mode,
        context="fork" if sys.platform == "linux" else None,
    ) as envs:
        envs.reset(seed=1)
        restarts = 0
        for actions in samples(envs, 1, 8):
            observations, _, terminated, truncated, infos = envs.step(actions)
            assert (observations <= 1).all()
            restarts += int(infos.get("_worker_restarted", np.zeros(2, bool)).sum())
            ended = terminated | truncated
            if mode is AutoresetMode.DISABLED and ended.any():
                envs.reset(options={"reset_mask": ended})
        assert restarts == 1


@diagonal(
    make=[
        SyncVectorEnv,
        partial(AsyncVectorEnv, num_workers=2),
        partial(AsyncVectorEnv, num_workers=1),
    ],
    buffers=[1, 2],
)
def test_a_simulator_writes_its_whole_slice(make: Any, buffers: int) -> None:
    members = [partial(PlacingDrift, 3), partial(PlacingDrift, 2)]
    plain = [partial(Drift, 3), partial(Drift, 2)]
    with (
        make(members, buffers=buffers, copy=False) as envs,
        SyncVectorEnv(plain) as twin,
    ):
        assert_same_run(envs, twin)
        (binds, *_) = envs.get_attr("binds")
        assert binds == (1 if buffers == 1 else 13)
