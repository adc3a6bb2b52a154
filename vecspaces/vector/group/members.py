"""Member: the base class of single environments and vector envs in a group.

A member fills a range of rows: `SingleEnvs` is a run of single environments, `VectorMember` one
vector env. The group treats both alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Restart, Starts
from vecspaces.vector.exchange.stats import Timings
from vecspaces.vector.group.attributes import Call
from vecspaces.vector.group.building import Built
from vecspaces.vector.group.info_writer import InfoWriter

#: Rows that failed, with their failures.
Failures = list[tuple[Sequence[int], Failure]]
#: Called with the clock after each environment of a pass that is timed.
Note = Callable[[int], Any]


class Views(NamedTuple):
    """The group's memory and clocks for a member."""

    buffers: Buffers
    worker: int
    progress: memoryview  # one int64: the row that is busy
    timings: Timings | None  # None without `stats()`


class Member(ABC):
    """Environments of a group, and their rows, which `place` numbers."""

    #: The attributes that `view` makes, and that a copy of the group makes again.
    _OF_VIEWS: ClassVar[tuple[str, ...]] = ("_views", "_info_writers")

    def __init__(self, built: Sequence[Built], mode: AutoresetMode, validate: bool) -> None:
        self.built = list(built)
        self._mode, self._validate = mode, validate

    def place(self, low: int) -> None:
        """Number the rows from `low` on."""
        self.rows = range(low, low + sum(built.count for built in self.built))

    @abstractmethod
    def bind(self, views: Views, restart: Restart) -> None:
        """Begin again with these rows."""

    def view(self, views: Views) -> None:
        """Attach to the memory that is used from now on."""
        self._views = views
        buffers, low, high = views.buffers, self.rows.start, self.rows.stop
        # The writers of declared infos in each slot.
        self._info_writers = [InfoWriter(infos, low, high) for infos in buffers.infos]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._OF_VIEWS}

    @abstractmethod
    def whole(self, rows: Sequence[int]) -> list[list[int]]:
        """Divide some of the rows into those that step together."""

    @abstractmethod
    def reset(self, slot: int, starts: Starts, keep_options: bool) -> Part:
        """Begin episodes in the rows that `starts` names, and return their infos."""

    @abstractmethod
    def begin(self, starts: Starts) -> None:
        """Let the next step of the rows that `starts` names begin an episode."""

    @abstractmethod
    def step(
        self,
        slot: int,
        rows: Sequence[int] | None,
        note: Note | None,
        failures: Failures | None = None,
    ) -> Part:
        """Step all rows (None), or some that step together, and return their infos.

        With `failures`, an environment that fails is added to them, and the others are stepped. A
        failure that is raised nevertheless concerns rows that were not stepped.
        """

    @abstractmethod
    def call(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of the environments of some rows, and return the result of each."""

    @abstractmethod
    def set_attr(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of the environments of some rows."""

    @abstractmethod
    def replace(self, number: int, built: Built) -> None:
        """Replace `built[number]` by another environment, or by none (`env` is None)."""


def reset_arguments(seed: Any, options: Any) -> dict[str, Any]:
    """Return the arguments of a reset; environments without `options` can be reset without any."""
    return {"seed": seed} if options is None else {"seed": seed, "options": options}
