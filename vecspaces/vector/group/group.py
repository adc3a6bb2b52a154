"""Group: environments that are stepped into their rows, in any process.

A group is a run of single environments (`single_envs.py`, where autoresets happen) or one vector
env (`vector_member.py`). It runs in the caller's process (Sync), in a thread, in a worker process
(Async) or in an actor (Ray).
"""

from __future__ import annotations

import dataclasses
import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from vecspaces.errors import ResetNeededError
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import Failure, Message
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Op, RowState, Starts, Written, make_written
from vecspaces.vector.exchange.stats import Timings
from vecspaces.vector.group.attributes import Call
from vecspaces.vector.group.building import (
    Builder,
    Built,
    GroupDescription,
    check_distinct,
    close_all,
)
from vecspaces.vector.group.form import failed, is_from_env

_STEP, _STEP_ROWS = Op.STEP, Op.STEP_ROWS
#: Rows that failed, with their failures.
Failures = list[tuple[Sequence[int], Failure]]
#: Called with the clock after each environment of a pass that is timed.
Note = Callable[[int], Any]


class Group(ABC):
    """Environments that share one process and consecutive rows.

    Every method converts exceptions of environments and factories to `Failure`, and raises nothing
    else for them. `first` is the index of the first of `env_fns` in the vector env, and `built` is
    what they returned.
    """

    #: The attributes that `view` makes, and that a copy of the group makes again.
    _OF_VIEWS: ClassVar[tuple[str, ...]] = ("_progress", "_timings")
    #: Whether all rows step together, because they are one vector env.
    is_vector: ClassVar[bool]

    def __init__(
        self,
        builder: Builder,
        env_fns: Sequence[Callable[[], Any]],
        built: Sequence[Built],
        first: int,
    ) -> None:
        self._builder, self._env_fns, self.first = builder, env_fns, first
        self._mode = builder.mode
        self.built = list(built)
        #: All groups of the process, and whether this group is the first.
        self.peers: Sequence[Group] = [self]
        self.is_first = True
        self.rows = range(sum(result.count for result in built))
        self._failed: set[int] = set()  # rows that failed in a stream

    @property
    def envs(self) -> list[Any]:
        """The results of the factories, in order."""
        return [built.env for built in self.built]

    def describe(self) -> GroupDescription:
        """Describe the environments for the caller."""
        return GroupDescription.of(self.built)

    def divide(self, arguments: Any) -> Iterable[tuple[Group, Any]]:
        """Return the arguments of a command for each group."""
        return ((self, arguments),)

    def bind(self, buffers: Buffers, low: int, worker: int, restart: Starts | None = None) -> None:
        """Take the rows from `low` on, those of a former worker after a `restart`."""
        self.rows = range(low, low + len(self.rows))
        self._buffers, self._worker = buffers, worker
        self.view()
        self._leave()
        starts = restart or {}
        self.begin_anew({row: starts[row] for row in self.rows if row in starts})

    def view(self) -> None:
        """Make views of the group's rows, also for a copy of the group."""
        buffers, worker, rows = self._buffers, self._worker, self.rows
        # A memoryview stores an int in half the time of an array.
        self._progress = buffers.progress.data[worker : worker + 1]
        self._timings: Timings | None = None
        if buffers.counters is not None:
            environments, workers = buffers.counters
            self._timings = Timings(
                environments,
                workers[worker],
                rows,
                together=self.is_vector,
                is_first=self.is_first,
            )

    def __getstate__(self) -> dict[str, Any]:
        self.flush_timings()
        return {name: value for name, value in vars(self).items() if name not in self._OF_VIEWS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.view()

    # ------------------------------------------------------------------ commands

    def execute(self, op: Op, slot: int, arguments: Any) -> Any:
        """Execute a command, in every backend; raise `Failure`.

        It returns `Written` for steps and resets, the results by row for `CALL` and `SAVE_STATE`,
        the counters for `STATS` if no memory is shared, otherwise None.
        """
        if op is _STEP:
            return make_written((self.rows, self.step(slot), ()))
        if op is _STEP_ROWS:
            rows, _, failures = self.begin(arguments.rows, arguments.starts, arguments.broken)
            written = self.step_some(slot, rows) if rows else Written([], [])
            if failures:
                written = written._replace(failures=[*failures, *written.failures])
            return written
        if op is Op.STATS:
            self.flush_timings()
            return self._buffers.export_counters(self._worker, self.rows)
        try:
            if op is Op.RESET:
                for _, failure in self._rebuild(arguments.broken, arguments.starts):
                    raise failure
                rows, keeps, states = arguments.starts, arguments.keep_options, arguments.states
                infos = self.reset_rows(slot, rows, keeps, states)
                return Written(list(rows), [infos] if infos else [])
            if op is Op.CALL:
                return self.call_rows(*arguments)
            if op is Op.SET_ATTR:
                return self.set_rows(*arguments)
            if op is Op.SAVE_STATE:
                return {row: self.save_row(row) for row in arguments.rows}
            if op is Op.CHECK_STATE:
                self._check_states(arguments.states)
                return None
        finally:
            self._leave()
        raise ValueError(f"{op!r} is no command for a group")

    def _check_states(self, states: Mapping[int, RowState]) -> None:
        """Refuse states that do not fit, or whose environment could not be built again."""
        for env, rows in zip(self.envs, self.parts(), strict=True):
            if env is None and not states.keys().isdisjoint(rows):
                text = "{:envs} could not be built again: call reset(), then load_state"
                raise Failure.of(ResetNeededError(Message(text, rows)), rows, "load_state")
        for row, state in states.items():
            self.prepare_load(row, state)

    def begin(self, rows: Sequence[int], starts: Starts, broken: Iterable[int]) -> Written:
        """Let the next step of the rows of `starts` begin an episode, instead of taking an action.

        Those of `broken` are built again first. The returned rows can be stepped.
        """
        failures = self._rebuild(broken, starts) if broken or self._failed else []
        if starts:
            self.begin_rows(starts)
        return make_written((_without(rows, failures) if failures else rows, [], failures))

    def step(self, slot: int) -> Sequence[Part]:
        """Step all environments, with the actions in their rows; return their infos."""
        timings = self._timings
        note = None if timings is None else timings.start()
        try:
            infos = self.step_rows(slot, None, note, [])
        finally:  # as in `_leave`, without its call
            self.last, self._progress[0] = self._progress[0], -1
        if timings is not None:
            timings.finish(None)
        return (infos,) if infos else ()

    def step_some(self, slot: int, rows: Sequence[int]) -> Written:
        """Step some environments; report failures beside the results of the others.

        A vector env has all of its rows in `rows`.
        """
        timings = self._timings
        note = None if timings is None else timings.start()
        failures: Failures = []
        infos: Part | None = None
        self._buffers.positions.step(rows)
        try:
            infos = self.step_rows(slot, rows, note, failures)
        except BaseException as error:
            if not is_from_env(error):
                raise
            failures.append((rows, Failure.of(error, rows, "step")))
        finally:
            self._leave()
        if failures:
            self._failed.update(row for failed, _ in failures for row in failed)
        elif timings is not None:
            timings.finish(rows)
        parts = [infos] if infos else ()
        return make_written((_without(rows, failures) if failures else rows, parts, failures))

    def flush_timings(self) -> None:
        """Count the clock readings so far."""
        if self._timings is not None:
            self._timings.flush()

    def close(self) -> Failure | None:
        """Close every environment, also after failures; return the first failure."""
        built, self.built = self.built, []
        return close_all(built, self.rows.start)

    def _leave(self) -> None:
        """Note that no environment is running any more."""
        self.last, self._progress[0] = self._progress[0], -1

    # ------------------------------------------------------------------ broken environments

    def _rebuild(self, broken: Iterable[int], begun: Iterable[int]) -> Failures:
        """Build failed environments again; return the rows in which this fails, with the failures.

        The failed rows are `broken` and those rows of `begun` that failed in a stream, of which
        the caller may not have known when it sent the reset.
        """
        wanted, failures = self._failed.intersection(begun).union(broken), Failures()
        try:
            for place, rows in enumerate(self.parts()) if wanted else ():
                if not wanted.isdisjoint(rows):
                    failure = self._build_again(place, rows)
                    if failure is not None:
                        failures.append((rows, failure))
        finally:
            self._leave()
        return failures

    def _build_again(self, place: int, rows: Sequence[int]) -> Failure | None:
        """Close an environment, then build it again: there may be no memory for two."""
        self._progress[0] = rows[0]
        self._failed.update(rows)  # an interrupt leaves them failed
        former = self.built[place]
        close_all([former], rows[0])  # without its error, which would hide the first error
        former = dataclasses.replace(former, env=None)
        self.replace(place, former)
        gc.collect()
        try:
            number, numbers = self.first + place, dict[int, int]()
            built = self._builder.check(self._env_fns[place](), number)
            for group in self.peers:
                for index, env in enumerate(group.envs, group.first):
                    if env is not None:
                        check_distinct(env, index, numbers)
            check_distinct(built.env, number, numbers)
            change = built.change_since(former)
            if change is not None:
                close_all([built], rows[0])
                raise RuntimeError(change)
            self.replace(place, built)
            self._failed.difference_update(rows)
        except BaseException as error:
            if not is_from_env(error):
                raise
            return failed(error, rows, "build")
        return None

    # ------------------------------------------------------------------ methods of each kind

    def parts(self) -> list[Sequence[int]]:
        """Divide the rows into those that step together."""
        return [self.rows] if self.is_vector else [[row] for row in self.rows]

    @abstractmethod
    def begin_anew(self, starts: Starts) -> None:
        """Drop the state of all episodes; the next step of `starts` reports lost episodes."""

    @abstractmethod
    def replace(self, place: int, built: Built) -> None:
        """Replace `built[place]` by another environment, or by none (`env` is None)."""

    @abstractmethod
    def reset_rows(
        self, slot: int, starts: Starts, keep_options: bool, states: Mapping[int, RowState]
    ) -> Part:
        """Begin episodes in the rows that `starts` names, and return their infos.

        With `keep_options`, autoresets also get a row's options. Rows of `states` get these in
        place of a reset.
        """

    @abstractmethod
    def begin_rows(self, starts: Starts) -> None:
        """Let the next step of the rows that `starts` names begin an episode."""

    @abstractmethod
    def step_rows(
        self, slot: int, rows: Sequence[int] | None, note: Note | None, failures: Failures
    ) -> Part:
        """Step all rows (None) or some, and return their infos.

        In a step of some, an environment that fails is added to `failures`, and the others are
        stepped. A failure that is raised nevertheless concerns all of them.
        """

    @abstractmethod
    def save_row(self, row: int) -> tuple[bytes, bool]:
        """Return the state of a row, and whether its next step resets it."""

    @abstractmethod
    def prepare_load(self, row: int, state: RowState) -> Callable[[Any], Any]:
        """Check that a state fits a row; return the function that loads it.

        Its argument is the row's options for autoresets, and its result takes the next step.
        """

    @abstractmethod
    def call_rows(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of the environments of some rows, and return the result of each row."""

    @abstractmethod
    def set_rows(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of the environments of some rows, not of their wrappers."""


def reset_arguments(seed: Any, options: Any) -> dict[str, Any]:
    """Return the arguments of a reset; None omits `options`, which some environments lack."""
    return {"seed": seed} if options is None else {"seed": seed, "options": options}


def _without(rows: Sequence[int], failures: Failures) -> Sequence[int]:
    """Return the rows that did not fail."""
    failed = {row for rows, _ in failures for row in rows}
    return [row for row in rows if row not in failed]
