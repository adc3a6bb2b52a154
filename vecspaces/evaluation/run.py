"""evaluate: its arguments, journal and progress."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, Unpack

from vecspaces.evaluation.journal import Journal, identify, identify_options, identify_policy
from vecspaces.evaluation.play import Play, PlayOptions
from vecspaces.evaluation.policies import Policy
from vecspaces.evaluation.result import EpisodeResult, Evaluation, summarize
from vecspaces.make import Factory

if TYPE_CHECKING:
    from pathlib import Path

    from gymnasium.envs.registration import EnvSpec


#: Called with the number of finished episodes and the number of all episodes.
Progress: TypeAlias = Callable[[int, int], object]


def evaluate(
    policy: Policy | str,
    env: str | EnvSpec | Factory,
    *,
    episodes: int,
    progress: Progress | None = None,
    journal: str | Path | None = None,
    **arguments: Unpack[PlayOptions],
) -> Evaluation:
    """Play seeded episodes with a policy, and return the result of each episode.

    If policy and environment are deterministic given the seed, and the policy treats the rows of a
    batch independently, results never depend on `num_envs`, `num_workers`, `backend` or worker
    deaths: they are equal bit for bit. Exactly `episodes` episodes begin and all of them count, so
    the mean is not biased towards short episodes. An environment that has finished an episode
    begins the next episode at once.

    Args:
        policy: A function that takes a batch of observations and returns a batch of actions; which
            rows are in a batch depends on timing. If it has a parameter named `infos`, it also gets
            the last infos of the same rows, in the form in which vector envs return them. A policy
            with a method `reset` has a state: it is always called with the observations of all
            environments, in their order, and `policy.reset(rows)` is called before it gets the
            first observations of episodes in these rows; the first call has all rows. `"random"`
            samples the action space within `infos["action_mask"]`, as `vecspaces.sample_actions`
            does.
        env: A Gymnasium id, an `EnvSpec`, `"module:factory"` or a factory of single environments,
            as for `make_vec`, but no list.
        episodes: The number of episodes.
        seed: Episode k has entry k of `numpy.random.SeedSequence(seed).generate_state(episodes) &
            0x7fffffff` as its seed, so a shorter evaluation has the first of these seeds. A
            sequence of ints contains the seeds themselves. None: fresh entropy.
        options: The options of each episode's reset: a sequence of one mapping or None per episode,
            or a function of the episode's number, which is called here for all episodes. One
            mapping is for all episodes. A lost episode begins again with its own options.
        num_envs: The maximum number of environments; there are never more than episodes. None: 16
            per worker, and up to 32 if each then plays at least eight episodes.
        num_workers: The maximum number of workers. None: the number of usable cores.
        backend: As in `make_vec`; with `"sync"`, `num_workers` has no effect.
        max_episode_steps: Steps after which an episode is truncated; needed for environments whose
            episodes never end.
        max_retries: An episode that is lost because a worker dies begins again. If more workers
            than this die while they run the environment of one episode, an error names its seed.
            With `on_step_timeout="restart"`, steps that exceed `step_timeout` count too. If a
            worker dies while none of its episodes is running, as in `close`, no episode is lost.
        restart_after: The worker of an environment is restarted before the next episode when it has
            begun this many, for simulators that leak. Each worker then has one environment:
            `num_workers` and `num_envs` are equal, and both are the number of usable cores if
            both are None. With `"sync"`, the environment is built again. None: never.
        progress: A function that is called with the number of finished episodes and the number of
            all episodes.
        env_kwargs: Arguments of the environment.
        vector_kwargs: Arguments of the vector env, such as `step_timeout`, `on_step_timeout`
            (`"raise"` or `"restart"`) or `context`.
        batch_size: The number of rows in each call of the policy; a batch is filled with copies of
            its last row. The last bits of a neural network's results depend on the batch size; with
            a fixed size, actions depend on neither `num_envs` nor timing. None: as many rows as are
            ready. A policy with a state is called with one row per environment.
        journal: A file. Each finished episode is written to it as a line, and a later call with
            equal arguments continues from it. Functions are compared by name only; `options` must
            consist of numbers, strings, arrays, lists and dicts.
        agents: `"dict"` for a factory of PettingZoo's parallel environments: observations and
            actions are Dicts by agent, returns are sums over all agents, and `infos["return/NAME"]`
            has the returns of each agent.

    Returns:
        Returns and lengths in the order of the seeds, and their statistics.

    Raises:
        WorkerDiedError: An episode lost its worker more than `max_retries` times.
        StepTimeoutError: An episode exceeded `step_timeout`; with `"restart"`, more often than
            `max_retries`.
        InvalidActionError: The actions of the policy do not fit the action space.
        ValueError: An argument is out of its range; or the journal was written with other
            arguments, or is being written by another evaluation.
        Exception: An error of the policy; or an error of an environment, with a note that names
            episode and seed. An error in an environment's `close` is a RuntimeWarning instead.

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
    play = Play("evaluate", policy, env, episodes, arguments)
    seeds, episodes = play.seeds, len(play.seeds)
    checked = play.arguments
    finished: dict[int, EpisodeResult] = {}
    with contextlib.ExitStack() as stack:
        file = None
        if journal is not None:
            header = {
                "policy": identify_policy(policy),
                "env": identify(env),
                "episodes": episodes,
                "max_episode_steps": checked["max_episode_steps"],
                "batch_size": checked["batch_size"],
                "env_kwargs": identify(checked["env_kwargs"] or {}),
            }
            if checked["agents"] is not None:
                header["agents"] = checked["agents"]
            if play.options is not None:
                header["options"] = identify_options(play.options)
            file = Journal(journal, header, seeds, seeds_are_fresh=checked["seed"] is None)
            stack.callback(file.close)
            seeds, finished = file.seeds, file.finished
        waiting = [k for k in range(episodes) if k not in finished]
        if waiting:
            report = progress or (lambda *_: None)
            report(len(finished), episodes)
            playing = stack.enter_context(contextlib.closing(play.play(seeds, waiting=waiting)))
            for result in playing:
                if file is not None:
                    file.add(result)
                finished[result.episode] = result
                report(len(finished), episodes)
    return summarize(finished, time.monotonic() - began)
