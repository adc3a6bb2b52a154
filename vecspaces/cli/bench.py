"""`vecspaces bench`: steps a second, side by side with other libraries and the limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from vecspaces.cli.benchmark import (
    BACKENDS,
    BASELINE,
    BUILT_IN,
    LIMIT,
    Backend,
    Measurement,
    Plan,
    Report,
    find_workload,
    measure,
)
from vecspaces.cli.console import TracebackOption, import_from_here, output, refuse, refusing


def bench(
    env: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENV]...",
            help=f"Environments: {', '.join(BUILT_IN)}, a Gymnasium id, or module:factory.",
            show_default="the six built-in ones",
        ),
    ] = None,
    num_envs: Annotated[
        str, typer.Option(metavar="N,N,...", help="How many environments.")
    ] = "1,8,64,256,1024",
    backends: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="Backends whose names begin so: vecspaces, gymnasium, sb3, tianshou, ...",
            show_default="all that are installed",
        ),
    ] = None,
    num_workers: Annotated[
        int | None,
        typer.Option(
            help="Processes for the backends that let you choose.",
            show_default="one per usable core; eight where environments wait",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="How often each backend is timed; the median counts.")
    ] = 5,
    seconds: Annotated[float, typer.Option(help="How long one timing takes.")] = 0.25,
    max_processes: Annotated[
        int, typer.Option(help="Leave out a backend that would start more.")
    ] = 256,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot steps/s against environments.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")
    ] = None,
    traceback: TracebackOption = False,
) -> None:
    """Compare vector envs: ours, those of the libraries that are installed, and the limit.

    The limit is the same environments in bare loops, in as many processes, that talk to nobody.
    """
    if rounds < 1 or seconds <= 0:
        refuse(f"--rounds, --seconds: expected more than 0, found {rounds} and {seconds:g}")
    if num_workers is not None and num_workers < 1:
        refuse(f"--num-workers: expected at least 1, found {num_workers}")
    for option, file in (("--plot", plot), ("--json", json_file)):
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            refuse(f"{option}: expected a file in a folder that exists, found {file}")
    import_from_here()
    with refusing(traceback=traceback):
        plan = Plan(
            [find_workload(name) for name in env or BUILT_IN],
            _numbers(num_envs),
            _choose(backends),
            num_workers,
            rounds,
            seconds,
            max_processes,
        )
    try:
        report = Report(plan, measure_below_a_bar(plan))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    show(report, output())
    with refusing(traceback=traceback):
        if json_file is not None:
            json_file.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
        if plot is not None:
            report.plot(plot)


def _numbers(text: str) -> list[int]:
    """Read `1,8,64`."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ValueError(f"--num-envs: expected numbers from 1 on, as in 1,8,64; found {text!r}")
    return numbers


def _choose(text: str | None) -> list[Backend]:
    """Find the backends whose names begin with what was asked for."""
    if text is None:
        return [backend for backend in BACKENDS if backend.installed]
    wanted = [part.strip() for part in text.split(",")]
    for prefix in wanted:
        found = [backend for backend in BACKENDS if backend.name.startswith(prefix)]
        if not found:
            names = ", ".join(repr(backend.name) for backend in BACKENDS)
            raise ValueError(f"--backends: expected the beginning of {names}; found {prefix!r}")
        missing = [backend.module for backend in found if not backend.installed]
        if len(missing) == len(found):
            raise ValueError(f"--backends: {prefix!r} needs {missing[0]}, which is not installed")
    return [
        backend
        for backend in BACKENDS
        if backend.installed and backend.name.startswith(tuple(wanted))
    ]


def measure_below_a_bar(plan: Plan) -> list[Measurement]:
    """Measure, and show below a progress bar how far it is."""
    with Progress(
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        auto_refresh=False,  # a thread that draws would take part in what it shows
        transient=True,
    ) as progress:
        task = progress.add_task("", total=plan.timings)

        def advance(what: str, timings: int) -> None:
            progress.update(task, description=what, advance=timings, refresh=True)

        return measure(plan, advance)


def show(report: Report, console: Console) -> None:
    """Print one table for each environment.

    Args:
        report: What was found.
        console: Where to.
    """
    for workload in report.plan.workloads:
        table = Table(title=workload.name, title_justify="left", caption_justify="left")
        table.add_column("steps/s", no_wrap=True)
        for number in report.plan.num_envs:
            table.add_column(f"{number:,} env{'s' if number > 1 else ''}", justify="right")
        notes: dict[str, list[str]] = {}
        for backend in report.backends(workload.name):
            cells = []
            for number in report.plan.num_envs:
                entry = report.find(workload.name, number, backend)
                cells.append(_cell(report, entry))
                if entry is not None and entry.skipped:
                    notes.setdefault(f"{backend}: {entry.skipped}", []).append(f"{number:,}")
            style = "bold" if backend.startswith("vecspaces") else None
            table.add_row(backend, *cells, style=style)
        console.print(table)
        for note, numbers in notes.items():
            console.print(f"  {note} ({', '.join(numbers)})", style="dim", markup=False)
        console.print()
    console.print(
        f"Medians of {report.plan.rounds} interleaved runs. x: times {BASELINE}; "
        f"%: of the limit, which talks to nobody.",
        style="dim",
    )


def _cell(report: Report, entry: Measurement | None) -> str:
    """Steps a second, how many times Gymnasium's, and the share of the limit."""
    if entry is None or entry.steps_per_second is None:
        return "-"
    shown = _short(entry.steps_per_second)
    times, share = report.ratio(entry, BASELINE), report.ratio(entry, LIMIT.name)
    if times is not None and entry.backend != BASELINE:
        shown += f" {times:,.0f}x" if times >= 100 else f" {times:.3g}x"
    if share is not None and entry.backend != LIMIT.name:
        shown += f" {100 * share:3.0f}%"
    return shown


def _short(number: float) -> str:
    """Write a number in a few digits: `1.23M`, `45.6k`, `789`."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}"
