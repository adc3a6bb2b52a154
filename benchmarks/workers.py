"""What a step costs the caller, by the number of workers: beside pipes alone, and Gymnasium.

    python -m benchmarks.workers --workers 1,2,4,16,64 --work 0,100

Each worker has one environment, which computes for some microseconds of its processor. *step* is a
step of all environments, *half* a `recv` of the first half that is ready and a `send` to it. Shown
are the caller's processor time and the time by the clock, per step, in microseconds: the least of
some rounds, in which all ways take turns. *Bare pipes* are processes that read 24 bytes, compute
and write 24 bytes, without vecspaces; *bare loops* are the same environments in as many processes,
without communication.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from benchmarks.common import BareLoops, make_table, show
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv

SIZE = 24  # bytes of a message, as of one of vecspaces that has no payload
Step = Callable[[], Any]


def compute(seconds: float) -> None:
    """Use the processor for some time; others that use it do not count."""
    until = time.thread_time() + seconds if seconds else 0.0
    while seconds and time.thread_time() < until:
        pass


class Computing(Env[Any, Any]):
    """Computes, and returns what it always returns."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        compute(self._seconds)
        return self._observation, 1.0, False, False, {}


class ComputingInGymnasium(gymnasium.Env[Any, Any]):
    """The same for Gymnasium."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self._env = Computing(seconds)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._env.reset()

    def step(self, action: Any) -> Any:
        return self._env.step(action)


def serve(commands: int, replies: int, seconds: float) -> None:
    """Be a process of bare pipes."""
    while message := os.read(commands, SIZE):
        compute(seconds)
        os.write(replies, message)


@contextmanager
def bare_pipes(count: int, seconds: float) -> Iterator[dict[str, Step]]:
    """Processes that read, compute and write."""
    processes, outs, ins = [], [], []
    for _ in range(count):
        (commands, out), (into, replies) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            serve(commands, replies, seconds)
        processes.append(pid)
        outs.append(out)
        ins.append(into)
    out_of, poll, message = dict(zip(ins, outs, strict=True)), select.poll(), b"x" * SIZE
    for into in ins:
        poll.register(into, select.POLLIN)

    def step() -> None:
        for out in outs:
            os.write(out, message)
        for into in ins:
            os.read(into, SIZE)

    def begin() -> None:
        for out in outs:
            os.write(out, message)

    def half() -> None:
        ready: list[int] = []
        while len(ready) < (count + 1) // 2:
            for into, _ in poll.poll():
                os.read(into, SIZE)
                ready.append(into)
        for into in ready:
            os.write(out_of[into], message)

    def end() -> None:
        for into in ins:
            os.read(into, SIZE)

    try:
        yield {"step": step, "begin": begin, "half": half, "end": end}
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for descriptor in (*outs, *ins):
            os.close(descriptor)


@contextmanager
def vecspaces(count: int, seconds: float) -> Iterator[dict[str, Step]]:
    """An AsyncVectorEnv."""
    with AsyncVectorEnv([partial(Computing, seconds)] * count, num_workers=count) as envs:
        actions, some = np.zeros(count, np.int64), np.zeros((count + 1) // 2, np.int64)
        envs.reset(seed=0)

        def end() -> None:
            envs.recv(count)

        yield {
            "step": lambda: envs.step(actions),
            "begin": lambda: envs.send(actions),
            "half": lambda: envs.send(some, envs.recv(len(some)).env_ids),
            "end": end,
        }


@contextmanager
def gymnasium_async(count: int, seconds: float) -> Iterator[dict[str, Step]]:
    """Gymnasium's AsyncVectorEnv, which has a process per environment."""
    envs = gymnasium.vector.AsyncVectorEnv([partial(ComputingInGymnasium, seconds)] * count)
    actions = np.zeros(count, np.int64)
    envs.reset(seed=0)
    yield {"step": lambda: envs.step(actions)}
    envs.close()


WAYS: dict[str, Callable[[int, float], Any]] = {
    "bare pipes": bare_pipes,
    "vecspaces": vecspaces,
    "Gymnasium async": gymnasium_async,
}


def cost(steps: dict[str, Step], kind: str, seconds: float) -> tuple[float, float]:
    """Step for some seconds; return the caller's microseconds and those of the clock."""
    if kind == "half":
        steps["begin"]()
    step = steps[kind]
    for _ in range(2):
        step()
    count, used, began = 0, time.process_time(), time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or count < 4:
        step()
        count += 1
    used = time.process_time() - used
    if kind == "half":
        steps["end"]()
    return 1e6 * used / count, 1e6 * elapsed / count


def open_share(share: int, seconds: float) -> tuple[Callable[[int], None], int]:
    """Build environments of a process of bare loops."""
    envs = [Computing(seconds) for _ in range(share)]

    def step(_: int) -> None:
        for env in envs:
            env.step(0)

    return step, 1


def loop(count: int, work: float, seconds: float) -> float:
    """Return the microseconds of a step of all environments in bare loops."""
    loops = BareLoops(partial(open_share, seconds=work), count, count)
    try:
        return 1e6 * count / loops.speed(seconds)
    finally:
        loops.close()


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "1,2,4,8,16,32,64,128",
    work: Annotated[str, typer.Option(help="Microseconds of computing per step.")] = "0,20,100",
    kinds: Annotated[str, typer.Option(help="What is measured: step, half.")] = "step,half",
    ways: Annotated[str, typer.Option(help="Of bare pipes, vecspaces, ...")] = ",".join(WAYS),
    rounds: int = 9,
    seconds: Annotated[float, typer.Option(help="Of each round, for each way.")] = 0.05,
) -> None:
    """Print one line per number of workers, work, and kind: caller / clock of each way."""
    names = [name for name in WAYS if name in ways.split(",")]
    columns = ("workers", "work", "kind", *names, "bare loops", "caller by bare pipes")
    table = make_table("caller / clock, us per step", *columns, left=3)
    for count in map(int, numbers(workers)):
        for microseconds in numbers(work):
            work_time = microseconds / 1e6
            with ExitStack() as stack:
                opened = {name: stack.enter_context(WAYS[name](count, work_time)) for name in names}
                for kind in kinds.split(","):
                    samples: dict[str, list[tuple[float, float]]] = {
                        name: [] for name, steps in opened.items() if kind in steps
                    }
                    for _ in range(rounds):
                        for name, costs in samples.items():
                            costs.append(cost(opened[name], kind, seconds))
                    least = {
                        name: tuple(min(column) for column in zip(*costs, strict=True))
                        for name, costs in samples.items()
                    }
                    cells = [
                        "{:.0f} / {:.0f}".format(*least[name]) if name in least else ""
                        for name in names
                    ]
                    limit = f"{loop(count, work_time, seconds):.0f}" if kind == "step" else ""
                    ratio = ""
                    if {"bare pipes", "vecspaces"} <= least.keys():
                        ratio = f"{least['vecspaces'][0] / least['bare pipes'][0]:.2f}"
                    table.add_row(str(count), f"{microseconds:g} us", kind, *cells, limit, ratio)
    show(table)


if __name__ == "__main__":
    typer.run(main)
