"""evaluate: the same episodes on every backend and number of workers, also after worker deaths."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.crosses import ordinarily
from tests.evaluation.envs import (
    Counted,
    Errand,
    Paced,
    Poisoned,
    Raising,
    Turns,
    errand_policy,
)
from tests.vector.bounds import stretched, within
from vecspaces import Evaluation, evaluate, make_vec, spaces
from vecspaces.errors import InvalidActionError, StepTimeoutError, WorkerDiedError
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.journal import Journal
from vecspaces.evaluation.policies import adapt_policy
from vecspaces.evaluation.result import interquartile_mean
from vecspaces.vector import AsyncVectorEnv

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")


def lean(observations: Any) -> Any:
    return (observations[:, 2] > 0).astype(np.int64)


def by_hand(env: Any, policy: Any, seed: int, limit: float = np.inf) -> Any:
    """Return, length, terminated and final info of one episode, one step after the other."""
    observation, _ = env.reset(seed=seed)
    total, length, over = 0.0, 0, False
    while not over:
        if isinstance(observation, dict):
            batch: Any = {key: np.array([part]) for key, part in observation.items()}
            batch["mission"] = (observation["mission"],)
        else:
            batch = observation[None]
        observation, reward, terminated, truncated, info = env.step(policy(batch)[0])
        total, length = total + float(reward), length + 1
        over = terminated or truncated or length >= limit
    return total, length, terminated, info


def seeds_of(seed: int, episodes: int) -> list[int]:
    state = np.random.SeedSequence(seed).generate_state(episodes)
    return [int(number) & 0x7FFFFFFF for number in state]


def assert_same(one: Evaluation, other: Evaluation) -> None:
    """Compare bit for bit all that does not depend on the clock and on deaths."""
    for name in ("returns", "lengths", "seeds", "terminated"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes(), name
    assert list(one.infos) == list(other.infos)
    for key, values in one.infos.items():
        assert values.tobytes() == other.infos[key].tobytes(), key
    assert one.steps == other.steps


@pytest.fixture(scope="module")
def expected() -> Evaluation:
    """Forty errands, one after the other in one environment."""
    return evaluate(errand_policy, Errand, episodes=40, seed=3, backend="sync", num_envs=1)


# ---------------------------------------------------------------------- what an episode is


def test_an_episode_is_the_one_that_is_played_by_hand(expected: Evaluation) -> None:
    assert expected.seeds.tolist() == seeds_of(3, 40)
    env = Errand()
    for k, seed in enumerate(expected.seeds.tolist()):
        total, length, terminated, info = by_hand(env, errand_policy, seed)
        assert expected.returns[k] == total
        assert expected.lengths[k] == length
        assert expected.terminated[k] == terminated
        assert expected.infos["is_success"][k] == info["is_success"]
        assert expected.infos["distance"][k] == info["distance"]
        assert expected.infos["parcels"][k] == info["parcels"]
        assert np.isnan(expected.infos["tip"][k]) == ("tip" not in info)
    assert set(expected.infos) == {"distance", "is_success", "parcels", "tip"}
    assert expected.lengths.max() > 5 * expected.lengths.min()
    assert expected.steps == expected.lengths.sum()
    assert not expected.retries.any()


def test_it_is_that_of_gymnasium_alone() -> None:
    import gymnasium

    result = evaluate(lean, "CartPole-v1", episodes=12, seed=0, num_workers=2)
    env = gymnasium.make("CartPole-v1")
    for k, seed in enumerate(seeds_of(0, 12)):
        total, length, terminated, _ = by_hand(env, lean, seed)
        assert (result.returns[k], result.lengths[k]) == (total, length)
        assert result.terminated[k] == terminated


def test_fewer_episodes_have_the_first_seeds() -> None:
    short = evaluate(errand_policy, Errand, episodes=5, seed=3, backend="sync")
    assert short.seeds.tolist() == seeds_of(3, 40)[:5]


def test_seeds_may_be_given(expected: Evaluation) -> None:
    chosen = [17, 3, 29]
    seeds = expected.seeds[chosen]
    result = evaluate(errand_policy, Errand, episodes=3, seed=seeds, backend="sync")
    assert result.returns.tobytes() == expected.returns[chosen].tobytes()
    assert result.seeds.tolist() == seeds.tolist()


def test_without_a_seed_each_evaluation_is_another_one() -> None:
    one, other = (evaluate(errand_policy, Errand, episodes=3, backend="sync") for _ in range(2))
    assert one.seeds.tolist() != other.seeds.tolist()
    again = evaluate(errand_policy, Errand, episodes=3, seed=one.seeds.tolist(), backend="sync")
    assert_same(one, again)


def test_exactly_these_episodes_are_begun_in_no_more_environments(tmp_path: Path) -> None:
    result = evaluate(
        errand_policy, partial(Counted, tmp_path), episodes=9, seed=3, num_envs=8, num_workers=2
    )
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes.count("built") == 8
    assert sorted(notes)[8:] == sorted(f"reset {seed}" for seed in result.seeds)


@pytest.mark.parametrize(("episodes", "built"), [(1, 1), (3, 3)])
def test_there_are_no_more_environments_than_episodes(
    tmp_path: Path, episodes: int, built: int
) -> None:
    env = partial(Counted, tmp_path)
    evaluate(errand_policy, env, episodes=episodes, seed=3, num_workers=7, num_envs=50)
    assert (tmp_path / "notes").read_text().count("built") == built


def test_episodes_are_cut_off_at_max_episode_steps() -> None:
    endless = partial(Errand, endless=True)
    arguments: dict[str, Any] = {"episodes": 7, "seed": 1, "max_episode_steps": 6}
    result = evaluate(errand_policy, endless, num_workers=2, **arguments)
    assert result.lengths.tolist() == [6] * 7
    assert not result.terminated.any()
    totals = [by_hand(endless(), errand_policy, seed, 6)[0] for seed in result.seeds.tolist()]
    assert result.returns.tolist() == totals
    one = evaluate(errand_policy, endless, backend="sync", **{**arguments, "max_episode_steps": 1})
    assert one.lengths.tolist() == [1] * 7


def test_env_kwargs_and_vector_kwargs_reach_what_they_are_for() -> None:
    result = evaluate(
        errand_policy,
        Errand,
        episodes=3,
        seed=0,
        num_workers=1,
        env_kwargs={"shortest": 2},
        vector_kwargs={"step_timeout": 60, "variable_capacity": 0},
    )
    assert result.lengths.max() <= 20


# ---------------------------------------------------------------------- who plays it

WAYS: dict[str, dict[str, Any]] = {
    "sync": {"backend": "sync"},
    "sync, more rows than episodes": {"backend": "sync", "num_envs": 99},
    "1 worker": {"num_workers": 1},
    "2 workers": {"num_workers": 2},
    "3 workers": {"num_workers": 3},
    "7 workers": {"num_workers": 7},
    "2 workers of an environment": {"num_workers": 2, "num_envs": 2},
    "more workers than rows": {"num_workers": 5, "num_envs": 2},
    "odd rows": {"num_workers": 2, "num_envs": 13},
    "fork": {"num_workers": 2, "vector_kwargs": {"context": "fork"}},
    "spawn": {"num_workers": 2, "vector_kwargs": {"context": "spawn"}},
    "forkserver": {"num_workers": 2, "vector_kwargs": {"context": "forkserver"}},
    "pipes": {"num_workers": 2, "vector_kwargs": {"shared_memory": False}},
}
ORDINARY_WAYS = {
    "sync, more rows than episodes",
    "1 worker",
    "2 workers",
    "odd rows",
    "more workers than rows",
    "spawn",
    "pipes",
}


@pytest.mark.parametrize(
    "way",
    ordinarily(lambda way: way in ORDINARY_WAYS, zip(WAYS, strict=True)),
)
def test_the_result_does_not_depend_on_who_plays(expected: Evaluation, way: str) -> None:
    assert_same(evaluate(errand_policy, Errand, episodes=40, seed=3, **WAYS[way]), expected)


@pytest.mark.parametrize("policy", [lean, "random"], ids=["lean", "random"])
def test_nor_does_that_of_cartpole(policy: Any) -> None:
    one = evaluate(policy, "CartPole-v1", episodes=60, seed=8, backend="sync", num_envs=1)
    for way in (
        {"num_workers": 2},
        {"num_workers": 3, "num_envs": 20},
        {"backend": "sync", "num_workers": 2},
    ):
        assert_same(evaluate(policy, "CartPole-v1", episodes=60, seed=8, **way), one)


def test_a_random_policy_draws_from_every_space() -> None:
    from tests.envs import Sampler
    from vecspaces.testing.contract import ALL_SPACES

    for space in ALL_SPACES.values():
        env = partial(Sampler, space, space)
        one = evaluate("random", env, episodes=4, seed=2, backend="sync", num_envs=1)
        assert_same(evaluate("random", env, episodes=4, seed=2, backend="sync"), one)


def test_the_policy_decides_for_one_half_while_workers_step_the_other() -> None:
    queue = EpisodeQueue(seeds_of(3, 40))
    with AsyncVectorEnv([Errand] * 8, num_workers=2, autoreset_mode="Disabled") as envs:
        rows = envs._session.queue

        def watching(observations: Any) -> Any:
            asked = len(observations["mission"])
            if queue.waiting and asked + len(rows.outstanding) + len(rows.ready) == 8:
                asked_for.append(asked)
            return errand_policy(observations)

        asked_for: list[int] = []
        assert len(list(queue.play(envs, adapt_policy(watching, envs), in_turns=True))) == 40
    # Rows of the half that begin an episode are not asked for.
    assert len(asked_for) > 50
    assert max(asked_for) == 4


class Network:
    """A network of one layer, and the sizes of the batches that it saw."""

    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).normal(size=(256, 3)).astype(np.float32)
        self.sizes: set[int] = set()

    def __call__(self, observations: Any) -> Any:
        self.sizes.add(len(observations))
        return observations @ self.weights


class Exact(Errand):
    """Observes 256 numbers, and rewards every bit of the action."""

    observation_space = spaces.Box(-np.inf, np.inf, (256,))
    action_space = spaces.Box(-np.inf, np.inf, (3,))

    def step(self, action: Any) -> Any:
        _, _, terminated, truncated, info = super().step(1)
        return self._observe(), float(action.astype(np.float64).sum()), terminated, truncated, info

    def _observe(self) -> Any:
        return self.np_random.normal(size=256).astype(np.float32)


def test_a_network_is_asked_for_batches_of_one_size() -> None:
    results = []
    for way in ({"backend": "sync", "num_envs": 1}, {"num_workers": 2}, {"num_envs": 25}):
        network = Network()
        results.append(evaluate(network, Exact, episodes=25, seed=3, batch_size=8, **way))
        assert network.sizes == {8}
        assert_same(results[-1], results[0])
    with pytest.raises(ValueError, match="a policy with a state takes"):
        evaluate(Turns(), Errand, episodes=2, batch_size=8)


def test_nested_batches_are_filled_up_too(expected: Evaluation) -> None:
    for size in (1, 7):
        result = evaluate(
            errand_policy, Errand, episodes=40, seed=3, num_workers=2, batch_size=size
        )
        assert_same(result, expected)


def test_a_policy_with_a_state_sees_every_row_each_time() -> None:
    one, two, many = Turns(), Turns(), Turns()
    arguments: dict[str, Any] = {"episodes": 11, "seed": 3}
    expected = evaluate(one, Errand, backend="sync", num_envs=1, **arguments)
    assert one.sizes == {1}
    assert_same(evaluate(two, Errand, num_workers=2, num_envs=5, **arguments), expected)
    assert two.sizes == {5}
    assert_same(evaluate(many, Errand, num_workers=2, num_envs=50, **arguments), expected)
    assert many.sizes == {11}
    # Actions 1, 2, 0, 1, ...: those of each episode's own steps.
    env = Errand()
    env.reset(seed=int(expected.seeds[4]))
    total = sum(float(env.step((step + 1) % 3)[1]) for step in range(int(expected.lengths[4])))
    assert expected.returns[4] == total


# ---------------------------------------------------------------------- deaths


def restarting(deed: str) -> dict[str, Any]:
    """What `evaluate` needs to go on after a worker was stopped, which is late and not dead."""
    if deed == "SIGKILL":
        return {}
    return {"vector_kwargs": {"step_timeout": stretched(0.3), "on_step_timeout": "restart"}}


@posix
@pytest.mark.parametrize("deed", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize(
    ("where", "at"),
    ordinarily(
        lambda where, at: at in {"reset": (0, 39), "step": (1, 20)}[where],
        itertools.product(["reset", "step"], [0, 1, 20, 39]),
    ),
)
def test_an_episode_that_is_lost_begins_anew(
    expected: Evaluation, tmp_path: Path, where: str, at: int, deed: str
) -> None:
    env = partial(Poisoned, (int(expected.seeds[at]),), where, tmp_path, deed)
    result = evaluate(
        errand_policy, env, episodes=40, seed=3, num_workers=2, num_envs=6, **restarting(deed)
    )
    assert_same(result, expected)
    assert result.retries[at] == 1
    # Of the three environments of the worker, those in an episode lost it.
    assert 1 <= result.retries.sum() <= 3


@posix
@pytest.mark.parametrize("deed", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize(
    ("where", "at", "max_retries"),
    ordinarily(
        lambda where, at, max_retries: (where == "reset") == (at == 1) == (max_retries == 2),
        itertools.product(["reset", "step"], [1, 30], [0, 2]),
    ),
)
def test_one_that_always_loses_its_worker_is_named(
    expected: Evaluation, where: str, at: int, max_retries: int, deed: str
) -> None:
    seed = int(expected.seeds[at])
    env = partial(Poisoned, (seed,), where, deed=deed)
    kind = WorkerDiedError if deed == "SIGKILL" else StepTimeoutError
    arguments: dict[str, Any] = {"num_workers": 2, **restarting(deed)}
    with pytest.raises(kind, match=rf"episode {at} with seed {seed} ") as caught:
        evaluate(errand_policy, env, episodes=40, seed=3, max_retries=max_retries, **arguments)
    times = "once" if max_retries == 0 else f"{max_retries + 1} times"
    assert f"lost its worker {times}, and max_retries is {max_retries}" in str(caught.value)
    assert f"episodes=1, seed=[{seed}]" in str(caught.value)
    assert getattr(caught.value, "exitcode", -signal.SIGKILL) == -signal.SIGKILL
    assert "built again" not in str(caught.value) and "restarted" not in str(caught.value)
    if deed == "SIGKILL":  # and alone it does it again
        with pytest.raises(kind, match=f"episode 0 with seed {seed} "):
            evaluate(errand_policy, env, episodes=1, seed=[seed], max_retries=0)


@posix
def test_an_environment_that_dies_in_every_episode_ends_the_evaluation() -> None:
    env = partial(Poisoned, tuple(seeds_of(0, 30)))
    with within(30), pytest.raises(WorkerDiedError, match=r"episode \d+ with seed"):
        evaluate(errand_policy, env, episodes=30, seed=0, num_workers=3)


class Fading(Errand):
    """An errand of seed 1 that dies once, just after its first reset; that of seed 2 is slow."""

    def __init__(self, once: Path) -> None:
        super().__init__()
        self._once = once

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == 1 and not self._once.exists():
            self._once.touch()
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
        if seed == 2:
            time.sleep(0.3)
        return super().reset(seed=seed, options=options)


@posix
def test_an_episode_that_is_lost_just_after_its_reset_begins_anew(tmp_path: Path) -> None:
    expected = evaluate(errand_policy, Errand, episodes=2, seed=[1, 2], backend="sync")
    fading = partial(Fading, tmp_path / "once")
    result = evaluate(errand_policy, fading, episodes=2, seed=[1, 2], num_workers=2)
    assert_same(result, expected)
    assert result.retries.tolist() == [1, 0]


class Killer(threading.Thread):
    """Kills workers of this process at random moments.

    Args:
        seed: Of the moments.
        most: How many it kills.
        seconds: The mean time between two.
    """

    def __init__(self, seed: int, most: int, seconds: float) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._most, self._seconds = most, seconds
        self._over = threading.Event()
        self.kills = 0
        self.workers: list[Any] = []

    def run(self) -> None:
        while self.kills < self._most:
            if self._over.wait(self._random.expovariate(1 / self._seconds)):
                return
            workers = list(self.workers)
            with contextlib.suppress(IndexError, ValueError):  # it was replaced a moment ago
                self._random.choice(workers).kill()
                self.kills += 1

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def __enter__(self) -> Killer:
        self.start()
        return self


def check_with_kills(
    monkeypatch: pytest.MonkeyPatch, seed: int, most: int, seconds: float, **arguments: Any
) -> Evaluation:
    """Evaluate while workers are killed."""
    killer = Killer(seed, most, seconds)
    reset = AsyncVectorEnv.reset

    def watched(self: Any, **given: Any) -> Any:
        killer.workers = _Living(self)  # type: ignore[assignment]  # looks like a list
        return reset(self, **given)

    monkeypatch.setattr(AsyncVectorEnv, "reset", watched)
    with killer:
        result = evaluate(
            errand_policy,
            Paced,
            episodes=40,
            seed=3,
            max_retries=100,
            vector_kwargs={"context": "fork"},
            **arguments,
        )
    assert killer.kills > 0
    assert result.retries.sum() > 0
    return result


class _Living:
    """The workers of a vector env, those that replaced others too."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs

    def __iter__(self) -> Any:
        return iter(list(self._envs.processes))


@posix
@pytest.mark.parametrize("seed", [0])
def test_kills_at_random_moments_change_nothing(
    expected: Evaluation, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    result = check_with_kills(monkeypatch, seed, 6, 0.05, num_workers=2, num_envs=5)
    assert_same(result, expected)


@posix
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20))
def test_many_kills_at_random_moments_change_nothing(
    expected: Evaluation, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    workers = 1 + seed % 4
    result = check_with_kills(
        monkeypatch, seed, 40, 0.02, num_workers=workers, num_envs=workers * (1 + seed % 3)
    )
    assert_same(result, expected)


@posix
def test_a_policy_with_a_state_begins_anew_too(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"episodes": 20, "seed": 3}
    expected = evaluate(Turns(), Errand, backend="sync", **arguments)
    env = partial(Poisoned, tuple(expected.seeds[[2, 9]].tolist()), "step", tmp_path)
    result = evaluate(Turns(), env, num_workers=2, num_envs=6, **arguments)
    assert_same(result, expected)
    assert result.retries[2] >= 1


# ---------------------------------------------------------------------- errors


def test_what_an_environment_raises_names_the_episode() -> None:
    seed = seeds_of(3, 40)[11]
    with pytest.raises(FloatingPointError, match="the parcel burst") as caught:
        evaluate(errand_policy, partial(Raising, seed), episodes=40, seed=3, num_workers=2)
    assert caught.value.__notes__ == [f"evaluate was playing episode 11 with seed {seed}"]


class Stuck(Errand):
    def step(self, action: Any) -> Any:
        time.sleep(1.0)
        return super().step(action)


def test_an_episode_that_hangs_is_named() -> None:
    with pytest.raises(StepTimeoutError) as caught:
        evaluate(
            errand_policy,
            Stuck,
            episodes=1,
            seed=[5],
            vector_kwargs={"step_timeout": 0.4, "context": "fork"},
        )
    assert caught.value.__notes__ == ["evaluate was playing episode 0 with seed 5"]


def test_what_the_policy_raises_is_its_own() -> None:
    def broken(observations: Any) -> Any:
        raise ZeroDivisionError("no idea")

    with pytest.raises(ZeroDivisionError, match="no idea") as caught:
        evaluate(broken, Errand, episodes=4, seed=0, num_workers=2)
    assert not hasattr(caught.value, "__notes__")


def test_actions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidActionError, match="actions: expected"):
        evaluate(lambda observations: np.zeros(99, np.int64), Errand, episodes=4, num_workers=1)


def vectors(mode: Any) -> Any:
    return make_vec("CartPole-v1", 2, backend="sync", autoreset_mode=mode)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"policy": 3}, TypeError, "policy: expected a function"),
        ({"policy": Turns}, TypeError, r"make an instance, Turns\(\)"),
        ({"policy": SimpleNamespace(predict=3)}, TypeError, "write lambda observations"),
        ({"policy": "rnadom"}, ValueError, "'random', found 'rnadom'"),
        ({"env": [Errand, Errand]}, TypeError, "found a list"),
        ({"env": "no:where"}, ImportError, "no:where"),
        ({"env": partial(vectors, "Disabled")}, ValueError, "single environments, found .*2"),
        ({"env": partial(vectors, "NextStep")}, ValueError, "single environments, found .*2"),
        ({"episodes": 0}, ValueError, "episodes must be"),
        ({"episodes": 2.5}, TypeError, "episodes must be"),
        ({"seed": [1, 2]}, ValueError, "expected 3 seeds, one per episode, found 2"),
        ({"seed": [1, 2, -3]}, ValueError, r"seed\[2\] must be"),
        ({"seed": [1, 2, 2**63]}, ValueError, "below 2"),
        ({"seed": -1}, ValueError, "seed must be"),
        ({"seed": iter([1, 2, 3])}, TypeError, "or a list of 3 seeds, found"),
        ({"seed": np.array(0.5)}, TypeError, "seed must be None, an integer"),
        ({"seed": True}, TypeError, "seed must be None, an integer"),
        ({"seed": "a"}, TypeError, "seed must be"),
        ({"num_envs": 0}, ValueError, "num_envs must be"),
        ({"num_workers": 0}, ValueError, "num_workers must be"),
        ({"backend": "threads"}, ValueError, "backend: expected one of"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps must be"),
        ({"max_retries": -1}, ValueError, "max_retries must be"),
        ({"batch_size": 0}, ValueError, "batch_size must be"),
        ({"vector_kwargs": {"autoreset_mode": "SameStep"}}, ValueError, "evaluate's own"),
        ({"vector_kwargs": {"batch_size": 2}}, ValueError, "evaluate's own"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    given: dict[str, Any] = {"policy": errand_policy, "env": Errand, "episodes": 3, **arguments}
    with pytest.raises(error, match=words):
        evaluate(given.pop("policy"), given.pop("env"), **given)


def test_a_spec_of_a_vector_env_gives_its_environment_alone() -> None:
    with make_vec("CartPole-v1", 3, backend="sync", autoreset_mode="SameStep") as envs:
        spec = envs.spec
    one = evaluate(lean, spec, episodes=5, seed=0, backend="sync")
    assert_same(one, evaluate(lean, "CartPole-v1", episodes=5, seed=0, num_workers=2))


# ---------------------------------------------------------------------- the journal


def journalled(path: Path, **arguments: Any) -> Evaluation:
    given: dict[str, Any] = {"episodes": 6, "seed": 3, "backend": "sync", "journal": path}
    return evaluate(errand_policy, Errand, **{**given, **arguments})


def test_a_journal_holds_each_episode(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    result = journalled(path, num_envs=2)
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header["seeds"] == result.seeds.tolist()
    lines.sort(key=lambda line: line["episode"])
    assert [line["total"] for line in lines] == result.returns.tolist()
    assert [line["seed"] for line in lines] == result.seeds.tolist()


def test_a_finished_journal_is_the_result_without_an_environment(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = journalled(path)
    content = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Errand, "__init__", lambda self: pytest.fail("an environment was built"))
        assert_same(journalled(path), first)
    assert path.read_bytes() == content


def _append(told: list[tuple[int, int]], finished: int, episodes: int) -> None:
    told.append((finished, episodes))


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.full)])
def test_a_journal_that_ends_at_any_byte_keeps_the_whole_lines(tmp_path: Path, stride: int) -> None:
    path = tmp_path / "runs.jsonl"
    journalled(path, episodes=3)
    content = path.read_bytes()
    header = json.loads(content.splitlines()[0])
    for size in range(0, len(content), stride):
        path.write_bytes(content[:size])
        journal = Journal(path, header["arguments"], header["seeds"])
        journal.close()
        kept = content[: content[:size].rfind(b"\n") + 1] or content.splitlines(keepends=True)[0]
        assert path.read_bytes() == kept
        assert len(journal.finished) == kept.count(b"\n") - 1


@pytest.mark.parametrize("size", [0, 1, 40, 400, -200, -30, -2, -1])
def test_an_evaluation_goes_on_from_a_torn_journal(tmp_path: Path, size: int) -> None:
    path = tmp_path / "runs.jsonl"
    first = journalled(path)
    content = path.read_bytes()
    path.write_bytes(content[:size])
    told: list[tuple[int, int]] = []
    assert_same(journalled(path, progress=partial(_append, told)), first)
    assert told[0] == (max(content[:size].count(b"\n") - 1, 0), 6)
    assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())


def test_the_journal_of_an_evaluation_without_a_seed_keeps_the_seeds(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = journalled(path, seed=None)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert_same(journalled(path, seed=None), first)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"episodes": 7}, "of episodes 6, and this call has 7"),
        ({"seed": 4}, "whose seeds differ from episode 0 on"),
        ({"seed": [*seeds_of(3, 4), 1, 2]}, "whose seeds differ from episode 4 on"),
        ({"max_episode_steps": 9}, "of max_episode_steps None, and this call has 9"),
        ({"env_kwargs": {"shortest": 5}}, "of env_kwargs"),
    ],
)
def test_a_journal_of_other_arguments_is_refused_and_left_alone(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    path = tmp_path / "runs.jsonl"
    journalled(path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=words):
        journalled(path, **arguments)
    with pytest.raises(ValueError, match="of policy"):
        evaluate("random", Errand, episodes=6, seed=3, backend="sync", journal=path)
    with pytest.raises(ValueError, match="of env "):
        evaluate(errand_policy, Paced, episodes=6, seed=3, backend="sync", journal=path)
    assert path.read_bytes() == content


def test_who_plays_may_change_between_two_calls(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = journalled(path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    assert_same(journalled(path, backend="async", num_workers=2, max_retries=9), first)


@pytest.mark.parametrize(
    "content", [b"step,reward\n", b"x", b'{"journal"', b'{"journal": "other"}\n', b"\n", b"{}\n"]
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    if content == b'{"journal"':  # the beginning of one
        journalled(path)
        return
    with pytest.raises(ValueError, match="is no journal of evaluate, as its line 1 shows"):
        journalled(path)
    assert path.read_bytes() == content


def test_a_device_is_no_journal() -> None:
    with pytest.raises(ValueError, match="journal: expected a file or a new name"):
        journalled(Path(os.devnull))


def test_a_folder_and_a_link_to_nothing_are_no_journals(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "journal", tmp_path / "elsewhere"
    with pytest.raises(ValueError, match=r"journal: expected a file or a new name.* a folder"):
        journalled(tmp_path)
    path.symlink_to(elsewhere)
    with pytest.raises(ValueError, match=r"a symbolic link to .*elsewhere, which does not exist"):
        journalled(path)
    assert not elsewhere.exists()
    first = journalled(elsewhere)
    assert_same(journalled(path), first)  # a link to a journal is one


def test_infos_may_have_any_key_and_number() -> None:
    result = evaluate("random", Loud, episodes=2, seed=0, backend="sync")
    assert {key: values[0] for key, values in result.infos.items()} == {"3": -np.inf, "n": 1e30}


class Loud(Errand):
    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, True, False, {3: -(10**400), "n": 10**30}


@pytest.mark.parametrize(
    ("number", "name", "value"),
    [
        (4, "seed", 5),
        (2, "episode", 6),
        (3, "episode", -1),
        (3, "episode", True),
        (2, "total", "1.5"),
        (2, "length", None),
        (2, "length", 2**63),
        (2, "retries", -1),
        (2, "infos", {"n": "1"}),
        (2, "infos", []),
        (1, "seeds", [1, 2]),
        (1, "seeds", {"0": 1}),
        (1, "seeds", [1.5] * 6),
        (1, "arguments", []),
    ],
)
def test_a_line_that_is_spoilt_is_named(tmp_path: Path, number: int, name: str, value: Any) -> None:
    path = tmp_path / "runs.jsonl"
    journalled(path, seed=None)
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), name: value})
    path.write_text("\n".join(lines) + "\n")
    content = path.read_bytes()
    with pytest.raises(ValueError, match=f"as its line {number} shows"):
        journalled(path, seed=None)
    assert path.read_bytes() == content


def test_an_episode_that_stands_there_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    journalled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[2]]))
    with pytest.raises(ValueError, match="as its line 8 shows"):
        journalled(path)


def test_a_line_that_nests_without_end_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    journalled(path)
    path.write_bytes(path.read_bytes() + b"[" * 100_000 + b"\n")
    with pytest.raises(ValueError, match="as its line 8 shows"):
        journalled(path)


def test_arguments_that_are_nan_are_those_of_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for _ in range(2):
        Journal(path, {"gravity": float("nan")}, [1]).close()


def test_one_journal_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    content = b""

    def check(finished: int, episodes: int) -> None:
        nonlocal content
        content = path.read_bytes()
        with pytest.raises(ValueError, match=r"another evaluation writes .*runs\.jsonl: wait"):
            journalled(path)
        assert path.read_bytes() == content

    first = journalled(path, progress=check)
    assert content.count(b"\n") == 7
    assert_same(journalled(path), first)


HOLDER = """
import sys
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.journal import Journal
from vecspaces.evaluation.policies import adapt_policy

journal = Journal(sys.argv[1], {}, [1])
print("open", flush=True)
sys.stdin.read()
"""


@posix
def test_a_journal_of_another_process_is_refused_until_that_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        for _ in range(2):
            with pytest.raises(ValueError, match="another evaluation writes"):
                Journal(path, {}, [1])
        process.kill()
    Journal(path, {}, [1]).close()


def test_returns_that_are_not_finite_survive_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = evaluate("random", Unbounded, episodes=3, seed=[1, 2, 3], backend="sync", journal=path)
    assert first.returns.tolist() == [np.inf, -np.inf, np.inf]
    again = evaluate("random", Unbounded, episodes=3, seed=[1, 2, 3], backend="sync", journal=path)
    assert_same(again, first)
    assert [episode["return"] for episode in again.as_json()["episodes"]] == [None] * 3


class Unbounded(Errand):
    def step(self, action: Any) -> Any:
        observation, _, *_ = super().step(action)
        return observation, np.inf if self.seed in (1, 3) else -np.inf, True, False, {}


PROGRAM = """
import sys
from tests.evaluation.envs import Paced, errand_policy
from vecspaces import evaluate

if __name__ == "__main__":
    try:
        evaluate(errand_policy, Paced, episodes=40, seed=3, num_workers=2, journal=sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted")
"""


@posix
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_evaluation_that_was_interrupted_goes_on(
    expected: Evaluation, tmp_path: Path, how: signal.Signals
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    path = tmp_path / "runs.jsonl"
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and not (
            path.exists() and path.read_text().count("\n") > 3
        ):
            time.sleep(0.01)
        process.send_signal(how)
        output, _ = process.communicate(timeout=30)
    assert output == ("interrupted\n" if how is signal.SIGINT else "")
    begun: list[int] = []
    result = evaluate(
        errand_policy,
        Paced,
        episodes=40,
        seed=3,
        num_workers=2,
        journal=path,
        progress=lambda done, every: begun.append(done),
    )
    assert begun[0] >= 3
    assert_same(result, expected)


# ---------------------------------------------------------------------- statistics


def made(returns: Any, infos: dict[str, Any] | None = None) -> Evaluation:
    """An evaluation with these returns."""
    returns = np.array(returns, np.float64)
    count = len(returns)
    zeros = np.zeros(count, np.int64)
    return Evaluation(
        returns, zeros + 1, zeros, zeros, np.ones(count, bool), infos or {}, count, 1.0
    )


def test_the_statistics_are_those_of_numpy() -> None:
    returns = np.random.default_rng(0).gamma(2.0, size=203)
    result = made(returns)
    assert result.mean_return == returns.mean()
    assert result.std_return == returns.std()
    assert result.median_return == np.median(returns)
    ordered = np.sort(returns)
    assert result.interquartile_mean == ordered[50:153].mean()
    assert result.success_rate is None


@pytest.mark.parametrize(
    ("returns", "mean"), [([5], 5), ([1, 2], 1.5), ([0, 2, 4], 2), ([9, 1, 2, 3], 2.5)]
)
def test_the_interquartile_mean_of_a_few(returns: list[int], mean: float) -> None:
    assert interquartile_mean(np.array(returns, np.float64)) == mean


def test_the_interval_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    returns = np.random.default_rng(1).gamma(2.0, size=60)
    theirs = stats.bootstrap(
        (returns,), np.mean, n_resamples=20_000, method="percentile", rng=2
    ).confidence_interval
    found = made(returns).confidence_interval(resamples=20_000)
    np.testing.assert_allclose(found, theirs, atol=0.02)


def test_the_interval_of_many_returns_is_the_normal_one() -> None:
    returns = np.random.default_rng(1).gamma(2.0, size=1000)
    half = 1.959964 * returns.std() / np.sqrt(1000)
    found = made(returns).confidence_interval()
    np.testing.assert_allclose(found, (returns.mean() - half, returns.mean() + half), rtol=0.01)
    narrow = made(returns).confidence_interval(0.5)
    assert found[0] < narrow[0] < narrow[1] < found[1]


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(4)
    inside = 0
    for _ in range(300):
        low, high = made(generator.normal(size=40)).confidence_interval(0.9, resamples=500)
        inside += low < 0.0 < high
    assert 0.84 < inside / 300 < 0.94


def test_the_interval_is_seeded_and_does_not_depend_on_the_size_of_a_draw() -> None:
    result = made(np.arange(50.0))
    assert result.confidence_interval() == result.confidence_interval()
    assert result.confidence_interval() != result.confidence_interval(seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vecspaces.evaluation.result._DRAWN", 70)
        slow = result.confidence_interval()
    assert slow == result.confidence_interval()
    for statistic in ("median", "interquartile_mean"):
        low, high = result.confidence_interval(statistic=statistic)
        assert low < 24.5 < high
    assert made([3.0]).confidence_interval() == (3.0, 3.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"level": 1.0}, "level must lie between"),
        ({"level": 95}, "level must lie between"),
        ({"statistic": "mode"}, "statistic must be one of 'mean'"),
        ({"resamples": 0}, "resamples must be"),
    ],
)
def test_wrong_arguments_of_an_interval_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made([1.0, 2.0]).confidence_interval(**arguments)


def test_the_success_rate_is_that_of_the_final_infos(expected: Evaluation) -> None:
    assert expected.success_rate == expected.terminated.mean()
    assert made([1, 2], {"success": np.array([np.nan, 1.0])}).success_rate == 1.0


def test_as_json_is_plain_and_whole(expected: Evaluation) -> None:
    found = json.loads(json.dumps(expected.as_json(), allow_nan=False))
    assert found["mean_return"] == expected.mean_return
    assert [episode["return"] for episode in found["episodes"]] == expected.returns.tolist()
    assert found["episodes"][3]["infos"]["parcels"] == expected.lengths[3]
    assert "of 40 episodes: mean return" in repr(expected)


def test_progress_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    calls: Callable[[int, int], Any] = lambda done, every: told.append((done, every))  # noqa: E731
    evaluate(errand_policy, Errand, episodes=5, seed=3, backend="sync", num_envs=1, progress=calls)
    assert told == [(done, 5) for done in range(6)]
    assert capsys.readouterr().err == ""
    evaluate(errand_policy, Errand, episodes=5, seed=3, backend="sync", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "0 of 5 episodes"
    assert lines[-1] == "5 of 5 episodes, 0 s left"
