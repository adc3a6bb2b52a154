"""Where the microseconds of a step go, measured in the real code, each beside its floor.

    python -m benchmarks.budget

Functions of caller and worker are wrapped before the workers are forked; each call records when it
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
from itertools import cycle, islice
from time import perf_counter_ns
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.common import make_table, show
from benchmarks.contenders import prepare_actions, step_all
from benchmarks.environments import find_environment
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.backend import ProcessBackend
from vecspaces.vector.backends.process.channel import Poller, WorkerEnd
from vecspaces.vector.engine.waits import Waits
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.single_envs import SlotWriter

WORKERS = 2


class Span(NamedTuple):
    """A call and its times by `time.perf_counter_ns`, the clock that all processes share."""

    name: str
    began: int
    ended: int


class TimelineRecorder:
    """Records spans, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.spans: list[Span] = []
        self._limit = limit

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls another one, and records when each call began and ended."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                if len(self.spans) < self._limit:
                    self.spans.append(Span(name, began, perf_counter_ns()))

        return call


class Line(NamedTuple):
    """One line of the budget, in microseconds."""

    phase: str
    took: float
    floor: float | None


RECORDED = [
    (ProcessBackend, "issue"),
    (Waits, "for_command"),
    (Poller, "wait"),
    (Group, "step"),
    (SlotWriter, "write"),
    (WorkerEnd, "receive"),
    (WorkerEnd, "send"),
]
RECORDER = TimelineRecorder(limit=10_000_000)


def read_spans(env: Any) -> list[Span]:
    """Return what the worker of an environment recorded; for `VectorEnv.call`."""
    return RECORDER.spans


def last(spans: Sequence[Span], owner: type, method: str, count: int) -> list[Span]:
    """Return the last calls of one method."""
    return [span for span in spans if span.name == f"{owner.__name__}.{method}"][-count:]


def median_us(nanoseconds: Sequence[int]) -> float:
    """Return the median in microseconds."""
    return statistics.median(nanoseconds) / 1e3


def budget(name: str, num_envs: int, steps: int) -> list[Line]:
    """Step, and return where the time went."""
    make = find_environment(name)
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [make] * num_envs, num_workers=WORKERS, context="fork"
    )
    with envs:
        envs.reset(seed=0)
        actions = prepare_actions(envs.single_action_space, num_envs)
        turns = cycle(actions)
        for batch in islice(turns, steps // 10):
            envs.step(batch)
        RECORDER.spans.clear()
        whole = []
        for batch in islice(turns, steps):
            began = perf_counter_ns()
            envs.step(batch)
            whole.append((began, perf_counter_ns()))
        caller = list(RECORDER.spans)
        rows = np.linspace(0, num_envs, WORKERS + 1).astype(int)[:-1].tolist()
        workers = envs.call(read_spans, env_ids=rows)
        copies = [envs.step(actions[0])[i] for i in range(4)]

    submits = last(caller, ProcessBackend, "issue", steps)
    waits = last(caller, Waits, "for_command", steps)
    polls = [span for span in caller if span.name == "Poller.wait"]
    polled = [
        sum(poll.ended - poll.began for poll in polls if began <= poll.began <= ended)
        for began, ended in whole
    ]

    wake, loop, write, reply, replied = [], [], [], [], [0] * steps
    for spans in workers:
        groups = last(spans, Group, "step", steps)
        writes = last(spans, SlotWriter, "write", steps)
        sends = last(spans, WorkerEnd, "send", steps)
        receive_times = [span.ended for span in spans if span.name == "WorkerEnd.receive"]
        for turn in range(steps):
            received = receive_times[bisect_right(receive_times, groups[turn].began) - 1]
            wake.append(received - submits[turn].ended)
            write.append(writes[turn].ended - writes[turn].began)
            loop.append(groups[turn].ended - groups[turn].began - write[-1])
            reply.append(sends[turn].began - groups[turn].ended + groups[turn].began - received)
            replied[turn] = max(replied[turn], sends[turn].ended)

    sending, round_trip = ping_pong()
    steps_of = list(zip(submits, waits, whole, replied, strict=True))
    share = num_envs // WORKERS
    return [
        Line(
            "validate and write actions, prepare",
            median_us([submit.began - step[0] for submit, _, step, _ in steps_of]),
            fastest(lambda: actions[1].copy()),
        ),
        Line("send both commands", median_us([s.ended - s.began for s in submits]), sending),
        Line("wake-up of a worker after the last command", max(median_us(wake), 0.0), None),
        Line(f"worker: loop over {share} environments", median_us(loop), bare_loop(make, share)),
        Line("worker: write rows, rewards, flags", median_us(write), None),
        Line("worker: read the command, pack the reply", median_us(reply), None),
        Line(
            "wake-up of the caller, take in the replies",
            median_us([wait.ended - reply_time for _, wait, _, reply_time in steps_of]),
            round_trip - sending,
        ),
        Line(
            "copy, build the result",
            median_us([step[1] - wait.ended for _, wait, step, _ in steps_of]),
            fastest(lambda: [copy_of(part) for part in copies]),
        ),
        Line("the step", median_us([ended - began for began, ended in whole]), None),
        Line("  of it the caller is blocked in poll", median_us(polled), None),
    ]


def copy_of(batch: Any) -> Any:
    """Copy a batch of any space."""
    if isinstance(batch, dict):
        return {key: copy_of(part) for key, part in batch.items()}
    return batch.copy()


def fastest(function: Callable[[], Any], calls: int = 1000) -> float:
    """Return the least mean of ten runs, in microseconds."""
    runs = []
    for _ in range(10):
        began = perf_counter_ns()
        for _ in range(calls):
            function()
        runs.append((perf_counter_ns() - began) / calls / 1e3)
    return min(runs)


def bare_loop(make: Callable[[], Any], count: int) -> float:
    """Return the time of a loop over bare environments, in microseconds."""
    envs = [make() for _ in range(count)]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    actions = list(prepare_actions(envs[0].action_space, count)[0])
    ended = [False] * count
    return fastest(lambda: step_all(envs, actions, ended), calls=100)


def ping_pong(rounds: int = 2000) -> tuple[float, float]:
    """Return the time to write to bare processes that reply at once, and of a round trip."""
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
    sent, whole = [], []
    for _ in range(rounds):
        began = perf_counter_ns()
        for _, our_out in lines:
            os.write(our_out, b"\0" * 24)
        sent.append(perf_counter_ns() - began)
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
    return median_us(sent), median_us(whole)


def main(
    envs: Annotated[
        str, typer.Option(help="Environments of `benchmarks.environments`.")
    ] = "nothing",
    num_envs: Annotated[str, typer.Option(metavar="N,N,...")] = "8,64",
    steps: Annotated[int, typer.Option(help="How many steps.")] = 3000,
) -> None:
    """Print one budget per environment and number."""
    for owner, method in RECORDED:
        name = f"{owner.__name__}.{method}"
        setattr(owner, method, RECORDER.timed(name, getattr(owner, method)))
    for name in envs.split(","):
        for count in map(int, num_envs.split(",")):
            table = make_table(f"{count} x {name}, two workers", "phase", "us", "floor")
            for line in budget(name, count, steps):
                floor = "" if line.floor is None else f"{line.floor:.1f}"
                table.add_row(line.phase, f"{line.took:.1f}", floor)
            show(table)


if __name__ == "__main__":
    typer.run(main)
