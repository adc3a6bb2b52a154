"""The bytes that caller and workers share: what lies in the rows of all environments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.layout import Layout, Rows
from vecspaces.layout.packing import Dumps, dumping_by
from vecspaces.memory import ALIGNMENT, Arena
from vecspaces.spaces import Dict, Space
from vecspaces.vector.exchange.info_space import InfoLayout, InfoRows
from vecspaces.vector.exchange.positions import POSITION_SHAPE, Positions
from vecspaces.vector.exchange.stats import ENV_SHAPE, WORKER_SHAPE


@dataclass(frozen=True)
class BufferPlan:
    """Where everything lies in one arena; small, picklable, the same in every process.

    Args:
        observations: The ring of observation slots.
        actions: One action per environment.
        finals: The last observations of episodes, in SAME_STEP mode only.
        infos: What the info_space holds, in as many slots as observations; None without one.
        final_infos: The same of episodes' last infos, below `"final_info"`, in SAME_STEP mode.
        scalars: The offset of rewards, terminations and truncations, in bytes.
        progress: The offset of one int64 per worker: the row that it is busy with, or -1.
        positions: The offset of what `Positions` holds.
        num_workers: The number of workers.
        stats: The offset of the counters of `stats()`, in bytes; None without `stats`.
        size: The bytes of the arena.
    """

    observations: Layout
    actions: Layout
    finals: Layout | None
    infos: InfoLayout | None
    final_infos: InfoLayout | None
    scalars: int
    progress: int
    positions: int
    num_workers: int
    stats: int | None
    size: int

    @classmethod
    def compile(
        cls,
        observation_space: Space[Any],
        action_space: Space[Any],
        num_envs: int,
        *,
        slots: int = 1,
        finals: bool = False,
        variable_capacity: int = 65536,
        num_workers: int = 1,
        stats: bool = False,
        info_space: Dict[Any] | None = None,
    ) -> BufferPlan:
        """Lay out the rows of `num_envs` environments."""
        compile_layout = partial(Layout.compile, n=num_envs, variable_capacity=variable_capacity)
        compile_infos = partial(InfoLayout.compile, n=num_envs, variable_capacity=variable_capacity)
        observations = compile_layout(observation_space, slots=slots)
        actions = compile_layout(action_space, offset=observations.size)
        end = actions.offset + actions.size
        last = infos = final_infos = None
        if finals:
            last = compile_layout(observation_space, offset=end)
            end += last.size
        if info_space is not None:
            infos = compile_infos(info_space, slots=slots, offset=end)
            end = infos.end
            if finals:
                final_infos = compile_infos(Dict(final_info=info_space), slots=1, offset=end)
                end = final_infos.end
        scalars = _align(end)
        # Per row and slot: a float64 reward and two bools.
        progress = scalars + _align(slots * num_envs * 8) + 2 * _align(slots * num_envs)
        positions = progress + _align(num_workers * 8)
        end = positions + _align(8 * (num_workers + num_envs * math.prod(POSITION_SHAPE)))
        size = end
        if stats:
            size += 8 * (num_envs * math.prod(ENV_SHAPE) + num_workers * math.prod(WORKER_SHAPE))
        return cls(
            observations,
            actions,
            last,
            infos,
            final_infos,
            scalars,
            progress,
            positions,
            num_workers,
            end if stats else None,
            size,
        )

    @property
    def num_envs(self) -> int:
        """The number of rows."""
        return self.observations.n

    @property
    def slots(self) -> int:
        """The length of the ring of observations."""
        return self.observations.slots

    @property
    def has_variable(self) -> bool:
        """Whether workers write values of variable size."""
        infos = self.infos is not None and self.infos.has_variable
        return self.observations.has_variable or infos


class Slice(NamedTuple):
    """Consecutive rows of one slot, bound once: what a worker writes at every step.

    Attributes:
        write: Called with a list of one observation per row.
        rewards: Shape `(rows,)`, float64.
        terminations: Shape `(rows,)`, bool.
        truncations: Shape `(rows,)`, bool.
    """

    write: Callable[[list[Any]], None]
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]


class Buffers:
    """The views of one process on the rows, bound once.

    Args:
        plan: Where everything lies.
        arena: The memory; private if None.
        dumps: How actions of the main module's classes are pickled; None: by reference.

    Attributes:
        observations: One `Rows` per slot of the ring.
        actions: The `Rows` of the actions.
        write_actions: Called with a batch of actions of all environments.
        write_some_actions: Called with a batch of actions, and with `at`, their rows.
        finals: The `Rows` of final observations, or None.
        infos: What the info_space holds, one `InfoRows` per slot; empty without one.
        final_infos: The `InfoRows` of final infos, or None.
        rewards: Shape `(slots, num_envs)`, float64.
        terminations: Shape `(slots, num_envs)`, bool.
        truncations: Shape `(slots, num_envs)`, bool.
        progress: Shape `(num_workers,)`, int64: the row that each worker is busy with, or -1.
        positions: Where each environment is.
        whole: For each slot, all of its rows.
    """

    def __init__(
        self, plan: BufferPlan, arena: Arena | None = None, dumps: Dumps | None = None
    ) -> None:
        self.plan = plan
        self.arena = Arena(plan.size) if arena is None else arena
        self.observations = plan.observations.bind(self.arena, spill=True)
        (self.actions,) = plan.actions.bind(self.arena, spill=True)
        self.write_actions: Callable[..., None] = self.actions.batch_writer()
        self.write_some_actions: Callable[..., None] = self.actions.write_batch
        if dumps is not None and plan.actions.has_variable:
            self.write_actions = dumping_by(dumps, self.write_actions)
            self.write_some_actions = dumping_by(dumps, self.write_some_actions)
        self.finals: Rows | None = None
        if plan.finals is not None:
            (self.finals,) = plan.finals.bind(self.arena, spill=True)
        self.infos = () if plan.infos is None else plan.infos.bind(self.arena)
        self.final_infos: InfoRows | None = None
        if plan.final_infos is not None:
            (self.final_infos,) = plan.final_infos.bind(self.arena)
        shape = (plan.slots, plan.num_envs)
        flags = plan.scalars + _align(shape[0] * shape[1] * 8)
        self.rewards: npt.NDArray[np.float64] = self.arena.view(np.float64, shape, plan.scalars)
        self.terminations: npt.NDArray[np.bool_] = self.arena.view(np.bool_, shape, flags)
        self.truncations: npt.NDArray[np.bool_] = self.arena.view(
            np.bool_, shape, flags + _align(shape[0] * shape[1])
        )
        self.progress: npt.NDArray[np.int64] = self.arena.view(
            np.int64, (plan.num_workers,), plan.progress
        )
        self.positions = Positions(
            self.arena.view(np.int64, (plan.num_workers,), plan.positions),
            self.arena.view(
                np.int64, (plan.num_envs, *POSITION_SHAPE), plan.positions + 8 * plan.num_workers
            ),
        )
        self.whole = [self.slice(slot, 0, plan.num_envs) for slot in range(plan.slots)]

    def slice(self, slot: int, low: int, high: int) -> Slice:
        """Bind rows `low` to `high` of a slot."""
        return Slice(
            self.observations[slot].writer(low, high),
            self.rewards[slot, low:high],
            self.terminations[slot, low:high],
            self.truncations[slot, low:high],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the bytes, for a copy of a vector env that shares no memory with other processes."""
        rows = self._all_rows()
        spilled = [part.take_spilled(0, self.plan.num_envs) for part in rows]
        for part, values in zip(rows, spilled, strict=True):
            part.put_spilled(values)
        return _restore, (self.plan, self.arena.buffer.tobytes(), spilled)

    def _all_rows(self) -> list[Rows]:
        finals = [] if self.finals is None else [self.finals]
        infos = [*self.infos, *([] if self.final_infos is None else [self.final_infos])]
        return [
            *self.observations,
            self.actions,
            *finals,
            *(leaf for rows in infos for leaf in rows.leaves),
        ]

    def _written_rows(self, slot: int) -> list[Rows]:
        """What a worker writes of a slot, and of the ends of episodes."""
        rows = [self.observations[slot]]
        if self.finals is not None:
            rows.append(self.finals)
        if self.infos:
            rows.extend(self.infos[slot].leaves)
        if self.final_infos is not None:
            rows.extend(self.final_infos.leaves)
        return rows

    def copy_slot(self, to: int, source: int) -> None:
        """Copy the observations and infos of all rows into another slot."""
        self.observations[to].copy_rows(self.observations[source], slice(None))
        if self.infos:
            self.infos[to].copy_rows(self.infos[source], slice(None))

    def counters(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """The counters of `stats()`, per environment and per worker; None without `stats`."""
        plan = self.plan
        if plan.stats is None:
            return None
        environments = (plan.num_envs, *ENV_SHAPE)
        workers = (plan.num_workers, *WORKER_SHAPE)
        return (
            self.arena.view(np.int64, environments, plan.stats),
            self.arena.view(np.int64, workers, plan.stats + 8 * math.prod(environments)),
        )

    def final_observations(
        self, ended: Sequence[int] | npt.NDArray[Any], rows: npt.NDArray[Any] | None = None
    ) -> dict[str, Any]:
        """Return the last observations of the rows that ended, for all rows or for `rows`."""
        assert self.finals is not None
        observations = np.empty(self.plan.num_envs, object)
        for row in np.asarray(ended).tolist():
            observations[row] = self.finals.item(row)
        mask = np.zeros(self.plan.num_envs, dtype=np.bool_)
        mask[ended] = True
        if rows is not None:
            observations, mask = observations[rows], mask[rows]
        return {"final_obs": observations, "_final_obs": mask}

    def release(self) -> None:
        """Give the memory back; what the caller was given to look at stays valid until dropped."""
        self.arena.close()
        for name in vars(self).keys() - {"plan", "arena"}:
            vars(self).pop(name, None)  # can be repeated after an interrupt

    def export_counters(self, worker: int, low: int, high: int) -> Any:
        """Copy the counters of a worker and of its rows; None where all see them anyway."""
        counters = self.counters()
        if counters is None or self.arena.handle is not None:
            return None
        return [counters[0][low:high].copy(), counters[1][worker].copy()]

    def load_counters(self, worker: int, low: int, high: int, counters: Any) -> None:
        """Put in what `export_counters` took out in another process."""
        mine = self.counters()
        if mine is not None:
            mine[0][low:high], mine[1][worker] = counters

    def take_spilled(self, slot: int, low: int, high: int) -> Any:
        """Take what of some rows did not fit into the arena; None where all did."""
        values = [rows.take_spilled(low, high) for rows in self._written_rows(slot)]
        return values if any(values) else None

    def put_spilled(self, slot: int, spilled: Any) -> None:
        """Put back what `take_spilled` took in another process."""
        for rows, values in zip(self._written_rows(slot), spilled, strict=True):
            if values:
                rows.put_spilled(values)

    def export(self, slot: int, rows: Sequence[int], scalars: bool = True) -> list[Any]:
        """Copy what was written to some rows, and to no others, into a few picklable arrays.

        For workers that share no memory with the caller. A reset writes no rewards and flags, so
        that without `scalars` those of the last step stay.
        """
        return [(low, high, *self._export(slot, low, high, scalars)) for low, high in _runs(rows)]

    def _export(self, slot: int, low: int, high: int, scalars: bool) -> list[Any]:
        observations = self.observations[slot].export(low, high)
        infos = self.infos[slot].export(low, high) if self.infos else None
        if not scalars:
            return [observations, infos]
        rows = slice(low, high)
        # What ends an episode is rare: it travels only in the step in which one ended.
        ended = (self.terminations[slot, rows] | self.truncations[slot, rows]).any()
        finals, final_infos = self.finals, self.final_infos
        return [
            observations,
            infos,
            None if finals is None or not ended else finals.export(low, high),
            None if final_infos is None or not ended else final_infos.export(low, high),
            self.rewards[slot, rows].copy(),
            self.terminations[slot, rows].copy(),
            self.truncations[slot, rows].copy(),
        ]

    def load(self, slot: int, parts: list[Any]) -> None:
        """Take over what `export` copied in another process."""
        for low, high, observations, infos, *others in parts:
            self.observations[slot].load(low, high, observations)
            if infos is not None:
                self.infos[slot].load(low, high, infos)
            if others:
                rows = slice(low, high)
                finals, final_infos, *scalars = others
                self.rewards[slot, rows], self.terminations[slot, rows] = scalars[:2]
                self.truncations[slot, rows] = scalars[2]
                if self.finals is not None and finals is not None:
                    self.finals.load(low, high, finals)
                if self.final_infos is not None and final_infos is not None:
                    self.final_infos.load(low, high, final_infos)


def _restore(plan: BufferPlan, data: bytes, spilled: list[Any]) -> Buffers:
    """Make the copy that `Buffers.__reduce__` describes, in memory of its own."""
    buffers = Buffers(plan)
    buffers.arena.buffer[:] = np.frombuffer(data, np.uint8)
    for part, values in zip(buffers._all_rows(), spilled, strict=True):
        part.put_spilled(values)
    return buffers


def _align(offset: int) -> int:
    """Round up to the next cache line."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Group rows into runs of neighbours.

    Example:
        >>> _runs(range(2, 6)), _runs([4, 0, 1])
        ([(2, 6)], [(0, 2), (4, 5)])
    """
    runs: list[tuple[int, int]] = []
    for row in sorted(rows):
        if runs and runs[-1][1] == row:
            runs[-1] = (runs[-1][0], row + 1)
        else:
            runs.append((row, row + 1))
    return runs
