"""One arena: the order of its buffers, its views, and the log line of values that spilled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.layout import Layout, Rows
from vecspaces.layout.packing import Dumps, dumping_by
from vecspaces.log import log
from vecspaces.memory import ALIGNMENT, Arena
from vecspaces.spaces import Dict, Space
from vecspaces.vector.exchange.batch_pool import BatchPool, pool_slots
from vecspaces.vector.exchange.info_space import InfoRows, compile_infos
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.exchange.positions import POSITION_SHAPE, Positions
from vecspaces.vector.exchange.stats import ENV_SHAPE, WORKER_SHAPE
from vecspaces.vector.exchange.tables import CELL_BYTES, MOST_KEYS, Cells


@dataclass(frozen=True)
class BufferPlan:
    """The layout of one arena; small, picklable, and the same in every process."""

    observations: Layout  # the ring of slots
    actions: Layout
    # The last observations of episodes, in SAME_STEP mode only.
    finals: Layout | None
    # The declared infos, in as many slots as observations: each key, and under `_key` its mask.
    infos: dict[str, Layout]
    # Further batches of observations, which `step` returns without a copy; None: it copies slots.
    pool: Layout | None
    # By name: dtype, shape and offset in bytes.
    arrays: dict[str, tuple[str, tuple[int, ...], int]]
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
        pools: bool = False,
    ) -> BufferPlan:
        """Lay out the rows of `num_envs` environments.

        With `pools`, large observations get a pool of batches.
        """
        compile_layout = partial(Layout.compile, n=num_envs, variable_capacity=variable_capacity)
        observations = compile_layout(observation_space, slots=slots)
        actions = compile_layout(action_space, offset=observations.size)
        end = actions.offset + actions.size
        last = None
        if finals:
            last = compile_layout(observation_space, offset=end)
            end += last.size
        infos = {}
        if info_space is not None:
            infos = compile_infos(info_space, num_envs, slots=slots, offset=end)
            end += sum(layout.size for layout in infos.values())
        arrays: dict[str, tuple[str, tuple[int, ...], int]] = {}

        def place(name: str, dtype: str, *shape: int) -> None:
            nonlocal end
            # Each begins a cache line, so that writes of one process do not slow down another.
            offset = -(-end // ALIGNMENT) * ALIGNMENT
            arrays[name] = dtype, shape, offset
            end = offset + np.dtype(dtype).itemsize * math.prod(shape)

        place("rewards", "f8", slots, num_envs)
        place("terminations", "?", slots, num_envs)
        place("truncations", "?", slots, num_envs)
        place("progress", "i8", num_workers)  # the row that a worker is busy with, or -1
        place("steps", "i8", num_workers)
        place("positions", "i8", num_envs, *POSITION_SHAPE)
        place("cells", "u1", MOST_KEYS * CELL_BYTES * num_envs)
        if stats:
            place("env_counters", "i8", num_envs, *ENV_SHAPE)
            place("worker_counters", "i8", num_workers, *WORKER_SHAPE)
        end = -(-end // ALIGNMENT) * ALIGNMENT
        pool = None
        batches = pool_slots(observations) if pools else 0
        if batches:
            pool = compile_layout(observation_space, slots=batches, offset=end)
            end += pool.size
        return cls(observations, actions, last, infos, pool, arrays, end)

    @property
    def num_envs(self) -> int:
        """The number of rows."""
        return self.observations.n

    @property
    def info_spaces(self) -> dict[str, Space[Any]]:
        """The space of each declared info."""
        infos = self.infos.items()
        return {key: layout.space for key, layout in infos if not key.startswith("_")}

    @property
    def slots(self) -> int:
        """The length of the ring of observations."""
        return self.observations.slots


class Slice(NamedTuple):
    """Consecutive rows of one slot, bound once, which a worker writes at every step."""

    write: Callable[[list[Any]], None]  # takes one observation per row
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]


class Buffers:
    """The views of one process on the rows, bound once.

    `arena` is private memory if None; `dumps` pickles actions by value if their classes are of the
    main module. `infos` has one `InfoRows` per slot, or none.
    """

    def __init__(
        self, plan: BufferPlan, arena: Arena | None = None, dumps: Dumps | None = None
    ) -> None:
        self.plan = plan
        self._has_logged_spill = False
        self.arena = Arena(plan.size) if arena is None else arena
        self.observations = plan.observations.bind(self.arena, spill=True)
        (self.actions,) = plan.actions.bind(self.arena, spill=True)
        self.write_actions: Callable[..., None] = self.actions.batch_writer()
        self.write_some_actions: Callable[..., None] = self.actions.write_batch
        if dumps is not None and plan.actions.has_variable:
            self.write_actions = dumping_by(dumps, self.write_actions)
            self.write_some_actions = dumping_by(dumps, self.write_some_actions)
        self.finals: Rows | None = None
        # Last observations of rows that are read in this process, and therefore not written.
        self._kept: dict[int, Any] = {}
        if plan.finals is not None:
            (self.finals,) = plan.finals.bind(self.arena, spill=True)
            self.write_final: Callable[[int, Any], None] = (
                self.finals.keeper(self._kept) if arena is None else self.finals.write
            )
        bound = [layout.bind(self.arena) for layout in plan.infos.values()]
        self.infos = [InfoRows(dict(zip(plan.infos, rows))) for rows in zip(*bound)]  # noqa: B905
        views = {name: self.arena.view(*where) for name, where in plan.arrays.items()}
        self.rewards: npt.NDArray[np.float64] = views["rewards"]
        self.terminations: npt.NDArray[np.bool_] = views["terminations"]
        self.truncations: npt.NDArray[np.bool_] = views["truncations"]
        self.progress: npt.NDArray[np.int64] = views["progress"]
        self.positions = Positions(views["steps"], views["positions"])
        self.cells = Cells(views["cells"], plan.num_envs)
        self.pool = None if plan.pool is None else BatchPool(plan.pool, self.arena)
        # The counters of `stats()`, per environment and per worker; None without `stats`.
        self.counters: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        if "env_counters" in views:
            self.counters = views["env_counters"], views["worker_counters"]
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
        parts = self._everything
        spilled = [part.take_spilled(0, self.plan.num_envs) for part in parts]
        for part, values in zip(parts, spilled, strict=True):
            part.put_spilled(values)
        return _restore, (self.plan, self.arena.buffer.tobytes(), spilled)

    @property
    def _everything(self) -> list[Rows]:
        slots = [part for slot in range(self.plan.slots) for part in self._written(slot)]
        return [*slots, self.actions, *self._write_ends()]

    def _write_ends(self) -> list[Rows]:
        """Return the parts that the end of an episode writes (SAME_STEP); write the kept rows."""
        if self.finals is None:
            return []
        for row in list(self._kept):
            self.finals.write(row, self._kept.pop(row))
        return [self.finals]

    def _written(self, slot: int) -> list[Rows]:
        """The parts of a slot that every reset and step writes."""
        parts = self.infos[slot].parts if self.infos else ()
        return [self.observations[slot], *parts]

    def copy_slot(self, to: int, source: int) -> None:
        """Copy the observations and infos of all rows into another slot."""
        for part, other in zip(self._written(to), self._written(source), strict=True):
            part.copy_rows(other, slice(None))

    def add_finals(
        self, infos: dict[str, Any], rows: Sequence[int], ended: npt.NDArray[np.bool_]
    ) -> None:
        """Add last observations to merged infos of `rows`, some of which `ended` an episode."""
        assert self.finals is not None
        last, kept = np.empty(len(rows), object), self._kept
        for place, row in compress(enumerate(rows), ended.tobytes()):
            last[place] = kept.pop(row) if row in kept else self.finals.item(row)
        infos["final_obs"], infos["_final_obs"] = last, ended

    def release(self) -> None:
        """Free the memory; views that the caller has stay valid as long as they exist."""
        self.arena.close()
        if "cells" in vars(self):
            self.cells.release()
        for name in vars(self).keys() - {"plan", "arena"}:
            vars(self).pop(name, None)  # can be repeated after an interrupt

    def export_counters(self, worker: int, rows: range) -> Any:
        """Copy the counters of a worker and of its rows; None if they are in shared memory."""
        if self.counters is None or self.arena.handle is not None:
            return None
        environments, workers = self.counters
        return [environments[rows.start : rows.stop].copy(), workers[worker].copy()]

    def load_counters(self, worker: int, rows: range, counters: Any) -> None:
        """Store the counters that `export_counters` copied in another process."""
        if self.counters is not None:
            self.counters[0][rows.start : rows.stop], self.counters[1][worker] = counters

    def take_spilled(self, slot: int, low: int, high: int) -> Any:
        """Take the values of some rows that did not fit into the arena; None if there are none."""
        parts = [*self._written(slot), *self._write_ends()]
        values = [part.take_spilled(low, high) for part in parts]
        return values if any(values) else None

    def put_spilled(self, slot: int, spilled: Any) -> None:
        """Store what `take_spilled` took in another process."""
        for part, values in zip([*self._written(slot), *self._write_ends()], spilled, strict=True):
            part.put_spilled(values)
            self.note_spilled(part, values)

    def note_spilled(self, part: Rows, values: list[tuple[int, int, bytes | bytearray]]) -> None:
        """Log, once, that values did not fit into the arena, and which capacity they need."""
        if not values or self._has_logged_spill:
            return
        self._has_logged_spill = True
        log.warning(
            "environment %d: a value of %d bytes exceeds its share of variable_capacity=%d and "
            "goes through the pipe, which takes longer: pass variable_capacity=%d or more",
            *(values[0][1], len(values[0][2]), self.plan.observations.variable_capacity),
            part.capacity_for(values),
        )

    def export(self, slot: int, rows: Sequence[int], op: Op) -> tuple[Any, ...]:
        """Copy what a command wrote to some rows into a few picklable arrays.

        For workers that share no memory with the caller. A reset does not write rewards and flags;
        those of the last step stay.
        """
        index, written = index_of(rows), self._written(slot)
        numbers = [] if op is Op.RESET else [array[index].copy() for array in self._scalars(slot)]
        # Ends of episodes are rare, so their parts are sent only in a step in which one ended.
        if numbers and (numbers[1].any() or numbers[2].any()):
            written += self._write_ends()
        return index, numbers, [part.export(index) for part in written]

    def load(self, slot: int, exported: tuple[Any, ...]) -> None:
        """Store what `export` copied in another process."""
        index, numbers, parts = exported
        written = [*self._written(slot), *self._write_ends()]
        for part, values in zip(written, parts):  # noqa: B905 (without ends, if there are none)
            part.load(index, values)
        for array, values in zip(self._scalars(slot), numbers):  # noqa: B905 (none of a reset)
            array[index] = values

    def copy_rows(self, source: Buffers, slot: int, rows: Sequence[int], op: Op) -> None:
        """Copy what a command wrote to some rows of other buffers of the same plan."""
        index = index_of(rows)
        for part, other in zip(self._written(slot), source._written(slot), strict=True):
            part.copy_rows(other, index)
        if op is Op.RESET:
            return
        for array, values in zip(self._scalars(slot), source._scalars(slot), strict=True):
            array[index] = values[index]
        if self.finals is not None and (
            (self.terminations[slot, index] | self.truncations[slot, index]).any()
        ):
            (last,) = source._write_ends()
            self.finals.copy_rows(last, index)

    def _scalars(self, slot: int) -> list[npt.NDArray[Any]]:
        """Return the further results of a step."""
        return [self.rewards[slot], self.terminations[slot], self.truncations[slot]]


def _restore(plan: BufferPlan, data: bytes, spilled: list[Any]) -> Buffers:
    """Make the copy that `Buffers.__reduce__` describes, in separate memory."""
    buffers = Buffers(plan)
    buffers.arena.buffer[:] = np.frombuffer(data, np.uint8)
    for part, values in zip(buffers._everything, spilled, strict=True):
        part.put_spilled(values)
    return buffers


def index_of(rows: Sequence[int], ordered: bool = False) -> slice | npt.NDArray[np.intp]:
    """Return an index of distinct rows: a slice if they are consecutive, which is copied at once.

    The slice has the order of the rows if it must be `ordered`.

    Example:
        >>> index_of(range(2, 6)), index_of([4, 0, 1]), index_of([1, 0]), index_of([1, 0], True)
        (slice(2, 6, None), array([4, 0, 1]), slice(0, 2, None), array([1, 0]))
    """
    low = min(rows, default=0)
    high = max(rows, default=-1) + 1
    if high - low == len(rows) and not (ordered and [*rows] != [*range(low, high)]):
        return slice(low, high)
    return np.array(rows, np.intp)
