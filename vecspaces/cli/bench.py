"""`vecspaces bench`: how many workers are worth it, beside Gymnasium and bare loops."""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vecspaces import __version__
from vecspaces.cli import options
from vecspaces.cli.console import Show, announce, make_table, output, progress_bar
from vecspaces.cli.contenders import BareLoops, Contender, find_contenders
from vecspaces.cli.interrupts import Work
from vecspaces.cores import count_usable_cores
from vecspaces.files import replacing
from vecspaces.interop import require_extra
from vecspaces.make import Factory

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
    """The contenders, with bounds of as many bare loops, and what follows from the figures."""

    def __init__(
        self, env: str, num_envs: int, env_kwargs: dict[str, Any], contenders: list[Contender]
    ) -> None:
        self.env, self.num_envs, self.env_kwargs = env, num_envs, env_kwargs
        self.contenders = contenders
        self.granted = self.computing = 1.0

    def measure(self, make: Factory, counts: list[int], seconds: float, show: Show) -> None:
        """Measure all contenders in turns, so that a busy machine slows all of them."""
        with contextlib.ExitStack() as stack:
            loops = BareLoops(make, self.num_envs, counts[-1], stack)
            self.contenders += loops.contenders(counts)
            running = []
            for contender in self.contenders:
                show(partial(_describe, 0.0, f"opening {contender.name}"))
                try:
                    run = contender.open(stack)
                    run(0.0)
                except Exception as error:  # of any type, as the environment raised it
                    if not contender.name.startswith("gymnasium"):
                        raise
                    contender.skipped = f"{type(error).__name__}: {error}".partition("\n")[0]
                else:
                    running.append((contender, run))
            began, turn = time.perf_counter(), seconds / _ROUNDS / len(running)
            for number in range(_ROUNDS):
                for contender, run in running:
                    took = time.perf_counter() - began
                    if number > 1 and took > seconds:
                        return
                    show(partial(_describe, took, contender.name))
                    contender.rounds.append(run(turn))
                self.granted, self.computing = loops.look()

    def busy(self, contender: Contender) -> float | None:
        """Return the speed as a share of bare loops: the share of time in the environments."""
        bare = [
            one.speed
            for one in self.contenders
            if one.line == "bare loops" and one.speed and one.processes <= contender.processes
        ]
        return contender.speed / bare[-1] if contender.speed and bare else None

    def choose(self) -> list[Contender]:
        """Return the simplest of the fastest settings, and those that cannot be told from them."""
        ours = [one for one in self.contenders if one.options is not None and one.speed]
        fastest = max((one.speed for one in ours), default=0.0)
        for chosen in ours:
            if chosen.speed >= _ALIKE * fastest:
                return [chosen] + [
                    one
                    for one in ours
                    if one is not chosen
                    and max(one.spread, chosen.spread) > _WIDE
                    and abs(one.speed - chosen.speed) < one.margin + chosen.margin
                ]
        return []

    def code(self) -> str | None:
        """Return the recommended line; None if the figures do not tell."""
        chosen = self.choose()
        if len(chosen) != 1:
            return None
        given = {"num_envs": self.num_envs, **(chosen[0].options or {})}
        if self.env_kwargs:
            given["env_kwargs"] = self.env_kwargs
        arguments = ", ".join(
            f"{name}={json.dumps(value) if isinstance(value, str) else repr(value)}"
            for name, value in given.items()
        )
        return f"make_vec({json.dumps(self.env)}, {arguments})"

    def hints(self) -> Iterator[str]:
        """Yield what the figures mean, and what makes them doubtful."""
        chosen = self.choose()
        if len(chosen) > 1:
            yield (
                f"cannot tell {' / '.join(one.name for one in chosen)} apart, as figures spread by "
                f"{_percent(max(one.spread for one in chosen))}: longer --seconds tell more"
            )
        elif chosen:
            sync, *workers = (one for one in self.contenders if one.options is not None)
            best = max(workers, key=lambda one: one.speed)
            yield f"{best.name}: {best.speed / sync.speed:.2f} times the steps of sync"
        if self.granted < _QUIET:
            yield (
                f"the machine is busy: a loop on each core got {self.granted:.0%} of it: try again "
                "when it is quiet"
            )
        if self.computing < _WAITS:
            yield (
                f"environments compute for {self.computing:.0%} of a step, and wait otherwise: "
                "more workers than cores help (--max-workers)"
            )

    def print(self, console: Console) -> None:
        """Print the table, the recommended line, and hints."""
        table = make_table(
            f"{self.num_envs} x {self.env}", "backend, processes", "steps/s", "spread", "busy"
        )
        for one in self.contenders:
            if one.speed or one.skipped:
                speed = f"{one.speed:,.0f}" if one.speed else "-"
                busy = "-" if self.busy(one) is None else f"{self.busy(one):.0%}"
                style = "bold" if one in self.choose() else None
                table.add_row(one.name, speed, _percent(one.spread), busy, style=style)
        console.print(table)
        code = self.code()
        reasons = {one.skipped: one.name for one in reversed(self.contenders) if one.skipped}
        lines = [f"# {name}: {reason}" for reason, name in reasons.items()]
        lines += [f"# {hint}" for hint in self.hints()]
        lines += ["from vecspaces import make_vec", f"envs = {code}"] if code else []
        for line in lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """Return one object for JSON."""
        results = [
            {
                "name": one.name,
                "processes": one.processes,
                "steps_per_second": one.speed or None,
                "spread": one.spread if len(one.rounds) > 1 else None,
                "busy": self.busy(one),
                "skipped": one.skipped,
            }
            for one in self.contenders
        ]
        machine = {
            "system": platform.platform(),
            "usable_cores": count_usable_cores(),
            "python": platform.python_version(),
            "vecspaces": __version__,
        }
        named = {"env": self.env, "num_envs": self.num_envs, "machine": machine}
        measured = {"granted": self.granted, "computing": self.computing, "results": results}
        return {**named, **measured, "code": self.code(), "hints": list(self.hints())}

    def plot(self, file: Path) -> None:
        """Plot steps per second against the number of processes."""
        require_extra("matplotlib", "plot").use("agg")
        pyplot = require_extra("matplotlib.pyplot", "plot")
        figure, axis = pyplot.subplots(layout="constrained")
        measured = [one for one in self.contenders if one.speed]
        for place, line in enumerate(dict.fromkeys(one.line for one in measured)):
            points = [one for one in measured if one.line == line]
            if points[0].line == points[0].name:
                axis.axhline(points[0].speed, color=f"C{place}", linestyle=":", label=line)
            else:
                numbers, speeds = [one.processes for one in points], [one.speed for one in points]
                axis.plot(numbers, speeds, "o-", color=f"C{place}", label=line)
        axis.set(title=f"{self.num_envs} x {self.env}", xlabel="processes", ylabel="steps/s")
        axis.set_xticks(sorted({one.processes for one in measured if one.line != one.name}))
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
