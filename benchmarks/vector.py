"""The targets of the vector envs, each beside what this machine does.

    python -m benchmarks.vector

It is `vecspaces bench` with the cells that the targets speak of, in one interleaved run. `--peers`
adds the targets against the other libraries that are installed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from rich.table import Table

from vecspaces.cli.bench import show
from vecspaces.cli.benchmark.contenders import Contender
from vecspaces.cli.benchmark.limit import CONTENDERS, LIMIT
from vecspaces.cli.benchmark.measure import Plan, measure
from vecspaces.cli.benchmark.report import BASELINE, Report
from vecspaces.cli.benchmark.workloads import find_workload
from vecspaces.cli.console import JsonOption, output, progress_bar, write_json


class Target(NamedTuple):
    """How fast a backend must be, as a multiple of another one."""

    workload: str
    num_envs: int
    backend: str
    rival: str
    least: float


WORKERS = 2
OURS, OUR_SYNC, THEIR_SYNC = "vecspaces async", "vecspaces sync", "gymnasium sync"
TARGETS = [
    Target("nothing", 64, OURS, BASELINE, 60),
    Target("robot", 64, OURS, BASELINE, 20),
    Target("infos", 64, OURS, BASELINE, 15),
    Target("CartPole-v1", 64, OURS, BASELINE, 8),
    Target("CartPole-v1", 64, OURS, LIMIT.name, 0.75),
    Target("image", 64, OURS, BASELINE, 2.5),
    Target("image", 64, OURS, LIMIT.name, 0.85),
    Target("nothing", 8, OURS, BASELINE, 10),
    Target("nothing", 64, OUR_SYNC, THEIR_SYNC, 1.6),
    Target("robot", 64, OUR_SYNC, THEIR_SYNC, 2),
    Target("CartPole-v1", 64, OUR_SYNC, THEIR_SYNC, 1.1),
    Target("CartPole-v1", 64, OURS, OUR_SYNC, 1),
    Target("image", 64, OURS, OUR_SYNC, 1),
]
PEER_TARGETS = [
    Target("nothing", 64, OURS, "pufferlib", 2),
    *(
        Target(workload, 64, OURS, rival, 5)
        for workload in ("nothing", "CartPole-v1")
        for rival in ("sb3 subproc", "tianshou subproc", "tianshou shmem")
    ),
]


def main(
    peers: Annotated[bool, typer.Option(help="The targets against other libraries too.")] = False,
    rounds: Annotated[int, typer.Option(help="How often each backend is timed.")] = 7,
    seconds: Annotated[float, typer.Option(help="How long one timing takes.")] = 0.25,
    json_file: JsonOption = None,
) -> None:
    """Measure every target and say which are reached."""
    installed = {contender.name for contender in CONTENDERS if contender.installed}
    targets = [*TARGETS, *(PEER_TARGETS if peers else [])]
    targets = [target for target in targets if {target.backend, target.rival} <= installed]
    console = output(json_file)
    reports = []
    for num_envs in sorted({target.num_envs for target in targets}):
        wanted = [target for target in targets if target.num_envs == num_envs]
        plan = Plan(
            [find_workload(name) for name in dict.fromkeys(target.workload for target in wanted)],
            [num_envs],
            _contenders(wanted),
            num_workers=WORKERS,
            rounds=rounds,
            seconds=seconds,
        )
        with progress_bar(plan.timings) as update:
            reports.append(Report(plan, measure(plan, update)))
        show(reports[-1], console)
    console.print(_verdicts(targets, reports))
    write_json(json_file, [report.as_json() for report in reports])


def _contenders(targets: Sequence[Target]) -> list[Contender]:
    names = {name for target in targets for name in (target.backend, target.rival)}
    return [contender for contender in CONTENDERS if contender.name in names]


def _verdicts(targets: Sequence[Target], reports: Sequence[Report]) -> Table:
    table = Table(title="targets", title_justify="left")
    for column in ("environment", "n", "backend", "against", "target", "found", ""):
        table.add_column(column, justify="right" if column in ("n", "target", "found") else "left")
    for target in targets:
        found = _ratio(target, reports)
        shown = "-" if found is None else f"{found:.2f}x"
        verdict = "-" if found is None else "reached" if found >= target.least else "missed"
        table.add_row(
            target.workload,
            str(target.num_envs),
            target.backend,
            target.rival,
            f"{target.least:g}x",
            shown,
            verdict,
            style="yellow" if verdict == "missed" else None,
        )
    return table


def _ratio(target: Target, reports: Sequence[Report]) -> float | None:
    for report in reports:
        entry = report.find(target.workload, target.num_envs, target.backend)
        if entry is not None:
            return report.ratio(entry, target.rival)
    return None


if __name__ == "__main__":
    typer.run(main)
