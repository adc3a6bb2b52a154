"""collect: whole episodes, the same for every number of environments and workers."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import tracemalloc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.crosses import ordinarily
from tests.envs import Reusing, Sampler
from tests.envs.agents import Crowd
from tests.evaluation.envs import (
    Errand,
    Paced,
    Poisoned,
    Raising,
    Turns,
    errand_policy,
    seeds_of,
)
from tests.evaluation.test_episodes import SOME, WAYS, restarting
from tests.leaks import descendants
from tests.programs import environ
from tests.vector.bounds import settled
from vecspaces import Env, Episode, collect, evaluate, make_vec, spaces
from vecspaces.errors import StepTimeoutError, WorkerDiedError
from vecspaces.testing.contract import ALL_SPACES
from vecspaces.testing.envs import INFO_SPACE, Informing
from vecspaces.vector.utils import concatenate

posix = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
FIELDS = (
    "observations", "actions", "rewards", "terminations", "truncations", "infos", "seed", "number",
)  # fmt: skip


def assert_same(found: list[Episode], expected: list[Episode]) -> None:
    """Compare bit for bit, with all types."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name in FIELDS:
            assert_identical(in_order(getattr(one, name)), in_order(getattr(other, name)))


def in_order(value: Any) -> Any:
    """Sort the keys of dicts in infos: their order depends on how many are sent together."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value, key=str)}
    return [in_order(part) for part in value] if isinstance(value, list) else value


def gathered(*arguments: Any, **options: Any) -> list[Episode]:
    return list(collect(*arguments, **{"episodes": 40, "seed": 3, "ordered": True, **options}))


@pytest.fixture(scope="module")
def expected() -> list[Episode]:
    """Forty errands, one after the other in one environment."""
    return gathered(errand_policy, Errand, backend="sync", num_envs=1)


# ---------------------------------------------------------------------- what an episode is


def test_an_episode_equals_one_played_by_hand(expected: list[Episode]) -> None:
    env = Errand()
    assert [episode.seed for episode in expected] == seeds_of(3, 40)
    for number, episode in enumerate(expected):
        assert episode.number == number
        observation, info = env.reset(seed=episode.seed)
        observations, infos, results = [observation], [info], []
        for action in episode.actions:
            observation, *result, info = env.step(action)
            observations.append(observation)
            infos.append(info)
            results.append(result)
        assert_identical(
            episode.observations, concatenate(env.observation_space, observations, None)
        )
        rewards, *flags = (np.array(values) for values in zip(*results, strict=True))
        assert_identical(episode.rewards, rewards)
        assert_identical([episode.terminations, episode.truncations], flags)
        for key in ("begun", "distance", "note", "of", "tip"):
            assert_identical(
                episode.infos.get(key, [None] * len(infos)), [i.get(key) for i in infos]
            )
        assert_identical(episode.infos["_begun"], np.arange(len(infos)) == 0)
        assert isinstance(episode.observations["mission"], tuple)


def test_its_totals_are_those_of_evaluate(expected: list[Episode]) -> None:
    result = evaluate(errand_policy, Errand, episodes=40, seed=3, num_workers=2)
    # One after the other: Python's `sum` is more exact from 3.12 on.
    totals = [np.add.accumulate(episode.rewards)[-1] for episode in expected]
    assert totals == result.returns.tolist()
    assert [len(episode.actions) for episode in expected] == result.lengths.tolist()
    assert [episode.terminations[-1] for episode in expected] == result.terminated.tolist()


@pytest.mark.parametrize("name", ALL_SPACES)
def test_values_of_every_space_are_those_of_the_environment(name: str) -> None:
    space = ALL_SPACES[name]
    env = partial(Sampler, space, space)
    options: Any = {"episodes": 3, "seed": 2}
    found = gathered("random", env, num_workers=2, **options)
    alone = env()
    for episode in found:
        observation, info = alone.reset(seed=episode.seed)
        observations, infos, rewards = [observation], [info], []
        for action in make_rows(space, episode.actions, len(episode.rewards)):
            observation, reward, *_, info = alone.step(action)
            observations.append(observation)
            infos.append(info)
            rewards.append(reward)
        assert_identical(
            episode.observations, concatenate(episode.observation_space, observations, None)
        )
        assert episode.rewards.tolist() == rewards
        assert {key for info in infos for key in info} | {
            f"_{key}" for info in infos for key in info
        } == set(episode.infos)
        for key in episode.infos:
            if not key.startswith("_"):
                assert_identical(episode.infos[key], [info.get(key) for info in infos])
                assert episode.infos[f"_{key}"].tolist() == [key in info for info in infos]
    assert_same(gathered("random", env, backend="sync", num_envs=1, **options), found)
    small = {"variable_capacity": 8}  # most values go through the pipe
    assert_same(gathered("random", env, num_workers=1, vector_kwargs=small, **options), found)


def make_rows(space: Any, batch: Any, count: int) -> list[Any]:
    from vecspaces.spaces.batch_values import pick

    return [pick(space, batch, number) for number in range(count)]


@pytest.mark.parametrize("limit", [1, 6])
def test_the_last_step_is_truncated_by_max_episode_steps(limit: int) -> None:
    endless = partial(Errand, endless=True)
    found = gathered(errand_policy, endless, episodes=5, max_episode_steps=limit, num_workers=1)
    for episode in found:
        assert episode.truncations.tolist() == [False] * (limit - 1) + [True]
        assert not episode.terminations.any()
        assert len(episode.observations["battery"]) == limit + 1


# ---------------------------------------------------------------------- infos


class Forgetful(Informing):
    """Does not observe how many episodes there were before."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode = 0
        return super().reset(seed=seed, options=options)


def test_declared_infos_are_arrays_and_others_lists() -> None:
    options: Any = {"episodes": 12, "max_episode_steps": 5}
    seen: set[str] = set()
    for declares in (False, True):
        env: Any = partial(Forgetful, declares)
        found = gathered("random", env, num_workers=2, **options)
        assert_same(gathered("random", env, backend="sync", num_envs=1, **options), found)
        for episode in found:
            assert type(episode.infos.get("besides", [])) is list
            if not declares:
                assert type(episode.infos.get("cost", [])) is list
                continue
            times = len(episode.rewards) + 1
            seen |= episode.infos.keys()
            for key, dtype in (("cost", np.float64), ("level", np.int64), ("graph", object)):
                if key in episode.infos:
                    values, given = episode.infos[key], episode.infos[f"_{key}"]
                    assert (values.shape, values.dtype) == ((times,), dtype)
                    assert not values[~given].any()
            inner = episode.infos.get("inner", {})
            if "where" in inner:
                assert (inner["where"].shape, inner["where"].dtype) == ((times, 2), np.float32)
    assert seen >= {"mask", "cost", "level", "graph", "inner", "besides"}
    plain = gathered("random", partial(Forgetful, False), backend="sync", **options)
    for one, other in zip(plain, found, strict=True):
        check_declared(one.infos, other.infos, INFO_SPACE)


def check_declared(plain: Any, declared: Any, space: Any) -> None:
    """Check that declared infos hold what the undeclared ones of equal episodes do."""
    for key, member in space.spaces.items():
        assert (key in plain) == (key in declared)
        if key not in plain:
            continue
        assert_identical(plain[f"_{key}"], declared[f"_{key}"])
        for at in np.flatnonzero(plain[f"_{key}"]):
            value = plain[key][at]
            if isinstance(member, spaces.Dict):
                for name in value.keys() & member.spaces.keys():
                    if not isinstance(member[name], spaces.Dict):
                        assert_equal_values(value[name], declared[key][name][at])
            else:
                assert_equal_values(value, declared[key][at])


def assert_equal_values(one: Any, other: Any) -> None:
    if isinstance(one, tuple):
        for parts in zip(one, other, strict=True):
            assert_equal_values(*parts)
    elif one is not None:
        np.testing.assert_array_equal(one, other)


class Mixed(Errand):
    """Reports an int in the episodes of odd seeds, and a float in those of even ones."""

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        assert self.seed is not None
        return *result, {"value": 1 if self.seed % 2 else 0.5}


def test_the_type_of_an_info_does_not_depend_on_the_other_environments() -> None:
    found = gathered(errand_policy, Mixed, num_envs=8, num_workers=1)
    for episode in found:
        kinds = {type(value) for value in episode.infos["value"][1:]}
        assert kinds == ({int} if episode.seed % 2 else {float})


# ---------------------------------------------------------------------- environments and workers


@pytest.mark.parametrize("way", ordinarily(lambda way: way in SOME[-2:], zip(WAYS, strict=True)))
def test_episodes_do_not_depend_on_environments_and_workers(
    expected: list[Episode], way: str
) -> None:
    assert_same(gathered(errand_policy, Errand, **WAYS[way]), expected)


def test_as_they_end_they_are_the_same_in_another_order(expected: list[Episode]) -> None:
    options: Any = {"num_envs": 8, "num_workers": 2, "ordered": False}
    found = gathered(errand_policy, Errand, **options)
    numbers = [episode.number for episode in found]
    assert numbers != sorted(numbers)
    assert_same(sorted(found, key=lambda episode: episode.number), expected)


def test_policies_with_a_state_and_random_ones(expected: list[Episode]) -> None:
    one = gathered(Turns(), Errand, episodes=9, backend="sync", num_envs=1)
    assert_same(gathered(Turns(), Errand, episodes=9, num_workers=2, num_envs=5), one)
    assert one[3].actions.tolist() == [(time + 1) % 3 for time in range(len(one[3].rewards))]
    one = gathered("random", "CartPole-v1", episodes=9, backend="sync", num_envs=1)
    assert_same(gathered("random", "CartPole-v1", episodes=9, num_workers=2), one)


@posix
@pytest.mark.parametrize(
    ("where", "at", "deed"),
    ordinarily(
        lambda where, at, deed: at == 20,
        [("reset", 0, "SIGKILL"), ("step", 20, "SIGKILL"), ("step", 7, "SIGSTOP")],
    ),
)
def test_a_lost_episode_is_begun_anew(
    expected: list[Episode], tmp_path: Path, where: str, at: int, deed: str
) -> None:
    env = partial(Poisoned, (expected[at].seed,), where, tmp_path, deed)
    given = {"num_workers": 2, "num_envs": 6, **restarting(deed)}
    assert_same(gathered(errand_policy, env, **given), expected)
    assert (tmp_path / str(expected[at].seed)).exists()


@posix
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 12))]
)
def test_kills_at_random_moments_change_nothing(expected: list[Episode], seed: int) -> None:
    moments, before, killed = random.Random(seed), set(descendants()), 0
    given = {"context": "fork", "recycle_after": 3 if seed % 3 else None}
    options: Any = {"num_workers": 2 + seed % 2, "num_envs": 7, "vector_kwargs": given}
    options |= {"max_retries": 100, "ordered": seed % 2 == 0}
    found = []
    for episode in collect(errand_policy, Paced, episodes=40, seed=3, **options):
        found.append(episode)
        # Later, a worker may have no episode any more, and its death is an error of closing it.
        for pid in sorted(set(descendants()) - before) if len(found) < 25 else ():
            if moments.random() < 0.15:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
    assert killed > 2
    assert_same(sorted(found, key=lambda episode: episode.number), expected)


@pytest.mark.parametrize(
    "recycle_after", ordinarily(lambda episodes: episodes == 5, [(1,), (2,), (5,)])
)
def test_workers_are_replaced_between_episodes_in_order(
    expected: list[Episode], recycle_after: int
) -> None:
    given = {"recycle_after": recycle_after, "context": "fork"}
    found = gathered(errand_policy, Errand, num_workers=2, num_envs=5, vector_kwargs=given)
    assert_same(found, expected)


@pytest.mark.parametrize("options", [{"backend": "sync"}, {"num_workers": 2}])
@pytest.mark.parametrize("given", [{}, {"copy": False, "buffers": 3}])
def test_nothing_is_written_over(options: Any, given: Any) -> None:
    found = gathered("random", Reusing, episodes=6, num_envs=3, vector_kwargs=given, **options)
    for episode in found:
        assert episode.observations["count"].tolist() == [[n, n] for n in range(4)]
        assert episode.observations["count"].flags.owndata


def test_agents_as_dicts() -> None:
    options: Any = {"episodes": 8, "agents": "dict"}
    one = gathered("random", Crowd, backend="sync", num_envs=1, **options)
    assert_same(gathered("random", Crowd, num_workers=2, **options), one)
    assert one[0].observations["blue_0"].shape == (len(one[0].rewards) + 1, 4)
    result = evaluate("random", Crowd, seed=3, backend="sync", **options)
    assert [episode.rewards.sum() for episode in one] == result.returns.tolist()


# ---------------------------------------------------------------------- memory and order


class Large(Env[Any, Any]):
    """Observes 32 KiB, 8 times; the first episode of all is five times as long."""

    observation_space = spaces.Box(0, 255, (1 << 15,), np.uint8)
    action_space = spaces.Discrete(2)
    steps = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.length = 0, self.steps * (5 if seed == 0 else 1)
        return np.zeros(1 << 15, np.uint8), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        observation = np.full(1 << 15, self.time % 256, np.uint8)
        return observation, 1.0, self.time == self.length, False, {"large": observation[:1000]}


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


@pytest.mark.parametrize(
    "ordered", ordinarily(lambda ordered: ordered, zip((False, True), strict=True))
)
def test_only_the_episodes_under_way_are_in_memory(ordered: bool) -> None:
    size, num_envs, count = 8 << 15, 4, 130
    tracemalloc.start()
    try:
        played = collect(
            "random",
            Large,
            episodes=count,
            seed=list(range(count)),
            num_envs=num_envs,
            num_workers=1,
            ordered=ordered,
        )
        seen = [int(episode.observations[-1, 0]) for episode in played]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(seen) == count
    # The long one counts as five, and is there twice for a moment.
    most = num_envs + 2 * 5 + 2 + (2 * num_envs if ordered else 0)
    assert peak < most * size < count * size / 5


def test_in_order_no_episode_begins_far_ahead(tmp_path: Path) -> None:
    begun: set[int] = set()
    seen: list[int] = []

    class Slow(Large):
        steps = 3
        observation_space = spaces.Box(0, 255, (), np.int64)  # type: ignore[assignment]

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            begun.add(int(seed or 0))
            return super().reset(seed=seed)[0][0], {}

        def step(self, action: Any) -> Any:
            _, *rest = super().step(action)
            return self.time, *rest

    options: Any = {"episodes": 40, "seed": list(range(40)), "num_envs": 3, "backend": "sync"}
    for episode in collect("random", Slow, ordered=True, **options):
        if episode.number == 0:
            assert max(begun) == 5
        seen.append(episode.number)
        assert max(begun) < len(seen) + 6
    assert seen == list(range(40))


# ---------------------------------------------------------------------- the end, and errors


def test_nothing_is_started_before_the_first_episode_is_asked_for() -> None:
    before = descendants()
    collect(errand_policy, Errand, episodes=3).close()
    with pytest.raises(ValueError, match="episodes must be an integer of at least 1, found 0"):
        collect(errand_policy, Errand, episodes=0)
    assert descendants() == before


@pytest.mark.parametrize("how", ["close", "break", "garbage", "error", "interrupt"])
def test_the_end_of_the_generator_ends_the_workers(how: str) -> None:
    before = set(descendants())
    during: set[int] = set()

    def consume() -> None:
        played = collect(errand_policy, Errand, episodes=40, seed=3, num_workers=2)
        next(played)
        during.update(set(descendants()) - before)
        if how == "close":
            played.close()
        elif how == "garbage":
            del played
            gc.collect()

    def loop() -> None:
        for _ in collect(errand_policy, Errand, episodes=40, seed=3, num_workers=2):
            during.update(set(descendants()) - before)
            if how == "error":
                raise ZeroDivisionError
            if how == "interrupt":
                signal.raise_signal(signal.SIGINT)
            break

    if how in ("close", "garbage"):
        consume()
    elif how == "break":
        loop()
    else:
        kind = ZeroDivisionError if how == "error" else KeyboardInterrupt
        with pytest.raises(kind):
            loop()
    assert len(during) >= 2

    def left() -> set[int]:
        return during & {pid for pid, name in descendants().items() if "forkserver" not in name}

    assert settled(left, set()) == set()


PROGRAM = """
import os, sys, time
from tests.evaluation.envs import Paced, errand_policy
from vecspaces import collect

if __name__ == "__main__":
    try:
        for episode in collect(errand_policy, Paced, episodes=1000, seed=3, num_workers=2):
            print(episode, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@posix
def test_ctrl_c_ends_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # After Ctrl-C workers have half a second, which a busy machine may not give them: that warns.
    with subprocess.Popen(
        [sys.executable, "-W", "ignore::RuntimeWarning", str(program)],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("<Episode ")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert output.endswith("interrupted\n") and errors == ""


def test_errors_name_the_episode_and_collect() -> None:
    bad = seeds_of(3, 40)[11]
    with pytest.raises(FloatingPointError, match="the parcel burst") as caught:
        gathered(errand_policy, partial(Raising, bad), num_workers=2)
    assert caught.value.__notes__ == [f"collect was playing episode 11 with seed {bad}"]
    with pytest.raises(ValueError, match="env: collect needs a factory of single environments"):
        gathered("random", partial(make_vec, Errand, 2, backend="sync"), backend="sync")
    with pytest.raises(ValueError, match="agents: expected 'dict' or None, found 'rows'"):
        collect("random", Crowd, episodes=1, agents="rows")  # type: ignore[arg-type]


@posix
@pytest.mark.parametrize("deed", ["SIGKILL", pytest.param("SIGSTOP", marks=pytest.mark.full)])
def test_one_that_always_loses_its_worker_is_named(deed: str) -> None:
    seed = seeds_of(3, 40)[5]
    env = partial(Poisoned, (seed,), deed=deed)
    kind: Any = WorkerDiedError if deed == "SIGKILL" else StepTimeoutError
    with pytest.raises(kind, match=rf"collect\(..., episodes=1, seed=\[{seed}\]\) plays it alone"):
        gathered(errand_policy, env, max_retries=1, num_workers=2, **restarting(deed))
