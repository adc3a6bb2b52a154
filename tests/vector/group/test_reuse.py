"""Environments that reuse what they return: results are those of a twin that makes all anew."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.contract import ALL_SPACES, assert_same_step, samples
from tests.crosses import diagonal
from tests.envs import Drift, Sampler
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.exchange.snapshots import snapshot

MODES = list(AutoresetMode)
STEPS = 12


class Talkative(Sampler):
    """Has infos of every kind of value, nested, of fixed and of changing shapes."""

    def _talk(self) -> dict[str, Any]:
        random = self.np_random
        ragged = random.random(int(random.integers(1, 4)))
        return {
            **super()._talk(),
            "path": [ragged, {"at": ragged[:1].copy()}, (1, ragged.copy())],
            "ragged": ragged,
            "objects": np.array([{"n": int(random.integers(9))}, None], object),
            "set": {int(random.integers(9))},
        }


class Recycling(Talkative):
    """Returns the very same dicts, lists and arrays each time, with new contents."""

    observation: Any = None
    info: Any = None

    def reset(self, **arguments: Any) -> Any:
        self.observation, self.info = recycle(
            (self.observation, self.info), super().reset(**arguments)
        )
        return self.observation, self.info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.observation, self.info = recycle((self.observation, self.info), (observation, info))
        return self.observation, reward, terminated, truncated, self.info


def recycle(old: Any, new: Any) -> Any:
    """Write a value into an old one of its kind, as far as it can be changed."""
    if type(old) is not type(new):
        return new
    if isinstance(new, dict):
        parts = {key: recycle(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(parts)
        return old
    if isinstance(new, list):
        old[:] = [recycle(former, other) for former, other in zip([*old, *new], new, strict=False)]
        return old
    if isinstance(new, set):
        old.clear()
        old.update(new)
        return old
    if isinstance(new, tuple):
        parts = [recycle(former, other) for former, other in zip([*old, *new], new, strict=False)]
        return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)
    if isinstance(new, np.ndarray) and old.shape == new.shape and old.dtype == new.dtype:
        old[...] = new
        return old
    return new


def run(envs: Any, actions: list[Any]) -> list[Any]:
    """All results of a run; ended episodes are reset by their mask where nothing else does it."""
    results = [envs.reset(seed=5)]
    for action in actions:
        results.append(envs.step(action))
        ended = results[-1][2] | results[-1][3]
        if envs.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            results.append(envs.reset(options={"reset_mask": ended}))
    return results


def check(make: Any, space: Any, mode: AutoresetMode) -> None:
    """Compare both kinds of environments after the whole run, in which nothing may have changed."""
    with SyncVectorEnv([partial(Talkative, space, space)] * 3, autoreset_mode=mode) as twin:
        actions = samples(twin, 1, STEPS)
        expected = run(twin, actions)
    with make([partial(Recycling, space, space)] * 3, autoreset_mode=mode) as envs:
        results = run(envs, actions)
    for result, other in zip(results, expected, strict=True):
        assert_same_step(result, other)


@diagonal(space=ALL_SPACES, mode=MODES)
def test_sync_vector_env_copies_what_environments_reuse(space: Any, mode: AutoresetMode) -> None:
    check(SyncVectorEnv, space, mode)


@diagonal(outer=[SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)], mode=MODES)
def test_in_a_vector_env_that_reuses_its_batches_among_others(
    outer: Any, mode: AutoresetMode
) -> None:
    def make(env_fns: Any, autoreset_mode: AutoresetMode) -> Any:
        inner = partial(SyncVectorEnv, env_fns[1:], copy=False, autoreset_mode=mode)
        return outer([env_fns[0], inner], autoreset_mode=mode)

    check(make, ALL_SPACES["Dict"], mode)


class Chatty(Drift):
    """A simulator whose infos are one dict, with one array of lists."""

    def __init__(self) -> None:
        super().__init__(2)
        self._infos = {"path": np.array([[0], None], object)}
        self._infos["path"][1] = [0]

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], self._infos

    def step(self, actions: Any) -> Any:
        for path in self._infos["path"]:
            path.append(len(path))
        return (*super().step(actions)[:4], self._infos)


def test_infos_of_a_simulator_are_copied() -> None:
    with SyncVectorEnv([Chatty]) as envs:
        envs.reset(seed=1)
        paths = [envs.step(np.zeros((2, 2)))[4]["path"][1] for _ in range(3)]
    assert paths == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_snapshot_keeps_what_contains_itself_and_other_objects() -> None:
    cycle: list[Any] = [np.zeros(1)]
    cycle.append((cycle, cycle[0]))
    thing = object()
    kept = snapshot({"cycle": cycle, "thing": thing})
    cycle[0] += 1
    assert kept["thing"] is thing
    assert kept["cycle"][1][0][0] is kept["cycle"][0]
    assert kept["cycle"][0].tolist() == [0.0]
