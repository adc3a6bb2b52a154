"""evaluate: the same episodes for every number of environments and workers, also after deaths."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
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
    assert_same,
    errand_policy,
    seeds_of,
)
from tests.leaks import descendants
from tests.vector.bounds import stretched, within
from vecspaces import Evaluation, collect, evaluate, spaces
from vecspaces.errors import InvalidActionError, StepTimeoutError, WorkerDiedError
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.policies import adapt_policy
from vecspaces.vector import AsyncVectorEnv

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


# ---------------------------------------------------------------------- what an episode is


def test_an_episode_equals_one_played_by_hand(expected: Evaluation) -> None:
    assert expected.seeds.tolist() == seeds_of(3, 40)
    env = Errand()
    for k, seed in enumerate(expected.seeds.tolist()):
        total, length, terminated, info = by_hand(env, errand_policy, seed)
        assert (expected.returns[k], expected.lengths[k]) == (total, length)
        assert expected.terminated[k] == terminated
        for key in ("is_success", "distance", "parcels"):
            assert expected.infos[key][k] == info[key]
        assert np.isnan(expected.infos["tip"][k]) == ("tip" not in info)
    assert set(expected.infos) == {"distance", "is_success", "parcels", "tip"}
    assert expected.lengths.max() > 5 * expected.lengths.min()
    assert expected.steps == expected.lengths.sum()
    assert not expected.retries.any()


def test_it_equals_one_of_gymnasium_alone() -> None:
    result = evaluate(lean, "CartPole-v1", episodes=12, seed=0, num_workers=2)
    env = gymnasium.make("CartPole-v1")
    for k, seed in enumerate(seeds_of(0, 12)):
        total, length, terminated, _ = by_hand(env, lean, seed)
        assert (result.returns[k], result.lengths[k]) == (total, length)
        assert result.terminated[k] == terminated


def test_seeds_are_derived_or_given_or_fresh(expected: Evaluation) -> None:
    play = partial(evaluate, errand_policy, Errand, backend="sync")
    assert play(episodes=5, seed=3).seeds.tolist() == seeds_of(3, 40)[:5]
    chosen = [17, 3, 29]
    given = play(episodes=3, seed=expected.seeds[chosen])
    assert given.returns.tobytes() == expected.returns[chosen].tobytes()
    one, other = (play(episodes=3) for _ in range(2))
    assert one.seeds.tolist() != other.seeds.tolist()
    assert_same(play(episodes=3, seed=one.seeds.tolist()), one)


@pytest.mark.parametrize(("episodes", "num_envs"), [(9, 8), (1, 50), (3, 50)])
def test_exactly_these_episodes_are_begun_in_no_more_environments(
    tmp_path: Path, episodes: int, num_envs: int
) -> None:
    env = partial(Counted, tmp_path)
    evaluate(errand_policy, env, episodes=episodes, seed=3, num_envs=num_envs, num_workers=2)
    notes = (tmp_path / "notes").read_text().splitlines()
    built = min(episodes, num_envs)
    assert notes.count("built") == built
    assert sorted(notes)[built:] == sorted(f"reset {seed}" for seed in seeds_of(3, episodes))


@pytest.mark.parametrize("limit", [1, 6])
def test_episodes_are_cut_off_at_max_episode_steps(limit: int) -> None:
    endless = partial(Errand, endless=True)
    result = evaluate(
        errand_policy, endless, episodes=7, seed=1, max_episode_steps=limit, backend="sync"
    )
    assert result.lengths.tolist() == [limit] * 7
    assert not result.terminated.any()
    totals = [by_hand(endless(), errand_policy, seed, limit)[0] for seed in seeds_of(1, 7)]
    assert result.returns.tolist() == totals


class Loud(Errand):
    def step(self, action: Any) -> Any:
        infos = {3: -np.inf, "z": 1 + 0j, "i": 1j, "big": 10**400, "ragged": [[1], [1, 2]]}
        return self._observe(), 0.0, True, False, infos


def test_infos_may_have_any_key_and_value_of_which_real_numbers_count() -> None:
    result = evaluate("random", Loud, episodes=2, seed=0, backend="sync")
    assert {key: values[0] for key, values in result.infos.items()} == {"3": -np.inf, "z": 1.0}


# ---------------------------------------------------------------------- environments and workers

WAYS: dict[str, dict[str, Any]] = {
    "sync": {"backend": "sync", "num_workers": 2},
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
    "padded": {"num_workers": 2, "batch_size": 7},
    "row by row": {"backend": "sync", "batch_size": 1},
}
SOME = ("sync, more rows than episodes", "odd rows", "pipes", "padded")


@pytest.mark.parametrize("way", ordinarily(lambda way: way in SOME, zip(WAYS, strict=True)))
def test_the_result_does_not_depend_on_environments_and_workers(
    expected: Evaluation, way: str
) -> None:
    assert_same(evaluate(errand_policy, Errand, episodes=40, seed=3, **WAYS[way]), expected)


def test_nor_does_that_of_random_actions() -> None:
    one = evaluate("random", "CartPole-v1", episodes=30, seed=8, backend="sync", num_envs=1)
    assert_same(
        evaluate("random", "CartPole-v1", episodes=30, seed=8, num_workers=3, num_envs=10), one
    )


def test_random_actions_are_drawn_from_every_space() -> None:
    from tests.envs import Sampler
    from vecspaces.testing.contract import ALL_SPACES

    for space in ALL_SPACES.values():
        env = partial(Sampler, space, space)
        one = evaluate("random", env, episodes=4, seed=2, backend="sync", num_envs=1)
        assert_same(evaluate("random", env, episodes=4, seed=2, backend="sync"), one)


def test_inference_overlaps_with_stepping_with_half_of_the_environments_each() -> None:
    queue = EpisodeQueue(seeds_of(3, 40))
    called_with: list[int] = []

    def watching(observations: Any) -> Any:
        if queue.waiting:  # so that all eight environments play
            called_with.append(len(observations["mission"]))
        return errand_policy(observations)

    with AsyncVectorEnv([Errand] * 8, num_workers=2, autoreset_mode="Disabled") as envs:
        assert len(list(queue.play(envs, adapt_policy(watching, envs), in_turns=True))) == 40
    # Rows of the half that begin an episode are not in the batch.
    assert len(called_with) > 30
    assert max(called_with) == 4


# ---------------------------------------------------------------------- deaths


def restarting(deed: str) -> dict[str, Any]:
    """Return the arguments that restart a worker that was stopped, which is late and not dead.

    No other worker may be late, so the bound is long enough for one that a busy machine holds up.
    """
    if deed == "SIGKILL":
        return {}
    return {"vector_kwargs": {"step_timeout": stretched(1.0), "on_step_timeout": "restart"}}


@posix
@pytest.mark.parametrize(
    ("where", "at", "deed"),
    ordinarily(
        lambda *cell: (
            cell in {("reset", 0, "SIGKILL"), ("reset", 39, "SIGSTOP"), ("step", 20, "SIGKILL")}
        ),
        itertools.product(["reset", "step"], [0, 1, 20, 39], ["SIGKILL", "SIGSTOP"]),
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
@pytest.mark.parametrize(
    ("where", "at", "max_retries", "deed"),
    ordinarily(
        lambda *cell: cell in {("reset", 1, 2, "SIGKILL"), ("step", 30, 0, "SIGSTOP")},
        itertools.product(["reset", "step"], [1, 30], [0, 2], ["SIGKILL", "SIGSTOP"]),
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


class Unclosed(Errand):
    """An errand whose `close` raises, or ends its process."""

    def __init__(self, dies: bool) -> None:
        super().__init__()
        self.dies = dies

    def close(self) -> None:
        if self.dies:
            signal.raise_signal(signal.SIGKILL)
        raise OSError("no context")


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=posix)])
def test_what_fails_in_close_hides_neither_results_nor_errors(
    expected: Evaluation, dies: bool
) -> None:
    text = "failed while it was closed, which changes no episode: " + (
        "WorkerDiedError: .* SIGKILL" if dies else "OSError: no context"
    )
    options: Any = {"episodes": 40, "seed": 3, "num_workers": 2, "max_retries": 0}
    with pytest.warns(RuntimeWarning, match=f"evaluate: an environment {text}"):
        assert_same(evaluate(errand_policy, partial(Unclosed, dies), **options), expected)
    with pytest.warns(RuntimeWarning, match=f"collect: an environment {text}"):
        found = list(collect(errand_policy, partial(Unclosed, dies), **options))
    assert len(found) == 40
    with pytest.warns(RuntimeWarning, match=text), pytest.raises(ZeroDivisionError) as caught:
        evaluate(lambda observations: 1 // 0, partial(Unclosed, dies), **options)
    assert caught.value.__context__ is None


@posix
def test_a_worker_that_dies_after_the_last_episode_costs_nothing(expected: Evaluation) -> None:
    before = set(descendants())

    def kill(finished: int, episodes: int) -> None:
        for pid in set(descendants()) - before if finished == episodes else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    options: Any = {"progress": kill, "max_retries": 0, "vector_kwargs": {"context": "fork"}}
    with pytest.warns(RuntimeWarning, match="WorkerDiedError"):
        result = evaluate(errand_policy, Errand, episodes=40, seed=3, num_workers=2, **options)
    assert_same(result, expected)


class Fading(Errand):
    """An errand of seed 1 that dies once, just after its first reset; that of seed 2 is slow."""

    def __init__(self, once: Path) -> None:
        super().__init__()
        self._once = once

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == 1 and not self._once.exists():
            self._once.touch()
            threading.Timer(0.05, signal.raise_signal, (signal.SIGKILL,)).start()
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


@posix
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "kills", "seconds"),
    [(0, 6, 0.04), *(pytest.param(seed, 40, 0.02, marks=pytest.mark.full) for seed in range(20))],
)
def test_kills_at_random_moments_change_nothing(
    expected: Evaluation, monkeypatch: pytest.MonkeyPatch, seed: int, kills: int, seconds: float
) -> None:
    moments, over, killed = random.Random(seed), threading.Event(), []

    def kill(envs: Any) -> None:
        while len(killed) < kills and not over.wait(moments.expovariate(1 / seconds)):
            with contextlib.suppress(IndexError, ValueError):  # it was replaced a moment ago
                moments.choice(list(envs.processes)).kill()
                killed.append(True)

    def reset(self: Any, **given: Any) -> Any:
        killer = threading.Thread(target=kill, args=(self,))
        stack.callback(killer.join)
        stack.callback(over.set)
        killer.start()
        return original(self, **given)

    original = AsyncVectorEnv.reset
    monkeypatch.setattr(AsyncVectorEnv, "reset", reset)
    workers = 2 + seed % 3
    with contextlib.ExitStack() as stack:
        result = evaluate(
            errand_policy,
            Paced,
            episodes=40,
            seed=3,
            max_retries=100,
            num_workers=workers,
            num_envs=workers * (1 + seed % 3) + 1,
            vector_kwargs={"context": "fork"},
        )
    assert killed and result.retries.sum() > 0
    assert_same(result, expected)


# ---------------------------------------------------------------------- policies with a state


def test_a_policy_with_a_state_sees_every_row_each_time() -> None:
    one, two, many = Turns(), Turns(), Turns()
    arguments: dict[str, Any] = {"episodes": 11, "seed": 3}
    expected = evaluate(one, Errand, backend="sync", num_envs=1, **arguments)
    assert one.sizes == {1}
    assert_same(evaluate(two, Errand, num_workers=2, num_envs=5, **arguments), expected)
    assert two.sizes == {5}
    assert_same(evaluate(many, Errand, backend="sync", num_envs=50, **arguments), expected)
    assert many.sizes == {11}
    # Actions 1, 2, 0, 1, ...: those of each episode's own steps.
    env = Errand()
    env.reset(seed=int(expected.seeds[4]))
    total = sum(float(env.step((step + 1) % 3)[1]) for step in range(int(expected.lengths[4])))
    assert expected.returns[4] == total


@posix
def test_a_policy_with_a_state_begins_anew_too(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"episodes": 20, "seed": 3}
    expected = evaluate(Turns(), Errand, backend="sync", **arguments)
    env = partial(Poisoned, tuple(expected.seeds[[2, 9]].tolist()), "step", tmp_path)
    result = evaluate(Turns(), env, num_workers=2, num_envs=6, **arguments)
    assert_same(result, expected)
    assert result.retries[2] >= 1


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

    observation_space: Any = spaces.Box(-np.inf, np.inf, (256,))
    action_space: Any = spaces.Box(-np.inf, np.inf, (3,))

    def step(self, action: Any) -> Any:
        _, _, terminated, truncated, info = super().step(1)
        return self._observe(), float(action.astype(np.float64).sum()), terminated, truncated, info

    def _observe(self) -> Any:
        return self.np_random.normal(size=256).astype(np.float32)


def test_a_network_is_called_with_batches_of_one_size() -> None:
    results = []
    ways: list[dict[str, Any]] = [{"backend": "sync", "num_envs": 1}, {"num_workers": 2}]
    for way in (*ways, {"backend": "sync", "num_envs": 25}):
        network = Network()
        results.append(evaluate(network, Exact, episodes=25, seed=3, batch_size=8, **way))
        assert network.sizes == {8}
        assert_same(results[-1], results[0])


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
    options = {"step_timeout": 0.2, "context": "fork"}
    with pytest.raises(StepTimeoutError) as caught:
        evaluate(errand_policy, Stuck, episodes=1, seed=[5], vector_kwargs=options)
    assert caught.value.__notes__ == ["evaluate was playing episode 0 with seed 5"]


def test_what_policy_and_progress_raise_has_no_note() -> None:
    def broken(observations: Any) -> Any:
        raise ZeroDivisionError("no idea")

    for policy, progress in ((broken, False), ("random", lambda *counts: broken(counts))):
        with pytest.raises(ZeroDivisionError, match="no idea") as caught:
            evaluate(policy, Errand, episodes=4, seed=0, num_workers=1, progress=progress)
        assert not hasattr(caught.value, "__notes__")
    with pytest.raises(InvalidActionError, match="actions: expected"):
        evaluate(lambda observations: np.zeros(99, np.int64), Errand, episodes=4, backend="sync")
