"""Pool: lends environments to the coroutines of an event loop.

A *conversation* is a coroutine that holds an environment. The pool is written on public methods of
a vector env: `send`, `send_reset`, `send_call`, `recv` and `restart`. The event loop watches
`fileno()`, so an `await` needs neither a task nor a thread: `_turn` receives what has come, and
wakes the conversations.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from vecspaces.aio.env import AGAIN, PoolEnv
from vecspaces.checks import check_seconds
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

#: Arguments that concern batches or autoresets, and why a pool refuses them.
_REFUSED = {
    "autoreset_mode": "a conversation resets its environment itself",
    "batch_size": "a conversation gets single values",
    "buffers": "a conversation gets single values",
    "copy": "a conversation gets copies",
    "on_worker_death": "a pool restarts workers that died",
    "on_step_timeout": "a pool replaces environments that are late",
    "stats": "a pool has its own stats()",
}
_BACKENDS = ("async", "thread")
# The longest wait of `aclose` for environments to close, in seconds.
_CLOSE_SECONDS = 4.0
# The number of checks for slow environments within `slow_warning`.
_LOOKS = 8
# How long after its time limit a row is looked for: the vector env's own limit is then over.
_LATE_SECONDS = 0.005


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
    hold its other environments get a `WorkerDiedError`. No task and no thread is started.

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
        num_workers: int | None = None,
        restart_after: int | None = None,
        **kwargs: Unpack[MakeOptions],
    ) -> None:
        given: Mapping[str, Any] = kwargs.get("vector_kwargs") or {}
        for name, why in _REFUSED.items():
            if name in kwargs or name in given:
                raise TypeError(f"Pool takes no {name}: {why}")
        if backend not in _BACKENDS:
            raise ValueError(f"backend must be 'async' or 'thread', found {backend!r}")
        if restart_after is not None and restart_after < 1:
            raise ValueError(f"restart_after must be at least 1 or None, found {restart_after}")
        count = num_envs if isinstance(env, str) or not isinstance(env, Sequence) else len(env)
        workers = count if num_workers is None else num_workers
        options: dict[str, Any] = {"backend": backend, "num_workers": workers, **kwargs}
        envs: Any = make_vec(env, num_envs, autoreset_mode=AutoresetMode.DISABLED, **options)
        if set(envs.rows_per_env) != {1} or len(envs.env_fns) != envs.num_envs:
            envs.close(terminate=True)
            raise ValueError(
                "Pool lends single environments, found a vector env, or agents with a row each: "
                "pass a factory of single environments, or agents='dict'"
            )
        self._envs, self._loop = envs, None
        self._is_closed = False
        limits = {**given, **kwargs}
        self._step_seconds: float | None = limits.get("step_timeout")
        self._start_seconds = float(limits.get("start_timeout") or 300.0)
        self._slow_seconds: float | None = limits.get("slow_warning", 60.0)
        self._max_restarts = int(limits.get("max_restarts", 3))
        self._window = float(limits.get("restart_window", 60.0))
        self._restart_after = restart_after
        # The environments of each worker, as the vector env divides them.
        bounds = [count * part // workers for part in range(workers + 1)]
        self._slices = [range(*bounds[part : part + 2]) for part in range(workers)]
        self._worker_of = [worker for worker, rows in enumerate(self._slices) for _ in rows]
        self._batch = create_empty_array(envs.single_action_space, 1)
        # Each row is free, held, lost, or (none of these) being restored; `_pending` has the rows
        # that were sent a command, and when each is late; `_broken` those that failed.
        self._held: dict[int, PoolEnv] = {}
        self._lost: dict[int, Exception] = {}
        self._pending: dict[int, float] = {}
        self._broken: set[int] = set()
        self._new = set(range(count))
        longest = max(map(len, self._slices))
        # The first conversations get environments of different workers.
        self._free = deque(
            rows[place] for place in range(longest) for rows in self._slices if place < len(rows)
        )
        self._waiting: deque[asyncio.Future[PoolEnv]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._counts = Counter[str]()
        self._begun = [0] * workers  # episodes since the worker was started
        self._restarts, self._renewals = [0] * workers, [0] * workers
        self._restarted_at: list[deque[float]] = [deque() for _ in range(workers)]

    def __repr__(self) -> str:
        return f"<Pool of {len(self)} environments, {self.free} free>"

    def __len__(self) -> int:
        """The number of environments, of which some may be in use or be built again."""
        return len(self._worker_of) - len(self._lost)

    @property
    def free(self) -> int:
        """The number of environments that `acquire` can return at once."""
        return len(self._free)

    @property
    def observation_space(self) -> Space[Any]:
        """The space of the observations of one environment."""
        space: Space[Any] = self._envs.single_observation_space
        return space

    @property
    def action_space(self) -> Space[Any]:
        """The space of the actions of one environment."""
        space: Space[Any] = self._envs.single_action_space
        return space

    def stats(self) -> PoolStats:
        """Return the states of the environments, and counts so far."""
        counts, used = self._counts, self.free + len(self._held)
        return PoolStats(
            self.free,
            len(self._held),
            len(self) - used,
            len(self._lost),
            len(self._waiting),
            counts["reset"],
            counts["step"],
            counts["failure"],
            counts["timeout"],
            tuple(self._restarts),
            tuple(self._renewals),
        )

    # ------------------------------------------------------------------ the event loop

    async def __aenter__(self) -> Pool:
        """Attach the pool to the running event loop."""
        if self._is_closed:
            raise _closed("async with")
        if self._loop is not None:
            raise RuntimeError("a Pool is for one `async with`: make another one")
        self._loop = loop = asyncio.get_running_loop()
        pool = weakref.ref(self)  # a pool that is dropped must be collected

        def turn() -> None:
            if (alive := pool()) is not None:
                alive._turn()

        try:
            loop.add_reader(self._envs.fileno(), turn)
        except NotImplementedError as error:
            await self.aclose()
            raise RuntimeError(
                f"Pool needs an event loop that watches descriptors, which {loop!r} does "
                "not: use asyncio.SelectorEventLoop"
            ) from error
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the pool."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close every environment and end every worker, within five seconds; can be repeated.

        Running conversations get a `ClosedEnvironmentError`. A thread closes the environments, so
        that the event loop is not blocked.

        Raises:
            Exception: What an environment raised in its own `close`, after everything is freed.
            WorkerDiedError: A worker died while it closed its environments.
        """
        if self._loop is not None:
            self._check_loop("aclose")
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        if self._loop is not None:
            loop.remove_reader(self._envs.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for env in self._held.values():
            if env.is_awaited:
                env.fail(lambda: _closed("a call"))
        while (waiter := self._next()) is not None:
            waiter.set_exception(_closed("acquire"))
        ended: asyncio.Future[None] = loop.create_future()

        def close() -> None:
            error: BaseException | None = None
            try:
                self._envs.close(_CLOSE_SECONDS)
            except BaseException as raised:
                error = raised
            loop.call_soon_threadsafe(_set, ended, error)

        thread = threading.Thread(target=close, name="vecspaces-aclose", daemon=True)
        thread.start()
        try:
            await ended
        except BaseException:  # a cancellation, or a second Ctrl-C: all ends at once
            for process in getattr(self._envs, "processes", ()):
                process.kill()
            raise
        finally:
            thread.join(_CLOSE_SECONDS)

    def check(self, call: str) -> None:
        """Raise if the pool cannot be used now, or from here."""
        if self._is_closed or self._envs.closed:
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

    # ------------------------------------------------------------------ commands

    def send(self, row: int, call: str, *args: Any, **kwargs: Any) -> None:
        """Send a row a "reset", a "step", or a "call" (also to find out whether it is built)."""
        seconds = self._step_seconds
        if call == "reset":
            self._envs.send_reset([row], **kwargs)
            if row in self._new:  # it may start a simulator
                seconds = seconds or self._start_seconds
            self._begun[self._worker_of[row]] += 1
        elif call == "step":
            self._send_action(row, *args)
        else:
            self._envs.send_call([row], *args, **kwargs)
        self._counts[call] += 1
        late_at = float("inf") if seconds is None else time.monotonic() + seconds + _LATE_SECONDS
        self._pending[row] = late_at
        looks_at = float("inf")
        if self._slow_seconds is not None:
            looks_at = time.monotonic() + self._slow_seconds / _LOOKS
        self._wake_at(min(late_at, looks_at))

    def _send_action(self, row: int, action: Any) -> None:
        """Send a row an action."""
        space = self.action_space
        try:
            self._envs.send(concatenate(space, [action], self._batch), [row])
        except (InvalidActionError, TypeError, ValueError) as error:
            what = space.explain(action, name="action")
            if what is None:
                raise
            raise InvalidActionError(
                f"step: {what} for environment {row}: the environment was not stepped; actions "
                f"must lie in {space}"
            ) from error

    def _wake_at(self, when: float) -> None:
        """Look for late and slow rows at this time at the latest."""
        if when < self._timer_at and self._loop is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._loop.call_later(max(0.0, when - time.monotonic()), self._look)

    def _look(self) -> None:
        """Receive what has come, which finds late and slow rows."""
        self._timer_at = float("inf")
        try:
            self._turn()
        finally:  # a warning may be an error
            when = min(self._pending.values(), default=float("inf"))
            if self._pending and self._slow_seconds is not None:
                when = min(when, time.monotonic() + self._slow_seconds / _LOOKS)
            self._wake_at(max(when, time.monotonic() + _LATE_SECONDS))

    def _turn(self) -> None:
        """Receive what has come, wake the conversations, and repair what failed."""
        count = len(self._worker_of)
        came = self._envs.recv(count, timeout=0, at_least=0, return_errors=True)
        losses: dict[int, WorkerDiedError | StepTimeoutError] = {}
        for row, error in came.errors.items():
            is_awaited = self._pending.pop(row, None) is not None
            if isinstance(error, WorkerDiedError) and row in error.env_ids:
                losses.setdefault(self._worker_of[row], error)
            elif isinstance(error, StepTimeoutError) and row in error.env_ids:
                self._counts["timeout"] += 1
                losses[self._worker_of[row]] = error
                if row in self._held:
                    self._held[row].fail(_again(error))
            elif is_awaited:
                self._note_failure(row, error)
        rows = came.env_ids.tolist()
        infos: Mapping[str, Any] = came.infos
        keys = [key for key in self._envs.info_space or () if key in infos]
        observations = iterate(self._envs.observation_space, came.observations) if rows else ()
        for place, (row, observation) in enumerate(zip(rows, observations, strict=False)):
            info = dict(came.row_infos[place])
            info.update({key: infos[key][place] for key in keys if infos[f"_{key}"][place]})
            reward, ends = float(came.rewards[place]), came.terminations[place]
            result = observation, reward, bool(ends), bool(came.truncations[place]), info
            self._broken.discard(row)
            self._new.discard(row)
            self._answer(row, result)
        for row, result in came.results.items():
            self._answer(row, result)
        for worker, loss in losses.items():
            self._lose(worker, loss)

    def _answer(self, row: int, result: Any) -> None:
        """Return a result to the conversation of a row, or make the row usable."""
        self._pending.pop(row, None)
        if row in self._held:
            self._held[row].answer(result)
        else:
            self._restore(row)

    def _note_failure(self, row: int, error: Exception) -> None:
        """Raise an exception in the conversation of a row, whose next reset builds it again."""
        env, worker = self._held.get(row), self._worker_of[row]
        is_call = env is not None and env.command == "call"
        was_broken = row in self._broken
        if env is not None:
            self._counts["failure"] += 1
            env.raise_own(error)
        if not is_call:
            self._broken.add(row)
        if was_broken and not is_call and not self._may_restart(worker):
            text = f"environment {row} could not be built again: {error!r}"
            fault = WorkerDiedError(text, [row], worker, "build")
            fault.__cause__ = error
            self._part_with([row], fault)
        elif env is None:
            self._restore(row)

    # ------------------------------------------------------------------ repairs

    def _restore(self, row: int) -> None:
        """Make a row that no conversation holds usable, and then lend it."""
        if row in self._held or row in self._pending or row in self._lost:
            return
        worker = self._worker_of[row]
        if self._is_due(worker):
            if any(other in self._held or other in self._pending for other in self._slices[worker]):
                return  # the last of its rows comes here too
            self._renewals[worker] += 1
            self._start_again(worker, terminate=False)
        else:
            self._lend(row)

    def _is_due(self, worker: int) -> bool:
        """Whether a worker has begun so many episodes that it is started again."""
        return self._restart_after is not None and self._begun[worker] >= self._restart_after

    def _start_again(self, worker: int, terminate: bool) -> None:
        """Start a worker again; its rows are usable when it has built them, and answered a call."""
        rows = self._slices[worker]
        self._begun[worker] = 0
        self._free = deque(row for row in self._free if row not in rows)
        self._envs.restart(rows, terminate=terminate)
        self._new.update(rows)
        self._broken.difference_update(rows)
        for row in rows:
            self._pending.pop(row, None)
            if row not in self._lost:
                self.send(row, "call", _do_nothing)

    def _lose(self, worker: int, loss: WorkerDiedError | StepTimeoutError) -> None:
        """Restart a worker, and raise the error in the conversations of its rows."""
        rows, what = self._slices[worker], str(loss).partition(": ")[0]
        if isinstance(loss, StepTimeoutError):
            what = f"worker {worker} was ended: {what}"
        for row in rows:
            if row in self._held:
                text = f"{what}: the episode is lost: {AGAIN}"
                self._held[row].fail(_again(_reworded(loss, text, rows, worker)))
        if self._may_restart(worker):
            self._restarts[worker] += 1
            log.warning("%s: restarted", what)
            try:
                self._start_again(worker, terminate=True)
                return
            except Exception as error:  # the system refused a process
                loss = WorkerDiedError(f"{what}: {error!r}", rows, worker, "build")
        self._part_with(rows, _reworded(loss, f"{what}, and max_restarts is reached", rows, worker))

    def _may_restart(self, worker: int) -> bool:
        """Count a restart of a worker; return whether it is allowed."""
        times, now = self._restarted_at[worker], time.monotonic()
        times.append(now)
        while times[0] < now - self._window:
            times.popleft()
        return len(times) <= self._max_restarts

    def _part_with(self, rows: Iterable[int], fault: Exception) -> None:
        """Remove environments from the pool; end all waits if none is left."""
        self._lost.update(dict.fromkeys(rows, fault))
        for row in rows:
            self._pending.pop(row, None)
        names = ", ".join(map(str, rows))
        log.error("environment%s %s left the pool: %s", "s" * ("," in names), names, fault)
        self._free = deque(row for row in self._free if row not in self._lost)
        while not len(self) and (waiter := self._next()) is not None:
            waiter.set_exception(self._exhausted())

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

    async def take(self, timeout: float | None) -> PoolEnv:
        """Wait for a free environment, for `acquire`."""
        self.check("acquire")
        if not len(self):
            raise self._exhausted()
        if self._free:
            return self._hold(self._free.popleft())
        waiter: asyncio.Future[PoolEnv] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(waiter.result())  # it came at the same time as the cancellation
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
        env = self._held[row] = PoolEnv(self, row, row in self._broken)
        return env

    def _lend(self, row: int) -> None:
        """Give a usable environment to the next conversation, now or later."""
        waiter = self._next()
        if waiter is None:
            self._free.append(row)
        else:
            waiter.set_result(self._hold(row))

    def give_back(self, env: PoolEnv) -> None:
        """Take an environment back, at the end of its conversation."""
        env.end()
        if not self._is_closed:
            del self._held[env.env_id]
            self._restore(env.env_id)

    def _exhausted(self) -> WorkerDiedError:
        """Make the error for a pool that has no environment left."""
        fault = next(reversed(self._lost.values()))
        text = f"acquire: no environment is left in the pool, after too many restarts: {fault}"
        rows, last = range(len(self._worker_of)), len(self._slices) - 1
        error = WorkerDiedError(text, rows, last, "acquire")
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
        self._env = await self._pool.take(self._timeout)
        return self._env

    async def __aexit__(self, *exc_info: object) -> None:
        if self._env is not None:
            self._pool.give_back(self._env)


def _closed(call: str) -> ClosedEnvironmentError:
    return ClosedEnvironmentError(f"{call}: the pool was closed by aclose(): make a new Pool")


def _set(future: asyncio.Future[None], error: BaseException | None) -> None:
    """End a future from another thread."""
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _do_nothing(env: Any) -> None:
    """Answer when the environment is built."""


def _again(error: Exception) -> Callable[[], Exception]:
    """Return a function that copies an error, since an exception that is raised again grows."""

    def make() -> Exception:
        copied = copy.copy(error)
        copied.__cause__ = error.__cause__
        return copied

    return make


def _reworded(
    loss: WorkerDiedError | StepTimeoutError, text: str, rows: range, worker: int
) -> WorkerDiedError:
    """Return the error of a worker that is lost, with another text."""
    if isinstance(loss, WorkerDiedError):
        error = copy.copy(loss)
        error.args = (text, *loss.args[1:])
    else:
        error = WorkerDiedError(text, rows, worker, "step", stack=loss.stack)
    error.__cause__ = loss.__cause__ if isinstance(loss, WorkerDiedError) else loss
    return error
