"""evaluate and collect: the same episodes for any environments and workers, also after deaths."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.crosses import FASTEST, diagonal, ordinarily
from tests.evaluation.envs import (
    Counted,
    Errand,
    Leaky,
    Poisoned,
    Raising,
    Turns,
    assert_same,
    assert_same_episodes,
    errand_policy,
    gathered,
    numbered,
    seeds_of,
)
from tests.leaks import descendants
from vecspaces import Episode, Evaluation, evaluate, spaces
from vecspaces.errors import InvalidActionError, StepTimeoutError, WorkerDiedError
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.policies import adapt_policy
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.utils import concatenate

posix = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
paced = partial(Errand, pause=0.004)
CALLERS = ("evaluate", "collect")
Replay = Callable[..., Any]


def play(caller: str, policy: Any, env: Any, **options: Any) -> Any:
    """Return what `evaluate` or `collect` makes of forty episodes."""
    call: Any = evaluate if caller == "evaluate" else gathered
    return call(policy, env, **{"episodes": 40, "seed": 3, "options": numbered, **options})


@pytest.fixture
def replay(expected: Evaluation, episodes: list[Episode]) -> Replay:
    """Return a function that plays the errands in another way, and finds nothing else."""

    def replay(caller: str, env: Any = Errand, **options: Any) -> Any:
        played = play(caller, errand_policy, env, **options)
        if caller == "evaluate":
            assert_same(played, expected)
        else:
            assert_same_episodes(sorted(played, key=lambda episode: episode.number), episodes)
        return played

    return replay


# ---------------------------------------------------------------------- what an episode is


def test_an_episode_equals_one_played_by_hand(
    expected: Evaluation, episodes: list[Episode]
) -> None:
    env = Errand()
    assert expected.seeds.tolist() == [episode.seed for episode in episodes] == seeds_of(3, 40)
    for k, episode in enumerate(episodes):
        assert episode.number == k
        observation, info = env.reset(seed=episode.seed, options={"number": k})
        observations, infos, results = [observation], [info], []
        for action in episode.actions:
            batch: Any = {key: np.array([part]) for key, part in observation.items()}
            assert action == errand_policy({**batch, "mission": (observation["mission"],)})[0]
            observation, *result, info = env.step(action)
            observations.append(observation)
            infos.append(info)
            results.append(result)
        assert isinstance(episode.observations["mission"], tuple)
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
        # One after the other: Python's `sum` is more exact from 3.12 on.
        assert expected.returns[k] == np.add.accumulate(rewards)[-1]
        assert (expected.lengths[k], expected.terminated[k]) == (len(results), results[-1][1])
        for key in ("is_success", "distance", "parcels", "number"):
            assert expected.infos[key][k] == info[key]
        assert np.isnan(expected.infos["tip"][k]) == ("tip" not in info)
    assert set(expected.infos) == {"distance", "is_success", "number", "parcels", "tip"}
    assert expected.infos["number"].tolist() == list(range(40))
    assert expected.lengths.max() > 5 * expected.lengths.min()
    assert expected.steps == expected.lengths.sum()
    assert not expected.retries.any()


def test_seeds_are_derived_or_given_or_fresh(expected: Evaluation) -> None:
    play = partial(evaluate, errand_policy, Errand, backend="sync")
    assert play(episodes=5, seed=3).seeds.tolist() == seeds_of(3, 40)[:5]
    chosen = [17, 3, 29]
    again = play(episodes=3, seed=expected.seeds[chosen])
    assert again.returns.tobytes() == expected.returns[chosen].tobytes()
    first, other = (play(episodes=3) for _ in range(2))
    assert first.seeds.tolist() != other.seeds.tolist()
    assert_same(play(episodes=3, seed=first.seeds.tolist()), first)


class Returning:
    """A policy with a state that returns what a function makes of the number of observations."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def reset(self, rows: Any) -> None:
        assert len(rows) == 4

    def __call__(self, observations: Any) -> Any:
        return self.make(len(observations["battery"]))


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    "make",
    [
        lambda count: np.zeros((count, 1), np.int64),
        lambda count: [0] * (count - 1),
        lambda count: [0] * (count + 2),
        lambda count: None,
        lambda count: np.full(count, 0.5),
    ],
    ids=["column", "one too few", "two too many", "none", "float"],
)
def test_actions_that_do_not_fit_are_an_error_however_the_policy_is_called(
    caller: str, make: Any
) -> None:
    stateful = Returning(make)
    for policy, batch_size in ((stateful.__call__, None), (stateful.__call__, 3), (stateful, None)):
        options: Any = {"batch_size": batch_size, "num_envs": 4, "backend": "sync"}
        with pytest.raises(InvalidActionError, match=r"^actions: expected int64 array of shape"):
            play(caller, policy, Errand, **options)


@pytest.mark.parametrize(
    ("episodes", "num_envs", "backend"), [(9, 8, "async"), (1, 50, "sync"), (3, 50, "sync")]
)
def test_exactly_these_episodes_are_begun_in_no_more_environments(
    tmp_path: Path, episodes: int, num_envs: int, backend: Any
) -> None:
    options: Any = {"num_envs": num_envs, "num_workers": 2, "backend": backend}
    evaluate(errand_policy, partial(Counted, tmp_path), episodes=episodes, seed=3, **options)
    notes = (tmp_path / "notes").read_text().splitlines()
    built = min(episodes, num_envs)
    assert notes.count("built") == built
    assert sorted(notes)[built:] == sorted(f"reset {seed}" for seed in seeds_of(3, episodes))


@pytest.mark.parametrize("limit", [1, 6])
def test_the_last_step_is_truncated_by_max_episode_steps(limit: int) -> None:
    options: Any = {"episodes": 5, "max_episode_steps": limit, "backend": "sync", "num_envs": 2}
    arguments: Any = (errand_policy, partial(Errand, endless=True))
    episodes = gathered(*arguments, **options)
    for episode in episodes:
        assert episode.truncations.tolist() == [False] * (limit - 1) + [True]
        assert not episode.terminations.any()
        assert len(episode.observations["battery"]) == limit + 1
    result = evaluate(*arguments, seed=3, **options)
    assert result.lengths.tolist() == [limit] * 5 and not result.terminated.any()
    assert result.returns.tolist() == [np.add.accumulate(e.rewards)[-1] for e in episodes]


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
    "7 workers": {"num_workers": 7},
    "2 workers of an environment": {"num_workers": 2, "num_envs": 2},
    "more workers than rows": {"num_workers": 5, "num_envs": 2},
    "odd rows": {"num_workers": 2, "num_envs": 13},
    "fork": {"num_workers": 2, "vector_kwargs": {"context": FASTEST}},
    "spawn": {"num_workers": 2, "vector_kwargs": {"context": "spawn"}},
    "forkserver": {"num_workers": 2, "vector_kwargs": {"context": "forkserver"}},
    "threads": {"backend": "thread", "num_workers": 2},
    "pipes": {"num_workers": 2, "vector_kwargs": {"shared_memory": False}},
    "padded": {"num_workers": 2, "batch_size": 7},
    "row by row": {"backend": "sync", "batch_size": 1},
}
SOME = {
    ("sync, more rows than episodes", "evaluate"),
    ("threads", "evaluate"),
    ("pipes", "collect"),
}


@pytest.mark.parametrize(
    ("way", "caller"), ordinarily(lambda *cell: cell in SOME, itertools.product(WAYS, CALLERS))
)
def test_episodes_do_not_depend_on_environments_and_workers(
    replay: Replay, way: str, caller: str
) -> None:
    replay(caller, **WAYS[way])


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


@pytest.fixture
def losing(hurry: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that gives the arguments with which one worker is lost by a deed.

    A worker that was stopped is late and not dead. Its bound passes as soon as it has been stopped.
    """

    def losing(deed: str, seed: int) -> dict[str, Any]:
        if deed == "SIGKILL":
            return {"num_workers": 2, "num_envs": 6}
        hurry((tmp_path / str(seed)).exists, 0)
        late = {"step_timeout": 600.0, "on_step_timeout": "restart"}
        return {"num_workers": 1, "num_envs": 3, "vector_kwargs": late}

    return losing


@posix
@pytest.mark.parametrize(
    ("caller", "where", "number", "deed"),
    ordinarily(
        lambda caller, where, number, deed: (
            (caller, where, number, deed)
            in {
                ("evaluate", "reset", 0, "SIGKILL"),
                ("evaluate", "reset", 39, "SIGSTOP"),
                ("collect", "step", 20, "SIGKILL"),
            }
        ),
        itertools.product(CALLERS, ["reset", "step"], [0, 20, 39], ["SIGKILL", "SIGSTOP"]),
    ),
)
def test_an_episode_that_is_lost_begins_anew(
    replay: Replay, losing: Any, tmp_path: Path, caller: str, where: str, number: int, deed: str
) -> None:
    seed = seeds_of(3, 40)[number]
    result = replay(caller, partial(Poisoned, (seed,), where, tmp_path, deed), **losing(deed, seed))
    assert (tmp_path / str(seed)).exists()
    if caller == "evaluate":
        assert result.retries[number] == 1
        # Of the three environments of the worker, those in an episode lost it.
        assert 1 <= result.retries.sum() <= 3


@posix
@pytest.mark.parametrize(
    ("caller", "where", "number", "deed", "max_retries"),
    ordinarily(
        lambda *cell: (
            cell in {("collect", "reset", 1, "SIGKILL", 2), ("evaluate", "step", 30, "SIGSTOP", 0)}
        ),
        [
            (*cell, *loss)
            for cell in itertools.product(CALLERS, ["reset", "step"], [1, 30])
            for loss in (("SIGKILL", 0), ("SIGKILL", 2), ("SIGSTOP", 0))
        ],
    ),
)
def test_one_that_always_loses_its_worker_is_named(
    losing: Any, tmp_path: Path, caller: str, where: str, number: int, deed: str, max_retries: int
) -> None:
    seed = seeds_of(3, 40)[number]
    env = partial(Poisoned, (seed,), where, None if deed == "SIGKILL" else tmp_path, deed)
    kind = WorkerDiedError if deed == "SIGKILL" else StepTimeoutError
    with pytest.raises(kind) as caught:
        play(caller, errand_policy, env, max_retries=max_retries, **losing(deed, seed))
    named = f"episode {number} with seed {seed} and options {numbered(number)}"
    times = "once" if max_retries == 0 else f"{max_retries + 1} times"
    assert f"{named} lost its worker {times}, and max_retries is {max_retries}" in str(caught.value)
    alone = f"{caller}(..., episodes=1, seed=[{seed}], options=[{numbered(number)}]) plays it alone"
    assert alone in str(caught.value)
    assert getattr(caught.value, "exitcode", -signal.SIGKILL) == -signal.SIGKILL
    assert "built again" not in str(caught.value) and "restarted" not in str(caught.value)
    if deed == "SIGKILL":  # and alone it does it again
        with pytest.raises(kind, match=f"episode 0 with seed {seed} "):
            play(caller, errand_policy, env, episodes=1, seed=[seed], max_retries=0)


class Unclosed(Errand):
    """An errand whose `close` raises, or ends its process."""

    def __init__(self, dies: bool) -> None:
        super().__init__()
        self.dies = dies

    def close(self) -> None:
        if self.dies:
            signal.raise_signal(signal.SIGKILL)
        raise OSError("no context")


@pytest.mark.parametrize(
    ("caller", "dies"), [("evaluate", False), pytest.param("collect", True, marks=posix)]
)
def test_what_fails_in_close_hides_neither_results_nor_errors(
    replay: Replay, caller: str, dies: bool
) -> None:
    env = partial(Unclosed, dies)
    text = f"{caller}: an environment failed while it was closed, which changes no episode: " + (
        "WorkerDiedError: .* SIGKILL" if dies else "OSError: no context"
    )
    with pytest.warns(RuntimeWarning, match=text):
        replay(caller, env, num_workers=2, max_retries=0)
    with pytest.warns(RuntimeWarning, match=text), pytest.raises(ZeroDivisionError) as caught:
        play(caller, lambda observations: 1 // 0, env, num_workers=2)
    assert caught.value.__context__ is None


@posix
def test_a_worker_that_dies_after_the_last_episode_costs_nothing(replay: Replay) -> None:
    before = set(descendants())

    def kill(finished: int, episodes: int) -> None:
        for pid in set(descendants()) - before if finished == episodes else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    options: Any = {"progress": kill, "max_retries": 0, "vector_kwargs": {"context": FASTEST}}
    with pytest.warns(RuntimeWarning, match="WorkerDiedError"):
        replay("evaluate", num_workers=2, **options)


@posix
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "kills", "seconds"),
    [
        *((seed, 3, 0.02) for seed in (0, 1)),
        *(pytest.param(seed, 40, 0.02, marks=pytest.mark.full) for seed in range(2, 14)),
    ],
)
def test_kills_at_random_moments_change_nothing(
    replay: Replay, monkeypatch: pytest.MonkeyPatch, seed: int, kills: int, seconds: float
) -> None:
    moments, over, killed = random.Random(seed), threading.Event(), []

    def kill(envs: Any) -> None:
        while len(killed) < kills and not over.wait(moments.expovariate(1 / seconds)):
            with contextlib.suppress(IndexError, ValueError):  # it was replaced a moment ago
                moments.choice(list(envs.processes)).kill()
                killed.append(True)

    def reset(self: Any, **arguments: Any) -> Any:
        killer = threading.Thread(target=kill, args=(self,))
        stack.callback(killer.join)
        stack.callback(over.set)
        killer.start()
        return original(self, **arguments)

    original = AsyncVectorEnv.reset
    monkeypatch.setattr(AsyncVectorEnv, "reset", reset)
    workers, caller = 2 + seed % 3, CALLERS[seed % 2]
    options: Any = {"num_workers": workers, "num_envs": workers * (1 + seed % 3) + 1}
    options["vector_kwargs"] = {"context": FASTEST}
    if caller == "collect":
        options["ordered"] = seed % 4 == 1
    if seed % 3 == 0:
        options |= {"num_envs": workers, "restart_after": 3}
    with contextlib.ExitStack() as stack:
        result = replay(caller, paced, max_retries=100, **options)
    assert killed and (caller == "collect" or result.retries.sum() > 0)


# ---------------------------------------------------------------------- restart_after


@diagonal(
    caller=CALLERS,
    options={
        "sync": {"backend": "sync", "num_envs": 3},
        "workers": {"num_workers": 2},
        "batches": {"num_envs": 3, "batch_size": 2},
    },
)
def test_restart_after_ends_simulators_that_leak_and_changes_no_episode(
    replay: Replay, caller: str, options: dict[str, Any]
) -> None:
    if caller == "collect":
        options = {"ordered": True, **options}
    replay(caller, partial(Leaky, 3), restart_after=3, **options)
    with pytest.raises(MemoryError, match="4 episodes"):
        play(caller, errand_policy, partial(Leaky, 3), restart_after=4, **options)


def test_restart_after_begins_new_processes(tmp_path: Path) -> None:
    options: Any = {"episodes": 7, "restart_after": 2, "num_workers": 1}
    evaluate(errand_policy, partial(Counted, tmp_path), seed=0, **options)
    notes = [note.partition(" ")[0] for note in (tmp_path / "notes").read_text().splitlines()]
    assert notes == [*["built", "reset", "reset"] * 3, "built", "reset"]


@posix
@diagonal(where=["step", "reset"], caller=CALLERS)
def test_restart_after_counts_anew_after_a_death(
    replay: Replay, tmp_path: Path, caller: str, where: str
) -> None:
    env = partial(Poisoned, tuple(seeds_of(3, 40)[2::5]), where, tmp_path)
    result = replay(caller, env, num_workers=3, restart_after=2, max_retries=1)
    assert len(list(tmp_path.iterdir())) == 8
    assert caller == "collect" or result.retries.sum() == 8


def test_restart_after_needs_workers_of_one_environment() -> None:
    with pytest.raises(ValueError, match=r"workers of one environment.* num_envs=4; found 2"):
        evaluate("random", Errand, episodes=8, num_envs=4, num_workers=2, restart_after=5)


# ---------------------------------------------------------------------- policies with a state


def test_a_policy_with_a_state_sees_every_row_each_time() -> None:
    single, two, many = Turns(), Turns(), Turns()
    arguments: dict[str, Any] = {"episodes": 11, "seed": 3}
    expected = evaluate(single, Errand, backend="sync", num_envs=1, **arguments)
    assert single.sizes == {1}
    episodes = gathered(two, Errand, num_workers=2, num_envs=5, **arguments)
    assert two.sizes == {5}
    assert [np.add.accumulate(e.rewards)[-1] for e in episodes] == expected.returns.tolist()
    for episode in episodes:
        assert episode.actions.tolist() == [(n + 1) % 3 for n in range(len(episode.rewards))]
    assert_same(evaluate(many, Errand, backend="sync", num_envs=50, **arguments), expected)
    assert many.sizes == {11}


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


@pytest.mark.parametrize(
    ("caller", "options"), [("evaluate", {"num_workers": 2}), ("collect", {"backend": "sync"})]
)
def test_errors_name_the_episode_and_the_caller(caller: str, options: Any) -> None:
    bad = seeds_of(3, 40)[11]
    with pytest.raises(FloatingPointError, match="the parcel burst") as caught:
        play(caller, errand_policy, partial(Raising, bad), **options)
    named = f"episode 11 with seed {bad} and options {numbered(11)}"
    assert caught.value.__notes__ == [f"{caller} was playing {named}"]


def test_an_episode_that_hangs_is_named() -> None:
    options = {"step_timeout": 0.1, "context": FASTEST}
    stuck = partial(Errand, pause=0.5)
    with pytest.raises(StepTimeoutError) as caught:
        evaluate(errand_policy, stuck, episodes=1, seed=[5], vector_kwargs=options)
    assert caught.value.__notes__ == ["evaluate was playing episode 0 with seed 5"]


def test_what_policy_and_progress_raise_has_no_note() -> None:
    def broken(observations: Any) -> Any:
        raise ZeroDivisionError("no idea")

    for policy, progress in ((broken, None), ("random", lambda *counts: broken(counts))):
        with pytest.raises(ZeroDivisionError, match="no idea") as caught:
            evaluate(policy, Errand, episodes=4, seed=0, backend="sync", progress=progress)
        assert not hasattr(caught.value, "__notes__")
    with pytest.raises(InvalidActionError, match="actions: expected"):
        evaluate(lambda observations: np.zeros(99, np.int64), Errand, episodes=4, backend="sync")
