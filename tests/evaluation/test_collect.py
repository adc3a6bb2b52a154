"""collect: all values of episodes, when they are in memory, and the end of the generator."""

from __future__ import annotations

import contextlib
import gc
import sys
import tracemalloc
import weakref
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import ALL_SPACES
from tests.envs import Informing, Reusing, Sampler
from tests.evaluation.envs import Errand, assert_same_episodes, errand_policy, gathered
from tests.leaks import descendants
from tests.vector.bounds import settled
from vecspaces import Env, collect, spaces
from vecspaces.spaces.batch_values import pick
from vecspaces.vector import infos_as_list
from vecspaces.vector.utils import concatenate

posix = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")


@pytest.mark.parametrize("name", ALL_SPACES)
def test_values_of_every_space_are_those_of_the_environment(name: str) -> None:
    space = ALL_SPACES[name]
    env = partial(Sampler, space, space)
    options: Any = {"episodes": 3, "seed": 2}
    episodes = gathered("random", env, backend="sync", **options)
    alone = env()
    for episode in episodes:
        observation, info = alone.reset(seed=episode.seed)
        observations, infos, rewards = [observation], [info], []
        for number in range(len(episode.rewards)):
            action = pick(space, episode.actions, number)
            observation, reward, *_, info = alone.step(action)
            observations.append(observation)
            infos.append(info)
            rewards.append(reward)
        assert_identical(
            episode.observations, concatenate(episode.observation_space, observations, None)
        )
        assert episode.rewards.tolist() == rewards
        keys = {key for info in infos for key in info}
        assert keys | {f"_{key}" for key in keys} == set(episode.infos)
        for key in keys:
            assert_identical(episode.infos[key], [info.get(key) for info in infos])
            assert episode.infos[f"_{key}"].tolist() == [key in info for info in infos]
    ways: list[Any] = [{"backend": "sync", "num_envs": 1}]
    if name == "all":  # most of its values go through the pipe in the second way
        ways += [{}, {"vector_kwargs": {"variable_capacity": 8}}]
    for way in ways:
        assert_same_episodes(gathered("random", env, num_workers=2, **way, **options), episodes)


class Forgetful(Informing):
    """Does not observe how many episodes there were before."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode = 0
        return super().reset(seed=seed, options=options)


ARRAYS: dict[str, tuple[tuple[int, ...], Any]] = {
    "cost": ((), np.float64), "level": ((), np.int64), "mask": ((4,), np.bool_),
    "binary": ((3,), np.int8),
}  # fmt: skip


def test_declared_infos_are_arrays_and_others_lists() -> None:
    runs = []
    for declares in (False, True):
        options: Any = {"episodes": 12, "max_episode_steps": 5}
        arguments = ("random", partial(Forgetful, declares))
        runs.append(gathered(*arguments, backend="sync", num_envs=1, **options))
        assert_same_episodes(gathered(*arguments, num_workers=2, **options), runs[-1])
    seen: set[str] = set()
    for plain, declared in zip(*runs, strict=True):
        times, infos = len(declared.rewards) + 1, declared.infos
        seen |= infos.keys()
        # Both hold the same values.
        np.testing.assert_equal(infos_as_list(infos, times), infos_as_list(plain.infos, times))
        assert all(type(values) is list for key, values in plain.infos.items() if key[0] != "_")
        assert type(infos.get("besides", [])) is list
        for key in ARRAYS.keys() & infos.keys():
            assert (infos[key].shape, infos[key].dtype) == (
                (times, *ARRAYS[key][0]),
                ARRAYS[key][1],
            )
            assert not infos[key][~infos[f"_{key}"]].any()
    assert seen >= {*ARRAYS, "inner", "besides"}


class Mixed(Errand):
    """Reports an int in the episodes of odd seeds, and a float in those of even ones."""

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        assert self.seed is not None
        return *result, {"value": 1 if self.seed % 2 else 0.5}


def test_the_type_of_an_info_does_not_depend_on_the_other_environments() -> None:
    episodes = gathered(errand_policy, Mixed, num_envs=8, backend="sync")
    for episode in episodes:
        kinds = {type(value) for value in episode.infos["value"][1:]}
        assert kinds == ({int} if episode.seed % 2 else {float})


def test_as_they_end_they_are_the_same_in_another_order() -> None:
    options: Any = {"backend": "sync", "num_envs": 8}
    episodes = gathered(errand_policy, Errand, ordered=False, **options)
    numbers = [episode.number for episode in episodes]
    assert numbers != sorted(numbers)
    episodes.sort(key=lambda episode: episode.number)
    assert_same_episodes(gathered(errand_policy, Errand, **options), episodes)


@pytest.mark.parametrize(
    ("options", "kwargs"), [({"backend": "sync"}, {}), ({"num_workers": 1}, {"copy": False})]
)
def test_nothing_is_written_over(options: Any, kwargs: Any) -> None:
    kwargs = {"buffers": 3, **kwargs}
    episodes = gathered("random", Reusing, episodes=6, num_envs=3, vector_kwargs=kwargs, **options)
    for episode in episodes:
        assert episode.observations["count"].tolist() == [[n, n] for n in range(4)]
        assert episode.observations["count"].flags.owndata


def test_a_policy_may_return_one_array_again_and_again() -> None:
    actions = np.zeros((1, 2))

    def policy(observations: Any) -> Any:
        actions[:] += 1
        return actions

    env = partial(Sampler, spaces.Discrete(2), spaces.Box(0, 99, (2,), np.float64))
    episodes = gathered(policy, env, episodes=2, backend="sync", num_envs=1)
    taken = np.concatenate([episode.actions[:, 0] for episode in episodes])
    assert taken.tolist() == [*range(1, len(taken) + 1)]


class Large(Env[Any, Any]):
    """Observes so many bytes, after 7 steps for the last time; seed 0 lasts five times as long."""

    action_space = spaces.Discrete(2)
    begun: ClassVar[set[int]] = set()

    def __init__(self, size: int = 1 << 15) -> None:
        self.observation_space = spaces.Box(0, 255, (size,), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.begun.add(seed or 0)
        self.time, self.length = 0, 35 if seed == 0 else 7
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        observation = self._observe()
        return observation, 1.0, self.time == self.length, False, {"large": observation[:1000]}

    def _observe(self) -> Any:
        return np.full(self.observation_space.shape, self.time, np.uint8)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_caller_alone_refers_to_an_episode(ordered: bool) -> None:
    options: Any = {"episodes": 4, "seed": 1, "backend": "sync", "ordered": ordered}
    played = collect("random", Large, **options)
    episode = next(played)
    kept = weakref.ref(episode.observations)
    del episode
    gc.collect()
    assert kept() is None
    played.close()


@pytest.mark.parametrize("ordered", [False, pytest.param(True, marks=pytest.mark.full)])
def test_only_the_episodes_under_way_are_in_memory(ordered: bool) -> None:
    size, num_envs, count = 8 << 15, 4, 140
    tracemalloc.start()
    try:
        played = collect(
            "random",
            Large,
            episodes=count,
            seed=list(range(count)),
            num_envs=num_envs,
            backend="sync",
            ordered=ordered,
        )
        seen = [int(episode.observations[-1, 0]) for episode in played]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(seen) == count
    # The long one counts as five, and is there twice for a moment; the vector env has some steps.
    most = num_envs + 2 * 5 + 4 + (2 * num_envs if ordered else 0)
    assert peak < most * size < count * size / 5


def test_in_order_no_episode_begins_far_ahead() -> None:
    Large.begun.clear()
    seen: list[int] = []
    options: Any = {"episodes": 40, "seed": list(range(40)), "num_envs": 3, "backend": "sync"}
    for episode in collect("random", partial(Large, 1), ordered=True, **options):
        if episode.number == 0:
            assert max(Large.begun) == 5
        seen.append(episode.number)
        assert max(Large.begun) < len(seen) + 6
    assert seen == list(range(40))


def test_nothing_is_started_before_the_first_episode_is_asked_for() -> None:
    before = descendants()
    collect(errand_policy, Errand, episodes=3).close()
    with pytest.raises(ValueError, match="episodes must be an integer of at least 1, found 0"):
        collect(errand_policy, Errand, episodes=0)
    assert descendants() == before


@pytest.mark.parametrize("how", ["close", "break", "error", "interrupt"])
def test_the_end_of_the_generator_ends_the_workers(how: str) -> None:
    before = set(descendants())
    during: set[int] = set()

    def consume() -> None:
        played = collect(errand_policy, Errand, episodes=40, seed=3, num_workers=2)
        for _ in played:
            during.update(set(descendants()) - before)
            if how == "close":
                played.close()
            if how == "error":
                raise ZeroDivisionError
            if how == "interrupt":
                raise KeyboardInterrupt
            break

    with contextlib.suppress(ZeroDivisionError, KeyboardInterrupt):
        consume()
    assert len(during) >= 2

    def left() -> set[int]:
        return during & {pid for pid, name in descendants().items() if "forkserver" not in name}

    assert settled(left, set()) == set()
