"""`vecspaces check`: the faults of an environment, alone and in a vector env."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from vecspaces.cli import options
from vecspaces.cli.console import output, write_json
from vecspaces.cli.options import option
from vecspaces.testing import Report, check_env

_COLORS = {"error": "red", "warning": "yellow", "note": "dim"}


def check(
    env: options.Env,
    env_arg: options.EnvArg = None,
    num_steps: Annotated[int, option("Number of steps in the longest runs.", min=1)] = 300,
    seed: Annotated[int, option("Seed of episodes and actions.", min=0)] = 0,
    timeout: Annotated[
        float, option("Seconds after which a reset or step counts as hanging.", min=0.1)
    ] = 30.0,
    agents: options.Agents = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Find errors in an environment, alone and beside others.

    The exit code is 1 if there are errors.
    """
    make = options.find_env(env, agents, **options.parse_env_args(env_arg))
    report = check_env(make, num_steps=num_steps, seed=seed, timeout=timeout, agents=agents)
    write_json(json, {"env": env, **report.to_dict()})
    print_report(env, report, num_steps, json)
    if not report.ok:
        raise typer.Exit(1)


def print_report(env: str, report: Report, num_steps: int, json: options.Json) -> None:
    """Print the findings, and how much was checked."""
    console = output(json)
    for finding in report.findings:
        # As plain text, in which brackets and colons have no meaning.
        console.print(Text(f"{finding.severity}: {finding.name}", _COLORS[finding.severity]))
        for text in (finding.message, finding.advice):
            console.print(Padding(Text(text), (0, 0, 0, 4)))
    if not report.findings:
        console.print(f"{env}: no findings", markup=False, emoji=False)
    summary = f"checked with {report.num_steps} of {num_steps} steps in {report.seconds:.1f} s"
    if report.ok and report.num_steps < num_steps:
        summary += ": steps or resets are slow, so later steps were not checked"
    console.print(summary, style="dim", soft_wrap=True)
