"""`vecspaces rollout`: a random policy in many environments, with its speed and its episodes."""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vecspaces.cli.console import (
    EnvArgument,
    NumEnvsOption,
    TracebackOption,
    import_from_here,
    output,
    refuse,
    refusing,
)
from vecspaces.cli.episodes import EpisodeStatistics
from vecspaces.make import make_vec
from vecspaces.wrappers import RecordVideo

if TYPE_CHECKING:
    from vecspaces.vector import VectorEnv

_REFRESH_SECONDS = 0.2  # drawing the bar costs a millisecond or two: under 1 % of the rollout
_FRAMES = 300  # what a person looks at: six seconds of CartPole
_CLOSE_SECONDS = 0.5  # close() ends within this plus one: under the two seconds after Ctrl-C


@dataclass
class Outcome:
    """What a rollout did; lives on while the rollout goes on, so that Ctrl-C can show it.

    Args:
        env: The name of the environment.
        backend: Where the environments run.
        num_envs: How many there are.
        num_workers: How many worker processes step them; 0 for none.
        seed: The seed of the environments and of the policy.
    """

    env: str
    backend: str
    num_envs: int
    num_workers: int
    seed: int | None
    seconds: float = 0.0
    statistics: EpisodeStatistics = field(init=False)

    def __post_init__(self) -> None:
        self.statistics = EpisodeStatistics(self.num_envs)

    @property
    def steps_per_second(self) -> float:
        """Environment steps a second."""
        return self.statistics.steps / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """One flat object for machines; a number that does not exist is None."""
        returns, lengths = self.statistics.returns, self.statistics.lengths
        flat = {
            "env": self.env,
            "backend": self.backend,
            "num_envs": self.num_envs,
            "num_workers": self.num_workers,
            "seed": self.seed,
            "steps": self.statistics.steps,
            "seconds": self.seconds,
            "steps_per_second": self.steps_per_second,
            "episodes": returns.count,
            "mean_return": returns.mean,
            "min_return": returns.least,
            "max_return": returns.greatest,
            "mean_length": lengths.mean,
        }
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in flat.items()
        }

    def as_table(self) -> Table:
        """The table for people."""
        table = Table(
            title=f"{self.num_envs} × {self.env}", show_header=False, title_justify="left"
        )
        table.add_column(style="bold")
        table.add_column(justify="right")
        rows: list[tuple[str, int | float]] = [
            ("steps", self.statistics.steps),
            ("seconds", self.seconds),
            ("steps/s", round(self.steps_per_second)),
            ("episodes", self.statistics.returns.count),
        ]
        for name, summary in [
            ("return", self.statistics.returns),
            ("length", self.statistics.lengths),
        ]:
            rows.append((f"mean {name}", summary.mean))
            rows.append((f"min {name}", summary.least))
            rows.append((f"max {name}", summary.greatest))
        for label, value in rows:
            if isinstance(value, float) and not math.isfinite(value):
                shown = "-"
            else:
                shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
            table.add_row(label, shown)
        table.add_row("workers", f"{self.num_workers} ({self.backend})")
        return table


def rollout(
    env: EnvArgument,
    num_envs: NumEnvsOption = 8,
    steps: Annotated[
        int, typer.Option(help="Environment steps, summed over the environments.")
    ] = 100_000,
    backend: Annotated[
        str,
        typer.Option(help="async: worker processes; sync: this process; ray: actors of a cluster."),
    ] = "async",
    num_workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes (async) or actors (ray).", show_default="one per usable core"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of environments and policy.", show_default="fresh entropy"),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(help="fork, spawn or forkserver (async).", show_default="the platform's own"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the table as JSON.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"Record the first {_FRAMES} steps as a picture: .gif or .mp4."
        ),
    ] = None,
    shown: Annotated[
        str | None,
        typer.Option(
            "--envs",
            metavar="0,1,2,3",
            help="The environments to record.",
            show_default="the first four",
        ),
    ] = None,
    traceback: TracebackOption = False,
) -> None:
    """Roll out a random policy in many environments; show its speed and its episodes."""
    if steps < 1:
        refuse(f"--steps: expected at least 1, found {steps}")
    if seed is not None and seed < 0:
        refuse(f"--seed: expected a number that is not negative, found {seed}")
    if json_file is not None and (json_file.is_dir() or not json_file.parent.is_dir()):
        refuse(f"--json: expected a file in a folder that exists, found {json_file}")
    if shown is not None and record is None:
        refuse("--envs: expected --record FILE with it, found none")
    vector_kwargs = {
        name: value
        for name, value in [("num_workers", num_workers), ("context", context)]
        if value is not None
    }
    contexts = multiprocessing.get_all_start_methods()
    if context is not None and context not in contexts:
        refuse(f"--context: expected one of {', '.join(contexts)}; found {context}")
    if backend == "sync" and num_workers is not None:
        refuse(f"--num-workers: expected --backend async or ray, found {backend}")
    if backend != "async" and context is not None:
        refuse(f"--context: expected --backend async, found {backend}")
    import_from_here()
    try:
        with refusing(traceback=traceback):
            rendering: dict[str, Any] = {} if record is None else {"render_mode": "rgb_array"}
            envs = make_vec(
                env, num_envs, backend=backend, vector_kwargs=vector_kwargs, **rendering
            )
            if record is not None:
                envs = _recorded(envs, record, shown)
        result = Outcome(env, backend, envs.num_envs, getattr(envs, "num_workers", 0), seed)
        finished = _run(envs, result, steps)
    except KeyboardInterrupt:  # before there was anything to show
        raise typer.Exit(130) from None
    output().print(result.as_table())
    if json_file is not None:
        with refusing(traceback=traceback):
            json_file.write_text(json.dumps(result.as_json(), indent=2) + "\n", encoding="utf-8")
    if isinstance(envs, RecordVideo):
        output().print(f"{envs.frames_written} frames in {record}", markup=False, soft_wrap=True)
    if not finished:
        raise typer.Exit(130)


def _recorded(
    envs: VectorEnv[Any, Any, Any], path: Path, shown: str | None
) -> VectorEnv[Any, Any, Any]:
    """Wrap a vector env so that its first steps are recorded; close it where that cannot be."""
    try:
        if shown is None:
            env_ids = list(range(min(4, envs.num_envs)))
        elif not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", shown):
            raise ValueError(f"--envs: expected numbers with commas, as 0,1,2,3; found {shown!r}")
        else:
            env_ids = [int(number) for number in shown.split(",")]
        return RecordVideo(envs, path, env_ids=env_ids, length=_FRAMES)
    except BaseException:
        envs.close(timeout=_CLOSE_SECONDS)
        raise


def _run(envs: VectorEnv[Any, Any, Any], result: Outcome, steps: int) -> bool:
    """Step until there are enough steps, or until Ctrl-C; close; say whether it was the former."""
    try:
        with Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} steps  {task.fields[speed]:,.0f} steps/s"),
            TextColumn("{task.fields[episodes]:,} episodes"),
            TimeRemainingColumn(),
            auto_refresh=False,
            transient=True,
        ) as progress:
            _step(envs, result, steps, progress)
    except KeyboardInterrupt:
        with warnings.catch_warnings():  # that a slow step was cut off is what Ctrl-C asked for
            warnings.simplefilter("ignore", RuntimeWarning)
            envs.close(timeout=_CLOSE_SECONDS)
        return False
    except Exception:
        envs.close(timeout=_CLOSE_SECONDS)
        raise
    envs.close()
    return True


def _step(envs: VectorEnv[Any, Any, Any], result: Outcome, steps: int, progress: Progress) -> None:
    """The loop itself: what it does besides stepping is a few NumPy calls for all environments."""
    statistics = result.statistics
    task = progress.add_task(result.env, total=steps, speed=0.0, episodes=0)
    started = shown = time.perf_counter()
    try:
        envs.action_space.seed(result.seed)
        envs.reset(seed=result.seed)
        while statistics.steps < steps:
            _, rewards, terminations, truncations, _ = envs.step(envs.action_space.sample())
            statistics.update(rewards, terminations, truncations)
            now = time.perf_counter()
            if now - shown >= _REFRESH_SECONDS:
                shown, result.seconds = now, now - started
                progress.update(
                    task,
                    completed=statistics.steps,
                    speed=result.steps_per_second,
                    episodes=statistics.returns.count,
                    refresh=True,
                )
    finally:
        result.seconds = time.perf_counter() - started
