"""`call`, `get_attr`, `set_attr`, `stats`: the commands that write no rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.engine.arguments import check_env_ids
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.rows import LOST
from vecspaces.vector.engine.tickets import Ticket
from vecspaces.vector.exchange.messages import CallRows, Op, SetAttr
from vecspaces.vector.exchange.stats import Stats, summarise

Results = tuple[Any, ...]


def check_called(name: Any) -> None:
    """Refuse to call the methods that a vector env, or a pool, has itself."""
    if name in ("reset", "step", "close"):
        raise ValueError(
            f"call({name!r}) would go past the bookkeeping of episodes: use {name}() itself"
        )


class Calls:
    """The commands of a vector env that write no rows."""

    def __init__(self, engine: Engine, backend: Backend) -> None:
        self._engine = engine
        self._backend = backend
        self._env_ids: list[int] = []  # the environments of the pending call

    def call(self, call: str, name: Any, args: Results, kwargs: Any, env_ids: Any) -> Results:
        """Call a method or function, or get an attribute: one result per environment."""
        return self._run(call, Op.CALL, self._payloads(call, name, args, kwargs, env_ids))

    def begin(self, call: str, name: Any, args: Results, kwargs: Any, env_ids: Any) -> None:
        """Begin what `call` does."""
        payloads = self._payloads(call, name, args, kwargs, env_ids)
        self._engine.issue_call(call, Op.CALL, payloads)

    def end(self, call: str, timeout: float | None) -> Results:
        """End the pending call."""
        return self._engine.finish("call", call, timeout, self._read)

    def set_attr(self, name: str, values: Any, env_ids: Any) -> None:
        """Set an attribute, to one value per environment or to one for all."""
        by_worker = self._choose("set_attr", env_ids)
        ids = self._env_ids
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
        self._run("set_attr", Op.SET_ATTR, payloads)

    def stats(self) -> Stats:
        """Collect the counters, if no other command is pending, and summarise them."""
        engine, backend = self._engine, self._backend
        if "env_counters" not in backend.buffers.plan.arrays:
            raise ValueError("stats() needs a vector env that was made with stats=True")
        if not (engine.replies.pending or engine.rows.having(LOST)):
            engine.check("call", "stats")
            workers = engine.everyone.keys() - engine.supervisor.unusable
            self._run("stats", Op.STATS, dict.fromkeys(sorted(workers)))
        counters = backend.buffers.counters
        assert counters is not None
        restarts = np.array(engine.supervisor.restarts, np.int64)
        lost = engine.rows.lost_episodes
        return summarise(*counters, tuple(backend.slices), backend.clock, restarts, lost)

    def _payloads(
        self, call: str, name: Any, args: Results, kwargs: Any, env_ids: Any
    ) -> dict[int, Any]:
        """Check a call; return the arguments for each worker."""
        check_called(name)
        chosen = self._choose(call, env_ids)
        return {worker: CallRows((name, args, kwargs), rows) for worker, rows in chosen.items()}

    def _choose(self, call: str, env_ids: Any) -> dict[int, list[int]]:
        """Note the environments of a call that is legal now; return them by worker."""
        self._engine.check("call", call)
        rows = check_env_ids(env_ids, self._backend.buffers.plan.num_envs)
        self._engine.check_rows(rows, "call", call)
        self._env_ids = rows
        return self._engine.supervisor.of_rows(rows)

    def _run(self, call: str, op: Op, payloads: Mapping[int, Any]) -> Results:
        """Begin a command and wait for it."""
        self._engine.issue_call(call, op, payloads)
        return self.end(call, None)

    def _read(self, ticket: Ticket) -> Results:
        """Return the results of a call; store the counters of workers that share no memory."""
        op, by_row = ticket.op, dict[int, Any]()
        for worker, payload in ticket.results.items():
            if op is Op.CALL:
                by_row.update(payload)
            elif op is Op.STATS and payload is not None:
                rows = self._backend.slices[worker]
                self._backend.buffers.load_counters(worker, rows.start, rows.stop, payload)
        return tuple(by_row[row] for row in self._env_ids) if op is Op.CALL else ()
