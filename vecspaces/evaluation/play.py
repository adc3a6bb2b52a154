"""The arguments of `evaluate` and `collect`, seeds and options of episodes, and the vector env."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np

from vecspaces.checks import check_count, show_value
from vecspaces.cores import count_usable_cores
from vecspaces.evaluation.episodes import EpisodeQueue
from vecspaces.evaluation.policies import Policy, adapt_policy
from vecspaces.evaluation.result import EpisodeResult
from vecspaces.interop import is_foreign_vector_env
from vecspaces.make import Factory, GymnasiumFactory, find_factory, find_parallel, make_vec
from vecspaces.vector import VectorEnv

if TYPE_CHECKING:
    from vecspaces.vector.options import Backend

# Environments per worker. With more of them, batches are larger and steps cheaper, but each takes
# time to build, and memory, so each should play at least eight episodes.
_ROWS_PER_WORKER, _MOST_ROWS_PER_WORKER = 16, 32
_EPISODES_PER_ROW = 8
# Arguments of the vector env that are set here.
_CHOSEN_HERE = ("autoreset_mode", "on_worker_death", "max_restarts", "restart_window")


#: The options of an episode's reset.
Options: TypeAlias = Mapping[str, Any] | None


class PlayOptions(TypedDict, total=False):
    """The arguments of `evaluate` and of `collect`, which `evaluate` describes."""

    seed: int | Sequence[int] | np.random.SeedSequence | None
    options: Options | Sequence[Options] | Callable[[int], Options]
    num_envs: int | None
    num_workers: int | None
    backend: Backend
    max_episode_steps: int | None
    max_retries: int
    restart_after: int | None
    env_kwargs: Mapping[str, Any] | None
    vector_kwargs: Mapping[str, Any] | None
    batch_size: int | None
    agents: Literal["dict"] | None


#: The defaults of `PlayOptions`.
PLAY_DEFAULTS = {**dict.fromkeys(PlayOptions.__annotations__), "backend": "async", "max_retries": 3}


class Play:
    """The checked arguments of `caller`, which is `"evaluate"` or `"collect"`, and how it plays.

    Attributes:
        arguments: The arguments, with defaults for those that were not passed.
        seeds: The seed of each episode.
        options: The options of each episode; None if no episode has any.
    """

    def __init__(
        self,
        caller: str,
        policy: Policy | str,
        env: Any,
        episodes: int,
        arguments: Mapping[str, Any],
    ) -> None:
        for name in arguments.keys() - PLAY_DEFAULTS.keys():
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")
        self.arguments = arguments = {**PLAY_DEFAULTS, **arguments}
        self._caller, self._policy = caller, policy
        _check_policy(policy)
        agents = arguments["agents"]
        if agents not in (None, "dict"):
            raise ValueError(
                f"agents: expected 'dict' or None, found {agents!r}: an episode is one of the "
                "environment as a whole, and its rows would begin one together"
            )
        self._factory, self._wrappers = _find(env if agents is None else find_parallel(env))
        episodes = check_count("episodes", episodes)
        check_count("max_retries", arguments["max_retries"], least=0)
        for name in ("max_episode_steps", "batch_size", "restart_after"):
            if arguments[name] is not None:
                check_count(name, arguments[name])
        if arguments["batch_size"] is not None and hasattr(policy, "reset"):
            raise ValueError(
                "batch_size: a policy with a state takes the observations of all environments: "
                "give num_envs instead"
            )
        vector_kwargs = arguments["vector_kwargs"] or {}
        if not isinstance(vector_kwargs, Mapping):
            raise TypeError(f"vector_kwargs: expected a dict, found {show_value(vector_kwargs)}")
        for name in vector_kwargs:
            if name in arguments:
                raise ValueError(f"vector_kwargs: {name} is an argument of {caller}: pass it there")
            if name in _CHOSEN_HERE:
                raise ValueError(f"vector_kwargs: {caller} chooses {name}: leave it out")
        on_step_timeout = vector_kwargs.get("on_step_timeout", "raise")
        if on_step_timeout not in ("raise", "restart"):  # losses are counted here
            raise ValueError(
                "vector_kwargs: on_step_timeout must be 'raise' or 'restart', found "
                f"{show_value(on_step_timeout)}"
            )
        self.seeds = make_seeds(arguments["seed"], episodes)
        self.options = list_options(arguments["options"], episodes)
        self.num_envs, self._num_workers = choose_num_envs(
            arguments["num_envs"],
            arguments["num_workers"],
            arguments["backend"],
            episodes,
            worker_per_env=arguments["restart_after"] is not None,
        )

    def play(
        self, seeds: Sequence[int], **queue_options: Any
    ) -> Generator[EpisodeResult, None, None]:
        """Yield episodes as they finish; closing the generator closes the workers.

        The other arguments are those of `EpisodeQueue`.
        """
        arguments, workers = self.arguments, self._num_workers
        names = ("max_episode_steps", "max_retries", "restart_after")
        limits = {name: arguments[name] for name in names}
        queue = EpisodeQueue(seeds, self.options, caller=self._caller, **limits, **queue_options)
        count = min(self.num_envs, len(queue.waiting))
        chosen = {
            **(arguments["vector_kwargs"] or {}),
            "autoreset_mode": "Disabled",
            # With "sync", these have no effect.
            "num_workers": None if workers is None else min(workers, count),
            # A thread does not die alone.
            **({} if arguments["backend"] == "thread" else {"on_worker_death": queue.judge}),
            "max_restarts": queue.max_losses + count,
            "restart_window": math.inf,
        }
        # Without `step_timeout`, the vector env refuses "restart", and names it in the error.
        if chosen.get("on_step_timeout") == "restart" and chosen.get("step_timeout") is not None:
            chosen["on_step_timeout"] = queue.judge
        make: Any = make_vec  # of any backend
        envs = make(
            self._factory,
            count,
            backend=arguments["backend"],
            env_kwargs=arguments["env_kwargs"],
            wrappers=[*self._wrappers, partial(_refuse_vector_env, self._caller)],
            agents=arguments["agents"],
            vector_kwargs=chosen,
        )
        with _closing(envs, self._caller):
            adapter = adapt_policy(self._policy, envs, arguments["batch_size"])
            yield from queue.play(envs, adapter, in_turns=arguments["backend"] != "sync")


@contextlib.contextmanager
def _closing(envs: Any, caller: str) -> Iterator[None]:
    """Close a vector env; an error in closing must hide neither results nor an earlier error."""
    try:
        yield
    finally:
        try:
            envs.close()
        except Exception as error:
            warnings.warn(
                f"{caller}: an environment failed while it was closed, which changes no episode: "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=1,
            )


def _check_policy(policy: Any) -> None:
    """Refuse wrong policies before any environment is built."""
    if isinstance(policy, str):
        if policy != "random":
            raise ValueError(f"policy: expected a function or 'random', found {policy!r}")
    elif not callable(policy) or isinstance(policy, type):
        hint = ""
        if isinstance(policy, type):
            hint = f": make an instance, {policy.__name__}()"
        elif hasattr(policy, "predict"):  # Stable-Baselines3's models have this method
            hint = ": write lambda observations: model.predict(observations, deterministic=True)[0]"
        raise TypeError(
            "policy: expected a function of a batch of observations, or 'random', found "
            f"{show_value(policy)}{hint}"
        )


def _find(env: Any) -> tuple[Factory, tuple[Any, ...]]:
    """Return the factory of one environment, and the wrappers of its spec."""
    if isinstance(env, Sequence) and not isinstance(env, str):
        raise TypeError("env: expected one environment, which every row runs, found a list")
    factory, wrappers = find_factory(env), ()
    if isinstance(factory, GymnasiumFactory):
        # The spec of a vector env also contains arguments of `make_vec`.
        for name in ("num_envs", "vectorization_mode", "vector_kwargs"):
            factory.spec.kwargs.pop(name, None)
        wrappers = tuple(factory.spec.kwargs.pop("wrappers", ()))
    return factory, wrappers


def _refuse_vector_env(caller: str, env: Any) -> Any:
    """Return an environment; refuse a vector env, whose rows cannot begin episodes singly."""
    if isinstance(env, VectorEnv) or is_foreign_vector_env(env):
        with contextlib.suppress(Exception):  # the error below is the one to report
            env.close()
        raise ValueError(
            f"env: {caller} needs a factory of single environments, found one that makes {env!r}"
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
        seeds = [check_count(f"seed[{k}]", entry, least=0) for k, entry in enumerate(seed)]
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
    derived: list[int] = (seed.generate_state(episodes) & 0x7FFFFFFF).tolist()
    return derived


def list_options(options: Any, episodes: int) -> list[dict[str, Any] | None] | None:
    """Return the options of all episodes, as copies; None: no episode has any.

    Example:
        >>> list_options({"wind": 1}, 2), list_options(lambda k: {"wind": k}, 2)
        ([{'wind': 1}, {'wind': 1}], [{'wind': 0}, {'wind': 1}])
    """
    if options is None:
        return None
    if isinstance(options, Mapping):
        options = [options] * episodes
    elif callable(options):
        options = [copy.deepcopy(options(k)) for k in range(episodes)]
    elif not isinstance(options, Sequence) or isinstance(options, (str, bytes)):
        raise TypeError(
            "options must be a mapping, a sequence of one mapping or None per episode, or a "
            f"function of the episode's number, found {show_value(options)}"
        )
    if len(options) != episodes:
        raise ValueError(
            f"options: expected {episodes} mappings, one per episode, found {len(options)}"
        )
    for k, entry in enumerate(options):
        if entry is not None and not isinstance(entry, Mapping):
            raise TypeError(
                f"options of episode {k}: expected a mapping or None, found {show_value(entry)}"
            )
        if entry is not None and "reset_mask" in entry:
            raise ValueError(
                f"options of episode {k}: found a reset_mask, which is an option of vector envs"
            )
    # An object that several episodes share is copied once.
    return copy.deepcopy([None if entry is None else dict(entry) for entry in options])


def choose_num_envs(
    num_envs: int | None,
    num_workers: int | None,
    backend: str,
    episodes: int,
    worker_per_env: bool = False,
) -> tuple[int, int | None]:
    """Return the maximum numbers of environments and workers; None: chosen by the backend.

    With `worker_per_env`, a worker has one environment.

    Example:
        >>> [choose_num_envs(None, 2, "async", episodes) for episodes in (100, 500, 5000)]
        [(32, 2), (62, 2), (64, 2)]
    """
    for name, value in (("num_envs", num_envs), ("num_workers", num_workers)):
        if value is not None:
            check_count(name, value)
    if backend == "sync":  # as in `make_vec`, arguments that concern processes have no effect
        num_workers = None
    elif worker_per_env:
        num_workers = num_workers or num_envs or count_usable_cores()
        if num_workers != (num_envs or num_workers):
            raise ValueError(
                "restart_after needs workers of one environment: leave num_workers out, or make it "
                f"num_envs={num_envs}; found {num_workers}"
            )
        return num_workers, num_workers
    if num_envs is None:
        count = num_workers or count_usable_cores()
        rows = max(_ROWS_PER_WORKER, episodes // (_EPISODES_PER_ROW * count))
        num_envs = count * min(rows, _MOST_ROWS_PER_WORKER)
    return num_envs, num_workers
