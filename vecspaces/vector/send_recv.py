"""`send` and `recv`: actions to some environments, results of those that are ready first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count
from vecspaces.errors import InvalidActionError, NoAsyncCallError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.engine.arguments import check_whole
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.rows import BUSY, FRESH, VOID
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import gather, merge

_SAME_STEP = AutoresetMode.SAME_STEP  # access to members of enumerations is slow


class _Fields(NamedTuple):
    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: npt.NDArray[np.int64]


class Transition(_Fields):
    """Results of some environments; every array has one row per entry of `env_ids`.

    It is a tuple of six values; the others are attributes.

    Attributes:
        observations: The batch of observations.
        rewards: float64.
        terminations: bool.
        truncations: bool.
        infos: The merged infos, with one row per entry of `env_ids`.
        env_ids: The environments, int64.
        errors: With `recv(return_errors=True)`, the exception of each environment that failed.
        results: The result of each environment that was called by `send_call`.
        row_infos: For each entry of `env_ids`, the info as the environment returned it, without the
            keys of the `info_space`.
        begins: For each entry of `env_ids`, whether it is the result of a reset, not of a step.
    """

    errors: Mapping[int, Exception] = MappingProxyType({})
    results: Mapping[int, Any] = MappingProxyType({})
    row_infos: Sequence[dict[str, Any]] = ()
    begins: npt.NDArray[np.bool_] | Sequence[bool] = ()

    def _replace(self, **changes: Any) -> Self:
        """Return the same with other values, and with the attributes."""
        transition = super()._replace(**changes)
        vars(transition).update(vars(self))
        return transition


class SendRecv:
    """`send` and `recv` of a vector env, for environments that do not step together.

    `together` are rows that step together, because they are one vector env. `recv` waits for
    `batch_size` environments.
    """

    def __init__(
        self,
        engine: Engine,
        backend: Backend,
        mode: AutoresetMode,
        together: Sequence[range],
        are_agents: bool,
        batch_size: int,
    ) -> None:
        self._engine = engine
        self._buffers = backend.buffers
        self._mode = mode
        self._together = together
        self._are_agents = are_agents
        self._batch_size = batch_size

    def check(self, rows: Sequence[int], call: str, name: str) -> None:
        """Check that rows may be sent an action, a reset or a call now."""
        check_whole(rows, self._together, name, InvalidActionError)
        self._engine.check_rows(rows, call, name)

    def recv(
        self,
        count: int | None,
        timeout: float | None,
        at_least: int | None,
        return_errors: bool = False,
    ) -> Transition:
        """Receive the `count` environments that were ready first, or after a time `at_least`."""
        engine = self._engine
        engine.check("recv", "recv")
        if count is None:
            count = self._batch_size
        else:
            check_count("count", count)
        if at_least is not None and not 0 <= check_count("at_least", at_least, 0) <= count:
            raise ValueError(f"at_least must be at most count={count}, found {at_least}")
        widths = set(map(len, self._together)) if self._are_agents else ()
        if len(widths) == 1:
            for name, number in (("count", count), ("at_least", at_least or 0)):
                if number % min(widths):
                    raise ValueError(
                        f"recv: {name} must be a multiple of {min(widths)}, the agents of one "
                        f"environment, whose rows are ready together; found {number}"
                    )
        expected = len(engine.rows.having(BUSY)) + len(engine.rows.ready)
        needed = count if at_least is None else at_least
        if expected < needed:
            raise NoAsyncCallError(
                f"recv waits for {needed} environments, but only {expected} were sent an action: "
                "send more first",
                "recv",
            )
        count = min(count, expected)
        read = self._read_with_errors if return_errors else self._read
        return engine.receive(read, count, timeout, None, at_least, return_errors)

    def receive(self, rows: list[int]) -> Transition:
        """Receive these rows, in this order."""
        return self._engine.receive(self._read, len(rows), None, rows)

    def _read_with_errors(self, rows: list[int]) -> Transition:
        """Gather the results of ready rows, and the exceptions of those that failed."""
        table = self._engine.rows
        failures = {row: table.failures[row] for row in rows if row in table.failures}
        for row in rows:
            if isinstance(table.results.get(row), Failure):
                failures[row] = table.results[row]
        result = self._read([row for row in rows if row not in failures])
        result.errors = {row: failure.caught() for row, failure in failures.items()}
        return result

    def _read(self, rows: list[int]) -> Transition:
        """Gather the results of ready rows."""
        results = self._engine.rows.results
        if not results:
            return self._read_rows(rows)
        transition = self._read_rows([row for row in rows if row not in results])
        transition.results = {row: results[row] for row in rows if row in results}
        return transition

    def _read_rows(self, rows: list[int]) -> Transition:
        """Gather what ready rows wrote."""
        buffers, table = self._buffers, self._engine.rows
        slot = self._engine.ring.current
        own_infos = list(map(table.ready.__getitem__, rows))
        infos: dict[str, Any] = {}
        if any(own_infos):
            given = {place: info for place, info in enumerate(own_infos) if info}
            infos = merge([gather(given)], len(rows))
        at = np.array(rows, dtype=np.int64)
        # Indexed twice, because one index for both takes three times as long.
        rewards = buffers.rewards[slot][at]
        terminations = buffers.terminations[slot][at]
        truncations = buffers.truncations[slot][at]
        flags = table.flags[at]
        fresh = flags & FRESH != 0
        if fresh.any():
            # A reset does not write rewards and flags, so that those of the last step stay for a
            # rollout.
            rewards[fresh] = 0.0
            terminations[fresh] = truncations[fresh] = False
        if buffers.infos:
            buffers.infos[slot].gather(infos, at)
        ended = terminations | truncations
        table.note_ends(at, ended)
        if self._are_agents:
            table.note_agents(at, infos)
        if self._mode is _SAME_STEP and ended.any():
            buffers.add_finals(infos, at, ended)
        observations = buffers.observations[slot].read(copy=True, at=at)
        transition = Transition(observations, rewards, terminations, truncations, infos, at)
        transition.row_infos = own_infos
        transition.begins = flags & (FRESH | VOID) != 0
        return transition
