"""`vecspaces tune`: what an environment costs, and the settings that step it fastest here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from vecspaces.cli import options
from vecspaces.cli.benchmark.report import describe_machine
from vecspaces.cli.benchmark.tuning import (
    ROUNDS,
    Candidate,
    Costs,
    best,
    candidates,
    inspect,
    try_out,
)
from vecspaces.cli.console import announce, make_facts, make_table, output, progress_bar
from vecspaces.cli.interrupts import Work

_INSPECTION_SHARE = 0.1
# A wider spread of the runs is worth a hint.
_WIDE_SPREAD = 0.1


def tune(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_envs: options.NumEnvs = 64,
    seconds: Annotated[float, typer.Option(min=1e-3, help="About how long to measure.")] = 20.0,
    agent_ms: Annotated[
        float,
        typer.Option(
            min=0, max=60_000, help="How long your policy takes to choose one batch of actions."
        ),
    ] = 0.0,
    autoreset_mode: options.AutoresetMode = None,
    step_timeout: options.StepTimeout = None,
    context: options.StartMethod = None,
    json_file: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Measure your environment, try the settings that make sense, and print the line to paste."""
    env_kwargs = options.parse_env_args(env_arg)
    make = options.find_env(env, **env_kwargs)
    common = options.vector_options(
        "async", context=context, step_timeout=step_timeout, autoreset_mode=autoreset_mode
    )
    announce(f"Trying settings for {num_envs} environments for about {seconds:g} s.")
    costs: Costs | None = None
    tried: list[Candidate] = []
    with Work() as work:
        costs = inspect(make, seconds * _INSPECTION_SHARE, common)
        tried = candidates(num_envs, costs, common)
        with progress_bar(ROUNDS * len(tried)) as update:
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
    memory = "-" if costs.memory_bytes is None else _bytes(costs.memory_bytes)
    return [
        ("step, mean", _time(costs.step_mean)),
        ("step, 99th percentile", _time(costs.step_p99)),
        ("step, standard deviation", f"{100 * costs.step_spread:.0f} % of the mean"),
        ("reset, mean", _time(costs.reset_mean)),
        ("computing, not waiting", f"{100 * costs.computing:.0f} %"),
        ("observation", _bytes(costs.observation_bytes)),
        ("memory", memory),
        ("start of a worker", _time(costs.build_seconds)),
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
    """Return what a user of these settings should know."""
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


def _time(seconds: float) -> str:
    """Write a time with a fitting unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} us"


def _bytes(count: int) -> str:
    """Write a number of bytes with a fitting unit."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"
