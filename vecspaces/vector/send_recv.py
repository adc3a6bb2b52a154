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

_SAME_STEP = AutoresetMode.SAME_STEP  # access to members of enumerations is slow


class Transition(NamedTuple):
    """Results of some environments; every array has one row per entry of `env_ids`.

    Attributes:
        observations: The batch of observations.
        rewards: float64.
        terminations: bool.
        truncations: bool.
        infos: The merged infos, with one row per entry of `env_ids`.
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

    `together` are rows that step together, because they are one vector env. `recv` waits for
    `batch_size` environments.
    """

    def __init__(
        self,
        session: Session,
        backend: Backend,
        mode: AutoresetMode,
        together: Sequence[range],
        are_agents: bool,
        batch_size: int,
    ) -> None:
        self._session = session
        self._buffers = backend.buffers
        self._mode = mode
        self._together = together
        self._are_agents = are_agents
        #: The infos of the rows that were received last, as their environments returned them.
        self.own_infos: list[dict[str, Any]] = []
        self._batch_size = batch_size

    def check(self, rows: Sequence[int], call: str, begins: bool = False) -> None:
        """Check that rows may be sent an action now, or a reset if `begins`."""
        check_whole(rows, self._together, call, InvalidActionError)
        self._session.check_rows(rows, call, begins=begins)

    def recv(self, count: int | None, timeout: float | None, at_least: int | None) -> Transition:
        """Receive the `count` environments that were ready first, or after a time `at_least`."""
        session, queue = self._session, self._session.queue
        session.check("recv", "recv")
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
        # After an interrupt, rows may be in both until their reply is processed again.
        expected = len({*queue.under_way, *queue.ready})
        needed = count if at_least is None else at_least
        if expected < needed:
            raise NoAsyncCallError(
                f"recv waits for {needed} environments, but only {expected} were sent an action: "
                "send more first",
                "recv",
            )
        count = min(count, expected)
        enough = None if at_least is None else partial(queue.first, count, at_least)
        return session.receive(partial(queue.first, count), count, timeout, self._read, enough)

    def receive(self, rows: list[int]) -> Transition:
        """Receive these rows, in this order."""
        ready = partial(self._session.queue.each, rows)
        return self._session.receive(ready, len(rows), None, self._read)

    def _read(self, rows: list[int]) -> Transition:
        """Gather the results of ready rows."""
        buffers, session = self._buffers, self._session
        slot, queue = session.ring.current, session.queue
        self.own_infos = list(map(queue.ready.__getitem__, rows))
        infos: dict[str, Any] = {}
        if any(self.own_infos):
            by_place = {place: info for place, info in enumerate(self.own_infos) if info}
            infos = merge([gather(by_place)], len(rows))
        at = np.array(rows, dtype=np.int64)
        # Indexed twice, because one index for both takes three times as long.
        rewards = buffers.rewards[slot][at]
        terminations = buffers.terminations[slot][at]
        truncations = buffers.truncations[slot][at]
        if queue.fresh and not queue.fresh.isdisjoint(rows):
            # A reset does not write rewards and flags, so that those of the last step stay for a
            # rollout.
            fresh = [place for place, row in enumerate(rows) if row in queue.fresh]
            rewards[fresh] = 0.0
            terminations[fresh] = truncations[fresh] = False
        if buffers.infos:
            buffers.infos[slot].gather(infos, at)
        ended = terminations | truncations
        session.finished[at] = ended
        if self._are_agents:
            session.note_agents(at, infos)
        if self._mode is _SAME_STEP and ended.any():
            buffers.add_finals(infos, at, ended)
        observations = buffers.observations[slot].read(copy=True, at=at)
        return Transition(observations, rewards, terminations, truncations, infos, at)
