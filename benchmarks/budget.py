"""Where the microseconds of a step go, measured in the real code, each beside its floor.

    python -m benchmarks.budget

Functions of caller and worker are wrapped before the workers are forked; each call notes when it
began and ended, by a clock that all processes share. What a wrapper adds (half a microsecond) is in
the figures. The floors are the same work without a vector env: pipes between bare processes, a loop
over bare environments, NumPy's own copies. Linux alone: the workers must be forked.
"""

from __future__ import annotations

import os
import select
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from vecspaces.cli.benchmark.contenders import BATCHES, sample_actions
from vecspaces.cli.benchmark.limit import step_all
from vecspaces.cli.benchmark.workloads import find_workload
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.channel import Poller, WorkerEnd
from vecspaces.vector.group.env_group import EnvGroup
from vecspaces.vector.group.single_envs import SlotWriter
from vecspaces.vector.session.session import Session

WORKERS = 2


class Stamp(NamedTuple):
    """One call: what was called, and when, in nanoseconds."""

    name: str
    began: int
    ended: int


class Line(NamedTuple):
    """One line of the budget, in microseconds."""

    phase: str
    took: float
    floor: float | None


STAMPS: list[Stamp] = []


def note(owner: type, method: str) -> None:
    """Let every call of a method leave a stamp."""
    function = getattr(owner, method)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter_ns()
        result = function(self, *args, **kwargs)
        STAMPS.append(Stamp(method, began, perf_counter_ns()))
        return result

    setattr(owner, method, call)


def read_stamps(env: Any) -> list[Stamp]:
    """The stamps of the worker that an environment lives in; for `VectorEnv.call`."""
    return STAMPS


def chosen(stamps: Sequence[Stamp], name: str, count: int) -> list[Stamp]:
    """The last calls of one function."""
    return [stamp for stamp in stamps if stamp.name == name][-count:]


def median_us(nanoseconds: Sequence[int]) -> float:
    """The median in microseconds."""
    return statistics.median(nanoseconds) / 1e3


def budget(name: str, num_envs: int, steps: int) -> list[Line]:
    """Step, and say where the time went."""
    make = find_workload(name).make
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [make] * num_envs, num_workers=WORKERS, context="fork"
    )
    with envs:
        envs.reset(seed=0)
        actions = sample_actions(envs.single_action_space, num_envs)
        for turn in range(steps // 10):
            envs.step(actions[turn % BATCHES])
        STAMPS.clear()
        whole = []
        for turn in range(steps):
            began = perf_counter_ns()
            envs.step(actions[turn % BATCHES])
            whole.append((began, perf_counter_ns()))
        caller = list(STAMPS)
        rows = np.linspace(0, num_envs, WORKERS + 1).astype(int)[:-1].tolist()
        workers = envs.call(read_stamps, env_ids=rows)
        copies = [envs.step(actions[0])[i] for i in range(4)]

    submits, waits = chosen(caller, "submit", steps), chosen(caller, "wait", 3 * steps)
    waits = [stamp for stamp in waits if stamp.ended - stamp.began > 0]
    by_step = [[w for w in waits if began <= w.began <= ended] for began, ended in whole]
    polled = [sum(stamp.ended - stamp.began for stamp in found[:-1]) for found in by_step]
    outer = [found[-1] for found in by_step]  # Session.wait ends after the polls inside it

    wake, loop, put, answer, last = [], [], [], [], [0] * steps
    for stamps in workers:
        groups = chosen(stamps, "step", steps)
        heard = [stamp.ended for stamp in stamps if stamp.name == "receive"]
        sends = chosen(stamps, "send", steps)
        puts = chosen(stamps, "write", steps)
        for turn in range(steps):
            received = heard[bisect_right(heard, groups[turn].began) - 1]
            wake.append(received - submits[turn].ended)
            put.append(puts[turn].ended - puts[turn].began)
            loop.append(groups[turn].ended - groups[turn].began - put[-1])
            answer.append(sends[turn].began - groups[turn].ended + groups[turn].began - received)
            last[turn] = max(last[turn], sends[turn].ended)

    doorbells, round_trip = ping_pong()
    actions_floor = fastest(lambda: actions[1].copy())
    return [
        Line(
            "validate and write actions, prepare",
            median_us([s.began - w[0] for s, w in zip(submits, whole, strict=True)]),
            actions_floor,
        ),
        Line("ring both doorbells", median_us([s.ended - s.began for s in submits]), doorbells),
        Line("wake-up of a worker after the last bell", max(median_us(wake), 0.0), None),
        Line(
            f"worker: loop over {num_envs // WORKERS} environments",
            median_us(loop),
            bare_loop(make, num_envs // WORKERS),
        ),
        Line("worker: write rows, rewards, flags", median_us(put), None),
        Line("worker: read the command, pack the answer", median_us(answer), None),
        Line(
            "wake-up of the caller, take in the answers",
            median_us([o.ended - at for o, at in zip(outer, last, strict=True)]),
            round_trip - doorbells,
        ),
        Line(
            "copy, build the result",
            median_us([w[1] - o.ended for o, w in zip(outer, whole, strict=True)]),
            fastest(lambda: [copy_of(part) for part in copies]),
        ),
        Line("the step", median_us([ended - began for began, ended in whole]), None),
        Line("  of it the caller is blocked in poll", median_us(polled), None),
    ]


def copy_of(batch: Any) -> Any:
    """Copy a batch, whatever it is made of."""
    if isinstance(batch, dict):
        return {key: copy_of(part) for key, part in batch.items()}
    return batch.copy()


def fastest(function: Callable[[], Any], calls: int = 1000) -> float:
    """The least mean of ten runs, in microseconds."""
    runs = []
    for _ in range(10):
        began = perf_counter_ns()
        for _ in range(calls):
            function()
        runs.append((perf_counter_ns() - began) / calls / 1e3)
    return min(runs)


def bare_loop(make: Callable[[], Any], count: int) -> float:
    """A loop over bare environments, in microseconds."""
    envs = [make() for _ in range(count)]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    actions = list(sample_actions(envs[0].action_space, count)[0])
    ended = [False] * count
    return fastest(lambda: step_all(envs, actions, ended), calls=100)


def ping_pong(rounds: int = 2000) -> tuple[float, float]:
    """Ring bare processes that answer at once: the bells, and the whole round, in microseconds."""
    lines, children = [], []
    for _ in range(WORKERS):
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            while (data := os.read(their_in, 24)) == b"\0" * 24:
                os.write(their_out, data)
            os._exit(0)
        children.append(child)
        lines.append((our_in, our_out))
    poll = select.poll()
    for our_in, _ in lines:
        poll.register(our_in, select.POLLIN)
    bells, whole = [], []
    for _ in range(rounds):
        began = perf_counter_ns()
        for _, our_out in lines:
            os.write(our_out, b"\0" * 24)
        bells.append(perf_counter_ns() - began)
        left = WORKERS
        while left:
            for fd, _ in poll.poll():
                os.read(fd, 24)
                left -= 1
        whole.append(perf_counter_ns() - began)
    for _, our_out in lines:
        os.write(our_out, b"\1" * 24)
    for child in children:
        os.waitpid(child, 0)
    return median_us(bells), median_us(whole)


def main(
    envs: Annotated[str, typer.Option(help="Environments of vecspaces bench.")] = "nothing",
    num_envs: Annotated[str, typer.Option(metavar="N,N,...")] = "8,64",
    steps: Annotated[int, typer.Option(help="How many steps.")] = 3000,
) -> None:
    """Print one budget for each environment and number."""
    for owner, method in (
        (Session, "submit"),
        (Session, "wait"),
        (Poller, "wait"),
        (EnvGroup, "step"),
        (SlotWriter, "write"),
        (WorkerEnd, "receive"),
        (WorkerEnd, "send"),
    ):
        note(owner, method)
    console = Console(highlight=False)
    for name in envs.split(","):
        for count in map(int, num_envs.split(",")):
            table = Table(title=f"{count} x {name}, two workers", title_justify="left")
            table.add_column("phase")
            for column in ("us", "floor"):
                table.add_column(column, justify="right")
            for line in budget(name, count, steps):
                floor = "" if line.floor is None else f"{line.floor:.1f}"
                table.add_row(line.phase, f"{line.took:.1f}", floor)
            console.print(table)


if __name__ == "__main__":
    typer.run(main)
