"""Building of a process's group, or groups: runs of single environments, and vector envs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vecspaces.checks import RAISED
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import WORKER_PER_ENV, Failure
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Op, Starts, Written
from vecspaces.vector.group.building import (
    Builder,
    Built,
    GroupDescription,
    check_distinct,
    close_all,
)
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.single_envs import SingleEnvs
from vecspaces.vector.group.vector_member import VectorMember

# Hint for simulators that allow one instance per process.
_ADVICE = f"(if this environment allows one instance per process: {WORKER_PER_ENV})"


def build_group(
    env_fns: Sequence[Callable[[], Any]],
    mode: AutoresetMode,
    first: int = 0,
    *,
    validate: bool = False,
    note_building: Callable[..., None] | None = None,
) -> Group | Groups:
    """Call each factory once, check its result, and make a group of all results.

    `first` is the index of the first factory in the vector env. `note_building` is called with the
    index of each factory before the factory, and with -1 at the end.
    """
    builder, built = Builder(mode, validate), list[Built]()
    numbers: dict[int, int] = {}  # by the identity of the environment
    for number, env_fn in enumerate(env_fns, first):
        try:
            if note_building is not None:
                note_building(number)
            try:
                env = env_fn()
            except RAISED as error:
                advice = _ADVICE if built else ""
                raise Failure.of(error, (number,), "build").adding(advice) from None
            result = builder.check(env, number)
            check_distinct(env, number, numbers)
            built.append(result)
        except BaseException as error:
            close_all(built, 0)
            if isinstance(error, RAISED):
                raise Failure.of(error, (number,), "build") from None
            raise
    if note_building is not None:
        note_building(-1)
    groups: list[Group] = []
    # A vector env is a separate run.
    for key, run in itertools.groupby(enumerate(built), _key):
        places = [place for place, _ in run]
        kind = SingleEnvs if key is None else VectorMember
        part = slice(places[0], places[-1] + 1)
        groups.append(kind(builder, env_fns[part], built[part], first + places[0]))
    return groups[0] if len(groups) == 1 else Groups(groups)


def _key(item: tuple[int, Built]) -> int | None:
    place, built = item
    return place if built.is_vector else None


class Groups:
    """The groups of a process whose factories return vector envs beside other environments."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        for group in groups:
            group.peers, group.is_first = groups, group is groups[0]
        self.rows = range(sum(len(group.rows) for group in groups))
        self._running = groups[0]

    def __getstate__(self) -> dict[str, Any]:
        self.flush_timings()  # into the memory that the groups share, before it is copied
        return vars(self)

    @property
    def envs(self) -> list[Any]:
        """The results of the factories, in order."""
        return [env for group in self._groups for env in group.envs]

    @property
    def last(self) -> int:
        """The row that ran last."""
        return self._running.last

    def describe(self) -> GroupDescription:
        """Describe the environments for the caller."""
        return GroupDescription.of([built for group in self._groups for built in group.built])

    def bind(self, buffers: Buffers, low: int, worker: int, restart: Starts | None = None) -> None:
        """Take the rows from `low` on, those of a former worker after a `restart`."""
        self.rows = range(low, low + len(self.rows))
        for group in self._groups:
            group.bind(buffers, low, worker, restart)
            low = group.rows.stop

    def divide(self, arguments: Any) -> Iterable[tuple[Group, Any]]:
        """Return the arguments of a command, by group, for the groups that have its rows."""
        for group in self._groups:
            part = None if arguments is None else _part(arguments, group.rows)
            if part is not None or arguments is None:
                self._running = group
                yield group, part

    def execute(self, op: Op, slot: int, arguments: Any) -> Any:
        """Execute a command in the groups that have its rows."""
        results = [group.execute(op, slot, part) for group, part in self.divide(arguments)]
        if op in (Op.CALL, Op.SAVE_STATE):
            return {row: value for result in results for row, value in result.items()}
        if op is Op.STATS and results[0] is not None:
            return [np.concatenate([counters for counters, _ in results]), results[-1][1]]
        if not results or not isinstance(results[0], Written):
            return None
        rows, infos, failures = (
            [item for part in parts for item in part] for parts in zip(*results, strict=True)
        )
        return Written(self.rows if op is Op.STEP else rows, infos, failures)

    def step(self, slot: int) -> Sequence[Part]:
        """Step all environments; return their infos."""
        infos: Sequence[Part] = self.execute(Op.STEP, slot, None).infos
        return infos

    def flush_timings(self) -> None:
        """Count the clock readings so far."""
        for group in self._groups:
            group.flush_timings()

    def close(self) -> Failure | None:
        """Close every environment, also after failures; return the first failure."""
        failures = [group.close() for group in self._groups]
        return next((failure for failure in failures if failure is not None), None)


def _part(arguments: Any, rows: range) -> Any:
    """Return the arguments of a command for some rows; None if it names none of them."""
    kept: dict[str, Any] = {}
    for name in ("rows", "starts", "values", "broken", "states"):
        values = getattr(arguments, name, None)
        if isinstance(values, Mapping):
            kept[name] = {row: values[row] for row in values if row in rows}
        elif values is not None:
            kept[name] = [row for row in values if row in rows]
    return arguments._replace(**kept) if any(kept.values()) else None
