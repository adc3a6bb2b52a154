"""`vecspaces evaluate`: seeded episodes of a policy, and their statistics."""

from __future__ import annotations

import importlib
import json
import operator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from vecspaces.cli import options
from vecspaces.cli.console import make_facts, output, progress_bar, write_json
from vecspaces.cli.errors import refuse
from vecspaces.cli.options import option
from vecspaces.cli.sb3 import as_policy, load_model, load_statistics
from vecspaces.evaluation import evaluate as run_evaluation

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
    traceback: options.Traceback = False,
) -> None:
    """Play seeded episodes with a policy; show their statistics.

    Results do not depend on the number of environments and workers.
    """
    if (policy is None) == (sb3 is None):
        refuse("expected --policy MODULE:FUNCTION, --policy random, or --sb3 MODEL.ZIP")
    if vecnormalize is not None and sb3 is None:
        refuse("--vecnormalize: expected --sb3 MODEL.ZIP with it, found none")
    options.prepare(policy)
    env_kwargs = options.parse_env_args(env_arg)
    options.find_env(env, agents, **env_kwargs)
    vector_kwargs = options.vector_options(backend, context=context, step_timeout=step_timeout)
    episode_options = None if options_file is None else _read_options(options_file)
    if sb3 is None:
        played: Any = find_policy(policy)
    else:
        batch_size = batch_size or _SB3_ROWS
        model = load_model(sb3)
        statistics = None if vecnormalize is None else load_statistics(vecnormalize, model)
        played = as_policy(model, statistics)
    arguments: Any = {"env_kwargs": env_kwargs, "vector_kwargs": vector_kwargs, "agents": agents}
    arguments |= {"seed": seed, "options": episode_options, "backend": backend}
    arguments |= {"num_envs": num_envs, "num_workers": num_workers, "batch_size": batch_size}
    arguments["max_episode_steps"] = max_episode_steps
    try:
        with progress_bar(episodes) as show:

            def show_count(finished: int, episodes: int) -> None:
                show(finished, f"{finished:,} of {episodes:,} episodes")

            result = run_evaluation(
                played, env, episodes=episodes, journal=journal, progress=show_count, **arguments
            )
    except KeyboardInterrupt as interruption:
        if journal is not None:
            interruption.args = (f"the same command goes on from {journal}",)
        raise
    facts = {name: value for name, value in result.as_json().items() if name != "episodes"}
    output(json_file).print(make_facts(f"{result.episodes} episodes of {env}", facts.items()))
    named = {"env": env, "policy": policy or str(sb3), "seed": seed}
    write_json(json_file, {**named, **result.as_json()})


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
            raise  # the module lacks another module
        raise ValueError(f"--policy: {name!r}: {error}") from error
    return policy() if isinstance(policy, type) else policy
