"""Pool: lends environments to the coroutines of an event loop.

A *conversation* is a coroutine that holds an environment. The pool is written on public methods of
a vector env: `send`, `send_reset`, `send_call`, `recv` and `restart`. The event loop watches
`fileno()`, so an `await` needs neither a task nor a thread: `_turn` receives what has come, and
wakes the conversations.
"""

from __future__ import annotations

import asyncio
import io
import math
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from vecspaces.aio.env import AGAIN, PoolEnv, copied
from vecspaces.checks import check_count, check_seconds
from vecspaces.errors import (
    ClosedEnvironmentError,
    InvalidActionError,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.log import log
from vecspaces.make import make_vec
from vecspaces.spaces import Space
from vecspaces.vector import AutoresetMode
from vecspaces.vector.utils import concatenate, create_empty_array, iterate

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

    from vecspaces.vector.options import MakeOptions

#: Arguments that concern batches, autoresets, or restarts, which a pool decides itself.
_REFUSED = {"autoreset_mode", "batch_size", "buffers", "copy", "stats"}
_REFUSED |= {"on_step_timeout", "on_worker_death"}
_ELSEWHERE = (
    "the pool belongs to the event loop of its `async with`, and this is another loop, or another "
    "thread: make a Pool per loop"
)
# The longest wait of `aclose` for environments to close, in seconds.
_CLOSE_SECONDS = 4.0
# The number of checks for slow environments within `slow_warning`.
_LOOKS = 8
# The delay of the check after a row's time limit: the vector env's own limit has passed then.
_LATE_SECONDS = 0.005
# How often to look for answers where no descriptor can be watched, in seconds.
_POLL_SECONDS = 0.005


class PoolStats(NamedTuple):
    """The states of a pool's environments, and counts since it was made.

    Attributes:
        free: Environments that `acquire` can return at once.
        held: Those that conversations hold.
        restoring: Those that finish the step of a conversation that has ended, or are built again.
        lost: Those that were removed, because their worker was restarted too often.
        waiting: Conversations that wait in `acquire`.
        resets: The number of resets that were sent.
        steps: The number of steps that were sent.
        failures: The number of awaits that raised an exception of the environment.
        timeouts: The number of awaits that exceeded `step_timeout`.
        restarts: How often each worker was restarted because it died or was late.
        renewals: How often each worker was restarted because of `restart_after`.
    """

    free: int
    held: int
    restoring: int
    lost: int
    waiting: int
    resets: int
    steps: int
    failures: int
    timeouts: int
    restarts: tuple[int, ...]
    renewals: tuple[int, ...]


class Pool:
    """Environments in workers, for the coroutines of an event loop.

    A *conversation* is a coroutine that holds an environment by `acquire`. While one conversation
    awaits its environment, the others continue, and an exception of an environment is raised only
    in its own conversation. An environment that raised an exception is built again. A worker that
    died, or whose environment exceeded `step_timeout`, is restarted, and the conversations that
    hold its other environments get a `WorkerDiedError`. An `await` starts no task and no thread.

    The constructor blocks until all environments are built. `async with` attaches the pool to the
    running event loop, the only one in which it can be used, and closes it at the end.

    Args:
        env: The environment, as in `make_vec`: a Gymnasium id, `"module:factory"`, a factory, or a
            list of one factory per environment.
        num_envs: The number of environments, and of conversations at the same time.
        backend: `"async"` for worker processes, or `"thread"` for threads of this process.
        num_workers: The number of workers. None: one per environment, so that an environment that
            hangs or dies affects no other conversation.
        restart_after: A worker is closed and started again when its environments have begun this
            many episodes together, and no conversation holds one of them. None: never.
        **kwargs: Other arguments of `make_vec` and the vector env, such as `env_kwargs` and
            `validate`; what is left are arguments of the factory. `step_timeout` bounds each await;
            without it, `start_timeout` bounds the first reset of each environment. `max_restarts`
            counts by worker, within `restart_window`: after one more, its environments leave the
            pool; when none is left, `acquire` raises the error.

    Raises:
        TypeError: An argument concerns batches or autoresets, which a pool does not have.
        ValueError: An environment is a vector env, or has a row for each agent.
        Exception: What the constructor of the vector env raises.

    Example:
        >>> import asyncio
        >>> from vecspaces.aio import Pool
        >>> async def play(pool, seed):
        ...     async with pool.acquire() as env:
        ...         observation, info = await env.reset(seed=seed)
        ...         observation, reward, terminated, truncated, info = await env.step(1)
        ...         return reward
        >>> async def main():
        ...     async with Pool("CartPole-v1", 2, num_workers=1) as pool:
        ...         return await asyncio.gather(*(play(pool, seed) for seed in range(5)))
        >>> asyncio.run(main())
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        env: str | EnvSpec | Callable[..., Any] | Sequence[Callable[..., Any]],
        num_envs: int = 1,
        *,
        backend: str = "async",
        restart_after: int | None = None,
        **kwargs: Unpack[MakeOptions],
    ) -> None:
        limits: dict[str, Any] = {**(kwargs.get("vector_kwargs") or {}), **kwargs}
        for name in sorted(_REFUSED.intersection(limits)):
            raise TypeError(
                f"Pool takes no {name}: conversations reset their environments and get single "
                "values, and the pool restarts workers"
            )
        if backend not in ("async", "thread"):
            raise ValueError(f"backend must be 'async' or 'thread', found {backend!r}")
        if restart_after is not None:
            check_count("restart_after", restart_after)
        count = num_envs if isinstance(env, str) or not isinstance(env, Sequence) else len(env)
        workers = count if limits.get("num_workers") is None else limits["num_workers"]
        options: Any = {"backend": backend, "num_workers": workers, **kwargs}
        self._envs: Any = make_vec(env, num_envs, autoreset_mode=AutoresetMode.DISABLED, **options)
        is_vector = len(self._envs.env_fns) != self._envs.num_envs
        if is_vector or getattr(self._envs, "agent_layout", None) == "rows":
            self._envs.close(terminate=True)
            raise ValueError(
                "Pool lends single environments, found a vector env, or agents as rows: "
                "pass a factory of single environments, or agents='dict'"
            )
        self.observation_space: Space[Any] = self._envs.single_observation_space
        self.action_space: Space[Any] = self._envs.single_action_space
        self._batch = create_empty_array(self.action_space, 1)
        self._loop: Any = None
        self._fault: Exception | None = None  # after `aclose`, or if no environment is left
        # The interval of checks for late and slow rows, a part of the time limit.
        limit = limits.get("step_timeout") or limits.get("start_timeout") or 300.0
        slow = limits.get("slow_warning", 60.0) or math.inf
        limit = min(limit, 1e6)  # infinity is allowed
        self._period = limit / max(1, math.ceil(_LOOKS * limit / slow)) + _LATE_SECONDS
        self._max_restarts = limits.get("max_restarts", 3)
        self._window = limits.get("restart_window", 60.0)
        self._restart_after = restart_after or math.inf
        # The environments of each worker, as the vector env divides them.
        bounds = [count * worker // workers for worker in range(workers + 1)]
        self._slices = [range(*bounds[worker : worker + 2]) for worker in range(workers)]
        self._worker_of = [worker for worker, rows in enumerate(self._slices) for _ in rows]
        # Each row is free, held, lost, or (none of these) being restored; `_pending` has the timer
        # of each row that was sent a command. First come environments of different workers.
        in_turns = chain.from_iterable(zip_longest(*self._slices))
        self._free = deque(row for row in in_turns if row is not None)
        self._held: dict[int, PoolEnv] = {}
        self._lost = set[int]()
        self._pending: dict[int, asyncio.TimerHandle] = {}
        self._waiting: deque[asyncio.Future[PoolEnv]] = deque()
        self._counts = Counter[str]()
        self._begun = [0] * workers  # episodes since the worker was started
        self._restarts, self._renewals = [0] * workers, [0] * workers
        self._restart_times: list[deque[float]] = [deque() for _ in range(workers)]

    def __repr__(self) -> str:
        return f"<Pool of {len(self)} environments, {self.free} free>"

    def __len__(self) -> int:
        """The number of environments, of which some may be in use or be built again."""
        return len(self._worker_of) - len(self._lost)

    @property
    def free(self) -> int:
        """The number of environments that `acquire` can return at once."""
        return len(self._free)

    def stats(self) -> PoolStats:
        """Return the states of the environments, and counts so far."""
        counts, held = self._counts, len(self._held)
        return PoolStats(
            free=self.free,
            held=held,
            restoring=len(self) - self.free - held,
            lost=len(self._lost),
            waiting=len(self._waiting),
            resets=counts["reset"],
            steps=counts["step"],
            failures=counts["failure"],
            timeouts=counts["timeout"],
            restarts=tuple(self._restarts),
            renewals=tuple(self._renewals),
        )

    async def __aenter__(self) -> Pool:
        """Attach the pool to the running event loop."""
        if self._loop is not None:
            raise RuntimeError("a Pool is for one `async with`: make another one")
        self._loop = asyncio.get_running_loop()
        self.check()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the pool."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close every environment and end every worker, within five seconds; can be repeated.

        Running conversations get a `ClosedEnvironmentError`. A thread closes the environments, so
        that the event loop is not blocked. If this is cancelled, everything is ended at once.

        Raises:
            Exception: What an environment raised in its own `close`, after everything is freed.
            WorkerDiedError: A worker died while it closed its environments.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError(_ELSEWHERE)
        if isinstance(self._fault, ClosedEnvironmentError):
            return
        if self._loop is not None and self._period != _POLL_SECONDS:
            loop.remove_reader(self._envs.fileno())
        for row in list(self._pending):
            self._stop_timer(row)
        self._refuse(ClosedEnvironmentError("the pool was closed by aclose(): make a new Pool"))
        closer = ThreadPoolExecutor(1, "vecspaces-aclose")
        try:
            await loop.run_in_executor(closer, self._envs.close, _CLOSE_SECONDS)
        except BaseException:  # a cancellation, or a second Ctrl-C: all ends at once
            for process in getattr(self._envs, "processes", ()):
                process.kill()
            raise
        finally:
            closer.shutdown()

    def check(self) -> None:
        """Raise if the pool cannot be used now, or from here."""
        if self._loop is None:
            raise RuntimeError("enter `async with pool` first, to attach it to the event loop")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(_ELSEWHERE)
        if self._fault is not None:
            raise copied(self._fault)

    def _refuse(self, fault: Exception) -> None:
        """Let all conversations, and all that wait or come later, raise an error."""
        self._fault = fault
        for env in self._held.values():
            env.fail(fault)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(copied(fault))
        self._waiting.clear()

    def send(self, row: int, command: str, /, *args: Any, **kwargs: Any) -> None:
        """Send a row a "reset", a "step", or a "call" (also to find out whether it is built)."""
        if command == "reset":
            self._envs.send_reset([row], **kwargs)
            self._begun[self._worker_of[row]] += 1
        elif command == "step":
            self._send_action(row, *args)
        else:
            self._envs.send_call([row], *args, **kwargs)
        if not self._counts:  # nothing can be received before the first command
            self._watch()
        self._counts[command] += 1
        self._look_later(row)

    def _send_action(self, row: int, action: Any) -> None:
        """Send a row an action."""
        try:
            self._envs.send(concatenate(self.action_space, [action], self._batch), [row])
        except (InvalidActionError, TypeError, ValueError) as error:
            what = self.action_space.explain(action, name="action")
            if what is None:
                raise
            raise InvalidActionError(
                f"step: {what} for environment {row}: the environment was not stepped; actions "
                f"must lie in {self.action_space}"
            ) from error

    def _watch(self) -> None:
        """Let the event loop call `_turn` when something can be received."""
        turn = weakref.WeakMethod(self._turn)  # a pool that is dropped must be collected
        try:
            self._loop.add_reader(self._envs.fileno(), lambda: (alive := turn()) and alive())
        except (io.UnsupportedOperation, NotImplementedError):  # some systems, and event loops
            self._period = _POLL_SECONDS
            self._look_later(-1)  # also when no row is awaited, for deaths

    def _look(self, row: int) -> None:
        """Look for late and slow rows, and again later."""
        self._look_later(row)
        self._turn()

    def _look_later(self, row: int) -> None:
        look = weakref.WeakMethod(self._look)  # as in `_watch`
        self._pending[row] = self._loop.call_later(
            self._period, lambda: (alive := look()) and alive(row)
        )

    def _stop_timer(self, row: int) -> bool:
        """Note that a row has answered; return whether it was sent a command."""
        timer = self._pending.pop(row, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _turn(self) -> None:
        """Receive what has come, wake the conversations, and repair what failed."""
        count = len(self._worker_of)
        came = self._envs.recv(count, timeout=0, at_least=0, return_errors=True)
        keys = [key for key in self._envs.info_space or () if key in came.infos]
        rows, results = came.env_ids.tolist(), dict(came.results)
        observations = iterate(self._envs.observation_space, came.observations) if rows else ()
        for place, (row, observation) in enumerate(zip(rows, observations, strict=False)):
            info, infos = dict(came.row_infos[place]), came.infos
            info.update({key: infos[key][place] for key in keys if infos[f"_{key}"][place]})
            ends = bool(came.terminations[place]), bool(came.truncations[place])
            results[row] = observation, float(came.rewards[place]), *ends, info
        for row, result in results.items():
            self._stop_timer(row)
            if row in self._held:
                self._held[row].answer(result)
            self._restore(row)
        self._take_errors(came.errors)

    def _take_errors(self, errors: Mapping[int, Exception]) -> None:
        """Raise errors in the conversations of their rows, and restart workers that are lost."""
        losses: dict[int, Exception] = {}
        builds: dict[int, dict[int, Exception]] = {}
        for row, error in errors.items():
            env, worker = self._held.get(row), self._worker_of[row]
            is_awaited = self._stop_timer(row)
            if isinstance(error, (WorkerDiedError, StepTimeoutError)) and row in error.env_ids:
                losses[worker] = error
                if isinstance(error, StepTimeoutError):
                    self._counts["timeout"] += 1
                    if env is not None:
                        env.fail(copied(error, _describe(error)[1]))
            elif is_awaited:
                if env is not None:
                    self._counts["failure"] += 1
                    env.raise_error(error)
                if getattr(error.__cause__ or error, "command", "") == "build":
                    builds.setdefault(worker, {})[row] = error
                else:
                    self._restore(row)
        for worker, failed in builds.items():
            error = next(iter(failed.values()))
            if len(failed) == len(self._slices[worker]) and failed.keys().isdisjoint(self._held):
                losses[worker] = error
            elif not self._may_restart(worker):
                self._part_with(failed, worker, error)
            else:
                for row in failed:
                    self._restore(row)
        for worker, loss in losses.items():
            self._lose(worker, loss)

    def _restore(self, row: int) -> None:
        """Lend a row that no conversation holds, unless its worker is to be started again."""
        if row in self._held or row in self._pending or row in self._lost or self._fault:
            return
        worker = self._worker_of[row]
        if self._begun[worker] < self._restart_after:
            self._free.append(row)
            self._serve()
        elif (self._held | self._pending).keys().isdisjoint(self._slices[worker]):
            self._renewals[worker] += 1  # no row of the worker is in use
            self._start_again(worker, terminate=False)

    def _start_again(self, worker: int, terminate: bool) -> None:
        """Start a worker again; its rows are usable once they are built and answer a call."""
        rows = self._slices[worker]
        self._begun[worker] = 0
        self._free = deque(row for row in self._free if row not in rows)
        try:
            self._envs.restart(rows, terminate=terminate)
        except Exception as error:  # the system has no room for a process
            self._part_with(rows, worker, error)
        for row in rows:
            self._stop_timer(row)
            if row not in self._lost:
                self.send(row, "call", id)

    def _lose(self, worker: int, error: Exception) -> None:
        """Restart a worker, and raise the error in the conversations of its rows."""
        rows, (what, text) = self._slices[worker], _describe(error)
        if isinstance(error, WorkerDiedError):
            loss = copied(error, text)
        else:
            what = f"worker {worker} was ended: {what}"
            loss = WorkerDiedError(f"worker {worker} was ended: {text}", rows, worker, "step")
            loss.stack, loss.__cause__ = getattr(error, "stack", None), error
        for row in self._held.keys() & rows:
            self._held[row].fail(loss)
        if self._may_restart(worker):
            self._restarts[worker] += 1
            log.warning("%s: restarted", what)
            self._start_again(worker, terminate=True)
        else:
            self._part_with(rows, worker, error)

    def _may_restart(self, worker: int) -> bool:
        """Count a restart of a worker; return whether it is allowed."""
        times, now = self._restart_times[worker], time.monotonic()
        times.append(now)
        while times[0] < now - self._window:
            times.popleft()
        return len(times) <= int(self._max_restarts)

    def _part_with(self, rows: Iterable[int], worker: int, error: Exception) -> None:
        """Remove environments from the pool."""
        self._lost.update(rows)
        self._free = deque(row for row in self._free if row not in self._lost)
        text = f"environments {', '.join(map(str, rows))} left the pool, since max_restarts is "
        fault = WorkerDiedError(f"{text}reached: {error!r}", [*rows], worker, "build")
        fault.__cause__ = error
        log.error("%s", fault)
        for row in rows:
            self._stop_timer(row)
            if row in self._held:
                self._held[row].fail(fault)
        if not len(self):
            self._refuse(copied(fault, f"acquire: no environment is left: {fault}"))

    @asynccontextmanager
    async def acquire(self, timeout: float | None = None) -> AsyncIterator[PoolEnv]:
        """Wait for a free environment: `async with pool.acquire() as env`.

        Requests are served in their order. At the end of the block the environment is returned to
        the pool, also after an exception or a cancellation. If a step is still running, the
        environment is free again when the step has ended; its answer is dropped.

        Args:
            timeout: The longest wait, in seconds; None: no bound.

        Yields:
            The `PoolEnv`.

        Raises:
            TimeoutError: No environment was free in time.
            WorkerDiedError: No environment is left, since workers were restarted too often.
        """
        self.check()
        limit = None if timeout is None else check_seconds("timeout", timeout, zero=True)
        waiter: asyncio.Future[PoolEnv] = self._loop.create_future()
        self._waiting.append(waiter)
        self._serve()
        try:
            try:
                async with asyncio.timeout(limit):
                    await waiter
            except TimeoutError:
                raise TimeoutError(
                    f"acquire: none of {len(self)} environments was free within {timeout:g} s "
                    f"({len(self._held)} held, {len(self._waiting) - 1} others waiting): wait "
                    "longer, let conversations end, or make a Pool of more environments"
                ) from None
            yield waiter.result()
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.cancelled() and waiter.exception() is None:
                env = waiter.result()
                env.end()
                del self._held[env.env_id]
                self._restore(env.env_id)

    def _serve(self) -> None:
        """Lend free environments to those that have waited longest."""
        while self._free and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled just now
                row = self._free.popleft()
                env = self._held[row] = PoolEnv(self, row)
                waiter.set_result(env)


def _describe(error: Exception) -> tuple[str, str]:
    """Return what happened, and the text of the error for conversations."""
    if not isinstance(error, (WorkerDiedError, StepTimeoutError)):
        return repr(error), repr(error)
    line, _, where = str(error).partition("\n")
    what = line.rpartition(": ")[0] or line  # without the advice
    return what, f"{what}: the episode is lost: {AGAIN}" + (where and f"\n{where}")
