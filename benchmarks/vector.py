"""The speed of the vector envs: one run, from which the tables and the plot are made.

    python -m benchmarks.vector             # measure, show the tables and the targets
    python -m benchmarks.vector --write     # ... and write the tables into docs, and the plot
    python -m benchmarks.vector --render    # write the pages again from the run that is kept

`--short` takes about three minutes. `--peers` adds the other libraries that are installed here.
Ratios compare contenders that were timed in turns, with the same environment and number. So if
another program disturbed one environment, `--only NAME` measures it again and keeps the others.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from benchmarks.comparison import GYMNASIUM_NAMES, Comparison, print_comparison
from benchmarks.contenders import CONTENDERS, LIMIT, Contender, open_vecspaces
from benchmarks.environments import find_environment
from benchmarks.peers import PEERS, versions
from benchmarks.timing import Measurement, Plan, measure_plan
from vecspaces.cli import options
from vecspaces.cli.console import output, progress_bar, write_json

ROOT = Path(__file__).parents[1]
RUN = ROOT / "benchmarks" / "vector.json"
PLOT = ROOT / "docs" / "images" / "speed.png"
COMMAND = "python -m benchmarks.vector --write"

WORKERS = 2
MANY = 64
NUM_ENVS = (1, 8, MANY, 256)
OURS, OUR_SYNC = "vecspaces async", "vecspaces sync"
THEIR_SYNC, THEIR_ASYNC = GYMNASIUM_NAMES
#: What pages call the environments.
TITLES = {
    "nothing": "does nothing",
    "robot": "robot Dict",
    "infos": "infos at every step",
    "CartPole-v1": "CartPole-v1",
    "image": "image after 100 µs",
}
COLUMNS = {
    OURS: "vecspaces async",
    OUR_SYNC: "vecspaces sync",
    THEIR_ASYNC: "Gymnasium async",
    THEIR_SYNC: "Gymnasium sync",
    "sb3 subproc": "SB3 Subproc",
    "tianshou subproc": "Tianshou Subproc",
    "tianshou shmem": "Tianshou Shmem",
    "pufferlib": "PufferLib",
}


VIEWS = Contender("vecspaces async, copy=False", partial(open_vecspaces, "async", copy=False))


class Target(NamedTuple):
    """The speed-up that a backend must have over another one."""

    workload: str
    num_envs: int
    backend: str
    rival: str
    least: float


TARGETS = [
    Target("nothing", MANY, OURS, THEIR_ASYNC, 60),
    Target("robot", MANY, OURS, THEIR_ASYNC, 20),
    Target("infos", MANY, OURS, THEIR_ASYNC, 15),
    Target("CartPole-v1", MANY, OURS, THEIR_ASYNC, 8),
    Target("CartPole-v1", MANY, OURS, LIMIT.name, 0.75),
    Target("image", MANY, OURS, THEIR_ASYNC, 2.5),
    Target("image", MANY, OURS, LIMIT.name, 0.85),
    Target("nothing", 8, OURS, THEIR_ASYNC, 10),
    Target("nothing", MANY, OUR_SYNC, THEIR_SYNC, 1.6),
    Target("robot", MANY, OUR_SYNC, THEIR_SYNC, 2),
    Target("CartPole-v1", MANY, OUR_SYNC, THEIR_SYNC, 1.1),
    Target("CartPole-v1", MANY, OURS, OUR_SYNC, 1),
    Target("image", MANY, OURS, OUR_SYNC, 1),
    Target("nothing", MANY, OURS, "pufferlib", 2),
    *(
        Target(workload, MANY, OURS, rival, 5)
        for workload in ("nothing", "CartPole-v1")
        for rival in ("sb3 subproc", "tianshou subproc", "tianshou shmem")
    ),
]


def main(
    peers: Annotated[bool, typer.Option("--peers", help="Other libraries too.")] = False,
    short: Annotated[bool, typer.Option("--short", help="Fewer, shorter timings.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write docs and plot.")] = False,
    render: Annotated[bool, typer.Option("--render", help="Write them from the last run.")] = False,
    only: Annotated[str, typer.Option(help="The environment to measure again.")] = "",
    json_file: options.Json = None,
) -> None:
    """Measure, and say which targets are reached."""
    if render:
        report, machine = load(RUN)
        write_pages(report, machine)
        report.plot(PLOT)
        return
    contenders = [*CONTENDERS[:-1], VIEWS, *(PEERS if peers else ()), LIMIT]
    plan = Plan(
        {name: find_environment(name) for name in TITLES if only in ("", name)},
        NUM_ENVS,
        [contender for contender in contenders if contender.installed],
        num_workers=WORKERS,
        rounds=5 if short else 7,
        seconds=0.15 if short else 0.25,
        max_processes=MANY,
    )
    typer.echo(str(plan), err=True)
    report = Comparison(plan.rounds, plan.seconds)
    with progress_bar(plan.timings) as update:
        measure_plan(plan, report.measurements, update)
    if only:
        kept = [entry for entry in load(RUN)[0].measurements if entry.workload != only]
        report.measurements.extend(kept)
        report.measurements.sort(key=lambda entry: list(TITLES).index(entry.workload))
    console = output(json_file)
    print_comparison(report, console)
    console.print(verdicts(report))
    run = report.as_json()
    run["machine"]["libraries"] |= versions()
    write_json(json_file, run)
    if write:
        write_run(report, RUN, versions())
        write_pages(*load(RUN))
        report.plot(PLOT)


def write_run(report: Comparison, file: Path, libraries: dict[str, str]) -> None:
    """Keep a run, from which the pages can be written again."""
    run = report.as_json()
    run["machine"]["libraries"] |= libraries
    file.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


def load(file: Path) -> tuple[Comparison, dict[str, Any]]:
    """Return the report of a run that was kept, and the machine that it was made on."""
    run = json.loads(file.read_text(encoding="utf-8"))
    fields = ("workload", "num_envs", "backend", "num_workers", "runs", "skipped")
    measurements = [Measurement(**{name: row[name] for name in fields}) for row in run["results"]]
    return Comparison(run["rounds"], run["seconds_per_round"], measurements), run["machine"]


def verdicts(report: Comparison) -> Table:
    """Return the table of the targets."""
    table = Table(title="targets", title_justify="left")
    for column in ("environment", "n", "backend", "against", "target", "found", ""):
        table.add_column(column, justify="right" if column in ("n", "target", "found") else "left")
    for target in TARGETS:
        ratio = _ratio(target, report)
        if ratio is not None:
            reached = ratio >= target.least
            table.add_row(
                target.workload,
                str(target.num_envs),
                target.backend,
                target.rival,
                f"{target.least:g}x",
                f"{ratio:.2f}x",
                "reached" if reached else "missed",
                style=None if reached else "yellow",
            )
    return table


def _ratio(target: Target, report: Comparison) -> float | None:
    entry = report.find(target.workload, target.num_envs, target.backend)
    return None if entry is None else report.ratio(entry, target.rival)


# ---------------------------------------------------------------------- the pages


def write_pages(report: Comparison, machine: dict[str, Any]) -> None:
    """Write the blocks of the run into their pages."""
    for page, blocks in render_pages(report, machine).items():
        file = ROOT / page
        text = file.read_text(encoding="utf-8")
        for name, block in blocks.items():
            text = replace_block(text, name, block)
        file.write_text(text, encoding="utf-8")


def render_pages(report: Comparison, machine: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the blocks of each page, by their names."""
    speed, where = _speed_table(report), describe_run(report, machine)
    return {
        "docs/performance.md": {"speed": speed, "machine": where},
        "docs/when_not_to_use.md": {"few": _few_table(report), "machine": where},
    }


def replace_block(text: str, name: str, block: str, command: str = COMMAND) -> str:
    """Replace the text between the two markers of a block."""
    first, last = f"<!-- {name}: {command} -->\n", f"<!-- end of {name} -->"
    before, opening, rest = text.partition(first)
    _, closing, after = rest.partition(last)
    assert opening and closing, f"no block {name}"
    return f"{before}{first}\n{block}\n{last}{after}"


def _speed_table(report: Comparison) -> str:
    """Steps per second of 64 environments, with shares of the limit."""
    backends = [name for name in COLUMNS if report.find("nothing", MANY, name) is not None]
    titles = [COLUMNS[name] for name in backends]
    lines = [
        f"| {MANY} environments | {' | '.join(titles)} | the limit "
        "| speed-up over the faster Gymnasium env |",
        f"| --- |{' ---: |' * (len(titles) + 2)}",
    ]
    for workload, title in TITLES.items():
        cells = [with_share(report, report.find(workload, MANY, name)) for name in backends]
        ours, limit = (report.find(workload, MANY, name) for name in (OURS, LIMIT.name))
        times = None if ours is None else report.times_gymnasium(ours)
        cells += [_digits(limit), "-" if times is None else f"**{times:.1f}x**"]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        "Parentheses show the share of the limit. The last column is the speed-up of vecspaces",
        "async over the faster of Gymnasium's two vector envs.",
    ]
    shares = (
        report.ratio(entry, LIMIT.name) for entry in report.measurements if entry.num_envs == MANY
    )
    if any(share is not None and share > 1.0 for share in shares):
        lines.append("A share above 100% means that other programs disturbed the measurement.")
    return "\n".join(lines) + "\n"


def _few_table(report: Comparison) -> str:
    """Steps per second of few and many environments; the fastest of each row is bold."""
    backends = (OURS, OUR_SYNC, THEIR_SYNC, THEIR_ASYNC)
    lines = [
        "Steps per second; the fastest of each row is bold:",
        "",
        f"| environment | number | {' | '.join(COLUMNS[name] for name in backends)} |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for workload in ("nothing", "CartPole-v1", "image"):
        for num_envs in NUM_ENVS:
            entries = [report.find(workload, num_envs, name) for name in backends]
            speeds = [0.0 if entry is None else entry.steps_per_second or 0.0 for entry in entries]
            cells = [_digits(entry) for entry in entries]
            best = speeds.index(max(speeds))
            cells[best] = f"**{cells[best]}**"
            lines.append(f"| {TITLES[workload]} | {num_envs} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def describe_run(report: Comparison, machine: dict[str, Any]) -> str:
    """The machine and the settings of the run."""
    libraries = machine["libraries"]
    system = machine["system"].partition("-")[0]
    workers = max(entry.num_workers for entry in report.measurements if entry.backend == OURS)
    return (
        f"Medians of {report.rounds} interleaved timings of {report.seconds:g} s, "
        f"{workers} workers, on {machine['usable_cores']} cores of a virtual machine "
        f"({machine['processor']}), {system}, Python {machine['python']}, "
        f"NumPy {libraries['numpy']}, Gymnasium {libraries['gymnasium']}.\n"
    )


def _digits(entry: Measurement | None) -> str:
    """Steps per second in three digits."""
    if entry is None or entry.steps_per_second is None:
        return "-"
    return f"{float(f'{entry.steps_per_second:.3g}'):,.0f}"


def with_share(report: Comparison, entry: Measurement | None) -> str:
    """Steps per second, and their share of the limit."""
    share = None if entry is None else report.ratio(entry, LIMIT.name)
    if share is None:
        return _digits(entry)
    return f"{_digits(entry)} ({share:.0%})" if share >= 0.01 else f"{_digits(entry)} (<1%)"


if __name__ == "__main__":
    typer.run(main)
