"""`send` and `recv`: actions to some environments, results of those that are ready first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count
from vecspaces.errors import InvalidActionError, NoAsyncCallError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.infos import gather, merge
from vecspaces.vector.session.arguments import check_whole
from vecspaces.vector.session.session import Session
from vecspaces.vector.session.wait import Ready


class Transition(NamedTuple):
    """What some environments returned; every array has one row per entry of `env_ids`.

    Attributes:
        observations: The batch of observations.
        rewards: float64.
        terminations: bool.
        truncations: bool.
        infos: The merged infos; their arrays follow `env_ids` too.
        env_ids: The environments, int64.
    """

    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: npt.NDArray[np.int64]


class SendRecv:
    """`send` and `recv` of a vector env, for environments that do not step together.

    `together` are rows that step as one, because they are one vector env. `recv` waits for
    `batch_size` environments; None: all.
    """

    def __init__(
        self,
        session: Session,
        backend: Backend,
        mode: AutoresetMode,
        together: Sequence[range],
        are_agents: bool,
        batch_size: int | None,
    ) -> None:
        self._session = session
        self._buffers = backend.buffers
        self._mode = mode
        self._together = together
        self._are_agents = are_agents
        num_envs = self._buffers.plan.num_envs
        self.batch_size = num_envs if batch_size is None else batch_size
        if not 1 <= self.batch_size <= num_envs:
            raise ValueError(
                f"batch_size must lie between 1 and num_envs={num_envs}, found {batch_size}"
            )

    def check(self, rows: Sequence[int], call: str, begins: bool = False) -> None:
        """Check that rows may be sent an action now, or one that `begins` an episode."""
        check_whole(rows, self._together, call, InvalidActionError)
        self._session.check_rows(rows, call, begins=begins)

    def recv(self, count: int | None, timeout: float | None) -> Transition:
        """Receive the `count` environments that were ready first."""
        session, queue = self._session, self._session.queue
        session.check("recv", "recv")
        if count is None:
            count = self.batch_size
        else:
            check_count("count", count)
        widths = set(map(len, self._together)) if self._are_agents else set()
        if len(widths) == 1 and count % min(widths):
            raise ValueError(
                f"recv: count must be a multiple of {min(widths)}, the agents of one environment, "
                f"whose rows are ready together; found {count}"
            )
        expected = len(queue.under_way) + len(queue.ready)
        if expected < count:
            raise NoAsyncCallError(
                f"recv waits for {count} environments, but only {expected} were sent an action: "
                "send more first",
                "recv",
            )
        return self._receive(partial(queue.first, count), count, timeout)

    def receive(self, rows: list[int]) -> Transition:
        """Receive these rows, in this order."""
        return self._receive(partial(self._session.queue.each, rows), len(rows), None)

    def _receive(self, ready: Ready, count: int, timeout: float | None) -> Transition:
        session = self._session
        rows = session.receive(ready, count, timeout)
        try:
            result = self._read(rows)
            session.commit_rows(rows)
        except BaseException as error:
            if isinstance(error, RecursionError):
                infos = {row: session.queue.ready[row] for row in rows}
                if session.fail_endless(infos, streams=True):
                    return self._receive(ready, count, timeout)  # raises what was found
            session.suspend(error)
            raise
        return result

    def _read(self, rows: list[int]) -> Transition:
        """Gather the results of rows that are ready."""
        queue = self._session.queue
        given = {place: queue.ready[row] for place, row in enumerate(rows) if queue.ready[row]}
        infos = merge([gather(given)], len(rows)) if given else {}
        return self.read_rows(rows, infos)

    def read_rows(
        self, rows: list[int], infos: dict[str, Any], declared: bool = True
    ) -> Transition:
        """Gather what rows wrote into the current slot, and the infos that were merged for them."""
        at = np.array(rows, dtype=np.int64)
        buffers, session = self._buffers, self._session
        slot, queue = session.ring.current, session.queue
        rewards = buffers.rewards[slot, at]
        terminations = buffers.terminations[slot, at]
        truncations = buffers.truncations[slot, at]
        if not queue.fresh.isdisjoint(rows):
            # A reset writes no rewards and flags: those of the last step stay for a rollout.
            fresh = [place for place, row in enumerate(rows) if row in queue.fresh]
            rewards[fresh] = 0.0
            terminations[fresh] = truncations[fresh] = False
        if buffers.infos and declared:
            buffers.infos[slot].gather(infos, at)
        ended = terminations | truncations
        session.finished[at] = ended
        if self._are_agents:
            session.note_agents(at, infos)
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            buffers.add_finals(infos, at, ended)
        observations = buffers.observations[slot].read(copy=True, at=at)
        return Transition(observations, rewards, terminations, truncations, infos, at)
