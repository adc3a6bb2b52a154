"""The waiting policy against fixed choices of how long to busy-poll.

    python -m benchmarks.waiting

One environment per worker computes for so long; beside it run so many foreign processes that never
sleep. All choices take turns. A cell shows microseconds per step, and below them the processor time
of the caller and its workers; the last column is the decision against the best fixed choice.
"""

from __future__ import annotations

import multiprocessing
import select
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any
from unittest import mock

import numpy as np
import typer

from benchmarks.common import make_table, show
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import backend, channel
from vecspaces.vector.backends.process.waiting import WaitingPolicy, WaitMode

FIXED = {"no": 0.0, "0.2 ms": 0.2e-3, "1 ms": 1e-3, "5 ms": 5e-3}
DECIDES = "decides"
MOST_SLOWER = 1.1


class Works(Env[Any, Any]):
    """Computes for some seconds of processor time."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self._observation = np.zeros(4, np.float32)
        self._seconds = seconds

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._seconds:
            end = time.thread_time() + self._seconds
            while time.thread_time() < end:
                pass
        return self._observation, 0.0, False, False, {}


def always(way: WaitMode, ways: Sequence[WaitMode]) -> WaitingPolicy:
    """Return the policy that always waits the same way."""
    return WaitingPolicy([way])


class FixedPoll:
    """Busy-polls for the same time in every wait."""

    def __init__(self, seconds: float, poll: select.poll) -> None:
        self._seconds, self._poll = seconds, poll.poll

    def poll(self, milliseconds: int | None, command: int) -> list[tuple[int, int]]:
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            found = self._poll(0)
            if found:
                return found
            backend.os.sched_yield()
        return self._poll(milliseconds)


def open_envs(workers: int, seconds: float, choice: str) -> AsyncVectorEnv[Any, Any]:
    """Make a vector env with this choice of waiting."""
    make = partial(AsyncVectorEnv, [partial(Works, seconds)] * workers, num_workers=workers)
    if choice == DECIDES:
        return make(context="fork")
    limit = FIXED[choice]
    way = WaitMode.BUSY_POLLS if limit else WaitMode.RETURNS
    with (
        mock.patch.object(backend, "WaitingPolicy", partial(always, way)),
        mock.patch.object(channel, "SpinPoll", partial(FixedPoll, limit)),
    ):
        envs = make(context="fork")
        # Policies are made with the first command of each kind.
        envs.reset()
        envs.step(np.zeros(workers, np.int64))
        envs.call(_cpu_seconds)
    return envs


def _cpu_seconds(env: Any) -> float:
    return time.process_time()


def cost(envs: AsyncVectorEnv[Any, Any], seconds: float) -> tuple[float, float]:
    """Step for some seconds; return the microseconds and the processor time of a step."""
    actions = np.zeros(envs.num_envs, np.int64)
    used = [-time.process_time(), *(-part for part in envs.call(_cpu_seconds))]
    for _ in range(2):
        envs.step(actions)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or count < 4:
        envs.step(actions)
        count += 1
    used += [time.process_time(), *envs.call(_cpu_seconds)]
    return 1e6 * elapsed / count, 1e6 * sum(used) / count


def _burn() -> None:
    while True:
        pass


@contextmanager
def foreign(count: int) -> Iterator[None]:
    """Run processes that never sleep."""
    processes = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measure(
    workers: int, work: float, rounds: int, seconds: float
) -> dict[str, list[tuple[float, float]]]:
    """Let every choice run in turns; return what each round cost."""
    found: dict[str, list[tuple[float, float]]] = {choice: [] for choice in [*FIXED, DECIDES]}
    with ExitStack() as stack:
        opened = {choice: stack.enter_context(open_envs(workers, work, choice)) for choice in found}
        for envs in opened.values():
            envs.reset()
            cost(envs, seconds)
        for _ in range(rounds):
            for choice, envs in opened.items():
                found[choice].append(cost(envs, seconds))
    return found


def slower(found: dict[str, list[tuple[float, float]]]) -> float:
    """Return the median of the rounds' ratios: the decision over the best fixed choice."""
    own = [took for took, _ in found[DECIDES]]

    def ratio(choice: str) -> float:
        rounds = zip(own, found[choice], strict=True)
        return statistics.median(took / other for took, (other, _) in rounds)

    return max(map(ratio, FIXED))


def numbers(kind: Callable[[str], Any], text: str) -> Sequence[Any]:
    return [kind(part) for part in text.split(",")]


def main(
    work_ms: Annotated[str, typer.Option(help="How long a step computes.")] = "0,.1,.3,1,3,10",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "1,2",
    others: Annotated[str, typer.Option(help="Numbers of foreign processes.")] = "0,1,2",
    rounds: int = 7,
    seconds: Annotated[float, typer.Option(help="Of each round, for each choice.")] = 0.1,
) -> None:
    """Print one line per cell, and the cells in which another choice is better."""
    columns = ("workers", "foreign", "step", *FIXED, DECIDES, "by the best")
    table = make_table("us per step / of the processor; busy-polling for", *columns, left=3)
    missed = 0
    for count in numbers(int, workers):
        for busy in numbers(int, others):
            with foreign(busy):
                for work in numbers(float, work_ms):
                    found = measure(count, work / 1e3, rounds, seconds)
                    cells = [
                        " / ".join(f"{statistics.median(part):,.0f}" for part in zip(*costs))  # noqa: B905
                        for costs in found.values()
                    ]
                    ratio = slower(found)
                    missed += ratio > MOST_SLOWER
                    style = "yellow" if ratio > MOST_SLOWER else None
                    table.add_row(
                        str(count), str(busy), f"{work:g} ms", *cells, f"{ratio:.2f}", style=style
                    )
    show(table)
    print(f"{missed} cells in which it is more than {MOST_SLOWER - 1:.0%} slower than the best")


if __name__ == "__main__":
    typer.run(main)
