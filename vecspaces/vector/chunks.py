"""`step_chunk`: several actions per environment in one command, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import RAISED, show_value
from vecspaces.layout import Mismatch
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.chunk_rows import ALL_INFOS
from vecspaces.vector.exchange.info_space import RESERVED
from vecspaces.vector.exchange.infos import from_plain, merge, split
from vecspaces.vector.send_recv import SendRecv
from vecspaces.vector.session.session import Session


class Chunk(NamedTuple):
    """The results of up to k steps of each environment; all arrays are copies.

    Attributes:
        observations: The batch of the last observations.
        rewards: Shape `(num_envs, k)`, float64; 0 after the end of an episode.
        terminations: Shape `(num_envs,)`, bool: of the last step that was taken.
        truncations: Shape `(num_envs,)`, bool.
        steps: The number of steps that were taken: shape `(num_envs,)`, int64.
        infos: The merged infos of the last step of each environment; with `infos="all"`, the keys
            of the `info_space`, of every step, with the leading axes `(num_envs, k)`.
    """

    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.int64]
    infos: dict[str, Any]


class Chunks:
    """Writes the actions of chunks for the workers, and gathers the results."""

    def __init__(self, session: Session, buffers: Buffers, send_recv: SendRecv) -> None:
        self._session, self._buffers, self._send_recv = session, buffers, send_recv
        layout = buffers.plan.actions
        # The leaf whose shape contains k, if all actions are arrays of one size.
        self._leaf = layout.leaves[0] if layout.fixed and layout.leaves else None
        # The last chunk: its length, its rows (None: all), and whether all infos are kept.
        self._last: tuple[int, list[int] | None, bool] = 1, None, False

    def write(self, actions: Any, rows: list[int] | None, keeps_infos: bool) -> dict[int, Any]:
        """Write actions of all rows (None), or of some; return the payload for each worker.

        A Mismatch names the place of the environment among `rows`.
        """
        length = self._measure(actions, rows)
        chunk = self._buffers.chunk(length)
        self._last = length, rows, keeps_infos
        if rows is None:
            chunk.write_actions(actions)
            # Without a payload, workers read the length from shared memory.
            is_told = chunk.is_shared and not keeps_infos
            payload = None if is_told else (None, length, keeps_infos)
            return dict.fromkeys(self._session.everyone, payload)
        chunk.actions.write_batch(actions, at=np.array(rows, np.intp))
        by_worker = self._session.workers.of_rows(rows).items()
        return {worker: (own, length, keeps_infos) for worker, own in by_worker}

    def actions(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the place and the row of each action that was written, and the action."""
        length, rows, _ = self._last
        items = self._buffers.chunk(length).single_actions.items
        for place, row in enumerate(range(self._buffers.plan.num_envs) if rows is None else rows):
            for action in items(row * length, (row + 1) * length):
                yield place, row, action

    def _measure(self, actions: Any, rows: list[int] | None) -> int:
        """Return the number of actions per row, which is in the shape of the first leaf."""
        layout, leaf, found = self._buffers.plan.actions, self._leaf, actions
        if leaf is None:
            raise ValueError(
                f"step_chunk needs actions that consist of arrays of one size, found "
                f"{layout.space}: use step"
            )
        count = layout.n if rows is None else len(rows)
        try:
            for key in leaf.path:
                found = found[key]
        except RAISED:
            return 1  # for an error that names the keys
        try:
            shape = found.shape if isinstance(found, np.ndarray) else np.shape(found)
        except ValueError:  # ragged
            shape = ()
        if len(shape) < 2 + len(leaf.shape) or shape[0] != count or shape[1] < 1:
            expected = f"shape ({count}, k, ...) with k >= 1"
            raise Mismatch(expected, f"shape {shape}" if shape else show_value(found), leaf.path)
        return int(shape[1])

    def read(self, slot: int, read_step: Callable[[int, bool], Any]) -> Chunk:
        """Gather the results of the last chunk; `read_step` gathers those of a step of all rows."""
        length, rows, keeps_infos = self._last
        chunk, at = self._buffers.chunk(length), None
        if rows is None:
            observations, _, terminations, truncations, infos = read_step(slot, True)
            rewards, steps = chunk.rewards.copy(), chunk.steps.copy()
        else:
            at = np.array(rows, np.int64)
            parts = self._session.parts
            own = [*split(parts, rows).values()] if parts else []
            last = self._send_recv.read_rows(rows, at, own)
            observations, _, terminations, truncations, infos, _ = last
            rewards, steps = chunk.rewards[at], chunk.steps[at]
        if keeps_infos:
            plain = [one for one in infos.get(ALL_INFOS, ()) if one is not None]
            infos = {key: infos[key] for key in infos if key.removeprefix("_") in RESERVED}
            declared = merge(list(map(from_plain, plain)), chunk.rewards.size)
            infos.update(_by_row(declared, chunk.rewards.shape, slice(None) if at is None else at))
        return Chunk(observations, rewards, terminations, truncations, steps, infos)


def _by_row(infos: dict[str, Any], shape: tuple[int, ...], at: Any) -> dict[str, Any]:
    """Return infos of all steps of all rows with the leading axes `(rows, k)`, of the rows `at`."""
    found: dict[str, Any] = {}
    for key, value in infos.items():
        if isinstance(value, dict):
            found[key] = _by_row(value, shape, at)
        else:
            found[key] = value.reshape(*shape, *value.shape[1:])[at]
    return found
