"""evaluate: a queue of seeded episodes over rows of environments, and what each returned."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vecspaces.checks import check_count, show_value
from vecspaces.evaluation.episodes import EpisodeQueue, Progress
from vecspaces.evaluation.journal import Journal, describe
from vecspaces.evaluation.policies import Policy, make_player
from vecspaces.evaluation.result import Evaluation
from vecspaces.make import Factory, GymnasiumFactory, find_factory, make_vec
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.group.members import is_vector_env

if TYPE_CHECKING:
    from pathlib import Path

    from gymnasium.envs.registration import EnvSpec

    from vecspaces.vector.options import Backend

# Environments per worker: while the policy decides for some, the worker steps the others. With more
# of them each batch is larger, so that a step costs less; to build one takes memory and time, which
# that is worth where it plays some episodes.
_ROWS_PER_WORKER, _MOST_ROWS_PER_WORKER = 16, 32
_EPISODES_PER_ROW = 8
# What evaluate decides itself; the environments of an actor with processes step together.
_OWN = (
    "autoreset_mode",
    "on_worker_death",
    "max_restarts",
    "restart_window",
    "num_workers",
    "processes_per_actor",
    "batch_size",
)
_SECONDS_BETWEEN_LINES = 1.0


def evaluate(
    policy: Policy | str,
    env: str | EnvSpec | Factory,
    *,
    episodes: int,
    seed: int | Sequence[int] | np.random.SeedSequence | None = None,
    num_envs: int | None = None,
    num_workers: int | None = None,
    backend: Backend = "async",
    max_episode_steps: int | None = None,
    max_retries: int = 3,
    progress: bool | Progress = False,
    env_kwargs: Mapping[str, Any] | None = None,
    vector_kwargs: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    journal: str | Path | None = None,
) -> Evaluation:
    """Play episodes with a policy, each with a seed of its own, and return what they returned.

    Whichever environment and worker plays an episode: for a policy that is deterministic and treats
    the rows of a batch alike, and environments that depend on their seed alone, the result is the
    same, bit for bit, whatever `num_envs`, `num_workers` and `backend` are, and if workers die.
    Exactly `episodes` episodes are begun and all of them count, so that none is preferred for being
    short. An environment that finished one begins the next at once.

    Args:
        policy: A function of a batch of observations that returns a batch of actions; which rows
            meet in a batch is a matter of timing. With a parameter that is named `infos` it is
            given the last infos of the same rows by that name, in the form in which vector envs
            return them. One that has a method `reset` has a state: it
            takes the observations of all environments each time, in their order, and
            `policy.reset(rows)` is called with the rows whose first observations follow, at
            first with all of them. `"random"` draws from the action space, within
            `infos["action_mask"]` as `vecspaces.sample_actions` does.
        env: What `make_vec` takes, but no list: a Gymnasium id, an `EnvSpec`, `"module:factory"` or
            a factory of single environments.
        episodes: How many.
        seed: Episode k has seed k of `numpy.random.SeedSequence(seed).generate_state(episodes) &
            0x7fffffff`, so that the first n are those of a shorter evaluation. Or a sequence of the
            seeds themselves. None: fresh entropy.
        num_envs: The most environments, fewer where there are fewer episodes; None: 16 per worker,
            and up to 32 where each then plays at least eight episodes.
        num_workers: The most workers; None: as many as there are usable cores.
        backend: `"async"`, `"sync"` or `"ray"`, as in `make_vec`; with `"sync"`, `num_workers` has
            no effect.
        max_episode_steps: Where an episode is cut off, and counts as truncated; needed where the
            environment has no end.
        max_retries: An episode that is lost because a worker dies begins anew; one that was running
            when its worker died more than this many times is an error that names its seed. Steps
            that overrun `step_timeout` count too, with `on_step_timeout="restart"`.
        progress: Whether to show on standard error how far it is, and the time left; or a function
            that is called with the number of finished episodes and that of all.
        env_kwargs: Arguments of the environment.
        vector_kwargs: More arguments of the vector env, such as `step_timeout`, `on_step_timeout`
            (`"raise"` or `"restart"`) or `context`.
        batch_size: How many rows the policy is asked for each time; batches are filled up with
            copies of their last row. A neural network rounds a row otherwise in a batch of another
            size: with this, its actions depend on neither `num_envs` nor timing. None: as
            many as are ready. A policy with a state is always asked for `num_envs` rows.
        journal: A file. Each finished episode is written there as a line, and a later call with the
            same arguments goes on from it. Of functions it compares the names alone.

    Returns:
        The returns and lengths in the order of the seeds, and their statistics.

    Raises:
        WorkerDiedError: An episode lost its worker more than `max_retries` times.
        StepTimeoutError: An episode overran `step_timeout`, with `"restart"` more than that often.
        InvalidActionError: What the policy returned does not fit the action space.
        ValueError: An argument is out of its range, or the journal is one of other arguments, or
            another evaluation writes it.
        Exception: What the policy raised, or an environment; a note then names episode and seed.

    Example:
        >>> def lean(observations):
        ...     return (observations[:, 2] > 0).astype(int)
        >>> result = evaluate(lean, "CartPole-v1", episodes=100, seed=0, num_workers=2)
        >>> result.mean_return, result.lengths[:4].tolist(), result.seeds[:2].tolist()
        (41.87, [39, 26, 35, 38], [821328062, 1529665511])
        >>> again = evaluate(lean, "CartPole-v1", episodes=100, seed=0, backend="sync")
        >>> again.returns.tobytes() == result.returns.tobytes()
        True
    """
    began = time.monotonic()
    _check_policy(policy)
    factory = _find(env)
    episodes = check_count("episodes", episodes)
    if max_episode_steps is not None:
        check_count("max_episode_steps", max_episode_steps)
    check_count("max_retries", max_retries, least=0)
    if batch_size is not None:
        check_count("batch_size", batch_size)
        if hasattr(policy, "reset"):
            raise ValueError(
                "batch_size: a policy with a state takes the observations of all environments: "
                "give num_envs instead"
            )
    given = dict(vector_kwargs or {})
    for name in _OWN:
        if name in given:
            raise ValueError(f"vector_kwargs: {name} is evaluate's own to decide, found {name!r}")
    seeds = make_seeds(seed, episodes)
    width, workers = choose_width(num_envs, num_workers, backend, episodes)
    file = None
    if journal is not None:
        arguments = {
            "policy": describe(policy),
            "env": describe(env),
            "episodes": episodes,
            "max_episode_steps": max_episode_steps,
            "batch_size": batch_size,
            "env_kwargs": describe(env_kwargs or {}),
        }
        file = Journal(journal, arguments, None if seed is None else seeds, seeds)
        seeds = file.seeds
    try:
        queue = EpisodeQueue(
            seeds,
            max_episode_steps=max_episode_steps,
            max_retries=max_retries,
            journal=file,
            progress=_Lines() if progress is True else progress or None,
        )
        if queue.remaining:
            count = min(width, queue.remaining)
            if backend != "sync":
                if given.get("on_step_timeout") == "restart":
                    given["on_step_timeout"] = queue.judge
                given.update(
                    num_workers=None if workers is None else min(workers, count),
                    on_worker_death=queue.judge,
                    # Every loss counts against an episode, and those are bounded.
                    max_restarts=(max_retries + 1) * episodes + count,
                    restart_window=float("inf"),
                )
            make: Any = make_vec  # of any backend
            with make(
                factory,
                count,
                backend=backend,
                env_kwargs=env_kwargs,
                wrappers=[_refuse_vector_env],
                vector_kwargs={**given, "autoreset_mode": "Disabled"},
            ) as envs:
                player = make_player(policy, envs, batch_size)
                queue.play(envs, player, in_turns=backend != "sync")
    finally:
        if file is not None:
            file.close()
    return queue.result(time.monotonic() - began)


def _check_policy(policy: Any) -> None:
    """Refuse what is no policy, before any environment is built."""
    if isinstance(policy, str):
        if policy != "random":
            raise ValueError(f"policy: expected a function or 'random', found {policy!r}")
    elif not callable(policy) or isinstance(policy, type):
        hint = ""
        if isinstance(policy, type):
            hint = f": make an instance, {policy.__name__}()"
        elif hasattr(policy, "predict"):  # as models of Stable-Baselines3 have it
            hint = ": write lambda observations: model.predict(observations, deterministic=True)[0]"
        raise TypeError(
            "policy: expected a function of a batch of observations, or 'random', found "
            f"{show_value(policy)}{hint}"
        )


def _find(env: Any) -> Factory:
    """Return what makes one environment."""
    if isinstance(env, Sequence) and not isinstance(env, str):
        raise TypeError("env: expected one environment, which every row runs, found a list")
    factory = find_factory(env)
    if isinstance(factory, GymnasiumFactory):
        # A spec that make_vec returned also holds how it ran.
        for name in ("num_envs", "vectorization_mode", "vector_kwargs"):
            factory.spec.kwargs.pop(name, None)
    return factory


def _refuse_vector_env(env: Any) -> Any:
    """Return an environment; of a vector env, only some rows could begin an episode."""
    if is_vector_env(env):
        with contextlib.suppress(Exception):  # the error below is the one to report
            env.close()
        raise ValueError(
            f"env: evaluate needs a factory of single environments, found one that makes {env!r}"
        )
    return env


def make_seeds(seed: Any, episodes: int) -> list[int]:
    """Return the seeds of all episodes.

    Example:
        >>> make_seeds(0, 2), make_seeds([7, 8], 2)
        ([821328062, 1529665511], [7, 8])
    """
    if isinstance(seed, np.ndarray) and seed.ndim == 0:
        seed = seed[()]
    if isinstance(seed, (Sequence, np.ndarray)) and not isinstance(seed, (str, bytes)):
        if len(seed) != episodes:
            raise ValueError(f"seed: expected {episodes} seeds, one per episode, found {len(seed)}")
        seeds = [check_count(f"seed[{k}]", one, least=0) for k, one in enumerate(seed)]
        if max(seeds) >= 2**63:
            raise ValueError(f"seed: expected seeds below 2**63, found {max(seeds)}")
        return seeds
    if not isinstance(seed, np.random.SeedSequence):
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer, type(None))):
            raise TypeError(
                "seed must be None, an integer of at least 0, a numpy.random.SeedSequence, or a "
                f"list of {episodes} seeds, found {show_value(seed)}"
            )
        seed = np.random.SeedSequence(None if seed is None else check_count("seed", seed, least=0))
    found: list[int] = (seed.generate_state(episodes) & 0x7FFFFFFF).tolist()
    return found


def choose_width(
    num_envs: int | None, num_workers: int | None, backend: str, episodes: int
) -> tuple[int, int | None]:
    """Return the most environments and the most workers; None leaves the latter to the backend.

    Example:
        >>> for episodes in (100, 500, 5000):
        ...     print(choose_width(None, 2, "async", episodes))
        (32, 2)
        (62, 2)
        (64, 2)
    """
    for name, value in (("num_envs", num_envs), ("num_workers", num_workers)):
        if value is not None:
            check_count(name, value)
    if backend == "sync":  # as in `make_vec`, arguments that concern processes have no effect
        num_workers = None
    if num_envs is None:
        count = num_workers or count_usable_cores()
        rows = max(_ROWS_PER_WORKER, episodes // (_EPISODES_PER_ROW * count))
        num_envs = count * min(rows, _MOST_ROWS_PER_WORKER)
    return num_envs, num_workers


class _Lines:
    """Shows on standard error, once a second, how far an evaluation is."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._before = 0
        self._shown = 0.0

    def __call__(self, finished: int, episodes: int) -> None:
        now = time.monotonic()
        if self._began is None:  # what a journal held took no time
            self._began, self._before = now, finished
        if finished < episodes and now < self._shown + _SECONDS_BETWEEN_LINES:
            return
        self._shown = now
        played = finished - self._before
        left = (now - self._began) / played * (episodes - finished) if played else None
        until = "" if left is None else f", {left:,.0f} s left"
        print(f"{finished:,} of {episodes:,} episodes{until}", file=sys.stderr, flush=True)
