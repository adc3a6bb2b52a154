"""`step_chunk`: several actions per environment in one command, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import RAISED, show_value
from vecspaces.layout import Mismatch, Rows
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.info_space import RESERVED
from vecspaces.vector.exchange.infos import Column, Columns, gather, merge, split
from vecspaces.vector.group.chunk_stepper import ALL_INFOS, REWARDS, STEPS
from vecspaces.vector.send_recv import SendRecv
from vecspaces.vector.session.session import Session


class Chunk(NamedTuple):
    """What up to k steps of each environment returned; all arrays are copies.

    Attributes:
        observations: The batch of the last observations.
        rewards: Shape `(num_envs, k)`, float64; 0 after the end of an episode.
        terminations: Shape `(num_envs,)`, bool: of the last step that was taken.
        truncations: Shape `(num_envs,)`, bool.
        steps: Shape `(num_envs,)`, int64: how many steps were taken.
        infos: The merged infos of the last step of each environment; with `infos="all"`, what the
            `info_space` declares, of every step, with the leading axes `(num_envs, k)`.
    """

    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]
    infos: dict[str, Any]


class Chunks:
    """Packs the actions of chunks for the workers, and gathers their results."""

    def __init__(self, session: Session, backend: Backend, send_recv: SendRecv) -> None:
        self._session, self._send_recv = session, send_recv
        self._plan = backend.buffers.plan
        # The rows of the last chunk, also by worker, and its number of actions per row.
        self._rows: list[int] = []
        self._by_worker: dict[int, list[int]] = {}
        self._length = 0
        # The places of the rows in the order of the workers, and the order by place.
        self._order: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._at: slice | npt.NDArray[np.intp] = slice(None)
        # Memory for its actions, as rows of `length` actions, and as rows of one.
        self._memory: tuple[Rows, Rows] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_memory": None}

    def pack(
        self,
        actions: Any,
        rows: list[int],
        all_infos: bool,
        check: Callable[[Iterable[tuple[int, int, Any]]], None] | None,
    ) -> dict[int, Any]:
        """Return the arguments for each worker.

        A Mismatch names the place of the environment among `rows`. `check` is called with the place
        and the row of each action, and the action.
        """
        length = self._measure(actions, len(rows))
        if self._memory is None or (rows, length) != (self._rows, self._length):
            self._plan_rows(rows, length)
        assert self._memory is not None
        chunks, steps = self._memory
        chunks.write_batch(actions, self._at)
        if check is not None:
            places = enumerate(self._order.repeat(length).tolist())
            check((place, rows[place], steps.item(number)) for number, place in places)
        payloads, first = {}, 0
        for worker, own in self._by_worker.items():
            end = first + len(own) * length
            # Bytes are pickled in a tenth of an array's time.
            exported = [part.tobytes() for part in steps.export(first, end)]
            payloads[worker] = own, length, first, exported, all_infos
            first = end
        return payloads

    def _plan_rows(self, rows: list[int], length: int) -> None:
        """Make the memory for chunks of these rows; the next ones are often of the same."""
        self._by_worker = self._session.workers.of_rows(rows)
        place_of = {row: place for place, row in enumerate(rows)}
        order = [place_of[row] for own in self._by_worker.values() for row in own]
        self._order = np.array(order, np.intp)
        self._at = slice(None) if order == list(range(len(rows))) else np.argsort(self._order)
        layout = self._plan.actions.of_chunks(len(rows), length)
        memory = np.zeros(layout.size, np.uint8)
        (chunks,) = layout.bind(memory)
        (steps,) = self._plan.actions.of_rows(len(rows) * length).bind(memory)
        # As one assignment: an interrupt comes before or after it.
        self._rows, self._length, self._memory = rows, length, (chunks, steps)

    def _measure(self, actions: Any, count: int) -> int:
        """Return the number of actions per row, which the first leaf tells."""
        layout, leaf = self._plan.actions, actions
        if not (layout.fixed and layout.leaves):
            raise ValueError(
                f"step_chunk needs actions that consist of arrays of one size, found "
                f"{layout.space}: use step"
            )
        path = layout.leaves[0].path
        try:
            for key in path:
                leaf = leaf[key]
        except RAISED:
            return 1  # for an error that names the keys
        try:
            shape = np.shape(leaf)
        except ValueError:  # ragged
            shape = ()
        least = 2 + len(layout.leaves[0].shape)
        if len(shape) < least or shape[0] != count or shape[1] < 1:
            expected = f"shape ({count}, k, ...) with k >= 1"
            raise Mismatch(expected, f"shape {shape}" if shape else show_value(leaf), path)
        return int(shape[1])

    def read(self, slot: int) -> Chunk:
        """Gather the results of the last chunk."""
        results, rows, length = self._session.results, self._rows, self._length
        replies = [results[worker] for worker in sorted(results)]
        own = [reply[-1] for reply in replies]
        empty = {REWARDS: Column((), np.zeros((0, length))), STEPS: Column((), np.zeros(0, int))}
        rewards, steps = (
            np.concatenate([one[key].values for one in own or [empty]])[self._at]
            for key in (REWARDS, STEPS)
        )
        infos: dict[str, Any] = {}
        parts = [part for reply in replies for part in reply[:-1]]
        if parts:
            infos = self._merge(parts)
        of_all = bool(own) and ALL_INFOS in own[0]
        if of_all:
            infos = {key: infos[key] for key in infos if key.removeprefix("_") in RESERVED}
        chunk = self._send_recv.read_rows(rows, infos, declared=not of_all)
        if of_all:
            declared = merge([one[ALL_INFOS].values for one in own], len(rows) * length)
            chunk.infos.update(self._by_row(declared))
        return Chunk(
            chunk.observations, rewards, chunk.terminations, chunk.truncations, steps, chunk.infos
        )

    def _merge(self, parts: Sequence[Columns]) -> dict[str, Any]:
        """Merge what the last step of each row reported."""
        found = split(parts, self._rows)
        given = {place: info for place, info in enumerate(found.values()) if info}
        try:
            return merge([gather(given)], len(self._rows))
        except RecursionError:
            self._session.fail_endless(found, streams=False)
            raise

    def _by_row(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Return infos of all steps with the leading axes `(rows, k)`."""
        shape = len(self._rows), self._length
        return {
            key: self._by_row(value)
            if isinstance(value, dict)
            else value.reshape(*shape, *value.shape[1:])[self._at]
            for key, value in infos.items()
        }
