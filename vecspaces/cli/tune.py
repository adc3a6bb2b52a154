"""`vecspaces tune`: the cost of an environment, and the settings that step it fastest here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table

from vecspaces.cli import options
from vecspaces.cli.console import (
    Show,
    announce,
    make_facts,
    make_table,
    output,
    progress_bar,
    scale,
)
from vecspaces.cli.contenders import Contender, open_vecspaces
from vecspaces.cli.costs import Costs, measure_costs
from vecspaces.cli.interrupts import Work
from vecspaces.cli.timing import SpeedRuns, describe_machine, time_in_turns
from vecspaces.make import PROCESS_ARGUMENTS

# How often each candidate is timed.
_ROUNDS = 3
# The simplest settings that reach this share of the fastest are the best.
_ALIKE = 0.97
_INSPECTION_SHARE = 0.1
# A wider spread of the runs gives a hint.
_WIDE_SPREAD = 0.1
_TIMES = (1.0, " s"), (1e-3, " ms"), (1e-6, " us")
_SIZES = (1 << 20, " MiB"), (1 << 10, " KiB"), (1, " bytes")


def tune(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = options.NUM_ENVS,
    seconds: Annotated[
        float, typer.Option(min=1e-3, help="Duration of the measurement, approximately.")
    ] = 20.0,
    agent_ms: Annotated[
        float,
        typer.Option(
            min=0,
            max=60_000,
            help="Milliseconds that your policy takes to choose a batch of actions.",
        ),
    ] = 0.0,
    autoreset_mode: options.AutoresetMode = None,
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    json_file: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Find the settings that step your environment fastest.

    The command measures the environment, tries settings, and prints the code for the best.
    """
    env_kwargs = options.parse_env_args(env_arg)
    make = options.find_env(env, **env_kwargs)
    common = options.vector_options(
        "async", context=context, step_timeout=step_timeout, autoreset_mode=autoreset_mode
    )
    announce(f"Trying settings for {num_envs} environments for about {seconds:g} s.")
    costs: Costs | None = None
    tried: list[Candidate] = []
    with Work() as work:
        costs = measure_costs(make, seconds * _INSPECTION_SHARE, common)
        tried = candidates(num_envs, costs, common)
        with progress_bar(_ROUNDS * len(tried)) as update:
            share = 1.0 - _INSPECTION_SHARE
            try_out(make, num_envs, tried, seconds * share, agent_ms / 1e3, update)
    chosen = best(tried)
    code = None if chosen is None else chosen.code(env, num_envs, env_kwargs)
    console = output(json_file)
    if costs is not None:
        console.print(make_facts(f"one {env}", _costs_facts(costs)))
        console.print(_candidates_table(num_envs, tried, chosen, agent_ms))
    if costs is not None and chosen is not None:
        console.print("Paste:", style="bold")
        console.print("  from vecspaces import make_vec")
        console.print(f"  envs = {code}", markup=False, soft_wrap=True)
        for hint in _hints(chosen, tried, costs):
            console.print(f"  # {hint}", style="dim", soft_wrap=True)
    found = {
        "env": env,
        "num_envs": num_envs,
        "agent_ms": agent_ms,
        "machine": describe_machine(),
        "costs": None if costs is None else asdict(costs),
        "tried": [
            {**asdict(one), "steps_per_second": one.steps_per_second, "spread": one.spread}
            for one in tried
        ],
        "code": code,
    }
    work.conclude(console, json_file, found)
    if chosen is None:
        raise typer.Exit(1)


def _costs_facts(costs: Costs) -> list[tuple[str, str]]:
    memory = "-" if costs.memory_bytes is None else scale(costs.memory_bytes, *_SIZES)
    return [
        ("step, mean", scale(costs.step_mean, *_TIMES)),
        ("step, 99th percentile", scale(costs.step_p99, *_TIMES)),
        ("step, standard deviation", f"{100 * costs.step_spread:.0f} % of the mean"),
        ("reset, mean", scale(costs.reset_mean, *_TIMES)),
        ("computing, not waiting", f"{100 * costs.computing:.0f} %"),
        ("observation", scale(costs.observation_bytes, *_SIZES)),
        ("memory", memory),
        ("start of a worker", scale(costs.build_seconds, *_TIMES)),
    ]


def _candidates_table(
    num_envs: int, tried: list[Candidate], chosen: Candidate | None, agent_ms: float
) -> Table:
    agent = f", policy {agent_ms:g} ms per batch" if agent_ms else ""
    table = make_table(f"{num_envs} environments{agent}", "settings", "steps/s", "spread")
    for candidate in tried:
        speed = candidate.steps_per_second
        figure = candidate.skipped if speed is None else f"{speed:,.0f}"
        style = "bold green" if candidate is chosen else None
        spread = f"± {candidate.spread:.0%}" if len(candidate.runs) > 1 else "-"
        table.add_row(candidate.name, figure, spread, style=style)
    return table


def _hints(chosen: Candidate, tried: list[Candidate], costs: Costs) -> list[str]:
    """Return hints for a user of these settings."""
    hints = []
    if chosen.options.get("copy") is False:
        hints.append("observations are views: the next step writes over them")
    if "batch_size" in chosen.options:
        hints.append("use reset(), then recv() and send(actions, env_ids), instead of step()")
    workers = chosen.options.get("num_workers", 0)
    if workers > costs.cores:
        hints.append(
            f"your environment waits more than it computes: {workers} workers share {costs.cores} "
            "cores"
        )
    spread = max(one.spread for one in tried if one.runs)
    advice = f"figures spread by up to {spread:.0%} around their middle: "
    if costs.is_busy:
        found = "" if costs.idle_cores is None else f"{costs.idle_cores:.1f} of {costs.cores}"
        idle = f", and {found} cores were idle" if found else ""
        hints.append(
            f"the machine is busy: a loop got {costs.granted:.0%} of a core{idle}; "
            f"{advice}try again when it is quiet"
        )
    elif spread > _WIDE_SPREAD:
        hints.append(f"{advice}settings closer than that are alike; longer --seconds tell more")
    return hints


@dataclass
class Candidate(SpeedRuns):
    """Settings to try, and how fast they were."""

    backend: str
    #: Arguments of the vector env.
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Half the distance between the slowest and the fastest run, as a share of their mean."""
        least, most = (min(self.runs), max(self.runs)) if self.runs else (0.0, 0.0)
        return (most - least) / (most + least) if most else 0.0

    @property
    def name(self) -> str:
        """The settings in one line."""
        return ", ".join([self.backend, *(f"{key}={value}" for key, value in self.options.items())])

    def code(self, env: str, num_envs: int, env_kwargs: Mapping[str, Any] | None = None) -> str:
        """Return the line of Python that makes this vector env."""
        given: dict[str, Any] = {"num_envs": num_envs}
        if self.backend != "async":  # the default
            given["backend"] = self.backend
        given.update(self.options)
        if env_kwargs:
            given["env_kwargs"] = dict(env_kwargs)
        arguments = ", ".join(f"{name}={_as_code(value)}" for name, value in given.items())
        return f"make_vec({_as_code(env)}, {arguments})"


def _as_code(value: Any) -> str:
    """Return a value as Python, strings in double quotes."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def candidates(
    num_envs: int, costs: Costs, common: Mapping[str, Any] | None = None
) -> list[Candidate]:
    """Return the settings that make sense, the simplest first; `common` are in all of them.

    They are Sync; Async with 1, 2, 4, ... workers, up to the number of cores, or eight times this
    number if environments wait; views instead of copies; and batches of half of the environments.
    """
    most = min(num_envs, costs.cores * 8 if costs.waits else costs.cores)
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    tried: list[dict[str, Any]] = [{"num_workers": count} for count in counts]
    tried.append({"num_workers": most, "copy": False})
    if num_envs > 1:
        tried.append({"num_workers": most, "batch_size": num_envs // 2})
    common = common or {}
    here = {name: value for name, value in common.items() if name not in PROCESS_ARGUMENTS}
    return [Candidate("sync", here), *(Candidate("async", {**one, **common}) for one in tried)]


def try_out(
    make: Callable[[], Any],
    num_envs: int,
    tried: Sequence[Candidate],
    seconds: float,
    agent_seconds: float = 0.0,
    show: Show = lambda describe: None,
) -> None:
    """Time candidates in turns for about `seconds` in all, and write the figures into them.

    A policy takes `agent_seconds` per batch.
    """

    def open_one(candidate: Candidate) -> Contender:
        given = {"agent_seconds": agent_seconds, **candidate.options}
        return Contender(candidate.name, partial(open_vecspaces, candidate.backend, **given))

    def show_one(name: str) -> None:
        show(lambda: (sum(len(one.runs) for one in tried), name))

    time_in_turns(
        [(open_one(one), one) for one in tried],
        (make, num_envs),
        _ROUNDS,
        seconds / (len(tried) * (_ROUNDS + 1)),
        show_one,
        keep_open=False,  # each has workers and environments of its own
        end=time.perf_counter() + seconds,
    )


def best(tried: Sequence[Candidate]) -> Candidate | None:
    """Return the simplest of the fastest candidates; None if none could run."""
    fastest = max((one.steps_per_second or 0.0 for one in tried), default=0.0)
    return next((one for one in tried if (one.steps_per_second or -1.0) >= _ALIKE * fastest), None)
