"""`vecspaces evaluate`: seeded episodes of a policy, their statistics, and pictures of some."""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import operator
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from vecspaces.cli.console import (
    BackendOption,
    EnvArgOption,
    EnvArgument,
    JsonOption,
    StartMethodOption,
    StepTimeoutOption,
    TracebackOption,
    announce,
    check_file,
    check_picture,
    find_env,
    make_facts,
    output,
    parse_env_args,
    parse_numbers,
    prepare,
    progress_bar,
    vector_options,
    write_json,
)
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

_REFRESH_SECONDS = 0.2
# A network rounds a row otherwise in a batch of another size.
_SB3_ROWS = 16


def evaluate(
    env: EnvArgument,
    env_arg: EnvArgOption = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function of a batch of observations that returns actions, or random.",
        ),
    ] = None,
    sb3: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.ZIP",
            help="A model of Stable-Baselines3 as the policy. Loading it runs code that it holds.",
        ),
    ] = None,
    vecnormalize: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What VecNormalize.save wrote for the model of --sb3: its observations are "
            "normalised so. Loading it runs code that it holds.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 100,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Fixes the seeds of all episodes.", show_default="fresh entropy"),
    ] = None,
    num_envs: Annotated[
        int | None,
        typer.Option(min=1, help="The most environments.", show_default="16 to 32 per worker"),
    ] = None,
    num_workers: Annotated[
        int | None,
        typer.Option(min=1, help="The most workers.", show_default="one per usable core"),
    ] = None,
    backend: BackendOption = "async",
    step_timeout: StepTimeoutOption = None,
    context: StartMethodOption = None,
    max_episode_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Where episodes are cut off.", show_default="by the environment"),
    ] = None,
    max_retries: Annotated[
        int, typer.Option(min=0, help="How often an episode may lose its worker.")
    ] = 3,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many rows the policy is asked for each time.",
            show_default=f"as many as are ready; {_SB3_ROWS} for --sb3",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=check_file,
            help="Write each finished episode there, and go on from it.",
        ),
    ] = None,
    json_file: JsonOption = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=check_picture,
            help="Record episodes as a picture: .gif or .mp4.",
        ),
    ] = None,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--episode", metavar="0,1,2", help="The episodes to record.", show_default="0"
        ),
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show how far it is, and the time left.")] = True,
    traceback: TracebackOption = False,
) -> None:
    """Evaluate a policy: episodes with seeds of their own, the same for any number of workers."""
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
    prepare(env, policy)
    env_kwargs = parse_env_args(env_arg)
    # What will be recorded is refused before the work.
    find_env(env, **(env_kwargs if record is None else {**env_kwargs, "render_mode": "rgb_array"}))
    options = vector_options(backend, context=context, step_timeout=step_timeout)
    try:
        numbers = parse_numbers("--episode", chosen or "0", 0)
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
        # A policy with a state has grown to the number of environments when it is asked again.
        replayed_by = copy.deepcopy(played_by) if hasattr(played_by, "reset") else played_by
        with _shown(progress) as update:
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
                progress=update,
                env_kwargs=env_kwargs,
                vector_kwargs=options,
                batch_size=batch_size,
                journal=journal,
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
            )
            console.print(f"{frames} frames in {record}", markup=False, soft_wrap=True)
    except KeyboardInterrupt as interruption:
        if journal is not None:
            interruption.args = (f"the same command goes on from {journal}",)
        raise


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        announce(f"vecspaces: warning: {warning}")


@contextlib.contextmanager
def _shown(wanted: bool) -> Iterator[Any]:
    """Show a bar; yields what `evaluate` calls with its progress."""
    if not wanted:
        yield False
        return
    with progress_bar() as update:
        shown = -math.inf

        def show(finished: int, episodes: int) -> None:
            nonlocal shown
            now = time.perf_counter()
            if finished == episodes or now - shown > _REFRESH_SECONDS:
                shown = now
                text = f"{finished:,} of {episodes:,} episodes"
                update(completed=finished, total=episodes, description=text)

        yield show


def find_policy(name: str | None) -> Any:
    """Return `"random"`, the function that `module:function` names, or an instance of that class.

    Example:
        >>> find_policy("numpy:zeros_like")([1, 2]).tolist()
        [0, 0]
    """
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
