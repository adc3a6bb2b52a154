"""Environments that wait: batches and conversations, against an ideal queue and other pools.

    python -m benchmarks.waiting_envs

An action is the time that the step sleeps. *Together*: all environments sleep for 50 ms, and a step
of all of them is timed. *Conversations*: there are more than environments, each of 20 steps of 20
to 200 ms, the same for every way; an ideal queue begins each when an environment is free. The
processor time is that of the caller, per await of a conversation. `asyncio.to_thread` has the
environments in the caller's process, without isolation. TorchRL is left out where it is not
installed.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib.util
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import typer

from benchmarks.common import make_table, show
from vecspaces.aio import Pool
from vecspaces.vector import AsyncVectorEnv

Plan = npt.NDArray[np.float64]  # the seconds of each step, by conversation


class Waiting(gymnasium.Env[Any, Any]):
    """Sleeps as long as the action says; an episode has as many steps as a conversation."""

    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Box(0, 10, (1,), np.float64)

    def __init__(self, steps: int = 20) -> None:
        self._steps = steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._time = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(float(action[0]))
        self._time += 1
        return np.zeros(4, np.float32), 1.0, self._time == self._steps, False, {}


class Result(NamedTuple):
    """What a way took: seconds of a step of all, of all conversations, and of the processor."""

    step: float | None = None
    conversations: float | None = None
    processor: float | None = None  # per await


def ideal(plan: Plan, num_envs: int) -> float:
    """Return how long conversations take if each begins when the first environment is free."""
    free = [0.0] * num_envs
    for conversation in plan:
        heapq.heapreplace(free, free[0] + conversation.sum())
    return max(free)


# ---------------------------------------------------------------------- awaitable environments


class ThreadPool:
    """What is written by hand: environments of this process in a queue, each call in a thread."""

    def __init__(self, num_envs: int, steps: int) -> None:
        self._envs = [Waiting(steps) for _ in range(num_envs)]
        self._threads = ThreadPoolExecutor(num_envs)

    async def __aenter__(self) -> ThreadPool:
        asyncio.get_running_loop().set_default_executor(self._threads)
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        for env in self._envs:
            self._queue.put_nowait(env)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._threads.shutdown()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Any]:
        env = await self._queue.get()
        try:
            yield _InThreads(env)
        finally:
            self._queue.put_nowait(env)


class _InThreads:
    def __init__(self, env: Any) -> None:
        self._env = env

    async def reset(self) -> Any:
        return await asyncio.to_thread(self._env.reset)

    async def step(self, action: Any) -> Any:
        return await asyncio.to_thread(self._env.step, action)


async def _measure(make: Callable[[], Any], plan: Plan, num_envs: int, seconds: float) -> Result:
    """Measure a pool of awaitable environments."""

    async def converse(pool: Any, times: Any) -> None:
        async with pool.acquire() as env:
            await env.reset()
            for delay in times:
                await env.step(np.array([delay]))

    async def step_together(pool: Any, turns: list[float], ready: asyncio.Barrier) -> None:
        async with pool.acquire() as env:
            for _ in range(5):
                await env.reset()
                await ready.wait()
                began = time.perf_counter()
                await env.step(np.array([seconds]))
                await ready.wait()
                turns.append(time.perf_counter() - began)

    async with make() as pool:
        turns: list[float] = []
        ready = asyncio.Barrier(num_envs)
        await asyncio.gather(*(step_together(pool, turns, ready) for _ in range(num_envs)))
        began, ran = time.perf_counter(), time.process_time()
        await asyncio.gather(*(converse(pool, times) for times in plan))
        took, ran = time.perf_counter() - began, time.process_time() - ran
    return Result(statistics.median(turns), took, ran / (plan.shape[0] * (plan.shape[1] + 1)))


def measure_pool(plan: Plan, num_envs: int, seconds: float, *, new_loop: Any = None) -> Result:
    """Measure `vecspaces.aio.Pool`, with a process for each environment."""
    make = partial(Pool, partial(Waiting, plan.shape[1]), num_envs)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_measure(make, plan, num_envs, seconds))


def measure_threads(plan: Plan, num_envs: int, seconds: float) -> Result:
    """Measure the pool that is written by hand."""
    return asyncio.run(
        _measure(partial(ThreadPool, num_envs, plan.shape[1]), plan, num_envs, seconds)
    )


# ---------------------------------------------------------------------- batches


def measure_batches(plan: Plan, num_envs: int, seconds: float) -> Result:
    """Measure `AsyncVectorEnv.step` with a process for each environment."""
    with AsyncVectorEnv([Waiting] * num_envs, num_workers=num_envs) as envs:
        envs.reset()
        actions, turns = np.full((num_envs, 1), seconds), []
        for _ in range(5):
            began = time.perf_counter()
            envs.step(actions)
            turns.append(time.perf_counter() - began)
    return Result(step=statistics.median(turns))


def measure_torchrl(plan: Plan, num_envs: int, seconds: float) -> Result:
    """Measure TorchRL's AsyncEnvPool, whose results are received in batches."""
    import torch
    from torchrl.envs import AsyncEnvPool, GymWrapper

    pool: Any = AsyncEnvPool(
        [partial(_make_torchrl, GymWrapper, plan.shape[1])] * num_envs,
        backend="multiprocessing",
        exchange="shm",
    )
    try:
        reset, turns = pool.reset(), []
        for _ in range(5):
            reset["action"] = torch.full((num_envs, 1), seconds, dtype=torch.float64)
            began = time.perf_counter()
            pool.async_step_send(reset)
            pool.async_step_recv(num_envs)
            turns.append(time.perf_counter() - began)
        began, ran = time.perf_counter(), time.process_time()
        left: Iterator[Any] = iter(plan)
        playing = {row: iter(next(left)) for row in range(num_envs)}
        roots = pool.reset()
        while playing:
            sent = []
            for root in roots.unbind(0):
                row = int(root["env_index"])
                delay = next(playing[row], None)
                if delay is None:
                    following = next(left, None)
                    if following is None:
                        del playing[row]
                        continue
                    playing[row] = iter(following)
                    delay = next(playing[row])
                root["action"] = torch.tensor([delay], dtype=torch.float64)
                sent.append(root)
            for root in sent:
                pool.async_step_and_maybe_reset_send(root)
            if playing:
                roots = pool.async_step_and_maybe_reset_recv(1)[1]
        took, ran = time.perf_counter() - began, time.process_time() - ran
    finally:
        pool.close()
    return Result(statistics.median(turns), took, ran / (plan.shape[0] * (plan.shape[1] + 1)))


def _make_torchrl(wrapper: Any, steps: int) -> Any:
    return wrapper(Waiting(steps))


def ways() -> dict[str, Callable[..., Result]]:
    """Return what is measured, as far as it is installed."""
    measures: dict[str, Callable[..., Result]] = {
        "AsyncVectorEnv": measure_batches,
        "Pool": measure_pool,
    }
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        measures["Pool, uvloop"] = partial(measure_pool, new_loop=uvloop.new_event_loop)
    measures["asyncio.to_thread"] = measure_threads
    if importlib.util.find_spec("torchrl") is not None:
        measures["TorchRL AsyncEnvPool"] = measure_torchrl
    return measures


def measure_restart(num_envs: int, start_method: str) -> float:
    """Return the longest time that the event loop is held while a worker is restarted."""

    async def main() -> float:
        async with Pool(Waiting, num_envs, context=start_method) as pool, pool.acquire() as env:
            await env.reset()
            doomed: Awaitable[Any] = asyncio.create_task(env.call(_end))
            longest, last = 0.0, time.perf_counter()
            while not any(pool.stats().restarts) or pool.free < num_envs - 1:
                await asyncio.sleep(0)
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
            await asyncio.gather(doomed, return_exceptions=True)
            return longest

    return asyncio.run(main())


def _end(env: Any) -> None:
    import os

    os._exit(1)


def main(
    num_envs: int = 64,
    conversations: int = 256,
    steps: int = 20,
    low: float = 0.02,
    high: float = 0.2,
    step_seconds: float = 0.05,
) -> None:
    """Measure each way once, and how long a restart holds the event loop."""
    plan = np.random.default_rng(0).uniform(low, high, (conversations, steps))
    least = ideal(plan, num_envs)
    table = make_table(
        f"{num_envs} environments in as many processes; {conversations} conversations",
        "",
        f"a step of {1000 * step_seconds:g} ms",
        "ratio",
        f"conversations (ideal: {least:.2f} s)",
        "ratio",
        "processor, us per await",
    )
    for name, measure in ways().items():
        step, took, ran = measure(plan, num_envs, step_seconds)
        cells = ["", ""] if step is None else [f"{1e3 * step:.1f} ms", f"{step / step_seconds:.2f}"]
        cells += ["", ""] if took is None else [f"{took:.2f} s", f"{took / least:.2f}"]
        table.add_row(name, *cells, "" if ran is None else f"{1e6 * ran:.0f}")
    show(table)
    for library in ("uvloop", "torchrl"):
        if importlib.util.find_spec(library) is None:
            print(f"left out: {library} is not installed")
    for method in ("fork", "forkserver", "spawn") if sys.platform == "linux" else ("spawn",):
        held = measure_restart(num_envs, method)
        print(f"restart of a worker, {method}: the event loop is held for {1e3 * held:.1f} ms")


if __name__ == "__main__":
    typer.run(main)
