"""The figures of the front page: environments that people train on, as shares of the upper bound.

    pip install "gymnasium[mujoco,box2d]" ale-py minigrid opencv-python-headless stable-baselines3
    python -m benchmarks.front_page             # measure, and show the table
    python -m benchmarks.front_page --write     # ... and write it into the README, and the plot
    python -m benchmarks.front_page --render    # write them again from the run that is kept

A run in which any contender was faster than the upper bound was disturbed, and is not written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import cart_pole
from benchmarks.comparison import GYMNASIUM_NAMES, Comparison
from benchmarks.contenders import CONTENDERS, LIMIT, LIMIT_IN_STEP
from benchmarks.peers import PEERS, versions
from benchmarks.real import TASKS, find_task
from benchmarks.timing import Measurement, Plan, measure_plan
from benchmarks.vector import (
    OURS,
    describe_run,
    load,
    replace_block,
    with_share,
    write_run,
)
from vecspaces.cli.console import progress_bar
from vecspaces.cores import count_usable_cores
from vecspaces.interop import require_extra

ROOT = Path(__file__).parents[1]
RUN = ROOT / "benchmarks" / "front_page.json"
PLOT = ROOT / "docs" / "images" / "front_page.png"
COMMAND = "python -m benchmarks.front_page --write"
PAGES = ("README.md",)
NUM_ENVS = 64
# Readable on white and on black, as pages may be: a transparent ground, and grey between them.
_STYLE: dict[str, Any] = {"savefig.transparent": True} | dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#787878"
)
SB3 = "sb3 subproc"
NAMES = (OURS, *GYMNASIUM_NAMES, SB3, LIMIT_IN_STEP.name, LIMIT.name)


def main(
    write: Annotated[bool, typer.Option("--write", help="Write the pages and the plot.")] = False,
    render: Annotated[bool, typer.Option("--render", help="Write them from the last run.")] = False,
    run: Annotated[Path, typer.Option(help="Where the run is kept, also a disturbed one.")] = RUN,
    rounds: Annotated[int, typer.Option(help="How often each contender is timed.")] = 7,
    seconds: Annotated[float, typer.Option(help="How long one timing takes.")] = 1.0,
) -> None:
    """Measure each environment, and write the table and the plot."""
    if render:
        write_pages(*load(RUN))
        return
    made = {name: find_task(name) for name in TASKS} | {"CartPole-v1": cart_pole}
    missing = {name: reason for name, reason in made.items() if isinstance(reason, str)}
    if missing:
        raise typer.BadParameter(f"each environment must be installed, found {missing}")
    known = {contender.name: contender for contender in (*CONTENDERS, *PEERS, LIMIT_IN_STEP)}
    contenders = [known[name] for name in NAMES]
    plan = Plan(made, [NUM_ENVS], contenders, count_usable_cores(), rounds, seconds)
    typer.echo(str(plan), err=True)
    report = Comparison(rounds, seconds)
    with progress_bar(plan.timings) as update:
        measure_plan(plan, report.measurements, update)
    print(render_table(report))
    write_run(report, run, versions())
    faster = [
        entry.key for entry in report.measurements if (report.ratio(entry, LIMIT.name) or 0) > 1
    ]
    if faster:
        raise SystemExit(f"pages not written: {faster} are faster than the bound; repeat the run")
    if write:
        write_pages(*load(run))


def write_pages(report: Comparison, machine: dict[str, Any]) -> None:
    """Write the table into its pages, and the plot."""
    for page in PAGES:
        file = ROOT / page
        text = replace_block(file.read_text("utf-8"), "real", render(report, machine), COMMAND)
        file.write_text(text, "utf-8")
    plot(report, PLOT)


def render(report: Comparison, machine: dict[str, Any]) -> str:
    """Return the table, and what was measured where."""
    return f"{render_table(report)}\n{describe_run(report, machine)}"


def faster_gymnasium(report: Comparison, task: str) -> Measurement:
    """Return the faster of Gymnasium's two vector envs."""
    entries = (report.find(task, NUM_ENVS, name) for name in GYMNASIUM_NAMES)
    return max(
        (entry for entry in entries if entry), key=lambda entry: entry.steps_per_second or 0.0
    )


def _entries(report: Comparison, task: str) -> tuple[Measurement | None, ...]:
    others = (report.find(task, NUM_ENVS, name) for name in (SB3, LIMIT_IN_STEP.name, LIMIT.name))
    return (report.find(task, NUM_ENVS, OURS), faster_gymnasium(report, task), *others)


def render_table(report: Comparison) -> str:
    """Return steps per second, with shares of the upper bound."""
    columns = ("vecspaces", "faster Gymnasium", "SB3 Subproc", "loops in step", "loops")
    lines = [
        f"| {NUM_ENVS} environments, steps/s | {' | '.join(columns)} |",
        f"| --- |{' ---: |' * len(columns)}",
    ]
    for task in report.names("workload"):
        *entries, limit = (with_share(report, entry) for entry in _entries(report, task))
        entries[0] = f"**{entries[0]}**"
        lines.append(f"| {task} | {' | '.join(entries)} | {limit.partition(' ')[0]} |")
    return "\n".join(lines) + "\n"


def plot(report: Comparison, file: Path) -> None:
    """Draw the shares of the upper bound as bars, readable at the width of a phone."""
    matplotlib = require_extra("matplotlib", "plot")
    matplotlib.use("agg")
    pyplot = require_extra("matplotlib.pyplot", "plot")
    tasks = report.names("workload")
    pyplot.rcParams.update(_STYLE)
    figure, axis = pyplot.subplots(figsize=(6, 6.4), layout="constrained")
    titles = ("vecspaces async", "faster of Gymnasium's two", "SB3 SubprocVecEnv")
    colours = ("#2563eb", "#94a3b8", "#d6b370")

    def share(task: str, place: int) -> float:
        entry = _entries(report, task)[place]
        return 100 * (report.ratio(entry, LIMIT.name) or 0) if entry else 0.0

    for place, (title, colour) in enumerate(zip(titles, colours, strict=True)):
        shares = [share(task, place) for task in tasks]
        heights = [number + 0.27 * (place - 1) for number in range(len(tasks))]
        axis.barh(heights, shares, 0.25, label=title, color=colour)
        for height, value in zip(heights, shares, strict=True):
            beside = 101.5 if value > 89 else value + 1  # not on the line of the bound
            axis.text(beside, height, f"{value:.0f}%", va="center", fontsize=11)
    in_step = [share(task, len(titles)) for task in tasks]
    marks = [number - 0.45 for number in range(len(tasks))]
    label = "bare loops that wait for each other in each step"
    axis.scatter(in_step, marks, 70, "#dc2626", marker="v", label=label)
    axis.axvline(100, color="#787878", linestyle="--", linewidth=1.2)
    axis.set_yticks(range(len(tasks)), tasks, fontsize=13)
    axis.invert_yaxis()
    axis.set_xlim(0, 112)
    axis.set_xlabel("share of bare loops that never wait, %", fontsize=13)
    workers = max(entry.num_workers for entry in report.measurements if entry.backend == OURS)
    axis.set_title(f"{NUM_ENVS} environments, {workers} workers", fontsize=14)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", frameon=False, fontsize=12)
    try:
        figure.savefig(file, dpi=130)
    finally:
        pyplot.close(figure)


if __name__ == "__main__":
    typer.run(main)
