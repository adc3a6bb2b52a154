"""Send actions to some environments, receive those that are ready first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count
from vecspaces.errors import AlreadyPendingCallError, InvalidActionError, NoAsyncCallError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import Message
from vecspaces.vector.exchange.infos import gather, merge
from vecspaces.vector.session.session import Session
from vecspaces.vector.session.states import Event


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
    """What a vector env has for environments that do not step together.

    `together` are rows that step as one, because they are one vector env. `recv` waits for
    `batch_size` environments; None: all.
    """

    def __init__(
        self,
        session: Session,
        backend: Backend,
        mode: AutoresetMode,
        together: Sequence[range],
        batch_size: int | None,
    ) -> None:
        self._session = session
        self._buffers = backend.buffers
        self._mode = mode
        self._together = together
        num_envs = self._buffers.plan.num_envs
        self.batch_size = num_envs if batch_size is None else batch_size
        if not 1 <= self.batch_size <= num_envs:
            raise ValueError(
                f"batch_size must lie between 1 and num_envs={num_envs}, found {batch_size}"
            )

    def check(self, rows: Sequence[int], call: str) -> None:
        """Check that rows may be sent an action now."""
        self._session.check(Event.SEND, call)
        if self._together:
            self._check_together(set(rows), call)
        queue = self._session.queue
        if queue.outstanding.keys().isdisjoint(rows) and queue.ready.keys().isdisjoint(rows):
            return
        busy = [row for row in rows if row in queue.outstanding]
        unread = [row for row in rows if row in queue.ready and row not in queue.fresh]
        if busy or unread:
            what = "is not there yet" if busy else "was not received yet"
            rows = busy or unread
            raise AlreadyPendingCallError(
                Message("{}: the last reply of {:envs} {}: recv first", call, rows, what), "send"
            )

    def _check_together(self, rows: set[int], call: str) -> None:
        """A vector env among the environments takes all of its actions at once."""
        for together in self._together:
            if 0 < len(rows.intersection(together)) < len(together):
                raise InvalidActionError(
                    Message(
                        "{}: {:envs} are one vector env, which steps as a whole: "
                        "send all of its actions together",
                        call,
                        together,
                    )
                )

    def recv(self, count: int | None, timeout: float | None) -> Transition:
        """Receive the `count` environments that were ready first."""
        session, queue = self._session, self._session.queue
        session.check(Event.RECV, "recv")
        if count is None:
            count = self.batch_size
        else:
            check_count("count", count)
        expected = len(queue.outstanding) + len(queue.ready)
        if expected < count:
            raise NoAsyncCallError(
                f"recv waits for {count} environments, but only {expected} were sent an action: "
                "send more first",
                "recv",
            )

        def ready() -> list[int] | None:
            return list(islice(queue.ready, count)) if len(queue.ready) >= count else None

        return session.receive_rows("recv", count, timeout, ready, self._read)

    def receive(self, rows: list[int], call: str, timeout: float | None) -> Transition:
        """Receive these rows, in this order."""
        queue = self._session.queue

        def ready() -> list[int] | None:
            return rows if all(row in queue.ready for row in rows) else None

        return self._session.receive_rows(call, len(rows), timeout, ready, self._read)

    def _read(self, rows: list[int]) -> Transition:
        """Gather the results of rows that are ready."""
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
        given = {place: queue.ready[row] for place, row in enumerate(rows) if queue.ready[row]}
        try:
            infos = merge([gather(given)], len(rows)) if given else {}
        except RecursionError:
            session.refuse_endless({row: queue.ready[row] for row in rows})
            raise
        if buffers.infos:
            buffers.infos[slot].gather(infos, at, np.arange(len(rows)), len(rows))
        ended = terminations | truncations
        session.note_ends(at, ended)
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            infos.update(buffers.final_observations(at[ended], at))
            if buffers.final_infos is not None:
                places = np.flatnonzero(ended)
                buffers.final_infos.gather(infos, at[ended], places, len(rows))
        observations = buffers.observations[slot].read(copy=True, at=at)
        return Transition(observations, rewards, terminations, truncations, infos, at)
