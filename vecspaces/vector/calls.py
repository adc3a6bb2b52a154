"""`call`, `get_attr`, `set_attr`, `stats`: the commands that write no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.engine.arguments import check_env_ids
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.replies import results_of
from vecspaces.vector.engine.rows import LOST
from vecspaces.vector.exchange.messages import Call, CallRows, Op, SetAttr
from vecspaces.vector.exchange.stats import Stats, summarise
from vecspaces.vector.group.attributes import get_attribute

Results = tuple[Any, ...]


def check_called(name: Any) -> None:
    """Refuse to call the methods that a vector env, or a pool, has itself."""
    if name in ("reset", "step", "close"):
        raise ValueError(
            f"call({name!r}) would go past the bookkeeping of episodes: use {name}() itself"
        )


class Calls:
    """The calls of `ManagedVectorEnv` that write no rows."""

    _engine: Engine
    _backend: Backend
    _called: Sequence[int]  # the environments of the pending call

    @property
    def np_random(self) -> Any:
        """The environments' generators, one per environment; those of workers are copies."""
        return self.get_attr("np_random")

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.set_attr("np_random", value)

    @property
    def np_random_seed(self) -> Any:
        """The seeds of the environments, one seed per environment."""
        return self.get_attr("np_random_seed")

    def call(
        self,
        name: str | Callable[..., Any],
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Call a method of the environments, or get an attribute that is not a method.

        Args:
            name: The method or attribute, which is searched in wrappers too; or a function, which
                is called in the environment's process with the environment as its first argument.
                If the environment is in a vector env of Gymnasium, the argument is this vector env.
            *args: Positional arguments.
            env_ids: The environments concerned; None: all.
            **kwargs: Keyword arguments.

        Returns:
            One result per environment.

        Raises:
            ValueError: `name` is `reset`, `step` or `close`, for which the vector env has methods.
        """
        return self._run_call("call", name, args, kwargs, env_ids)

    def call_async(
        self,
        name: str | Callable[..., Any],
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin a `call`; `call_wait` ends it. The arguments are those of `call`."""
        self._issue_call("call_async", name, args, kwargs, env_ids)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End a `call` that `call_async` began.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            One result per environment; `()` if it ends a `set_attr` or `stats` whose own wait
            timed out or was interrupted.

        Raises:
            NoAsyncCallError: No call is pending.
            StepTimeoutError: It took too long; the call stays pending.
        """
        return self._end_call("call_wait", timeout)

    def get_attr(
        self, name: str, *indices: Any, env_ids: Sequence[int] | None = None
    ) -> tuple[Any, ...]:
        """Get an attribute of the environments or of their wrappers, which is not called.

        Args:
            name: The attribute.
            *indices: Not allowed; Stable-Baselines3's wrappers pass them.
            env_ids: The environments concerned; None: all.

        Returns:
            One value per environment.
        """
        if indices:
            raise TypeError(
                "get_attr takes environments as env_ids=[...]; a wrapper of Stable-Baselines3 "
                "takes vecspaces.adapters.stable_baselines3.as_vec_env(envs)"
            )
        return self._run_call("get_attr", get_attribute, (name,), {}, env_ids)

    def set_attr(self, name: str, values: Any, *, env_ids: Sequence[int] | None = None) -> None:
        """Set an attribute of environments, on the wrapper that has it, or else on the environment.

        Args:
            name: The attribute.
            values: A list or tuple of one value per environment concerned, or one value for all.
            env_ids: The environments concerned; None: all.

        Raises:
            ValueError: A wrong number of values.
        """
        by_worker = self._choose_called("set_attr", env_ids)
        ids = self._called
        if not isinstance(values, (list, tuple)):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ValueError(
                f"set_attr({name!r}) got {len(values)} values for {len(ids)} environments: "
                "give one per environment, or one that is no list or tuple for all"
            )
        chosen = dict(zip(ids, values, strict=True))
        payloads = {
            worker: SetAttr(name, {row: chosen[row] for row in rows})
            for worker, rows in by_worker.items()
        }
        self._engine.issue_call("set_attr", Op.SET_ATTR, payloads)
        self._end_call("set_attr")

    def render(self, *, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Render environments.

        Environments that share a worker render in one process. If their frames look wrong,
        `num_workers=num_envs` gives each environment its own process.

        Args:
            env_ids: The environments concerned; None: all.

        Returns:
            One frame per environment, as its `render` returns it.
        """
        return self._run_call("render", "render", (), {}, env_ids)

    def stats(self) -> Stats:
        """Return how long steps and autoresets take, and how the caller spends its time.

        Returns:
            Counts, means and longest times of steps, busy times of workers, and the bottleneck.

        Raises:
            ValueError: The vector env was not made with `stats=True`.
        """
        engine, backend = self._engine, self._backend
        if "env_counters" not in backend.buffers.plan.arrays:
            raise ValueError("stats() needs a vector env that was made with stats=True")
        if not (engine.replies.pending or engine.rows.having(LOST)):
            engine.check("call", "stats")
            workers = engine.everyone.keys() - engine.supervisor.unusable
            engine.issue_call("stats", Op.STATS, dict.fromkeys(sorted(workers)))
            self._end_call("stats")
        counters = backend.buffers.counters
        assert counters is not None
        restarts = np.array(engine.supervisor.restarts, np.int64)
        lost = engine.rows.lost_episodes
        return summarise(*counters, tuple(backend.slices), backend.clock, restarts, lost)

    def _run_call(self, call: str, name: Any, args: Results, kwargs: Any, env_ids: Any) -> Results:
        """Call a method or function, or get an attribute: one result per environment."""
        self._issue_call(call, name, args, kwargs, env_ids)
        return self._end_call(call)

    def _issue_call(self, call: str, name: Any, args: Results, kwargs: Any, env_ids: Any) -> None:
        """Begin what `_run_call` does."""
        check_called(name)
        chosen = self._choose_called(call, env_ids)
        call_of = Call(name, args, kwargs)
        payloads = {worker: CallRows(call_of, rows) for worker, rows in chosen.items()}
        self._engine.issue_call(call, Op.CALL, payloads)

    def _choose_called(self, call: str, env_ids: Any) -> dict[int, list[int]]:
        """Note the environments of a call that is legal now; return them by worker."""
        self._engine.check("call", call)
        rows = check_env_ids(env_ids, self._backend.buffers.plan.num_envs)
        self._engine.check_rows(rows, "call", call)
        self._called = rows
        return self._engine.supervisor.of_rows(rows)

    def _end_call(self, call: str, timeout: float | None = None) -> Results:
        """Wait for the pending call; store the counters of workers that share no memory."""
        ticket, backend = self._engine.wait("call", call, timeout), self._backend
        by_row = results_of(ticket) if ticket.op is Op.CALL else {}
        for worker, counters in ticket.results.items() if ticket.op is Op.STATS else ():
            if counters is not None:
                backend.buffers.load_counters(worker, backend.slices[worker], counters)
        self._engine.finish(ticket)
        return tuple(by_row[row] for row in self._called if by_row)
