"""Row table: the state of every row; `legality.py` says which calls a state allows.

Everything that the caller knows about rows is here; the engine changes it, and vector envs note the
ends of episodes. The state of a row is a byte of flags, so that a bulk step is one comparison and
one assignment over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import Part

#: Not reset since its environment was built.
NEW = 1
#: A command was sent, and the row has not answered.
BUSY = 2
#: The row has answered, and its result must be received.
READY = 4
#: Reset, but not stepped since. Without READY: the result of the vector env's reset can be
#: received, and may stay unread.
FRESH = 8
#: The last step ended the episode. In NEXT_STEP mode this is noted only where it is needed.
ENDED = 16
#: The environment raised an exception, and must be built again.
FAILED = 32
#: Its worker was lost during a reset of the row: the result reports the loss, not a step.
VOID = 64
#: Its command was interrupted, or ended by the failure of another row: only `reset()` helps.
LOST = 128
_ANSWERED, _RECEIVED = BUSY | READY, 255 & ~READY
_NOT_BUSY = bytes(state for state in range(2 * LOST) if not state & BUSY)


class WatchedRows(dict[int, Sequence[Part]]):
    """Ready rows; `ring` is told whether there are any, so that `fileno` is readable then."""

    def __init__(self, rows: Mapping[int, Sequence[Part]], ring: Callable[[bool], None]) -> None:
        super().__init__(rows)
        self._ring = ring
        ring(bool(rows))

    def __setitem__(self, row: int, infos: Sequence[Part]) -> None:
        super().__setitem__(row, infos)
        self._ring(True)

    def __delitem__(self, row: int) -> None:
        super().__delitem__(row)
        self._ring(bool(self))

    def pop(self, row: int, *default: Any) -> Any:
        """Remove a row."""
        infos = super().pop(row, *default)
        self._ring(bool(self))
        return infos

    def clear(self) -> None:
        """Remove all rows."""
        super().clear()
        self._ring(False)


class RowTable:
    """The rows of a vector env.

    Attributes:
        is_new: Whether no reset has ended, and no `send_reset` or `send_call` was sent, so far.
        state: The flags of each row, one byte per row.
        all_idle: The state if no row has a flag, as between most steps.
        all_busy: The state during a step of all rows.
        memory: The same bytes; storing all of them takes half the time of `state`.
        flags: The same bytes as an array; shape `(num_envs,)`, dtype uint8.
        ready: The rows that can be received, in the order in which they answered, with the infos
            of all rows that answered together.
        results: The result, or the failure, of each ready row that was called.
        failures: The failure of each row that is FAILED.
        outdated: Rows whose environment the next reset builds again, in the caller's process.
        restarted: Rows whose episode was lost with their worker, until a step has reported it.
        lost_episodes: How many lost episodes of each row a step has reported.
        seeds: The last seed of each row.
        options: The options of the autoresets of each row.
    """

    def __init__(self, num_envs: int) -> None:
        self.is_new = True
        self.state = bytearray([NEW]) * num_envs
        self.all_idle, self.all_busy = bytes(num_envs), bytes([BUSY]) * num_envs
        self._view()
        self.ready: dict[int, Sequence[Part]] = {}
        self.results: dict[int, Any] = {}
        self.failures: dict[int, Failure] = {}
        self.outdated: set[int] = set()
        self.restarted: set[int] = set()
        self.lost_episodes: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self.seeds: list[int | None] = [None] * num_envs
        self.options: list[Mapping[str, Any] | None] = [None] * num_envs

    def __getstate__(self) -> dict[str, Any]:
        views = ("flags", "memory")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._view()

    def _view(self) -> None:
        """Make the views of the flags."""
        self.flags: npt.NDArray[np.uint8] = np.frombuffer(self.state, np.uint8)
        self.memory = memoryview(self.state)

    def having(self, flags: int) -> list[int]:
        """Return the rows that have all of some flags."""
        return np.flatnonzero((self.flags & flags) == flags).tolist()

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """Which rows ended their episode in the last step; shape `(num_envs,)`."""
        return (self.flags & ENDED).astype(np.bool_)

    @property
    def expected(self) -> int:
        """How many rows can be received now, or when they have answered."""
        return len(self.ready) + len(self.state.translate(None, _NOT_BUSY))

    def first(self, count: int) -> list[int]:
        """Return the rows that `recv` receives next, at most `count`."""
        return list(islice(self.ready, count))

    # ------------------------------------------------------------------ transitions

    def send(self, rows: Sequence[int], starts: Iterable[int] = ()) -> None:
        """Note that rows were sent an action, or a reset if they are in `starts`."""
        state, ready = self.state, self.ready
        for row in rows:
            state[row] = BUSY
        for row in rows if ready else ():
            ready.pop(row, None)
        for row in starts:
            state[row] = BUSY | FRESH
            self._begin(row)

    def call(self, row: int) -> None:
        """Note that a row was sent a call, which drops an unread first observation."""
        # Not FRESH either: the result of the call must be received.
        self.state[row] = self.state[row] & ~(READY | FRESH) | BUSY
        self.ready.pop(row, None)

    def answer(self, rows: Iterable[int], infos: Sequence[Part] = ()) -> None:
        """Note that busy rows have answered, with the infos of all of them."""
        state, ready = self.state, self.ready
        for row in rows:
            state[row] ^= _ANSWERED
            ready[row] = infos

    def fail(self, row: int, failure: Failure) -> None:
        """Note that a row has failed; its exception can be received."""
        self.failures[row] = failure
        self._drop(row)
        self.state[row], self.ready[row] = FAILED | READY, ()

    def receive(self, rows: Iterable[int]) -> None:
        """Note that results were received."""
        state, ready, results = self.state, self.ready, self.results
        for row in rows:
            state[row] &= _RECEIVED
            del ready[row]
        for row in rows if results else ():
            results.pop(row, None)

    def note_ends(self, rows: Any, ended: npt.NDArray[np.bool_]) -> None:
        """Note which rows ended their episode."""
        self.flags[rows] = self.flags[rows] & ~np.uint8(ENDED) | ended.view(np.uint8) * np.uint8(
            ENDED
        )

    def finish_reset(self, rows: Iterable[int], infos: Sequence[Part]) -> None:
        """Note that rows were reset; their first observations can be received."""
        self.is_new = False
        for row in rows:
            self._begin(row)
            self._drop(row)
            self.state[row], self.ready[row] = FRESH, infos

    def finish_load(self, ended: Mapping[int, bool]) -> None:
        """Note that rows have a state in place of a reset; there is nothing to be received."""
        for row, has_ended in ended.items():
            self.state[row] = ENDED if has_ended else 0
            self._drop(row)

    def _begin(self, row: int) -> None:
        """Note that an episode begins, in an environment that is built again if necessary."""
        self.failures.pop(row, None)
        self.outdated.discard(row)
        self.restarted.discard(row)

    def _drop(self, row: int) -> None:
        """Drop the unread result of a row."""
        self.ready.pop(row, None)
        self.results.pop(row, None)

    def lose(self, rows: Iterable[int] | None = None) -> None:
        """Note that the results of some rows are lost, or of all."""
        for row in range(len(self.state)) if rows is None else rows:
            self.state[row] = LOST
            self._drop(row)

    def lose_starts(self, rows: Iterable[int]) -> None:
        """Note that the results of rows will report a loss, not a first observation."""
        for row in rows:
            if self.state[row] & FRESH:
                self.state[row] ^= FRESH | VOID

    def renew(self, row: int) -> None:
        """Note that the environment of a row is built again, and needs a reset."""
        self.state[row] = self.state[row] & LOST | NEW
        self._drop(row)
        self.failures.pop(row, None)

    def needs_building(self, rows: Iterable[int]) -> list[int]:
        """Return the rows whose environments a reset must build again."""
        if not (self.failures or self.outdated):
            return []
        return [row for row in rows if row in self.failures or row in self.outdated]

    def note_start(self, row: int, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Note the seed and options of a reset, which a restart uses again."""
        if seed is not None:
            self.seeds[row] = seed
        self.options[row] = options
