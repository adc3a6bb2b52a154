"""The report of a measured plan: steps per second beside Gymnasium and the limit; table, plot."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import contenders
from benchmarks.contenders import LIMIT
from benchmarks.timing import Measurement, describe_machine
from vecspaces.cli.console import make_table
from vecspaces.interop import require_extra

#: `times_gymnasium` compares with the faster one of these.
GYMNASIUM_NAMES = tuple(contender.name for contender in contenders.GYMNASIUM)
# The width in a terminal of the name of a backend, and of a cell such as `1.23M 12.3x 45%`.
_NAME_WIDTH, _CELL_WIDTH = 32, 19


def scale(number: float, *units: tuple[float, str]) -> str:
    """Write a number with three digits in the first unit that is not greater than it.

    Example:
        >>> [scale(number, (1e6, "M"), (1e3, "k"), (1, "")) for number in (1234567, 45600, 7)]
        ['1.23M', '45.6k', '7']
    """
    size, unit = next((pair for pair in units if number >= pair[0]), units[-1])
    value = number / size
    return f"{value:.3g}{unit}" if value < 999.5 else f"{value:.0f}{unit}"


def print_comparison(report: Comparison, console: Console) -> None:
    """Print one table per environment, in parts if the console is narrow."""
    together = max(1, (console.width - _NAME_WIDTH) // _CELL_WIDTH)
    all_numbers = report.names("num_envs")
    for workload in report.names("workload"):
        notes: dict[str, list[str]] = {}
        for first in range(0, len(all_numbers), together):
            numbers = all_numbers[first : first + together]
            titles = [f"{number:,} env{'s' if number > 1 else ''}" for number in numbers]
            table = make_table(workload, "steps/s", *titles)
            for column in table.columns:
                column.no_wrap = True
            for backend in report.names("backend"):
                entries = [report.find(workload, number, backend) for number in numbers]
                for entry in entries:
                    if entry is not None and entry.skipped:
                        note = f"{backend}: {entry.skipped}"
                        notes.setdefault(note, []).append(f"{entry.num_envs:,}")
                style = "bold" if backend.startswith("vecspaces") else None
                table.add_row(backend, *(_cell(report, entry) for entry in entries), style=style)
            console.print(table)
        for note, skipped in notes.items():
            console.print(f"  {note} ({', '.join(skipped)})", style="dim", markup=False)
        console.print()
    console.print(
        f"Medians of {report.rounds} interleaved runs. x: speed-up over the faster of "
        f"{GYMNASIUM_NAMES[0]} and {GYMNASIUM_NAMES[1]}; %: share of the limit.",
        style="dim",
    )


def _cell(report: Comparison, entry: Measurement | None) -> str:
    """Show steps per second, the speed-up over Gymnasium, and the share of the limit."""
    if entry is None or entry.steps_per_second is None:
        return "-"
    shown = scale(entry.steps_per_second, (1e6, "M"), (1e3, "k"), (1, ""))
    times, share = report.times_gymnasium(entry), report.ratio(entry, LIMIT.name)
    if times is not None and entry.backend not in GYMNASIUM_NAMES:
        shown += f" {times:,.0f}x" if times >= 100 else f" {times:.3g}x"
    if share is not None and entry.backend != LIMIT.name:
        shown += f" {100 * share:3.0f}%"
    return shown


@dataclass(frozen=True)
class Comparison:
    """The measurements of a benchmark, with the number of rounds and their seconds."""

    rounds: int
    seconds: float
    measurements: list[Measurement] = field(default_factory=list)

    def find(self, workload: str, num_envs: int, backend: str) -> Measurement | None:
        """Return one measurement; None if there is none."""
        wanted = workload, num_envs, backend
        matches = (entry for entry in self.measurements if entry.key == wanted)
        return next(matches, None)

    def ratio(self, entry: Measurement, to: str) -> float | None:
        """Return the speed-up of a measurement over another contender; None if unknown."""
        other = self.find(entry.workload, entry.num_envs, to)
        if other is None or not other.steps_per_second or not entry.steps_per_second:
            return None
        return entry.steps_per_second / other.steps_per_second

    def times_gymnasium(self, entry: Measurement) -> float | None:
        """Return the speed-up of a measurement over the faster of Gymnasium's vector envs."""
        ratios = (self.ratio(entry, name) for name in GYMNASIUM_NAMES)
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    def names(self, which: str) -> list[Any]:
        """Return each `workload`, `num_envs` or `backend`, in the order of the run."""
        return list(dict.fromkeys(getattr(entry, which) for entry in self.measurements))

    def as_json(self) -> dict[str, Any]:
        """Return one object for JSON."""
        return {
            "machine": describe_machine(),
            "rounds": self.rounds,
            "seconds_per_round": self.seconds,
            "results": [
                {
                    **asdict(entry),
                    "steps_per_second": entry.steps_per_second,
                    "times_gymnasium_sync": self.ratio(entry, GYMNASIUM_NAMES[0]),
                    "times_gymnasium_async": self.ratio(entry, GYMNASIUM_NAMES[1]),
                    "times_gymnasium": self.times_gymnasium(entry),
                    "share_of_the_limit": self.ratio(entry, LIMIT.name),
                }
                for entry in self.measurements
            ],
        }

    def plot(self, file: Path) -> None:
        """Plot steps per second against environments, one panel per environment."""
        matplotlib = require_extra("matplotlib", "plot")
        matplotlib.use("agg")
        pyplot = require_extra("matplotlib.pyplot", "plot")
        workloads, numbers = self.names("workload"), self.names("num_envs")
        columns = min(3, len(workloads))
        rows = -(-len(workloads) // columns)
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(4.6 * columns, 3.6 * rows), squeeze=False, layout="constrained"
        )
        lines: dict[str, Any] = {}
        for axis in axes.flat[len(workloads) :]:
            axis.set_axis_off()
        for axis, workload in zip(axes.flat, workloads, strict=False):
            for place, backend in enumerate(self.names("backend")):
                entries = [self.find(workload, number, backend) for number in numbers]
                points = [
                    (entry.num_envs, entry.steps_per_second)
                    for entry in entries
                    if entry and entry.runs
                ]
                if points:
                    style = _line_style(place, backend)
                    (lines[backend],) = axis.plot(*zip(*points, strict=True), **style)
            axis.set(title=workload, xscale="log", yscale="log")
            axis.set(xlabel="environments", ylabel="steps/s")
            axis.set_xticks(numbers, [str(number) for number in numbers])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        figure.legend(
            list(lines.values()),
            list(lines),
            loc="outside lower center",
            ncols=min(4, 2 * columns),  # what fits below the panels
            frameon=False,
        )
        try:
            figure.savefig(file, dpi=150)
        finally:
            pyplot.close(figure)


def _line_style(place: int, backend: str) -> dict[str, Any]:
    """Return the style of a line: thick for vecspaces, dashed for the upper bound."""
    if backend == LIMIT.name:
        return {"color": "black", "linestyle": "--", "linewidth": 1.2}
    if backend.startswith("vecspaces"):
        return {"color": f"C{place}", "marker": "o", "markersize": 4, "linewidth": 2.2}
    return {"color": f"C{place}", "marker": "s", "markersize": 4, "linewidth": 1.0}
