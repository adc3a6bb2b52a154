"""`vecspaces bench`: how many workers are worth it, beside Gymnasium and bare loops."""

from __future__ import annotations

import contextlib
import json
import platform
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vecspaces import __version__
from vecspaces.cli import options
from vecspaces.cli.console import Show, announce, make_table, output, progress_bar
from vecspaces.cli.contenders import BareLoops, Contender, Run, find_contenders
from vecspaces.cli.interrupts import Work
from vecspaces.files import replacing
from vecspaces.interop import require_extra
from vecspaces.make import Factory
from vecspaces.vector.backends.process.cores import count_usable_cores

_ROUNDS = 8
# The simplest settings that reach this share of the fastest are recommended.
_ALIKE = 0.97
_WIDE = 0.05  # figures whose intervals are wider, and overlap, cannot be told apart
_QUIET = 0.9  # a quiet machine grants at least this share of a core to each loop
_WAITS = 0.5  # an environment that computes for a smaller share of its step waits


def bench(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    max_workers: Annotated[
        int | None,
        typer.Option(min=1, help="The most workers to try.", show_default="the usable cores"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1e-3, help="Duration of the measurement, approximately.")
    ] = 20.0,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.check_file(*options.PLOTS),
            help="Plot steps/s against workers.",
        ),
    ] = None,
    json_file: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Measure how many workers step your environment fastest, and whether it is worth it."""
    if plot is not None:
        require_extra("matplotlib", "plot")  # fails before the work, not after it
    env_kwargs = options.parse_env_args(env_arg)
    make = options.find_env(env, **env_kwargs)
    most = min(num_envs, max_workers or count_usable_cores())
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    report = Report(env, num_envs, env_kwargs, find_contenders(make, num_envs, counts))
    announce(f"Measuring {num_envs} environments for about {seconds:g} s.")
    with Work() as work, progress_bar(seconds) as show:
        report.measure(make, counts, seconds, show)
    console = output(json_file)
    report.print(console)
    work.conclude(console, json_file, report.as_json())
    if plot is not None:
        with replacing(plot) as file:
            report.plot(file)


class Report:
    """The contenders, the bounds of as many bare loops, and what follows from the figures."""

    def __init__(
        self, env: str, num_envs: int, env_kwargs: dict[str, Any], contenders: list[Contender]
    ) -> None:
        self.env, self.num_envs, self.env_kwargs = env, num_envs, env_kwargs
        self.contenders = contenders
        self.bounds: list[Contender] = []
        self.granted = self.computing = 1.0

    def measure(self, make: Factory, counts: list[int], seconds: float, show: Show) -> None:
        """Measure all contenders in turns, so that a busy machine slows all of them."""
        with contextlib.ExitStack() as stack:
            running: list[tuple[Contender, Run]] = []
            for contender in self.contenders:
                show(partial(_describe, 0.0, f"opening {contender.name}"))
                self._open(contender, stack, running)
            loops = BareLoops(make, self.num_envs, counts[-1], stack)
            self.bounds = loops.bounds(counts)
            running += [(bound, bound.open(stack)) for bound in self.bounds]
            began, turn = time.perf_counter(), seconds / _ROUNDS / len(running)
            for number in range(_ROUNDS):
                for contender, run in running:
                    took = time.perf_counter() - began
                    if number > 1 and took > seconds:
                        return
                    show(partial(_describe, took, contender.name))
                    contender.rounds.append(run(turn))
                loops.look()
                self.granted = sum(loops.granted) / len(loops.granted)
                self.computing = loops.used[0] / loops.used[1] / self.granted

    def _open(
        self,
        contender: Contender,
        stack: contextlib.ExitStack,
        running: list[tuple[Contender, Run]],
    ) -> None:
        """Open a contender and step it once; Gymnasium's are skipped if they fail."""
        if contender.options is None and any(other.skipped for other in self.contenders):
            contender.skipped = "as above"
            return
        try:
            run = contender.open(stack)
            run(0.0)
        except Exception as error:  # of any type, as the environment raised it
            if contender.options is not None:
                raise
            contender.skipped = f"{type(error).__name__}: {error}".partition("\n")[0]
        else:
            running.append((contender, run))

    def bound(self, name: str, contender: Contender) -> float | None:
        """Return the speed of loops in as many processes, or in the most that were measured."""
        bounds = [one for one in self.bounds if one.name == name and one.speed]
        known = [one for one in bounds if one.processes <= contender.processes]
        return known[-1].speed if known else None

    def busy(self, contender: Contender) -> float | None:
        """Return the share of time that goes into the environments, as of bare loops."""
        bare = self.bound("bare loops", contender)
        return contender.speed / bare if contender.speed and bare else None

    @property
    def ours(self) -> list[Contender]:
        """The settings of vecspaces that were measured, the simplest first."""
        return [one for one in self.contenders if one.options is not None and one.speed]

    @property
    def chosen(self) -> Contender | None:
        """The simplest of the fastest settings; None if nothing was measured."""
        fastest = max((one.speed for one in self.ours), default=0.0)
        return next((one for one in self.ours if one.speed >= _ALIKE * fastest), None)

    @property
    def unclear(self) -> list[Contender]:
        """The settings, the chosen ones first, if figures do not tell them apart."""
        chosen = self.chosen
        rivals = [
            one
            for one in self.ours
            if chosen is not None
            and one is not chosen
            and max(one.spread, chosen.spread) > _WIDE
            and abs(one.speed - chosen.speed) < one.margin + chosen.margin
        ]
        return [chosen, *rivals] if chosen is not None and rivals else []

    @property
    def code(self) -> str | None:
        """The recommended line; None if the figures do not tell."""
        if self.chosen is None or self.unclear:
            return None
        given = {"num_envs": self.num_envs, **(self.chosen.options or {})}
        if self.env_kwargs:
            given["env_kwargs"] = self.env_kwargs
        arguments = ", ".join(
            f"{name}={json.dumps(value) if isinstance(value, str) else repr(value)}"
            for name, value in given.items()
        )
        return f"make_vec({json.dumps(self.env)}, {arguments})"

    def hints(self) -> list[str]:
        """Return what the figures mean, and what makes them doubtful."""
        hints = []
        chosen, sync = self.chosen, next((one for one in self.ours), None)
        if chosen is None or sync is None:
            return []
        if self.unclear:
            names = ", ".join(one.name for one in self.unclear)
            spread = max(one.spread for one in self.unclear)
            hints.append(
                f"cannot tell {names} apart: figures spread by {_percent(spread)}: longer "
                "--seconds tell more"
            )
        busy = self.busy(chosen)
        if chosen is not sync and chosen.speed and sync.speed:
            hints.append(f"{chosen.name}: {chosen.speed / sync.speed:.2f} times the steps of sync")
        if busy is not None:
            hints.append(f"the environments take {busy:.0%} of the time of {chosen.name}")
        if self.granted < _QUIET:
            hints.append(
                f"the machine is busy: a loop on each core got {self.granted:.0%} of it: try again "
                "when it is quiet"
            )
        if self.computing < _WAITS:
            hints.append(
                f"an environment computes for {self.computing:.0%} of its step, and waits "
                "otherwise: more workers than cores help (--max-workers)"
            )
        return hints

    def print(self, console: Console) -> None:
        """Print the table, the recommended line, and hints."""
        titles = ("", "steps/s", "spread", "loops in step", "bare loops", "busy")
        table = make_table(f"{self.num_envs} x {self.env}", *titles)
        for one in self.contenders:
            if one.speed:
                figures = [one.speed, *(self.bound(name, one) for name in titles[3:5])]
                cells = ["-" if figure is None else f"{figure:,.0f}" for figure in figures]
                cells.insert(1, _percent(one.spread))
                busy = self.busy(one)
                cells.append("-" if busy is None else f"{busy:.0%}")
                table.add_row(one.name, *cells, style="bold" if one is self.chosen else None)
            elif one.skipped:
                table.add_row(one.name, "-")
        console.print(table)
        for one in self.contenders:
            if one.skipped:
                console.print(f"  {one.name}: {one.skipped}", style="dim", markup=False)
        if self.code is not None:
            console.print(
                f"  from vecspaces import make_vec\n  envs = {self.code}",
                markup=False,
                soft_wrap=True,
            )
        for hint in self.hints():
            console.print(f"  # {hint}", style="dim", markup=False, soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """Return one object for JSON."""
        return {
            "env": self.env,
            "num_envs": self.num_envs,
            "machine": f"{platform.platform()}, {count_usable_cores()} usable cores",
            "versions": {"vecspaces": __version__, "python": platform.python_version()},
            "granted": self.granted,
            "computing": self.computing,
            "results": [
                {
                    "name": one.name,
                    "processes": one.processes,
                    "steps_per_second": one.speed or None,
                    "spread": one.spread if len(one.rounds) > 1 else None,
                    "busy": self.busy(one),
                    "skipped": one.skipped,
                }
                for one in [*self.contenders, *self.bounds]
            ],
            "code": self.code,
            "hints": self.hints(),
        }

    def plot(self, file: Path) -> None:
        """Plot steps per second against the number of processes."""
        require_extra("matplotlib", "plot").use("agg")
        pyplot = require_extra("matplotlib.pyplot", "plot")
        figure, axis = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
        workers = [one for one in self.ours if "num_workers" in (one.options or {})]
        lines = {"vecspaces": workers}
        for bound in self.bounds:
            lines.setdefault(bound.name, []).append(bound)
        for name, points in lines.items():
            numbers, speeds = [one.processes for one in points], [one.speed for one in points]
            style = "o-" if name == "vecspaces" else "--"
            axis.plot(numbers, speeds, style, label=name)
        for place, one in enumerate(self.contenders):
            if one.speed and one not in workers:
                axis.axhline(one.speed, color=f"C{place + 3}", linestyle=":", label=one.name)
        axis.set(title=f"{self.num_envs} x {self.env}", xlabel="workers", ylabel="steps/s")
        axis.set_ylim(bottom=0)
        axis.legend()
        try:
            figure.savefig(file, dpi=150)
        finally:
            pyplot.close(figure)


def _describe(took: float, name: str) -> tuple[float, str]:
    return took, name


def _percent(spread: float) -> str:
    return f"± {spread:.0%}" if spread < 10 else "-"
