"""`vecspaces.aio.Pool`: conversations of an event loop, each with an environment of its own."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib.util
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.crosses import START_METHODS, diagonal
from tests.envs import Ledger, Sampler
from tests.programs import run_python
from tests.vector.bounds import assert_gone, overrun, within
from vecspaces import Env, spaces, system
from vecspaces.aio import Pool, PoolEnv
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidActionError,
    ResetNeededError,
    SlowEnvironmentWarning,
    StepTimeoutError,
    WorkerDiedError,
    WorkerError,
)

Main = Callable[[], Awaitable[Any]]
BOUND = 30.0


def run(main: Main, loop_factory: Any = None, seconds: float = BOUND) -> Any:
    """Run a coroutine in a loop that reports what it cannot raise: forgotten tasks and futures."""
    reports: list[dict[str, Any]] = []

    async def bounded() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(context))
        async with asyncio.timeout(seconds):
            return await main()

    with asyncio.Runner(debug=loop_factory is None, loop_factory=loop_factory) as runner:
        result = runner.run(bounded())
    gc.collect()
    assert reports == []
    return result


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of a coroutine function, which runs in a loop of its own."""

    @wraps(test)
    def run_test(*args: Any, **kwargs: Any) -> None:
        run(partial(test, *args, **kwargs))

    return run_test


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something holds."""
    while not condition():
        await asyncio.sleep(0.002)


class Tool(Env[Any, Any]):
    """Observes its builds, resets and steps; actions make it fail, die, hang, or wait for a gate.

    `builds` counts in a file how often an environment was built.
    """

    observation_space = spaces.Box(0, 2**40, (3,), np.int64)
    action_space = spaces.Discrete(7)
    OK, FAIL, DIE, HANG, WAIT, END, HOLD = range(7)

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.folder, self.number = folder, number
        with open(folder / f"builds{number}", "ab") as file:
            file.write(b".")
            self.builds = file.tell()
        if (folder / f"refuse{number}").exists():
            raise OSError(f"there is no room for {number}")
        if (folder / f"die{number}").exists():
            os._exit(7)
        self.resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets, self.steps = self.resets + 1, 0
        return self._observe(), {"seed": seed, "options": options}

    def step(self, action: Any) -> Any:
        if action == self.FAIL:
            raise KeyError(f"number {self.number}")
        if action == self.DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == self.HANG:
            time.sleep(1000)
        if action == self.HOLD:  # and Python's lock
            ctypes.PyDLL(None).sleep(1000)
        give_up = time.monotonic() + BOUND
        while action == self.WAIT and not self.gate.exists() and time.monotonic() < give_up:
            time.sleep(0.002)
        self.steps += 1
        return self._observe(), float(self.number), action == self.END, False, {}

    @property
    def gate(self) -> Path:
        return self.folder / f"gate{self.number}"

    def _observe(self) -> Any:
        return np.array([self.builds, self.resets, self.steps])

    def wait(self) -> str:
        """Wait for the gate."""
        self.steps -= 1
        self.step(self.WAIT)
        return "there"

    def hang(self) -> None:
        time.sleep(1000)

    def fail(self) -> None:
        raise LookupError("nothing here")

    def process(self) -> int:
        return os.getpid()


def tools(folder: Path, count: int) -> Any:
    return [partial(Tool, folder, number) for number in range(count)]


def process_of(env: Any) -> int:
    return os.getpid()


async def first_step(pool: Pool, action: int = Tool.OK) -> Any:
    async with pool.acquire() as env:
        await env.reset()
        return (await env.step(action))[0]


@asynccontextmanager
async def lent(count: int, *args: Any, **kwargs: Any) -> AsyncIterator[tuple[Any, ...]]:
    """Make a pool, and hold some environments that were reset; yield it and them."""
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(Pool(*args, **kwargs))
        async with AsyncExitStack() as leases:
            envs = [await leases.enter_async_context(pool.acquire()) for _ in range(count)]
            await asyncio.gather(*(env.reset() for env in envs))
            yield pool, *envs
        await until(lambda: pool.free == len(pool))


def all_calls(env: PoolEnv) -> list[Callable[[], Awaitable[Any]]]:
    return [env.reset, partial(env.step, 0), partial(env.call, "number")]


# ---------------------------------------------------------------------- values


SPACES = {
    "box": spaces.Box(-1, 1, (2, 3), np.float32),
    "discrete": spaces.Discrete(5),
    "text": spaces.Text(30),
    "nested": spaces.Dict(
        text=spaces.Text(8),
        pair=spaces.Tuple((spaces.MultiBinary(3), spaces.Discrete(3, start=-1))),
        list=spaces.Sequence(spaces.Box(0, 1, (2,))),
    ),
}


@diagonal(space=SPACES, shares=(True, False))
@in_loop
async def test_values_are_those_of_the_environment(space: Any, shares: bool) -> None:
    make = partial(Sampler, space, space)
    bare, actions = make(), [space.sample() for _ in range(30)]

    async def play(pool: Pool, seed: int) -> list[Any]:
        async with pool.acquire() as env:
            assert pool.observation_space == space == env.action_space
            shown: list[Any] = [await env.reset(seed=seed, options={"extra": 1})]
            for action in actions:
                shown.append(result := await env.step(action))
                if result[2] or result[3]:
                    shown.append(await env.reset())
            return shown

    options: Any = {"shared_memory": shares, "variable_capacity": 64}
    async with Pool(make, 2, num_workers=1, **options) as pool:
        shown, _ = await asyncio.gather(play(pool, 3), play(pool, 4))
    expected: list[Any] = [bare.reset(seed=3, options={"extra": 1})]
    for action in actions:
        expected.append(result := bare.step(action))
        if result[2] or result[3]:
            expected.append(bare.reset())
    for (observation, *numbers, info), other in zip(shown, expected, strict=True):
        assert space.contains(observation)
        assert_identical(numbers, list(other[1:-1]))
        assert_identical(info, other[-1])
        # The keys are in the order of the batch space.
        assert space.to_jsonable([observation]) == space.to_jsonable([other[0]])


class Declaring(Ledger):
    """Declares a part of its infos."""

    info_space = spaces.Dict(time=spaces.Discrete(99), lives=spaces.Discrete(9))

    def step(self, action: Any) -> Any:
        *result, info = super().step(action)
        return *result, {**info, "own": f"text {self.time}"}


@in_loop
async def test_declared_infos_are_there_where_the_environment_gave_them() -> None:
    async with Pool(Declaring, 1, num_workers=1) as pool, pool.acquire() as env:
        assert (await env.reset())[1] == {"episode": 1}
        later = (await env.step(0))[4]
    assert later == {"time": 1, "of": {"number": 0}, "own": "text 1"}


NEW_LOOP: dict[str, Any] = {"asyncio": None}
if importlib.util.find_spec("uvloop") is not None:
    NEW_LOOP["uvloop"] = importlib.import_module("uvloop").new_event_loop
    NEW_LOOP["uvloop"]().close()  # the first one opens a pipe that stays open


@pytest.mark.parametrize("kind", NEW_LOOP)
def test_many_conversations_share_a_few_environments(kind: str) -> None:
    order: list[int] = []

    async def converse(pool: Pool, seed: int) -> Any:
        async with pool.acquire(timeout=BOUND) as env:
            order.append(seed)
            shown = [(await env.reset(seed=seed))[0]]
            over = False
            while not over:
                observation, _reward, terminated, truncated, info = await env.step(seed % 5)
                over = terminated or truncated
                assert info["time"] == observation[2] == len(shown)
                shown.append(observation)
            assert await env.call("multiply", 2, plus=1) == 1
            return np.array(shown)

    async def main() -> Any:
        async with Pool(partial(Ledger, length=4), 8, num_workers=4) as pool:
            result = await asyncio.gather(*(converse(pool, seed) for seed in range(64)))
            assert pool.free == len(pool) == 8
            assert pool.stats()[:7] == (8, 0, 0, 0, 0, 64, 256)
            assert order == list(range(64))  # first come, first served
            return result

    for seed, shown in enumerate(run(main, NEW_LOOP[kind])):
        env = Ledger(length=4)
        expected = [env.reset(seed=seed)[0], *(env.step(seed % 5)[0] for _ in range(4))]
        assert np.delete(shown, 1, axis=1).tolist() == np.delete(expected, 1, axis=1).tolist()


@in_loop
async def test_one_that_waits_holds_back_no_other(tmp_path: Path) -> None:
    async with lent(2, tools(tmp_path, 2)) as (_, slow, fast):
        for command in (slow.step(Tool.WAIT), slow.call("wait")):
            waiting = asyncio.create_task(command)
            for _ in range(5):
                await fast.step(Tool.OK)
                assert await fast.call("number") == 1
            with pytest.raises(KeyError):
                await fast.step(Tool.FAIL)
            await fast.reset()
            assert not waiting.done()
            (tmp_path / "gate0").touch()
            await waiting
            (tmp_path / "gate0").unlink()


# ---------------------------------------------------------------------- acquire


@in_loop
async def test_an_acquire_that_takes_too_long_or_is_cancelled() -> None:
    async with Pool(Ledger, 1, num_workers=1) as pool:
        async with pool.acquire():
            waiting = asyncio.create_task(pool.acquire().__aenter__())
            await asyncio.sleep(0)
            for timeout in (0, 0.01):
                with pytest.raises(TimeoutError, match=r"none of 1 .* was free .* 1 others"):
                    async with pool.acquire(timeout=timeout):
                        pass
            assert pool.stats().waiting == 1
            waiting.cancel()
            await asyncio.wait([waiting])
            assert pool.stats().waiting == 0
            waiting = asyncio.create_task(pool.acquire().__aenter__())
            await asyncio.sleep(0)
        waiting.cancel()  # as the environment comes
        await asyncio.wait([waiting])
        assert waiting.cancelled() and pool.free == 1
        with pytest.raises(ZeroDivisionError):
            async with pool.acquire(timeout=0) as env:
                await env.reset()
                raise ZeroDivisionError
        assert pool.free == 1
        with pytest.raises(ValueError, match="timeout"):
            await pool.acquire(timeout=-1).__aenter__()


# ---------------------------------------------------------------------- leaving


@pytest.mark.parametrize("how", ["timeout", "end of the block"])
@in_loop
async def test_a_late_answer_reaches_no_one(tmp_path: Path, how: str) -> None:
    async with Pool(tools(tmp_path, 1)) as pool:
        async with pool.acquire() as env:
            await env.reset()
            step = asyncio.create_task(env.step(Tool.WAIT))
            await until(lambda: pool.stats().steps == 1)
            if how == "timeout":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(step, 0.05)
                for again in all_calls(env):
                    with pytest.raises(ResetNeededError, match="its step was cancelled"):
                        await again()
        if how != "timeout":
            with pytest.raises(ClosedEnvironmentError, match="ended before environment 0 answered"):
                await step
        assert pool.stats()[:3] == (0, 0, 1)
        following = asyncio.create_task(first_step(pool))
        await asyncio.sleep(0.01)
        assert not following.done()
        (tmp_path / "gate0").touch()
        # The same environment, which the first conversation has reset and stepped once.
        assert (await following).tolist() == [1, 2, 1]


# ---------------------------------------------------------------------- what an environment raises


@in_loop
async def test_an_exception_is_raised_in_its_own_await_alone(tmp_path: Path) -> None:
    async with lent(2, tools(tmp_path, 2), num_workers=1) as (pool, env, other):
        failed, result = await asyncio.gather(
            env.step(Tool.FAIL), other.step(Tool.OK), return_exceptions=True
        )
        assert isinstance(failed, KeyError) and failed.args == ("number 0",)
        assert "environment 0 (worker 0) failed in step" in str(failed.__cause__)
        assert result[1] == 1.0
        for call in (partial(env.step, 0), partial(env.call, "number")):
            with pytest.raises(ResetNeededError, match="environment 0 failed"):
                await call()
        assert (await other.step(Tool.OK))[0].tolist() == [1, 1, 2]
        # It can also go on by itself.
        assert (await env.reset())[0].tolist() == [2, 1, 0]
        with pytest.raises(KeyError):
            await env.step(Tool.FAIL)
        assert pool.stats()[:3] == (0, 2, 0)
        assert (tmp_path / "builds0").stat().st_size == 2


@in_loop
async def test_reset_of_the_next_conversation_builds_a_failed_environment(tmp_path: Path) -> None:
    async with Pool(tools(tmp_path, 1)) as pool:
        with pytest.raises(KeyError):
            await first_step(pool, Tool.FAIL)
        assert pool.free == 1 and (tmp_path / "builds0").stat().st_size == 1
        async with pool.acquire() as env:
            with pytest.raises(ResetNeededError, match="environment 0 failed"):
                await env.call("number")
            assert (await env.reset())[0].tolist() == [2, 1, 0]
        stats = pool.stats()
        assert (stats.failures, stats.timeouts, stats.restarts) == (1, 0, (0,))


class Odd(Ledger):
    """Raises what is no `Exception`, as environments that run an event loop of their own may."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if options:
            raise asyncio.CancelledError("in reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if action == 0:
            raise asyncio.CancelledError("in step")
        if action == 3:
            raise StopIteration("no more data")
        return super().step(action)


@in_loop
async def test_what_is_no_exception_costs_its_row() -> None:
    """And a reset that refuses its options, however often, costs no environment."""
    async with lent(2, partial(Odd, length=9), 2, num_workers=1, max_restarts=1) as (
        pool,
        env,
        other,
    ):
        steps = env.step(0), other.step(1)
        failed, result = await asyncio.gather(*steps, return_exceptions=True)
        assert isinstance(failed, WorkerError) and isinstance(result, tuple)
        assert "failed in step" in str(failed) and "CancelledError" in str(failed)
        for _ in range(5):
            with pytest.raises(WorkerError, match=r"(?s)failed in .*CancelledError"):
                await env.reset(options={"some": 1})
        await env.reset()
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await env.step(3)
        with pytest.raises(TypeError, match="pickle"):
            await env.reset(options={"lock": threading.Lock()})
        await env.reset()
        await asyncio.gather(env.step(1), other.step(1))
    stats = pool.stats()
    assert (stats.resets, stats.failures, stats.restarts) == (9, 7, (0,))


class LoopWithoutDescriptors(asyncio.SelectorEventLoop):
    """Watches no descriptors for its users, like that of Windows."""

    def add_reader(self, *_: Any) -> Any:
        raise NotImplementedError


def test_pool_in_a_loop_that_watches_no_descriptors(tmp_path: Path) -> None:
    async def main() -> None:
        async with lent(2, tools(tmp_path, 2)) as (pool, env, other):
            with pytest.raises(WorkerDiedError):
                await env.step(Tool.DIE)
            assert (await other.step(Tool.OK))[0].tolist() == [1, 1, 1]
        assert pool.stats().restarts == (1, 0)

    run(main, LoopWithoutDescriptors)


@in_loop
async def test_a_call_that_raises_breaks_nothing(tmp_path: Path) -> None:
    async with Pool(tools(tmp_path, 1)) as pool, pool.acquire() as env:
        assert await env.call("builds") == 1  # before the first reset
        await env.reset()
        with pytest.raises(LookupError, match="nothing here"):
            await env.call("fail")
        with pytest.raises(AttributeError):
            await env.call("nothing")
        with pytest.raises(ValueError, match=r"call\('step'\) would go past"):
            await env.call("step", 1)
        assert await env.call(process_of) != os.getpid()
        assert (await env.step(Tool.OK))[0].tolist() == [1, 1, 1]


@in_loop
async def test_an_environment_that_cannot_be_built_again_leaves_the_pool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "vecspaces")
    async with Pool(tools(tmp_path, 2), num_workers=1, max_restarts=2) as pool:
        async with pool.acquire() as env, pool.acquire() as other:
            await asyncio.gather(env.reset(), other.reset())
            (tmp_path / "refuse0").touch()
            with pytest.raises(KeyError):
                await env.step(Tool.FAIL)
            for left in (2, 2, 1):
                with pytest.raises(OSError, match="no room for 0"):
                    await env.reset()
                assert len(pool) == left
            with pytest.raises(WorkerDiedError, match="environments 0 left the pool"):
                await env.reset()
            assert "environments 0 left the pool" in caplog.text
            await other.step(Tool.OK)
        assert pool.stats().lost == 1 and pool.free == 1
        (tmp_path / "refuse1").touch()
        with pytest.raises(KeyError):
            await first_step(pool, Tool.FAIL)
        waiting = [asyncio.create_task(first_step(pool)) for _ in range(3)]
        ends = await asyncio.gather(*waiting, first_step(pool), return_exceptions=True)
        assert [type(end) for end in ends] == [OSError, *[WorkerDiedError] * 3]
        assert "no environment is left" in str(ends[-1]) and "room for 1" in str(ends[-1])


# ---------------------------------------------------------------------- workers that end


@in_loop
async def test_a_death_is_raised_where_the_worker_was_held(tmp_path: Path) -> None:
    held = lent(3, tools(tmp_path, 4), num_workers=2)
    async with held as (pool, env, elsewhere, idle):
        assert [tool.env_id for tool in (env, elsewhere, idle)] == [0, 2, 1]
        with pytest.raises(WorkerDiedError, match=r"SIGKILL.*acquire another") as caught:
            await env.step(Tool.DIE)
        assert caught.value.env_ids == (0, 1) and caught.value.running == 0
        for call in (partial(idle.step, 0), idle.reset, env.reset):
            with pytest.raises(WorkerDiedError, match="the episode is lost"):
                await call()
        assert (await elsewhere.step(Tool.OK))[0].tolist() == [1, 1, 1]
        assert pool.stats()[:4] == (1, 3, 0, 0)
    assert pool.stats().restarts == (1, 0)
    assert [(tmp_path / f"builds{number}").stat().st_size for number in range(4)] == [2, 2, 1, 1]


@in_loop
async def test_restarts_are_counted_by_worker(tmp_path: Path) -> None:
    async with Pool(tools(tmp_path, 2), num_workers=2, max_restarts=1) as pool:
        for left in (2, 2, 1):
            with pytest.raises(WorkerDiedError):
                await first_step(pool, Tool.DIE)
            await until(lambda left=left: pool.free == left)  # type: ignore[misc]
        assert (len(pool), pool.stats().lost, sum(pool.stats().restarts)) == (1, 1, 2)


@in_loop
async def test_a_worker_that_dies_while_it_is_built_again(tmp_path: Path) -> None:
    async with Pool(tools(tmp_path, 1), max_restarts=3) as pool:
        (tmp_path / "die0").touch()
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            await first_step(pool, Tool.DIE)
        with pytest.raises(WorkerDiedError, match="no environment is left"):
            await first_step(pool)
        assert pool.stats().restarts == (3,)


@pytest.mark.parametrize("method", START_METHODS)
@in_loop
async def test_an_idle_worker_that_dies_is_restarted(tmp_path: Path, method: Any) -> None:
    async with Pool(tools(tmp_path, 2), num_workers=1, context=method) as pool:
        async with pool.acquire() as env:
            os.kill(await env.call("process"), signal.SIGKILL)
        await until(lambda: pool.stats().restarts == (1,) and pool.free == 2)
        assert (await first_step(pool)).tolist() == [2, 1, 1]


@in_loop
async def test_a_worker_that_dies_before_the_first_command_costs_one_conversation(
    tmp_path: Path,
) -> None:
    faults: list[Any] = []
    async with Pool(tools(tmp_path, 1)) as pool:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        (worker,) = [
            child
            for child in multiprocessing.active_children()
            if child.name.startswith("vecspaces")
        ]
        worker.kill()
        await until(lambda: not worker.is_alive())
        for _ in range(3):  # turns of the loop
            await asyncio.sleep(0)
        with pytest.raises(WorkerDiedError):
            await first_step(pool)
        assert (await first_step(pool)).tolist() == [2, 1, 1]
    assert not faults


# ---------------------------------------------------------------------- time


@pytest.fixture
def patient_with_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a stack for as long as a busy machine may take to read it."""
    monkeypatch.setattr("vecspaces.vector.engine.waits._STACK_SECONDS", 10.0)


@pytest.mark.usefixtures("patient_with_stacks")
@in_loop
async def test_a_step_that_takes_too_long_costs_its_worker(tmp_path: Path) -> None:
    """Also the step of a conversation that has left."""
    bound = round(overrun(0.3), 2)  # of the other calls too
    async with Pool(tools(tmp_path, 4), num_workers=3, step_timeout=bound) as pool:
        with pytest.raises(TimeoutError):
            async with pool.acquire() as left:
                await left.reset()
                await asyncio.wait_for(left.step(Tool.HANG), 0.01)
        async with pool.acquire() as elsewhere, pool.acquire() as env, pool.acquire() as beside:
            await asyncio.gather(elsewhere.reset(), env.reset(), beside.reset())
            expected = rf"step did not end within {bound:g} s"
            with pytest.raises(StepTimeoutError, match=expected) as late:
                await env.step(Tool.HANG)
            assert late.value.env_ids == (2,)
            assert not system.DESCRIPTORS or "time.sleep(1000)" in str(late.value.stack)
            with pytest.raises(StepTimeoutError):
                await env.reset()
            await elsewhere.step(Tool.OK)
            expected = r"did not end within .* environment 2"
            with pytest.raises(WorkerDiedError, match=expected) as lost:
                await beside.step(Tool.OK)
            assert isinstance(lost.value.__cause__, StepTimeoutError)
        await until(lambda: pool.free == 4)
        assert (pool.stats().timeouts, pool.stats().restarts) == (2, (1, 0, 1))
    assert [(tmp_path / f"builds{number}").stat().st_size for number in range(4)] == [2, 1, 2, 2]


@in_loop
async def test_faults_of_environments_in_threads(tmp_path: Path) -> None:
    make = partial(Pool, tools(tmp_path, 3), backend="thread", step_timeout=overrun(0.3))
    async with make() as pool:
        async with pool.acquire() as late, pool.acquire() as failing, pool.acquire() as other:
            await asyncio.gather(late.reset(), failing.reset(), other.reset())
            steps = late.step(Tool.WAIT), failing.step(Tool.FAIL), other.step(Tool.OK)
            errors = await asyncio.gather(*steps, return_exceptions=True)
            assert [type(error) for error in errors] == [StepTimeoutError, KeyError, tuple]
            assert (await failing.reset())[0].tolist() == [2, 1, 0]
            assert (await other.step(Tool.OK))[0].tolist() == [1, 1, 2]
            (tmp_path / "gate0").touch()
        await until(lambda: pool.free == 3)
        assert pool.stats().restarts == (1, 0, 0)


@in_loop
async def test_step_timeout_may_be_infinite(tmp_path: Path) -> None:
    async with Pool(tools(tmp_path, 1), step_timeout=math.inf) as pool:
        assert (await first_step(pool)).tolist() == [1, 1, 1]


def test_a_slow_environment_is_warned_of_once(tmp_path: Path) -> None:
    def count() -> int:
        texts = [str(warning.message) for warning in caught]  # a slow start is warned of too
        return sum(text.startswith("step of environment 0 has taken") for text in texts)

    async def main() -> None:
        make = partial(Pool, tools(tmp_path, 2), num_workers=1)
        async with make(slow_warning=0.2) as pool, pool.acquire() as env:
            await env.reset()
            waiting = asyncio.create_task(env.step(Tool.WAIT))
            await until(lambda: count() > 0)
            await asyncio.sleep(0.3)
            (tmp_path / "gate0").touch()
            await waiting

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlowEnvironmentWarning)
        run(main)
    assert count() == 1


# ---------------------------------------------------------------------- misuse


@in_loop
async def test_calls_that_are_refused(tmp_path: Path) -> None:
    # tests/golden/messages.txt has others.
    async with Pool(tools(tmp_path, 2), num_workers=2, validate=True) as pool:
        async with pool.acquire() as env:
            with pytest.raises(TypeError, match="seed must be"):
                await env.reset(seed="a")
            first = asyncio.create_task(env.reset())
            await asyncio.sleep(0)
            for second in all_calls(env):
                with pytest.raises(AlreadyPendingCallError, match="reset of environment 0"):
                    await second()
            await first
            for action in (17, "a", 0.5):
                with pytest.raises(InvalidActionError, match=r"action: .* environment 0"):
                    await env.step(action)
            with pytest.raises(TypeError, match="pickle"):
                await env.call("number", threading.Lock())
            await env.step(Tool.END)
            with pytest.raises(ResetNeededError, match="has ended its episode"):
                await env.step(0)
            await env.reset()
        for after in all_calls(env):
            with pytest.raises(ClosedEnvironmentError, match="after the end of its `async with"):
                await after()


@in_loop
async def test_another_loop_or_thread_and_no_loop_are_refused() -> None:
    async def elsewhere(env: PoolEnv, pool: Pool) -> None:
        for call in (env.reset, pool.acquire().__aenter__, pool.aclose):
            with pytest.raises(RuntimeError, match="another loop, or another thread"):
                await call()

    async with lent(1, Ledger, 1) as (pool, env):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, elsewhere(env, pool)).result()
        await env.reset()
    pool = Pool(Ledger, 1)
    with pytest.raises(RuntimeError, match="enter `async with pool` first"):
        async with pool.acquire():
            pass
    await pool.aclose()
    with pytest.raises(ClosedEnvironmentError):
        await pool.__aenter__()


# ---------------------------------------------------------------------- the end


@in_loop
async def test_aclose_ends_what_is_under_way(tmp_path: Path) -> None:
    async with Pool(tools(tmp_path, 1)) as pool:
        pids = [process.pid for process in multiprocessing.active_children()]
        holding = asyncio.create_task(first_step(pool, Tool.WAIT))
        await until(lambda: pool.stats().steps == 1)
        waiting = asyncio.create_task(first_step(pool))
        await asyncio.sleep(0)
        with within(5.0):
            closing = asyncio.create_task(pool.aclose())
            for task in (holding, waiting):
                with pytest.raises(ClosedEnvironmentError, match=r"closed by aclose\(\)"):
                    await task
            (tmp_path / "gate0").touch()
            await closing
        await pool.aclose()
        with pytest.raises(ClosedEnvironmentError):
            await first_step(pool)
        assert_gone(pids)


@in_loop
async def test_aclose_that_is_cancelled_ends_all_at_once(tmp_path: Path) -> None:
    pool = Pool(tools(tmp_path, 1))
    async with pool:
        stepping = asyncio.create_task(first_step(pool, Tool.WAIT))
        await until(lambda: pool.stats().steps == 1)
        closing = asyncio.create_task(pool.aclose())
        await asyncio.sleep(0)
        pids = [process.pid for process in multiprocessing.active_children()]
        with within(2.0), warnings.catch_warnings(action="error"):  # it was not late
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        assert_gone(pids)
        with pytest.raises(ClosedEnvironmentError):
            await stepping


@pytest.mark.parametrize("kind", NEW_LOOP)
def test_a_pool_that_outlives_its_loop_ends_its_workers(kind: str) -> None:
    pids: list[int | None] = []

    async def main() -> None:
        pool = await Pool(Ledger, 2, num_workers=2).__aenter__()
        pids.extend(process.pid for process in multiprocessing.active_children())
        async with pool.acquire() as env:
            await env.reset()

    with pytest.warns(ResourceWarning, match="was dropped without close"):
        run(main, NEW_LOOP[kind])
    assert_gone(pids)  # type: ignore[arg-type]


PROGRAM = """
import asyncio, multiprocessing, os, signal
from vecspaces.aio import Pool
from tests.envs import Ledger

async def converse(pool):
    while True:
        async with pool.acquire() as env:
            await env.reset()
            await env.step(1)

async def main():
    async with Pool(Ledger, 4, num_workers=2) as pool:
        print(*(process.pid for process in multiprocessing.active_children()), flush=True)
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.gather(*(converse(pool) for _ in range(8)))

asyncio.run(main())
"""


def test_ctrl_c_leaves_no_orphan() -> None:
    run = run_python("-W", "error", "-c", PROGRAM, code=-signal.SIGINT, timeout=60)
    *_, last = run.stderr.strip().splitlines()
    assert last == "KeyboardInterrupt"
    assert "destroyed" not in run.stderr and "never retrieved" not in run.stderr
    assert_gone(map(int, run.stdout.split()))


# ---------------------------------------------------------------------- long runs


@pytest.mark.parametrize("num_workers", [1, 2])
@in_loop
async def test_workers_are_replaced_after_some_episodes(tmp_path: Path, num_workers: int) -> None:
    async with Pool(tools(tmp_path, 2), num_workers=num_workers, restart_after=3) as pool:
        builds = []
        for _ in range(8):
            async with pool.acquire(timeout=BOUND) as env:
                builds.append(int((await env.reset())[0][0]))
                await env.reset()
        await until(lambda: pool.free == 2)
        # Two episodes in each block: a worker is replaced after its second block.
        assert builds == sorted(builds) and builds[0] == 1 and builds[-1] > 1
        assert pool.stats().restarts == (0,) * num_workers
        again = sum((tmp_path / f"builds{number}").stat().st_size for number in (0, 1)) - 2
        assert 0 < sum(pool.stats().renewals) * (2 // num_workers) == again


# ---------------------------------------------------------------------- everything at once


class Marked(Tool):
    """A tool that observes whose conversation sent the action, in place of its builds."""

    action_space = spaces.MultiDiscrete([7, 2**31])  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.owner = seed
        return np.array([seed, 0, 0]), {}

    def step(self, action: Any) -> Any:
        order, owner = action.tolist()
        assert owner == self.owner, f"{self.owner} was sent what {owner} sent"
        _, *rest = super().step(order)
        return np.array([owner, order, self.steps]), *rest


async def _converse(pool: Pool, number: int, deaths: float) -> str:
    """Play some steps, most of which succeed; return how it ended."""
    random = np.random.default_rng(number)
    chances = [0.915 - deaths, 0.04, deaths, 0.005, 0.0, 0.04]
    try:
        leaves = random.exponential(0.2) if number % 4 == 0 else None
        async with pool.acquire() as env, asyncio.timeout(leaves):
            for _ in range(3):
                observation, _ = await env.reset(seed=number)
                assert observation.tolist() == [number, 0, 0]
                for step in range(1, 9):
                    action = random.choice(len(chances), p=chances)
                    result = await env.step(np.array([action, number]))
                    assert result[0].tolist() == [number, action, step]
                    assert await env.call("owner") == number
                    if result[2]:
                        break
    except KeyError:
        return "failed"
    except StepTimeoutError:
        return "overran"
    except WorkerDiedError:
        return "died"
    except TimeoutError:
        return "left"
    return "ended"


@pytest.mark.parametrize(
    ("workers", "deaths", "count"),
    [
        (2, 0.0, 24),
        (8, 0.01, 40),
        pytest.param(2, 0.01, 150, marks=pytest.mark.full),
        pytest.param(8, 0.005, 300, marks=pytest.mark.full),
    ],
)
def test_no_conversation_hears_of_another(
    tmp_path: Path, workers: int, deaths: float, count: int
) -> None:
    async def main() -> None:
        factories = [partial(Marked, tmp_path, number) for number in range(8)]
        async with Pool(
            factories, num_workers=workers, step_timeout=overrun(0.4), max_restarts=10**6
        ) as pool:
            conversations = (_converse(pool, number, deaths) for number in range(count))
            ends = await asyncio.gather(*conversations)
            await until(lambda: pool.free == len(pool) == 8)
            stats = pool.stats()
            assert stats[:5] == (8, 0, 0, 0, 0)
            assert {"failed", "left", "ended"} <= set(ends)
            assert ends.count("overran") <= stats.timeouts
            assert (tmp_path / "builds0").stat().st_size > 1

    run(main, seconds=300.0)
