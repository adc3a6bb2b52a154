"""`vecspaces evaluate`: seeded episodes of a policy, their statistics, and a video of some."""

from __future__ import annotations

import copy
import importlib
import json
import operator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from vecspaces.cli import options
from vecspaces.cli.console import make_facts, output, progress_bar, write_json
from vecspaces.cli.errors import refuse
from vecspaces.cli.options import option
from vecspaces.cli.sb3 import as_policy, load_model, load_statistics
from vecspaces.evaluation import Evaluation
from vecspaces.evaluation import evaluate as run_evaluation
from vecspaces.evaluation.policies import PolicyAdapter, adapt_policy
from vecspaces.files import replacing
from vecspaces.make import make_vec
from vecspaces.wrappers import RecordVideo

# Results of a network depend on the batch size, in their last bits.
_SB3_ROWS = 16


_POLICY = "A function that takes a batch of observations and returns actions; or random."
_SB3 = "A model of Stable-Baselines3 as the policy. Loading it runs code in the file."
_VECNORMALIZE = (
    "Statistics that VecNormalize.save wrote, to normalise observations for the model of --sb3. "
    "Loading them runs code in the file."
)
_AGENTS = "dict, for parallel environments of PettingZoo: returns are sums."
_ROWS = "Number of rows in each call of the policy."
_JOURNAL = "Write each finished episode to this file, and continue from it."
_Count: TypeAlias = int | None
_File: TypeAlias = Path | None


def evaluate(
    env: options.Env,
    env_arg: options.EnvArg = None,
    policy: Annotated[str | None, option(_POLICY, metavar="MODULE:FUNCTION")] = None,
    sb3: Annotated[_File, option(_SB3, metavar="MODEL.ZIP")] = None,
    vecnormalize: Annotated[_File, option(_VECNORMALIZE, metavar="FILE")] = None,
    episodes: Annotated[int, option("Number of episodes.", min=1)] = 100,
    seed: options.Seed = None,
    options_file: Annotated[
        _File,
        option("The options of each episode's reset.", None, "--options", metavar="FILE.JSON"),
    ] = None,
    num_envs: Annotated[
        _Count, option("Maximum number of environments.", "16 to 32 per worker", min=1)
    ] = None,
    num_workers: options.NumWorkers = None,
    agents: Annotated[Literal["dict"] | None, option(_AGENTS)] = None,
    backend: options.Backend = "async",
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    max_episode_steps: Annotated[
        _Count, option("Steps after which an episode is truncated.", "no limit", min=1)
    ] = None,
    batch_size: Annotated[
        _Count, option(_ROWS, "as many as are ready; 16 for --sb3", min=1)
    ] = None,
    journal: Annotated[
        _File, option(_JOURNAL, metavar="FILE", callback=options.check_file())
    ] = None,
    json_file: options.Json = None,
    record: options.Record = None,
    episode: Annotated[int, option("The number of the episode to record.", min=0)] = 0,
    traceback: options.Traceback = False,
) -> None:
    """Play seeded episodes with a policy; show their statistics.

    Results do not depend on the number of environments and workers.
    """
    if (policy is None) == (sb3 is None):
        refuse("expected --policy MODULE:FUNCTION, --policy random, or --sb3 MODEL.ZIP")
    if vecnormalize is not None and sb3 is None:
        refuse("--vecnormalize: expected --sb3 MODEL.ZIP with it, found none")
    if episode >= episodes:
        refuse(f"--episode: expected a number below {episodes}, found {episode}")
    options.prepare(policy)
    env_kwargs = options.parse_env_args(env_arg)
    # An environment that cannot be recorded is refused before the work.
    rendered = env_kwargs if record is None else {**env_kwargs, "render_mode": "rgb_array"}
    options.find_env(env, agents, **rendered)
    vector_kwargs = options.vector_options(backend, context=context, step_timeout=step_timeout)
    episode_options = None if options_file is None else _read_options(options_file)
    model = None if sb3 is None else load_model(sb3)
    if model is None:
        played: Any = find_policy(policy)
    else:
        statistics = None if vecnormalize is None else load_statistics(vecnormalize, model)
        batch_size = batch_size or _SB3_ROWS
        played = as_policy(model, statistics)
    # After the evaluation, a policy with a state has one row per environment.
    recorded = copy.deepcopy(played) if record is not None and hasattr(played, "reset") else played
    arguments: Any = {"env_kwargs": env_kwargs, "vector_kwargs": vector_kwargs, "agents": agents}
    arguments |= {"seed": seed, "options": episode_options, "backend": backend}
    arguments |= {"num_envs": num_envs, "num_workers": num_workers, "batch_size": batch_size}
    arguments["max_episode_steps"] = max_episode_steps
    try:
        with progress_bar(episodes) as show:

            def show_count(finished: int, episodes: int) -> None:
                show(lambda: (finished, f"{finished:,} of {episodes:,} episodes"))

            result = run_evaluation(
                played, env, episodes=episodes, journal=journal, progress=show_count, **arguments
            )
        console = output(json_file)
        facts = {name: value for name, value in result.as_json().items() if name != "episodes"}
        console.print(make_facts(f"{result.episodes} episodes of {env}", facts.items()))
        named = {"env": env, "policy": policy or str(sb3), "seed": seed}
        write_json(json_file, {**named, **result.as_json()})
        if record is not None:
            with replacing(record) as file:
                envs: Any = make_vec(
                    env,
                    agents=agents,
                    backend="sync",
                    autoreset_mode="Disabled",
                    env_kwargs=rendered,
                )
                with envs, RecordVideo.to_file(envs, file) as filmed:
                    adapter = adapt_policy(recorded, envs, batch_size)
                    _play_again(filmed, result, episode, adapter, episode_options)
            announced = f"{filmed.frames_written} frames in {record}"
            console.print(announced, markup=False, soft_wrap=True)
    except KeyboardInterrupt as interruption:
        if journal is not None:
            interruption.args = (f"the same command goes on from {journal}",)
        raise


def _read_options(file: Path) -> Any:
    """Return what a file of JSON has; `evaluate` checks it."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"--options: expected a file of JSON, found {file}: {error}") from error


def find_policy(name: str | None) -> Any:
    """Return `"random"`, the function `module:function`, or an instance if it is a class."""
    if name == "random" or name is None:
        return "random"
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"--policy: expected module:function or random, found {name!r}")
    try:
        policy = operator.attrgetter(attribute)(importlib.import_module(module))
    except (AttributeError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != module:
            raise  # the module lacks another one
        raise ValueError(f"--policy: {name!r}: {error}") from error
    return policy() if isinstance(policy, type) else policy


def _play_again(
    envs: Any, result: Evaluation, episode: int, adapter: PolicyAdapter, episode_options: Any
) -> None:
    """Play an episode again; one that differs from before is an error."""
    seed, length = int(result.seeds[episode]), int(result.lengths[episode])
    per_episode = isinstance(episode_options, list)
    last: Any = envs.reset(
        seed=[seed], options=episode_options[episode] if per_episode else episode_options
    )
    adapter.begin([0], [seed])
    rewards: list[float] = []
    while len(rewards) < length and not (rewards and (last[2] | last[3])[0]):
        last = envs.step(adapter.act(last[0], last[-1], [0]))
        rewards.append(last[1][0])
    again = sum(rewards, np.float64(0.0)), len(rewards), bool(last[2][0])
    counted = result.returns[episode], length, bool(result.terminated[episode])
    if not np.array_equal(again, counted, equal_nan=True):
        shown = [
            f"{total:g} in {steps} steps (terminated: {ended})"
            for total, steps, ended in (again, counted)
        ]
        raise ValueError(
            f"episode {episode} with seed {seed} returned {shown[0]} as it was recorded, and "
            f"{shown[1]} before: policy or environment depend on more than the seed"
        )
