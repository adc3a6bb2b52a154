"""`vecspaces bench`: how many workers are worth it, beside Gymnasium and bare loops."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import hypot, inf
from typing import Annotated, Any

import typer
from rich.console import Console

from vecspaces import __version__
from vecspaces.cli import options
from vecspaces.cli.console import Show, make_table, output, progress_bar, write_json
from vecspaces.cli.contenders import Contender, Cost, find_contenders, measure_cost
from vecspaces.cli.options import option
from vecspaces.cores import count_usable_cores
from vecspaces.make import Factory
from vecspaces.vector.exchange.failures import Failure

_PROBE = 0.05  # the share of the time that goes into the cost of one environment
_TURNS = 4
_GRACE = 10.0  # seconds for the first turns, most of which open environments
# The simplest settings that reach this share of the fastest are recommended.
_ALIKE = 0.97
_QUIET = 0.9  # a quiet machine grants loops at least this share of what they need
_WAITS = 0.5  # an environment that computes for a smaller share of its step waits


def bench(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    max_workers: Annotated[
        int | None, option("The most workers to try.", "the usable cores", min=1)
    ] = None,
    seconds: Annotated[
        float, option("Duration of the measurement, approximately.", min=1e-3)
    ] = 20.0,
    json_file: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Measure how many workers step your environment fastest, and whether it is worth it."""
    env_kwargs = options.parse_env_args(env_arg)
    make = options.find_env(env, **env_kwargs)
    most = min(num_envs, max_workers or count_usable_cores())
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    report = Report(env, num_envs, env_kwargs)
    typer.echo(f"Measuring {num_envs} environments for about {seconds:g} s.", err=True)
    with progress_bar(seconds) as show:
        report.measure(make, counts, seconds, show)
    report.print(output(json_file))
    write_json(json_file, report.as_json())


@dataclass
class Report:
    """The contenders, bare loops included, and what follows from the figures."""

    env: str
    num_envs: int
    env_kwargs: dict[str, Any]
    contenders: list[Contender] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    #: The shares of the processor time that loops needed and got, in each measurement.
    granted: list[float] = field(default_factory=list)

    def measure(self, make: Factory, counts: list[int], seconds: float, show: Show) -> None:
        """Measure all contenders in turns, so that a busy machine slows all of them.

        The environments of one contender are open at a time. Contenders that would take much more
        than their share of the time are skipped.
        """
        began = time.perf_counter()
        show(0.0, "one environment")
        try:
            self.cost = measure_cost(make, min(self.num_envs, 2), _PROBE * seconds, self.granted)
        except Exception as error:
            if not isinstance(error.__cause__, Failure):
                raise
            # A vector env will raise it again, and name the environment's reset or step.
        self.contenders = find_contenders(
            make, self.num_envs, counts, self.granted, threads=self.waits
        )
        share = seconds / len(self.contenders)
        for contender in self.contenders:
            contender.skipped = self._refuse(contender, share)
        for number in range(_TURNS):
            for contender in self.contenders:
                took = time.perf_counter() - began
                if contender.skipped or (number and took > seconds):
                    continue
                if took > seconds + _GRACE:
                    contender.skipped = "no time was left: longer --seconds measure more"
                    continue
                show(took, contender.name)
                try:
                    contender.take_turn(share / _TURNS)
                except Exception as error:  # of any type, as the environment raised it
                    if not contender.name.startswith(("gymnasium", "threads")):
                        raise
                    contender.skipped = f"{type(error).__name__}: {error}".partition("\n")[0]

    def _refuse(self, contender: Contender, share: float) -> str:
        """Return why a contender takes much longer than its share of the time; "" otherwise."""
        parallel = contender.workers if self.waits else min(contender.workers, count_usable_cores())
        predicted = self.num_envs / parallel * (self.cost.ready + 2 * self.cost.step)
        if predicted <= 2 * share:
            return ""
        return (
            f"{self.num_envs} environments take {_number(predicted)} s to be built and stepped "
            f"twice: --seconds {_number(len(self.contenders) * predicted / 2)}, or fewer --num-envs"
        )

    @property
    def waits(self) -> bool:
        """Whether the environments wait for most of a step."""
        return self.cost.computing < _WAITS

    def busy(self, contender: Contender) -> float | None:
        """Return the speed as a share of bare loops: the share of time in the environments."""
        bounds = [
            bound for bound in self.contenders if bound.name.startswith("bare") and bound.speed
        ]
        if self.waits:  # each further process adds to the speed
            bounds = [bound for bound in bounds if bound.workers == contender.workers]
        bounds = [bound for bound in bounds if bound.workers <= contender.workers]
        return contender.speed / bounds[-1].speed if contender.speed and bounds else None

    def choose(self) -> list[Contender]:
        """Return the simplest of the fastest settings, and those that cannot be told from them."""
        ours = [setting for setting in self.contenders if setting.options and setting.speed]
        fastest = max((setting.speed for setting in ours), default=0.0)
        best = next((setting for setting in ours if setting.speed >= _ALIKE * fastest), None)
        return [] if best is None else [best, *(other for other in ours if best.resembles(other))]

    @property
    def is_quiet(self) -> bool:
        """Whether no other program used the cores during the measurement."""
        return sum(self.granted) >= _QUIET * len(self.granted)

    def code(self) -> str | None:
        """Return the recommended line; None if the figures do not tell."""
        chosen = self.choose()
        if len(chosen) != 1 or not self.is_quiet:
            return None
        arguments = {"num_envs": self.num_envs, **(chosen[0].options or {})}
        if self.env_kwargs:
            arguments["env_kwargs"] = self.env_kwargs
        shown = ", ".join(
            f"{name}={json.dumps(value) if isinstance(value, str) else repr(value)}"
            for name, value in arguments.items()
        )
        return f"make_vec({json.dumps(self.env)}, {shown})"

    def hints(self) -> Iterator[str]:
        """Yield what the figures mean, and what makes them doubtful."""
        chosen = self.choose()
        if len(chosen) > 1:
            widest = max(setting.spread for setting in chosen)
            reason = "a figure is of one step" if widest == inf else f"they spread by {widest:.0%}"
            names = " / ".join(setting.name for setting in chosen)
            yield f"cannot tell {names} apart, as {reason}: longer --seconds tell more"
        elif chosen:
            yield from self._compare(chosen[0])
        if not self.is_quiet:
            granted = sum(self.granted) / len(self.granted)
            yield (
                "cannot tell which setting is best, as the machine is busy: loops got "
                f"{granted:.0%} of the processor time that they needed: try again when it is quiet"
            )
        if self.waits:
            yield (
                f"environments compute for {self.cost.computing:.0%} of a step, and wait "
                "otherwise: threads, or more workers than cores (--max-workers), help"
            )

    def _compare(self, best: Contender) -> Iterator[str]:
        """Yield the speed of a setting beside sync, and Gymnasium's faster vector env."""
        gymnasiums = [other for other in self.contenders if other.name.startswith("gymnasium")]
        others = [other for other in self.contenders if other.name == "sync"]
        others += sorted(gymnasiums, key=lambda other: other.speed)[-1:]
        for other in others:
            spread = hypot(best.spread, other.spread) if other.speed else inf
            if other is not best and spread < 1:
                times = f"{best.speed / other.speed:.2f} times"
                yield f"{best.name}: {times} the steps of {other.name} ({_percent(spread)})"

    def rows(self) -> list[dict[str, Any]]:
        """Return what was measured of each contender, for the table and JSON."""
        return [
            {
                "name": contender.name,
                "workers": contender.workers,
                "steps_per_second": contender.speed or None,
                "spread": contender.spread if len(contender.samples) > 1 else None,
                "busy": self.busy(contender),
                "skipped": contender.skipped,
            }
            for contender in self.contenders
        ]

    def print(self, console: Console) -> None:
        """Print the table, the recommended line, and hints."""
        title, columns = f"{self.num_envs} x {self.env}", ("steps/s", "spread", "busy")
        table = make_table(title, "backend, workers", *columns)
        chosen, code = [contender.name for contender in self.choose()], self.code()
        skipped: dict[str, list[str]] = {}
        for row in self.rows():
            name, speed, busy = row["name"], row["steps_per_second"], row["busy"]
            if row["skipped"]:
                skipped.setdefault(row["skipped"], []).append(name)
            elif speed:
                share = "-" if busy is None else f"{busy:.0%}"
                style = "bold" if name in chosen else None
                table.add_row(name, _number(speed), _percent(row["spread"]), share, style=style)
        if table.row_count:
            console.print(table)
        lines = [f"# {' / '.join(names)}: {reason}" for reason, names in skipped.items()]
        lines += [f"# {hint}" for hint in self.hints()]
        lines += ["from vecspaces import make_vec", f"envs = {code}"] if code else []
        for line in lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """Return one object for JSON."""
        machine = {
            "system": platform.platform(),
            "usable_cores": count_usable_cores(),
            "python": platform.python_version(),
            "vecspaces": __version__,
        }
        granted = sum(self.granted) / len(self.granted) if self.granted else None
        measured = {"granted": granted, "computing": self.cost.computing, "results": self.rows()}
        named = {"env": self.env, "num_envs": self.num_envs, "machine": machine}
        return {**named, **measured, "code": self.code(), "hints": list(self.hints())}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _percent(spread: float | None) -> str:
    return "-" if spread is None or spread >= 10 else f"± {spread:.0%}"
