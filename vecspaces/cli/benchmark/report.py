"""Reports: look-ups for a table, one object for JSON, and a plot."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from vecspaces.cli.benchmark.limit import LIMIT
from vecspaces.cli.benchmark.measure import Measurement, Plan
from vecspaces.interop import require_extra
from vecspaces.vector.backends.process.cores import count_usable_cores

#: What ratios are ratios to: the faster one of them.
GYMNASIUM = ("gymnasium sync", "gymnasium async")

_MORE_COLORS = ("navy", "darkgreen", "darkred", "gold")
_LIBRARIES = (
    "vecspaces",
    "numpy",
    "gymnasium",
    "stable-baselines3",
    "tianshou",
    "pufferlib",
    "envpool",
    "torch",
)


@dataclass(frozen=True)
class Report:
    """What a benchmark measured, and the plan that it followed."""

    plan: Plan
    measurements: list[Measurement]

    def find(self, workload: str, num_envs: int, backend: str) -> Measurement | None:
        """Return one measurement; None if there is none."""
        for entry in self.measurements:
            if (entry.workload, entry.num_envs, entry.backend) == (workload, num_envs, backend):
                return entry
        return None

    def ratio(self, entry: Measurement, to: str) -> float | None:
        """Return how many times as fast as another contender one is; None if that is not known."""
        other = self.find(entry.workload, entry.num_envs, to)
        if other is None or not other.runs or not entry.runs:
            return None
        assert entry.steps_per_second is not None and other.steps_per_second is not None
        return entry.steps_per_second / other.steps_per_second

    def times_gymnasium(self, entry: Measurement) -> float | None:
        """Return how many times as fast as the better of Gymnasium's vector envs one is."""
        ratios = [ratio for name in GYMNASIUM if (ratio := self.ratio(entry, name)) is not None]
        return min(ratios, default=None)

    def backends(self, workload: str) -> list[str]:
        """Return the names of the contenders of an environment, in the order of the plan."""
        seen = (entry.backend for entry in self.measurements if entry.workload == workload)
        return list(dict.fromkeys(seen))

    def as_json(self) -> dict[str, Any]:
        """Return one object for JSON."""
        return {
            "machine": describe_machine(),
            "rounds": self.plan.rounds,
            "seconds_per_round": self.plan.seconds,
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
        names = [workload.name for workload in self.plan.workloads]
        columns = min(3, len(names))
        rows = -(-len(names) // columns)
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(4.6 * columns, 3.6 * rows), squeeze=False, layout="constrained"
        )
        styles = _styles([name for each in names for name in self.backends(each)])
        for axis, name in zip(axes.flat, names, strict=False):
            self._plot_workload(axis, name, styles)
        for axis in axes.flat[len(names) :]:
            axis.set_axis_off()
        handles = {
            label: handle
            for axis in axes.flat
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        ordered = [label for label in styles if label in handles]
        figure.legend(
            [handles[label] for label in ordered],
            ordered,
            loc="outside lower center",
            ncols=4,
            frameon=False,
        )
        try:
            figure.savefig(file, dpi=150)
        finally:
            pyplot.close(figure)

    def _plot_workload(self, axis: Any, name: str, styles: dict[str, dict[str, Any]]) -> None:
        for backend in self.backends(name):
            points = [
                (entry.num_envs, entry.steps_per_second)
                for entry in self.measurements
                if entry.workload == name and entry.backend == backend and entry.runs
            ]
            if points:
                axis.plot(*zip(*points, strict=True), label=backend, **styles[backend])
        axis.set(title=name, xscale="log", yscale="log", xlabel="environments", ylabel="steps/s")
        axis.set_xticks(self.plan.num_envs, [str(number) for number in self.plan.num_envs])
        axis.minorticks_off()
        axis.grid(alpha=0.3)


def _styles(backends: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the styles of lines: vecspaces' own are thick, others thin, the limit dashed."""
    styles: dict[str, dict[str, Any]] = {}
    for number, backend in enumerate(dict.fromkeys(backends)):
        ours = backend.startswith("vecspaces")
        styles[backend] = {
            "color": f"C{number}" if number < 10 else _MORE_COLORS[number % 10 % 4],
            "marker": "o" if ours else "s" if number < 10 else "^",
            "markersize": 4,
            "linewidth": 2.2 if ours else 1.0,
        }
    if LIMIT.name in styles:
        styles[LIMIT.name] = {"color": "black", "linestyle": "--", "linewidth": 1.2}
    return styles


def describe_machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    versions = {}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # a peer that is not installed took no part
            continue
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "usable_cores": count_usable_cores(),
        "python": platform.python_version(),
        "libraries": versions,
    }


def _processor() -> str:
    """Return the processor's name, where the system has it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
