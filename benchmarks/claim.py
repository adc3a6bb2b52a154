"""The faster of vecspaces' two vector envs against the faster of Gymnasium's, everywhere.

    python -m benchmarks.claim

For each environment of `benchmarks.environments`, and of `benchmarks.real` where it is installed,
and each number: the ratio, and which of the two it is. It is reached from 0.95 on. From 16
environments on, the default (async) is to be within 25 % of the better one.
"""

from __future__ import annotations

from statistics import median
from typing import Annotated

import typer

from benchmarks.common import make_table, show
from benchmarks.contenders import GYMNASIUM, OURS
from benchmarks.environments import NAMES, find_environment
from benchmarks.real import TASKS, find_task
from benchmarks.timing import Measurement, Plan, measure_plan
from vecspaces.cores import count_usable_cores

LEAST, LEAST_DEFAULT, MANY = 0.95, 0.8, 16


def ratio(first: list[Measurement], second: list[Measurement]) -> tuple[float, str]:
    """Return the speed-up of the fastest contender over the fastest of others, and its name.

    Rounds are compared with each other, as the machine may be busy in some of them.
    """
    ours = max(first, key=lambda entry: entry.steps_per_second or 0.0)
    theirs = max(second, key=lambda entry: entry.steps_per_second or 0.0)
    pairs = zip(ours.runs, theirs.runs, strict=True)
    return median(our_run / their_run for our_run, their_run in pairs), ours.backend


def main(
    envs: Annotated[str, typer.Option(metavar="NAME,NAME,...")] = ",".join([*NAMES, *TASKS]),
    num_envs: Annotated[str, typer.Option(metavar="N,N,...")] = "1,2,4,8,16,64",
    rounds: Annotated[int, typer.Option(help="How often each contender is timed.")] = 7,
    seconds: Annotated[float, typer.Option(help="How long one timing takes.")] = 0.1,
) -> None:
    """Print one line per environment, one column per number."""
    numbers = [int(number) for number in num_envs.split(",")]
    table = make_table("the better of each library's", "environment", *map(str, numbers))
    missed = 0
    for name in envs.split(","):
        make = find_task(name) if name in TASKS else find_environment(name)
        if isinstance(make, str):
            table.add_row(name, make)
            continue
        # If environments wait, more workers than cores are faster.
        workers = count_usable_cores() * (8 if name == "skewed" else 1)
        cells = []
        for number in numbers:
            plan = Plan({name: make}, [number], [*OURS, *GYMNASIUM], workers, rounds, seconds)
            measurements: list[Measurement] = []
            measure_plan(plan, measurements)
            timed = [entry for entry in measurements if entry.runs]
            ours = [entry for entry in timed if entry.backend.startswith("vecspaces")]
            theirs = [entry for entry in timed if entry not in ours]
            value, best = ratio(ours, theirs)
            default, _ = ratio([entry for entry in ours if entry.backend.endswith("async")], ours)
            fails = value < LEAST or (number >= MANY and default < LEAST_DEFAULT)
            missed += fails
            cell = f"{value:.2f}x {best.rpartition(' ')[2]}"
            if number >= MANY and not best.endswith("async"):
                cell += f" (async {default:.2f})"
            cells.append(f"[yellow]{cell}[/]" if fails else cell)
        table.add_row(name, *cells)
    show(table)
    print(f"{missed} cells are missed")


if __name__ == "__main__":
    typer.run(main)
