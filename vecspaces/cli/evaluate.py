"""`vecspaces evaluate`: seeded episodes of a policy, their statistics, and a video of some."""

from __future__ import annotations

import copy
import importlib
import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
import typer

from vecspaces.cli import options
from vecspaces.cli.console import announce, make_facts, output, progress_bar, write_json
from vecspaces.cli.errors import refuse
from vecspaces.cli.sb3 import as_policy, doubt, load_model, load_statistics
from vecspaces.evaluation import Evaluation
from vecspaces.evaluation import evaluate as run_evaluation
from vecspaces.evaluation.policies import adapt_policy
from vecspaces.files import replacing
from vecspaces.make import make_vec
from vecspaces.wrappers import RecordVideo

if TYPE_CHECKING:
    from vecspaces.vector.options import Backend

# Results of a network depend on the batch size, in their last bits.
_SB3_ROWS = 16


def evaluate(
    env: options.Env,
    env_arg: options.EnvArg = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function that takes a batch of observations and returns actions; or random.",
        ),
    ] = None,
    sb3: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.ZIP",
            help="A model of Stable-Baselines3 as the policy. Loading it runs code in the file.",
        ),
    ] = None,
    vecnormalize: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Statistics that VecNormalize.save wrote, to normalise the observations for "
            "the model of --sb3. Loading them runs code in the file.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 100,
    seed: options.Seed = None,
    options_file: Annotated[
        Path | None,
        typer.Option(
            "--options",
            metavar="FILE.JSON",
            help="A list with the options of each episode's reset.",
        ),
    ] = None,
    num_envs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum number of environments.", show_default="16 to 32 per worker"
        ),
    ] = None,
    num_workers: options.NumWorkers = None,
    agents: Annotated[
        Literal["dict"] | None,
        typer.Option(help="dict, for parallel environments of PettingZoo: returns are sums."),
    ] = None,
    backend: options.Backend = "async",
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    max_episode_steps: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps after which an episode is truncated.", show_default="no limit"
        ),
    ] = None,
    max_retries: Annotated[
        int,
        typer.Option(
            min=0, help="How often an episode may begin again after it has lost its worker."
        ),
    ] = 3,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of rows in each call of the policy.",
            show_default="as many as are ready; 16 for --sb3",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.check_file(),
            help="Write each finished episode to this file, and continue from it.",
        ),
    ] = None,
    json_file: options.Json = None,
    record: options.Record = None,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--episode", metavar="0,1,2", help="The episodes to record.", show_default="0"
        ),
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show the progress and the time left.")] = True,
    traceback: options.Traceback = False,
) -> None:
    """Play seeded episodes with a policy; show their statistics.

    Results do not depend on the number of environments and workers.
    """
    if (policy is None) == (sb3 is None):
        refuse("expected --policy MODULE:FUNCTION, --policy random, or --sb3 MODEL.ZIP")
    if vecnormalize is not None and sb3 is None:
        refuse("--vecnormalize: expected --sb3 MODEL.ZIP with it, found none")
    if chosen is not None and record is None:
        refuse("--episode: expected --record FILE with it, found none")
    if journal is not None and json_file is not None and journal.absolute() == json_file.absolute():
        refuse(f"--json: expected another file than that of --journal, found {json_file}")
    numbers = options.parse_numbers("--episode", chosen or "0", episodes - 1)
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
        played = as_policy(model, statistics, batch_size)
        if hasattr(played, "reset"):  # a policy with a state takes all rows, and divides them
            batch_size = None
    # After the evaluation, a policy with a state has one row per environment.
    recorded = copy.deepcopy(played) if record is not None and hasattr(played, "reset") else played
    try:
        with progress_bar(episodes) as show:

            def show_count(finished: int, episodes: int) -> None:
                show(lambda: (finished, f"{finished:,} of {episodes:,} episodes"))

            result: Evaluation = run_evaluation(
                played,
                env,
                episodes=episodes,
                seed=seed,
                options=episode_options,
                num_envs=num_envs,
                num_workers=num_workers,
                backend=cast("Backend", backend),
                max_episode_steps=max_episode_steps,
                max_retries=max_retries,
                progress=show_count if progress else False,
                env_kwargs=env_kwargs,
                vector_kwargs=vector_kwargs,
                batch_size=batch_size,
                journal=journal,
                agents=agents,
            )
        console = output(json_file)
        facts = {name: value for name, value in result.as_json().items() if name != "episodes"}
        if result.retries.any():
            facts["lost and repeated"] = int(result.retries.sum())
        console.print(make_facts(f"{result.episodes} episodes of {env}", facts.items()))
        warning = model and doubt(model, result)
        if warning:
            announce(f"vecspaces: warning: {warning}")
        named = {"env": env, "policy": policy or str(sb3), "seed": seed}
        write_json(json_file, {**named, **result.as_json()})
        if record is not None:
            with replacing(record) as file:
                envs = make_vec(
                    env,
                    backend="sync",
                    autoreset_mode="Disabled",
                    env_kwargs=rendered,
                    agents=agents,
                )
                with envs, RecordVideo(envs, file) as filmed:
                    _record(filmed, result, numbers, recorded, batch_size, episode_options)
            console.print(
                f"{filmed.frames_written} frames in {record}", markup=False, soft_wrap=True
            )
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


def _record(
    envs: RecordVideo[Any, Any],
    result: Evaluation,
    episodes: Sequence[int],
    policy: Any,
    batch_size: int | None,
    episode_options: Any,
) -> None:
    """Play episodes again and record them; an episode that differs from before is an error."""
    adapter = adapt_policy(policy, envs, batch_size)
    for episode in episodes:
        seed, length = int(result.seeds[episode]), int(result.lengths[episode])
        given = episode_options[episode] if isinstance(episode_options, list) else episode_options
        last: Any = envs.reset(seed=[seed], options=given)
        adapter.begin([0], [seed])
        rewards: list[float] = []
        while len(rewards) < length and not (rewards and (last[2] | last[3])[0]):
            last = envs.step(adapter.act(last[0], last[-1], [0]))
            rewards.append(last[1][0])
        total, is_terminated = sum(rewards, np.float64(0.0)), bool(last[2][0])
        counted = result.returns[episode], length, result.terminated[episode]
        if not np.array_equal((total, len(rewards), is_terminated), counted, equal_nan=True):
            raise ValueError(
                f"episode {episode} with seed {seed} returned {total:g} in {len(rewards)} steps "
                f"(terminated: {is_terminated}) as it was recorded, and {counted[0]:g} in {length} "
                f"(terminated: {counted[2]}) before: policy or environment depend on more than the "
                "seed"
            )
