"""`vecspaces evaluate`: seeded episodes of a policy, their statistics, and videos of some."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated

import typer

from vecspaces.cli import options
from vecspaces.cli.console import make_facts, output, progress_bar, write_json
from vecspaces.cli.errors import refuse
from vecspaces.cli.playing import Playing, takes_playing, warn
from vecspaces.cli.sb3 import warnings_after
from vecspaces.evaluation import Evaluation
from vecspaces.evaluation import evaluate as run_evaluation
from vecspaces.evaluation.replay import record_episodes


@takes_playing
def evaluate(
    playing: Playing,
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
    progress: options.Progress = True,
    traceback: options.Traceback = False,
) -> None:
    """Play seeded episodes with a policy; show their statistics.

    Results do not depend on the number of environments and workers.
    """
    if chosen is not None and record is None:
        refuse("--episode: expected --record FILE with it, found none")
    if journal is not None and json_file is not None and journal.absolute() == json_file.absolute():
        refuse(f"--json: expected another file than that of --journal, found {json_file}")
    # An environment that cannot be recorded is refused before the work.
    playing.check(**({} if record is None else {"render_mode": "rgb_array"}))
    env, episodes = playing.env, playing.episodes
    try:
        numbers = options.parse_numbers("--episode", chosen or "0", 0, episodes - 1)
        played_by = replayed_by = playing.load_policy()
        if record is not None and hasattr(played_by, "reset"):
            # After the evaluation, a policy with a state has one row per environment.
            replayed_by = copy.deepcopy(played_by)
        with progress_bar(episodes) as show:

            def show_count(finished: int, episodes: int) -> None:
                show(lambda: (finished, f"{finished:,} of {episodes:,} episodes"))

            result: Evaluation = run_evaluation(
                played_by,
                progress=show_count if progress else False,
                journal=journal,
                **playing.arguments(),
            )
        console = output(json_file)
        console.print(make_facts(f"{result.episodes} episodes of {env}", as_facts(result)))
        if playing.model is not None:
            warn(warnings_after(playing.model, result))
        found = {
            "env": env,
            "policy": playing.policy or str(playing.sb3),
            "seed": playing.seed,
            **result.as_json(),
        }
        write_json(json_file, found)
        if record is not None:
            frames = record_episodes(
                result,
                numbers,
                record,
                replayed_by,
                env,
                env_kwargs=playing.env_kwargs,
                batch_size=playing.batch_size,
                agents=playing.agents,
            )
            console.print(f"{frames} frames in {record}", markup=False, soft_wrap=True)
    except KeyboardInterrupt as interruption:
        if journal is not None:
            interruption.args = (f"the same command goes on from {journal}",)
        raise


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
        rows.append(("lost and repeated", f"{result.retries.sum():,}"))
    return rows
