"""Pool: lends environments in worker processes to the coroutines of an event loop.

A *conversation* is a coroutine that holds an environment. The pool uses an `AsyncVectorEnv`, whose
rows get their commands one by one, each from its conversation. The event loop watches the workers'
descriptors, so an `await` needs neither a task nor a thread: `_turn` processes what has come, and
wakes the conversations.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from vecspaces.aio.env import PoolEnv
from vecspaces.aio.rows import Rows
from vecspaces.checks import check_seconds
from vecspaces.errors import ClosedEnvironmentError, WorkerDiedError
from vecspaces.make import make_vec
from vecspaces.spaces import Space
from vecspaces.vector import AsyncVectorEnv, AutoresetMode
from vecspaces.vector.exchange.failures import Message

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

    from vecspaces.vector.options import MakeOptions

# Arguments of `AsyncVectorEnv` that a pool sets itself, or that concern batches.
_REFUSED = {
    "autoreset_mode": "each conversation resets its environment itself",
    "on_worker_death": "a worker that died is restarted, and its conversations hear of it",
    "on_step_timeout": "an environment that overran step_timeout is built again",
    "batch_size": "a pool returns single values",
    "buffers": "a pool returns single values, which are copies",
    "copy": "a pool returns single values, which are copies",
}
# As long as a vector env waits for environments to close.
_CLOSE_SECONDS = 4.0


class PoolStats(NamedTuple):
    """The states of the environments of a `Pool`, and counts since it was made.

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
        restarts: How often each worker was restarted.
        recycled: How often each worker was replaced as planned (`recycle_after`, `recycle_memory`).
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
    recycled: tuple[int, ...]


class Pool:
    """Environments in worker processes, for the coroutines of an event loop.

    A *conversation* is a coroutine that holds an environment by `acquire`. While one conversation
    awaits its environment, the others continue, and an exception of an environment is raised only
    in its own conversation. An environment that raised an exception or exceeded `step_timeout` is
    built again. A worker that died is restarted, and the conversations that held its environments
    get a `WorkerDiedError`. No task and no thread is started.

    The constructor blocks until all environments are built. `async with` attaches the pool to the
    running event loop, the only one in which it can be used, and closes it at the end.

    Args:
        env: The environment, as in `make_vec`: a Gymnasium id, `"module:factory"`, a factory, or a
            list of one factory per environment.
        num_envs: The number of environments, and of conversations at the same time.
        **kwargs: Other arguments of `make_vec` and `AsyncVectorEnv`, such as `num_workers`,
            `env_kwargs` and `validate`; what is left are arguments of the factory. `step_timeout`
            bounds each await; without it, `start_timeout` bounds the first reset of each
            environment. `max_restarts` counts by worker, within `restart_window`: after one more,
            its environments leave the pool; when none is left, `acquire` raises the error.

    Raises:
        TypeError: An argument concerns batches or autoresets, which a pool does not have.
        ValueError: An environment is a vector env, or has a row for each agent.
        Exception: What the constructor of `AsyncVectorEnv` raises.

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
        **kwargs: Unpack[MakeOptions],
    ) -> None:
        for name, why in _REFUSED.items():
            if name in kwargs or name in (kwargs.get("vector_kwargs") or ()):
                raise TypeError(f"Pool takes no {name}: {why}")
        arguments: Any = {"autoreset_mode": AutoresetMode.DISABLED, **kwargs}
        envs: Any = make_vec(env, num_envs, **arguments)
        try:
            if not isinstance(envs, AsyncVectorEnv):
                kind = type(envs).__name__
                raise ValueError(f"Pool runs environments in worker processes, found a {kind}")
            if envs._has_vector_envs:
                raise ValueError(
                    "Pool lends single environments, found a vector env, or agents with a row "
                    "each: pass a factory of single environments, or agents='dict'"
                )
        except BaseException:
            envs.close(terminate=True)
            raise
        self._envs, self._session, self._backend = envs, envs._session, envs._backend
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._ended: asyncio.Future[None] | None = None  # while it closes: done once all have
        # Each row is free, held, lost, or (none of these) being restored.
        self._held: dict[int, PoolEnv] = {}
        self._rows = Rows(envs, self._held, self._lend, self._withdraw)
        # The first conversations get environments of different workers.
        self._free = deque(
            row for nth in zip_longest(*self._backend.slices) for row in nth if row is not None
        )
        self._waiting: deque[asyncio.Future[PoolEnv]] = deque()

    def __repr__(self) -> str:
        return f"<Pool of {len(self)} environments, {self.free} free>"

    def __len__(self) -> int:
        """The number of environments, of which some may be in use or be built again."""
        return self._envs.num_envs - len(self._rows.lost)

    @property
    def free(self) -> int:
        """The number of environments that `acquire` can return at once."""
        return len(self._free)

    @property
    def observation_space(self) -> Space[Any]:
        """The space of the observations of one environment."""
        return self._envs.single_observation_space

    @property
    def action_space(self) -> Space[Any]:
        """The space of the actions of one environment."""
        return self._envs.single_action_space

    def stats(self) -> PoolStats:
        """Return the states of the environments, and counts so far."""
        rows, recycling = self._rows, self._session.recycling
        counts = [[0]] * len(rows.restarts) if recycling is None else recycling.counts.tolist()
        in_use = self._held.keys() | rows.lost.keys() | set(self._free)
        return PoolStats(
            len(self._free),
            len(self._held),
            self._envs.num_envs - len(in_use),
            len(rows.lost),
            len(self._waiting),
            rows.counts["reset"],
            rows.counts["step"],
            rows.counts["failure"],
            rows.counts["timeout"],
            tuple(rows.restarts),
            tuple(map(sum, counts)),
        )

    # ------------------------------------------------------------------ the event loop

    async def __aenter__(self) -> Pool:
        """Attach the pool to the running event loop."""
        if self._is_closed:
            raise _closed("async with")
        if self._loop is not None:
            raise RuntimeError("a Pool is for one `async with`: make another one")
        self._loop = loop = asyncio.get_running_loop()
        pool = weakref.ref(self)  # what ends the workers of a pool that is dropped has the backend

        def turn() -> None:
            if (found := pool()) is not None:
                found._turn()

        try:
            self._backend.attach(loop, turn)
        except NotImplementedError as error:
            await self.aclose()
            raise RuntimeError(
                f"Pool needs an event loop that watches descriptors, which {loop!r} does "
                "not: use asyncio.SelectorEventLoop"
            ) from error
        self._rows.attach(loop)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the pool."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close every environment and end every worker, within five seconds; can be repeated.

        Running conversations get a `ClosedEnvironmentError`.

        Raises:
            Exception: What an environment raised in its own `close`, after everything is freed.
            WorkerDiedError: A worker died while it closed its environments.
        """
        if self._loop is not None:
            self._check_loop("aclose")
        was_closed, self._is_closed = self._is_closed, True
        try:
            if self._loop is not None and not was_closed:
                self._begin_to_close(self._loop)
            if self._ended is not None:
                self._turn()
                await asyncio.wait([self._ended], timeout=_CLOSE_SECONDS)
        except BaseException:  # a cancellation, or a second Ctrl-C: the wait ends
            self._backend.detach()
            self._envs.close(terminate=True)
            raise
        self._backend.detach()
        self._envs.close()

    def _begin_to_close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell all conversations that the pool is closed, and ask all workers to end."""
        for row, command in self._rows.commands.items():
            if command.is_awaited:
                self._held[row].fail(_closed(command.call))
        while (waiter := self._next()) is not None:
            waiter.set_exception(_closed("acquire"))
        self._rows.detach()
        self._ended = loop.create_future()
        self._backend.ask_to_close(_CLOSE_SECONDS)

    def _check(self, call: str) -> None:
        """Raise if the pool cannot be used now, or from here."""
        if self._is_closed or self._session.state.closed:
            raise _closed(call)
        if self._loop is None:
            raise RuntimeError(f"{call}: enter `async with pool` first, to attach it to the loop")
        self._check_loop(call)

    def _check_loop(self, call: str) -> None:
        """Raise in another loop than the pool's, which another thread may have."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                f"{call}: the pool belongs to the event loop of its `async with`, and this is "
                "another one, or another thread: make a Pool for each"
            )

    def _turn(self) -> None:
        """Take in what has come."""
        if self._ended is None:
            self._rows.turn()
        elif not self._ended.done() and self._backend.have_closed():
            self._ended.set_result(None)

    # ------------------------------------------------------------------ lending

    def acquire(self, timeout: float | None = None) -> _Lease:
        """Wait for a free environment: `async with pool.acquire() as env`.

        Requests are served in their order. At the end of the block the environment is returned to
        the pool, also after an exception or a cancellation. If a step is still running, the
        environment is free again when the step has ended; its answer is dropped.

        Args:
            timeout: The longest wait, in seconds; None: no bound.

        Returns:
            A context manager for `async with`, which yields a `PoolEnv`.

        Raises:
            TimeoutError: No environment was free in time.
            WorkerDiedError: No environment is left, since workers were restarted too often.
        """
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        return _Lease(self, timeout)

    async def _take(self, timeout: float | None) -> PoolEnv:
        """Wait for a free environment."""
        self._check("acquire")
        if not len(self):
            raise self._exhausted()
        if self._free:
            return self._hold(self._free.popleft())
        assert self._loop is not None
        waiter: asyncio.Future[PoolEnv] = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give_back(waiter.result())  # it came at the same time as the cancellation
            if not isinstance(error, TimeoutError):
                raise
            raise TimeoutError(
                f"acquire: none of {len(self)} environments was free within {timeout:g} s "
                f"({len(self._held)} held, {len(self._waiting)} others waiting): wait longer, "
                "let conversations end, or make a Pool of more environments"
            ) from None

    def _next(self) -> asyncio.Future[PoolEnv] | None:
        """Remove the conversation that has waited longest from the queue."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled just now
                return waiter
        return None

    def _hold(self, row: int) -> PoolEnv:
        """Make the handle of an environment that a conversation gets."""
        env = self._held[row] = PoolEnv(self, row)
        return env

    def _lend(self, row: int) -> None:
        """Give a usable environment to the next conversation, now or later."""
        waiter = self._next()
        if waiter is None:
            self._free.append(row)
        else:
            waiter.set_result(self._hold(row))

    def _withdraw(self) -> None:
        """Withhold environments whose worker is not usable; end all waits if none will be."""
        self._free = deque(filter(self._rows.serves, self._free))
        while not len(self) and (waiter := self._next()) is not None:
            waiter.set_exception(self._exhausted())

    def _give_back(self, env: PoolEnv) -> None:
        """Take an environment back."""
        if not self._is_closed:
            del self._held[env.env_id]
            self._rows.restore(env.env_id, episodes=env.end())

    def _exhausted(self) -> WorkerDiedError:
        """Make the error for a pool that has no environment left."""
        fault = next(reversed(self._rows.lost.values()))
        text = "acquire: no environment is left in the pool, after too many restarts: {}"
        rows, last = range(self._envs.num_envs), len(self._rows.restarts) - 1
        error = WorkerDiedError(Message(text, str(fault)), rows, last, "acquire")
        error.__cause__ = fault
        return error


class _Lease:
    """The context manager of `pool.acquire()`."""

    def __init__(self, pool: Pool, timeout: float | None) -> None:
        self._pool, self._timeout = pool, timeout
        self._env: PoolEnv | None = None

    async def __aenter__(self) -> PoolEnv:
        if self._env is not None:
            raise RuntimeError("acquire() is for one `async with`: call it again")
        self._env = await self._pool._take(self._timeout)
        return self._env

    async def __aexit__(self, *exc_info: object) -> None:
        if self._env is not None:
            self._pool._give_back(self._env)


def _closed(call: str) -> ClosedEnvironmentError:
    return ClosedEnvironmentError(f"{call}: the pool was closed by aclose(): make a new Pool")
