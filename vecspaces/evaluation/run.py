"""evaluate: its arguments, the seeds of its episodes, its vector env, journal and progress."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np

from vecspaces.checks import check_count, show_value
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.journal import Journal, identify
from vecspaces.evaluation.policies import Policy, adapt_policy
from vecspaces.evaluation.result import EpisodeResult, Evaluation, summarize
from vecspaces.make import Factory, GymnasiumFactory, find_factory, find_parallel, make_vec
from vecspaces.vector.backends.process.cores import count_usable_cores
from vecspaces.vector.group.building import is_vector_env

if TYPE_CHECKING:
    from pathlib import Path

    from gymnasium.envs.registration import EnvSpec

    from vecspaces.vector.options import Backend

#: Called with the number of finished episodes and that of all.
Progress: TypeAlias = Callable[[int, int], object]

# Environments per worker. More of them make batches larger, so that a step costs less, but each
# takes time to build, and memory: it should play at least eight episodes.
_ROWS_PER_WORKER, _MOST_ROWS_PER_WORKER = 16, 32
_EPISODES_PER_ROW = 8
# Arguments of the vector env that evaluate chooses. With `processes_per_actor`, the environments of
# an actor would step together.
_CHOSEN_HERE = (
    "autoreset_mode",
    "on_worker_death",
    "max_restarts",
    "restart_window",
    "num_workers",
    "processes_per_actor",
    "batch_size",
)
_SECONDS_BETWEEN_LINES = 1.0


class _Options(TypedDict, total=False):
    """The arguments of `evaluate` that do not decide what it returns."""

    seed: int | Sequence[int] | np.random.SeedSequence | None
    num_envs: int | None
    num_workers: int | None
    backend: Backend
    max_episode_steps: int | None
    max_retries: int
    progress: bool | Progress
    env_kwargs: Mapping[str, Any] | None
    vector_kwargs: Mapping[str, Any] | None
    batch_size: int | None
    journal: str | Path | None
    agents: Literal["dict"] | None


@overload
def evaluate(
    policy: Policy | str,
    env: str | EnvSpec | Factory,
    *,
    episodes: int,
    **options: Unpack[_Options],
) -> Evaluation: ...
@overload
def evaluate(
    policy: Policy | str,
    *,
    episodes: int,
    tasks: Mapping[str, str | EnvSpec | Factory],
    **options: Unpack[_Options],
) -> dict[str, Evaluation]: ...
def evaluate(
    policy: Policy | str,
    env: str | EnvSpec | Factory | None = None,
    *,
    episodes: int,
    tasks: Mapping[str, str | EnvSpec | Factory] | None = None,
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
    agents: Literal["dict"] | None = None,
) -> Evaluation | dict[str, Evaluation]:
    """Play seeded episodes with a policy, and return the result of each.

    If policy and environment are deterministic given the seed, and the policy treats the rows of a
    batch independently, results never depend on `num_envs`, `num_workers`, `backend` or worker
    deaths: they are equal bit for bit. Exactly `episodes` episodes are begun and all of them count,
    so the mean is not biased towards short ones. An environment that has finished an episode begins
    the next one at once.

    Args:
        policy: A function of a batch of observations that returns a batch of actions. The rows of
            a batch depend on timing. A parameter named `infos` gets the last infos of the same
            rows, in the form in which vector envs return them. A policy with a method `reset` has
            a state: it is always called with the observations of all environments, in their order,
            and `policy.reset(rows)` is called before the first observations of episodes in these
            rows, the first time with all rows. `"random"` samples the action space within
            `infos["action_mask"]`, as `vecspaces.sample_actions` does.
        env: A Gymnasium id, an `EnvSpec`, `"module:factory"` or a factory of single environments,
            as for `make_vec`, but no list.
        episodes: The number of episodes.
        tasks: Environments by name, instead of `env`: each is evaluated as by itself, one after the
            other in the same workers, in which `replace_envs` builds it. Their spaces are equal.
        seed: Episode k has seed k of `numpy.random.SeedSequence(seed).generate_state(episodes) &
            0x7fffffff`, so a shorter evaluation has the first of these seeds. A sequence contains
            the seeds themselves. None: fresh entropy.
        num_envs: The maximum number of environments; there are never more than episodes. None: 16
            per worker, and up to 32 if each then plays at least eight episodes.
        num_workers: The maximum number of workers. None: the number of usable cores.
        backend: `"async"`, `"sync"` or `"ray"`, as in `make_vec`; with `"sync"`, `num_workers` has
            no effect.
        max_episode_steps: Steps after which an episode is truncated; needed for environments whose
            episodes never end.
        max_retries: An episode that is lost because a worker dies begins again. If an episode was
            running when its worker died more than this many times, an error names its seed. With
            `on_step_timeout="restart"`, steps that overrun `step_timeout` count too.
        progress: Whether to print progress and time left on standard error; or a function that is
            called with the number of finished episodes and the number of all episodes.
        env_kwargs: Arguments of the environment.
        vector_kwargs: Arguments of the vector env, such as `step_timeout`, `on_step_timeout`
            (`"raise"` or `"restart"`) or `context`.
        batch_size: The number of rows in each call of the policy; the last row is repeated to fill
            a batch. Results of a neural network depend on the batch size in their last bits: with
            a fixed one, actions depend on neither `num_envs` nor timing. None: as many rows as are
            ready. A policy with a state is always called with `num_envs` rows.
        journal: A file. Each finished episode is written to it as a line, and a later call with
            equal arguments continues from it. Functions are compared by name only.
        agents: `"dict"` for a factory of PettingZoo's parallel environments: observations and
            actions are Dicts by agent, returns the sums over all agents, and
            `infos["return/NAME"]` those of each agent.

    Returns:
        Returns and lengths in the order of the seeds, and their statistics; with `tasks`, a dict of
        them by name.

    Raises:
        WorkerDiedError: An episode lost its worker more than `max_retries` times.
        StepTimeoutError: An episode overran `step_timeout`; with `"restart"`, more often than
            `max_retries`.
        InvalidActionError: The actions of the policy do not fit the action space.
        TypeError: Neither `env` nor `tasks` was given, or both.
        RuntimeError: The spaces of two tasks differ.
        ValueError: An argument is out of its range; or the journal belongs to other arguments, or
            another evaluation writes it.
        Exception: An error of the policy, or of an environment with a note that names episode and
            seed.

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
    if agents not in (None, "dict"):
        raise ValueError(
            f"agents: expected 'dict' or None, found {agents!r}: an episode is one of the "
            "environment as a whole, and its rows would begin one together"
        )
    if (env is None) == (tasks is None):
        raise TypeError(
            "evaluate needs either env or tasks, found " + ("neither" if env is None else "both")
        )
    if not isinstance(tasks, Mapping | None):
        raise TypeError(f"tasks: expected a dict of environments by name, found {tasks!r}")
    named = {"": env} if tasks is None else dict(tasks)
    if not named:
        raise ValueError("tasks must hold at least one environment, found none")
    if tasks is not None and journal is not None:
        raise ValueError("journal: it holds one evaluation: call evaluate for each of the tasks")
    factories = [_find(one if agents is None else find_parallel(one)) for one in named.values()]
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
    for name in _CHOSEN_HERE:
        if name in (vector_kwargs or {}):
            raise ValueError(f"vector_kwargs: {name} is evaluate's own to decide, found {name!r}")
    seeds = make_seeds(seed, episodes)
    num_envs, num_workers = choose_num_envs(num_envs, num_workers, backend, episodes)
    finished: dict[int, EpisodeResult] = {}
    results: dict[str, Evaluation] = {}
    with contextlib.ExitStack() as stack:
        file = None
        if journal is not None:
            arguments = {
                "policy": identify(policy),
                "env": identify(env),
                "episodes": episodes,
                "max_episode_steps": max_episode_steps,
                "batch_size": batch_size,
                "env_kwargs": identify(env_kwargs or {}),
            }
            if agents is not None:
                arguments["agents"] = agents
            file = Journal(journal, arguments, seeds, seeds_are_fresh=seed is None)
            stack.callback(file.close)
            seeds, finished = file.seeds, file.finished
        queue = EpisodeQueue(
            seeds,
            waiting=[k for k in range(episodes) if k not in finished],
            max_episode_steps=max_episode_steps,
            max_retries=max_retries,
        )
        if queue.waiting:
            report: Any = _Lines() if progress is True else progress or (lambda *_: None)
            report(len(finished), episodes * len(named))
            playing = play_episodes(
                queue,
                policy,
                factories,
                num_envs=min(num_envs, len(queue.waiting)),
                num_workers=num_workers,
                backend=backend,
                env_kwargs=env_kwargs,
                vector_kwargs=vector_kwargs or {},
                batch_size=batch_size,
                agents=agents,
            )
            stack.enter_context(contextlib.closing(playing))
            if tasks is not None:
                stack.enter_context(_naming(tasks, results))
            for one in playing:
                if file is not None:
                    file.add(one)
                finished[one.episode] = one
                report(len(results) * episodes + len(finished), episodes * len(named))
                if len(finished) == episodes and tasks is not None:
                    now = time.monotonic()
                    results[list(tasks)[len(results)]] = summarize(finished, now - began)
                    finished, began = {}, now
    return results if tasks is not None else summarize(finished, time.monotonic() - began)


@contextlib.contextmanager
def _naming(tasks: Iterable[str], results: Collection[str]) -> Iterator[None]:
    """Add the name of the task that is played to an error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"evaluate was playing the task {list(tasks)[len(results)]!r}")
        raise


def play_episodes(
    queue: EpisodeQueue,
    policy: Policy | str,
    factories: Sequence[Factory],
    *,
    num_envs: int,
    num_workers: int | None,
    backend: Backend,
    env_kwargs: Mapping[str, Any] | None,
    vector_kwargs: Mapping[str, Any],
    batch_size: int | None,
    agents: str | None = None,
) -> Generator[EpisodeResult, None, None]:
    """Yield the episodes of a queue as they finish, in one environment after the other.

    Closing the generator closes the workers.
    """
    given = {
        **vector_kwargs,
        "autoreset_mode": "Disabled",
        # The others have no effect with "sync".
        "num_workers": None if num_workers is None else min(num_workers, num_envs),
        "on_worker_death": queue.judge,
        "max_restarts": (queue.max_losses + num_envs) * len(factories),
        "restart_window": math.inf,
    }
    if given.get("on_step_timeout") == "restart":
        given["on_step_timeout"] = queue.judge
    make: Any = make_vec  # of any backend
    with make(
        factories[0],
        num_envs,
        backend=backend,
        env_kwargs=env_kwargs,
        wrappers=[_refuse_vector_env],
        agents=agents,
        vector_kwargs=given,
    ) as envs:
        for number, factory in enumerate(factories):
            if number:
                env_fn = replace(envs.env_fns[0], factory=factory)
                envs.replace_envs(None, [env_fn] * envs.num_envs)
                queue.repeat()
            adapter = adapt_policy(policy, envs, batch_size)
            yield from queue.play(envs, adapter, in_turns=backend != "sync")


def _check_policy(policy: Any) -> None:
    """Refuse wrong policies before any environment is built."""
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
    """Return the factory of one environment."""
    if isinstance(env, Sequence) and not isinstance(env, str):
        raise TypeError("env: expected one environment, which every row runs, found a list")
    factory = find_factory(env)
    if isinstance(factory, GymnasiumFactory):
        # The spec of a vector env also contains arguments of the vector env.
        for name in ("num_envs", "vectorization_mode", "vector_kwargs"):
            factory.spec.kwargs.pop(name, None)
    return factory


def _refuse_vector_env(env: Any) -> Any:
    """Return an environment, or refuse a vector env: single rows of it cannot begin an episode."""
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


def choose_num_envs(
    num_envs: int | None, num_workers: int | None, backend: str, episodes: int
) -> tuple[int, int | None]:
    """Return the maximum numbers of environments and workers; None: the backend chooses.

    Example:
        >>> [choose_num_envs(None, 2, "async", episodes) for episodes in (100, 500, 5000)]
        [(32, 2), (62, 2), (64, 2)]
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
    """Prints progress and time left on standard error, once a second."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._before = 0
        self._shown = 0.0

    def __call__(self, finished: int, episodes: int) -> None:
        now = time.monotonic()
        if self._began is None:  # episodes of the journal took no time
            self._began, self._before = now, finished
        if finished < episodes and now < self._shown + _SECONDS_BETWEEN_LINES:
            return
        self._shown = now
        played = finished - self._before
        left = (now - self._began) / played * (episodes - finished) if played else None
        until = "" if left is None else f", {left:,.0f} s left"
        print(f"{finished:,} of {episodes:,} episodes{until}", file=sys.stderr, flush=True)
