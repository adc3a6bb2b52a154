"""Environments that write their observations directly into their rows: `bind(observation=view)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.group.building import Built

#: Called with `observation=`: the arrays for observations from now on.
Bind = Callable[..., Any]

# Wrappers that return observations unchanged, and keep none.
_TRANSPARENT = frozenset(
    f"gymnasium.wrappers.common.{name}"
    for name in ("OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics", "TimeLimit")
)


class InPlace:
    """The rows that environments write themselves, in the slot of a command.

    For each environment, `binds` has its `bind` or None, and `rows` its row or the slice of its
    rows. `number` is the environment whose `bind` was called last, for errors.
    """

    def __init__(
        self, binds: Sequence[Bind | None], buffers: Buffers, rows: Sequence[int | slice]
    ) -> None:
        self._binds = binds
        self._ring = buffers.plan.observations.ring(buffers.arena)
        self._rows = rows
        self._slots: list[int | None] = [None] * len(binds)
        # The object that each environment returns after writing its observation: its view. Before
        # its first `bind`, an object that is not an observation.
        self._views: list[Any] = [object()] * len(binds)
        # The dicts in each view, their keys, and the array of a key unless it was replaced.
        self._parts: list[list[tuple[dict[str, Any], str, Any]]] = [[] for _ in binds]
        self._all: int | None = None
        self.number = 0

    @classmethod
    def of(
        cls, built: Sequence[Built], buffers: Buffers, rows: Sequence[int | slice]
    ) -> InPlace | None:
        """Return the rows of environments with `bind`; None if no environment has it."""
        if not buffers.plan.observations.fixed:
            return None
        binds = [find_bind(one.env) for one in built]
        return cls(binds, buffers, rows) if any(binds) else None

    def turn_to(self, slot: int, numbers: Iterable[int] | None = None) -> None:
        """Let all or some environments write to a slot; exceptions of a `bind` are not caught."""
        if slot == self._all:
            return
        self._all = None
        for number in range(len(self._binds)) if numbers is None else numbers:
            bind = self._binds[number]
            if bind is not None and self._slots[number] != slot:
                self.number = number
                view = _view(self._ring, slot, self._rows[number])
                self._parts[number] = list(_parts(view))
                bind(observation=view)
                self._views[number], self._slots[number] = view, slot
        if numbers is None:
            self._all = slot

    def has_written(self, number: int, observation: Any) -> bool:
        """Whether an observation is the row itself, and need not be written."""
        if observation is not self._views[number]:
            return False
        # An environment that replaces an array in a dict has not written to the row.
        for container, key, part in self._parts[number]:  # noqa: SIM110 (half the time of `all`)
            if container.get(key) is not part:
                return False
        return True

    def row_writer(self, write: Callable[[int, Any], None], low: int) -> Callable[[int, Any], None]:
        """Return the function that writes what one environment returned; `low` is the first row."""

        def write_unless_written(row: int, observation: Any) -> None:
            if not self.has_written(row - low, observation):
                write(row, observation)

        return write_unless_written

    def writer(
        self,
        write_all: Callable[[list[Any]], None],
        write_one: Callable[[int, Any], None],
        low: int,
    ) -> Callable[[list[Any]], None]:
        """Return the function that writes what all environments returned, as `row_writer` does."""
        has_written = self.has_written

        def write(observations: list[Any]) -> None:
            rest = [
                number
                for number, observation in enumerate(observations)
                if not has_written(number, observation)
            ]
            if len(rest) == len(observations):
                write_all(observations)
            else:
                for number in rest:
                    write_one(low + number, observations[number])

        return write


def find_bind(env: Any) -> Bind | None:
    """Return the `bind` of an environment, also inside wrappers that change nothing."""
    while f"{type(env).__module__}.{type(env).__qualname__}" in _TRANSPARENT:
        env = env.env
    try:
        # This neither uses `__getattr__`, by which wrappers pass attributes on, nor `__dict__`,
        # because reading an object's `__dict__` makes all of its attributes slower.
        bind = object.__getattribute__(env, "bind")
    except AttributeError:
        return None
    return bind if callable(bind) and _takes_observation(bind) else None


def _takes_observation(bind: Any) -> bool:
    """Whether it is the method that `Env` documents, and not another one of this name."""
    try:
        return "observation" in inspect.signature(bind).parameters
    except (TypeError, ValueError):
        return False


def _parts(view: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yield the dicts of a view, with each key and its value."""
    if isinstance(view, dict):
        for key, part in view.items():
            yield view, key, part
            yield from _parts(part)
    elif isinstance(view, tuple):
        for part in view:
            yield from _parts(part)


def _view(ring: Any, slot: int, rows: int | slice) -> Any:
    """Return some rows of a slot, nested like observations; arrays of shape () for scalars."""
    if isinstance(ring, dict):
        return {key: _view(part, slot, rows) for key, part in ring.items()}
    if isinstance(ring, tuple):
        return tuple(_view(part, slot, rows) for part in ring)
    return ring[slot, rows, ...]
