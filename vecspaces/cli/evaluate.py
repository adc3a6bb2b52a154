"""`vecspaces evaluate`: seeded episodes of a policy, their statistics, and pictures of some."""

from __future__ import annotations

import copy
import importlib
import operator
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from vecspaces.cli import options
from vecspaces.cli.console import announce, make_facts, output, progress_bar, write_json
from vecspaces.cli.errors import refuse
from vecspaces.cli.sb3 import (
    as_policy,
    load_model,
    load_statistics,
    warnings_after,
    warnings_before,
)
from vecspaces.evaluation import Evaluation
from vecspaces.evaluation import evaluate as run_evaluation
from vecspaces.evaluation.replay import record_episodes

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
            show_default=f"as many as are ready; {_SB3_ROWS} for --sb3",
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
    if chosen is not None and record is None:
        refuse("--episode: expected --record FILE with it, found none")
    if (policy is None) == (sb3 is None):
        refuse("expected --policy MODULE:FUNCTION, --policy random, or --sb3 MODEL.ZIP")
    if journal is not None and json_file is not None and journal.absolute() == json_file.absolute():
        refuse(f"--json: expected another file than that of --journal, found {json_file}")
    if vecnormalize is not None and sb3 is None:
        refuse("--vecnormalize: expected --sb3 MODEL.ZIP with it, found none")
    if sb3 is not None and batch_size is None:
        batch_size = _SB3_ROWS
    options.prepare(policy)
    env_kwargs = options.parse_env_args(env_arg)
    # An environment that cannot be recorded is refused before the work.
    rendering = {} if record is None else {"render_mode": "rgb_array"}
    options.find_env(env, agents, **env_kwargs, **rendering)
    vector_kwargs = options.vector_options(backend, context=context, step_timeout=step_timeout)
    try:
        numbers = options.parse_numbers("--episode", chosen or "0", 0)
        if max(numbers) >= episodes:
            raise ValueError(f"--episode: expected at most {episodes - 1}, found {max(numbers)}")
        model: Any = None
        if sb3 is None:
            played_by = find_policy(policy)
        else:
            model = load_model(sb3)
            statistics = None if vecnormalize is None else load_statistics(vecnormalize, model)
            played_by = as_policy(model, statistics)
            _warn(warnings_before(sb3, env, model, statistics))
        # After the evaluation, a policy with a state has one row per environment.
        replayed_by = copy.deepcopy(played_by) if hasattr(played_by, "reset") else played_by
        with progress_bar(episodes) as show:

            def show_count(finished: int, episodes: int) -> None:
                show(lambda: (finished, f"{finished:,} of {episodes:,} episodes"))

            result = run_evaluation(
                played_by,
                env,
                episodes=episodes,
                seed=seed,
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
        console.print(make_facts(f"{result.episodes} episodes of {env}", as_facts(result)))
        if model is not None:
            _warn(warnings_after(model, result))
        found = {"env": env, "policy": policy or str(sb3), "seed": seed, **result.as_json()}
        write_json(json_file, found)
        if record is not None:
            frames = record_episodes(
                result,
                numbers,
                record,
                replayed_by,
                env,
                env_kwargs=env_kwargs,
                batch_size=batch_size,
                agents=agents,
            )
            console.print(f"{frames} frames in {record}", markup=False, soft_wrap=True)
    except KeyboardInterrupt as interruption:
        if journal is not None:
            interruption.args = (f"the same command goes on from {journal}",)
        raise


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        announce(f"vecspaces: warning: {warning}")


def find_policy(name: str | None) -> Any:
    """Return `"random"`, or what `module:function` names; of a class, an instance."""
    if name == "random" or name is None:
        return "random"
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"--policy: expected module:function or random, found {name!r}")
    found = operator.attrgetter(attribute)(importlib.import_module(module))
    return found() if isinstance(found, type) else found


def as_facts(result: Evaluation) -> list[tuple[str, str]]:
    """Return names and values for the terminal."""
    low, high = result.confidence_interval()
    rows = [
        ("mean return", f"{result.mean_return:,.2f}"),
        ("95 % interval", f"{low:,.2f} to {high:,.2f}"),
        ("standard deviation", f"{result.std_return:,.2f}"),
        ("median", f"{result.median_return:,.2f}"),
        ("interquartile mean", f"{result.interquartile_mean:,.2f}"),
        ("mean length", f"{result.lengths.mean():,.2f}"),
    ]
    if result.success_rate is not None:
        rows.append(("success rate", f"{result.success_rate:.1%}"))
    rows.append(("steps", f"{result.steps:,}"))
    rows.append(("seconds", f"{result.seconds:,.2f}"))
    if result.retries.any():
        rows.append(("begun anew after crashes", f"{result.retries.sum():,}"))
    return rows
