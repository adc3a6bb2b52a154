"""What `bench` reports: ratios between contenders, JSON, a plot, and the machine."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from vecspaces.cli.benchmark import contenders
from vecspaces.cli.benchmark.contenders import LIMIT
from vecspaces.cli.benchmark.measure import Measurement
from vecspaces.interop import require_extra
from vecspaces.vector.backends.process.cores import count_usable_cores

#: `times_gymnasium` compares with the faster one of these.
GYMNASIUM = tuple(one.name for one in contenders.GYMNASIUM)


@dataclass(frozen=True)
class Comparison:
    """The measurements of a benchmark, in so many rounds of so many seconds."""

    rounds: int
    seconds: float
    measurements: list[Measurement] = field(default_factory=list)

    def find(self, workload: str, num_envs: int, backend: str) -> Measurement | None:
        """Return one measurement; None if there is none."""
        for entry in self.measurements:
            if (entry.workload, entry.num_envs, entry.backend) == (workload, num_envs, backend):
                return entry
        return None

    def ratio(self, entry: Measurement, to: str) -> float | None:
        """Return the speed-up of a measurement over another contender; None if unknown."""
        other = self.find(entry.workload, entry.num_envs, to)
        if other is None or not other.steps_per_second or not entry.steps_per_second:
            return None
        return entry.steps_per_second / other.steps_per_second

    def times_gymnasium(self, entry: Measurement) -> float | None:
        """Return the speed-up of a measurement over the faster of Gymnasium's vector envs."""
        ratios = [ratio for name in GYMNASIUM if (ratio := self.ratio(entry, name)) is not None]
        return min(ratios, default=None)

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
                    "times_gymnasium_sync": self.ratio(entry, GYMNASIUM[0]),
                    "times_gymnasium_async": self.ratio(entry, GYMNASIUM[1]),
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
                    (one.num_envs, one.steps_per_second) for one in entries if one and one.runs
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


def describe_machine() -> dict[str, Any]:
    """Return the machine and the versions that the figures were measured with."""
    versions = {}
    for library in ("vecspaces", "numpy", "gymnasium"):
        with suppress(metadata.PackageNotFoundError):  # Gymnasium need not be installed
            versions[library] = metadata.version(library)
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "usable_cores": count_usable_cores(),
        "python": platform.python_version(),
        "libraries": versions,
    }


def _processor() -> str:
    """Return the processor's name, if the system reports it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
