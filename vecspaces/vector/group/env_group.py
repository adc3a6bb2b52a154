"""EnvGroup: k environments that are stepped into their rows, in any process.

An `EnvGroup` runs in the caller's process (Sync), in a worker process (Async) or in an actor (Ray),
and is the same object in each. It consists of members: runs of single environments
(`single_envs.py`, where autoresets happen) and vector envs (`vector_member.py`).
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vecspaces.checks import RAISED
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import ONE_WORKER_EACH, Failure
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Op, Restart, Starts, Written, make_written
from vecspaces.vector.exchange.stats import Timings
from vecspaces.vector.group.attributes import Call
from vecspaces.vector.group.building import (
    Builder,
    Built,
    GroupDescription,
    check_distinct,
    close_all,
)
from vecspaces.vector.group.form import failed, is_own
from vecspaces.vector.group.members import Failures, Member, Note, Views
from vecspaces.vector.group.plain_steps import PlainSteps
from vecspaces.vector.group.single_envs import SingleEnvs
from vecspaces.vector.group.vector_member import VectorMember

_STEP, _STEP_ROWS = Op.STEP, Op.STEP_ROWS
# Hint for simulators that allow one instance per process.
_ONE_PER_PROCESS = f"(if this environment allows one instance per process: {ONE_WORKER_EACH})"


class EnvGroup:
    """Environments that share one process and consecutive rows.

    Every method converts exceptions of environments and factories to `Failure`, and raises nothing
    else for them. Each factory is called once, here; `first` is the index of the first one in the
    vector env. `note_building` is called with the index of each factory before the factory, and
    with -1 at the end.
    """

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        first: int = 0,
        *,
        validate: bool = False,
        note_building: Callable[..., None] | None = None,
    ) -> None:
        self._env_fns = env_fns
        self._first = first
        self._builder = Builder(autoreset_mode)
        self._mode, self._validate = autoreset_mode, validate
        built = self._build_all(note_building or (lambda *_: None))
        self._members = self._make_members(built)
        self._failed: set[int] = set()  # rows that failed in a stream
        self._place(0)

    def _build_all(self, note_building: Callable[..., None]) -> list[Built]:
        """Call every factory, and check what it returns."""
        built: list[Built] = []
        numbers: dict[int, int] = {}  # by the identity of the environment
        for number, env_fn in enumerate(self._env_fns, self._first):
            try:
                note_building(number)
                result = self._build_first(env_fn, number)
                check_distinct(result.env, number, numbers)
                built.append(result)
            except BaseException as error:
                close_all(built, 0)
                if isinstance(error, RAISED):
                    raise Failure.of(error, (number,), "build") from None
                raise
        note_building(-1)
        return built

    def _build_first(self, env_fn: Callable[[], Any], number: int) -> Built:
        """Call a factory for the first time."""
        advice = _ONE_PER_PROCESS if number > self._first else ""
        try:
            env = env_fn()
            advice = ""  # faults from here on do not depend on other instances
            return self._builder.check(env, number)
        except RAISED as error:
            raise Failure.of(error, (number,), "build").adding(advice) from None

    def _make_members(self, built: Sequence[Built]) -> list[Member]:
        """Make a member of each vector env, and of each run of single environments."""
        members: list[Member] = []
        for is_vector, run in itertools.groupby(built, lambda env: env.parts is not None):
            if is_vector:
                members.extend(VectorMember(env, self._mode, self._validate) for env in run)
            else:
                members.append(SingleEnvs(list(run), self._mode, self._validate))
        return members

    @property
    def envs(self) -> list[Any]:
        """The results of the factories, in order."""
        return [built.env for member in self._members for built in member.built]

    def describe(self) -> GroupDescription:
        """Describe the environments for the caller."""
        return GroupDescription.of([built for member in self._members for built in member.built])

    def _place(self, low: int) -> None:
        """Number the rows from `low` on."""
        self.low = self.high = low
        self._member_of: dict[int, Member] = {}
        for member in self._members:
            member.place(self.high)
            self.high = member.rows.stop
            self._member_of.update(dict.fromkeys(member.rows, member))

    def bind(self, buffers: Buffers, low: int, worker: int, restart: Restart | None = None) -> None:
        """Take the rows from `low` on, those of a former worker after a `restart`."""
        self._place(low)
        self._buffers, self._worker = buffers, worker
        views = self._make_views()
        self._leave()
        for member in self._members:
            member.bind(views, restart or Restart({}))

    def _make_views(self) -> Views:
        """Make views of this group's rows."""
        buffers, worker = self._buffers, self._worker
        # A memoryview stores an int in half the time of an array.
        self._progress = buffers.progress.data[worker : worker + 1]
        self._timings = self._make_timings()
        self._nothing = Written(range(self.low, self.high), [])
        self._plain_steps = PlainSteps.of(
            self._members, buffers, range(self.low, self.high), self._progress
        )
        return Views(buffers, worker, self._progress, self._timings)

    def _make_timings(self) -> Timings | None:
        """Make the object that times steps; None without `stats`."""
        counters = self._buffers.counters
        if counters is None:
            return None
        widths = np.ones(self._buffers.plan.num_envs, dtype=np.intp)
        for member in self._members:
            for rows in member.whole(member.rows):
                widths[rows[0]] = len(rows)
        return Timings(
            counters[0],
            counters[1][self._worker],
            self._mode is AutoresetMode.NEXT_STEP,
            np.array(self._starts(range(self.low, self.high)), dtype=np.intp),
            widths,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the views, which a copy of the group makes again on copied rows."""
        self.flush_timings()
        views = ("_progress", "_timings", "_nothing", "_plain_steps")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        views = self._make_views()
        for member in self._members:
            member.view(views)

    # ------------------------------------------------------------------ commands

    def execute(self, op: Op, slot: int, payload: Any) -> Any:
        """Execute a command, in every backend; raise `Failure`.

        It returns `Written` for steps and resets, the results by row for `CALL`, the counters for
        `STATS` if no memory is shared, otherwise None.
        """
        if op is _STEP:
            return self.step(slot)
        if op is _STEP_ROWS:
            rows, _, failures = self.begin(payload.rows, payload.starts, payload.broken)
            written = self.step(slot, rows) if rows else Written([], [])
            if failures:
                written = written._replace(failures=[*failures, *written.failures])
            return written
        if op is Op.RESET:
            return self.reset(slot, *payload)
        if op is Op.CALL:
            return self.call(*payload)
        if op is Op.SET_ATTR:
            return self.set_attr(*payload)
        if op is Op.STATS:
            return self.flush_timings()
        raise ValueError(f"{op!r} is no command for a group")

    # ------------------------------------------------------------------ episodes

    def reset(
        self,
        slot: int,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[Mapping[str, Any] | None],
        keep_options: bool = False,
        broken: Iterable[int] = (),
    ) -> Written:
        """Begin new episodes in some rows, after building those of `broken` again.

        With `keep_options`, autoresets also get a row's options.
        """
        starts = dict(zip(rows, zip(seeds, options, strict=True), strict=True))
        try:
            for _, failure in self._rebuild(broken, rows):
                raise failure
            parts = []
            for member in self._members:
                chosen = {row: starts[row] for row in member.rows if row in starts}
                if chosen:
                    parts.append(member.reset(slot, chosen, keep_options))
        finally:
            self._leave()
        return Written(rows, [part for part in parts if part])

    def begin(self, rows: Sequence[int], starts: Starts, broken: Iterable[int]) -> Written:
        """Let the next step of the rows of `starts` begin an episode, instead of taking an action.

        Those of `broken` are built again first. The returned rows can be stepped.
        """
        failures = self._rebuild(broken, starts) if broken or self._failed else []
        for part in self._by_member(list(starts)) if starts else ():
            self._member_of[part[0]].begin({row: starts[row] for row in part})
        return make_written((_without(rows, failures) if failures else rows, [], failures))

    def step(self, slot: int, rows: Sequence[int] | None = None) -> Written:
        """Step all environments, or those of `rows`, with the actions in their rows.

        A vector env has all of its rows in `rows`, or none. A failure in a step of all is raised;
        in a step of `rows`, failures are reported beside the results of the others.
        """
        timings = self._timings
        note = None if timings is None else timings.start()
        failures: Failures = []
        parts: list[list[int]] = []
        if rows is not None:
            self._buffers.positions.step(rows)
            parts = self._by_member(rows)
            # Rows of one vector env answer together: `recv` must not return a part of them.
            rows = [row for part in parts for row in part]
        try:
            if rows is not None:
                infos = self._step_some(slot, parts, note, failures)
            elif self._plain_steps is not None:
                infos = self._plain_steps.step(slot, note)
            else:
                infos = []
                for member in self._members:
                    columns = member.step(slot, None, note)
                    if columns:
                        infos.append(columns)
        except BaseException:
            if timings is not None:
                timings.abandon()
            raise
        finally:  # as in `_leave`, without its call
            self.last, self._progress[0] = self._progress[0], -1
        if failures:
            self._failed.update(row for failed, _ in failures for row in failed)
            if timings is not None:
                timings.abandon()
        elif timings is not None:
            timings.finish(None if rows is None else self._starts(rows))
        if rows is None:
            return make_written((self._nothing.rows, infos, ())) if infos else self._nothing
        return make_written((_without(rows, failures) if failures else rows, infos, failures))

    def _step_some(
        self, slot: int, rows: list[list[int]], note: Note | None, failures: Failures
    ) -> list[Part]:
        """Step some rows of each member; a failure does not prevent the steps of others."""
        infos: list[Part] = []
        for part in rows:
            try:
                columns = self._member_of[part[0]].step(slot, part, note, failures)
            except BaseException as error:
                if not is_own(error):
                    raise
                failures.append((part, Failure.of(error, part, "step")))
            else:
                if columns:
                    infos.append(columns)
        return infos

    def _by_member(self, rows: Sequence[int]) -> list[list[int]]:
        """Divide rows by their members, in the order in which the members are first named."""
        if len(self._members) == 1:
            return [list(rows)] if rows else []
        parts: dict[int, list[int]] = {}
        for row in rows:
            parts.setdefault(self._member_of[row].rows.start, []).append(row)
        return list(parts.values())

    def whole(self, rows: Sequence[int]) -> list[list[int]]:
        """Divide rows into those that step together: single rows, or all of a vector env."""
        return [
            together
            for part in self._by_member(rows)
            for together in self._member_of[part[0]].whole(part)
        ]

    def _starts(self, rows: Sequence[int]) -> list[int]:
        """Return the rows of a pass that are timed: only the first of each vector env."""
        return [together[0] for together in self.whole(rows)]

    def _rebuild(self, broken: Iterable[int], begun: Iterable[int]) -> Failures:
        """Build failed environments again; return the rows in which this fails, with the failures.

        Those are the `broken` ones, and the rows among `begun` that failed in a stream: the caller
        may have sent the reset before it received the failure.
        """
        wanted, failures = self._failed.intersection(begun).union(broken), Failures()
        number = 0  # of the factory
        try:
            for member in self._members if wanted else ():
                for place, rows in enumerate(member.whole(member.rows)):
                    if not wanted.isdisjoint(rows):
                        failure = self._build_again(number, member, place, rows)
                        if failure is not None:
                            failures.append((rows, failure))
                    number += 1
        finally:
            self._leave()
        return failures

    def _build_again(
        self, number: int, member: Member, place: int, rows: list[int]
    ) -> Failure | None:
        """Close an environment, then build it again: there may be no memory for two."""
        self._progress[0] = rows[0]
        self._failed.update(rows)  # until it is built, even if an interrupt comes
        former = member.built[place]
        close_all([former], rows[0])  # its error would hide the first one
        former = dataclasses.replace(former, env=None)
        member.replace(place, former)
        gc.collect()
        try:
            index = self._first + number
            built = self._builder.check(self._env_fns[number](), index)
            self._check_new(built.env, index)
            change = built.change_since(former)
            if change is not None:
                close_all([built], rows[0])
                raise RuntimeError(change)
            member.replace(place, built)
            self._failed.difference_update(rows)
        except BaseException as error:
            if not is_own(error):
                raise
            return failed(error, rows, "build")
        return None

    def _leave(self) -> None:
        """Note that no environment is running any more."""
        self.last, self._progress[0] = self._progress[0], -1

    def _check_new(self, env: Any, number: int) -> None:
        """Refuse an environment that is already in the group, in another place."""
        numbers: dict[int, int] = {}
        for index, other in enumerate(self.envs, self._first):
            if other is not None:
                check_distinct(other, index, numbers)
        check_distinct(env, number, numbers)

    # ------------------------------------------------------------------ calls and the end

    def call(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of environments, a function with them, or get an attribute; by row."""
        results: dict[int, Any] = {}
        try:
            for part in self._by_member(rows):
                results.update(self._member_of[part[0]].call(call, part))
        finally:
            self._leave()
        return results

    def set_attr(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of environments, not of their wrappers; `values` has one per row."""
        try:
            for part in self._by_member(list(values)):
                member = self._member_of[part[0]]
                member.set_attr(name, {row: values[row] for row in part})
        finally:
            self._leave()

    def flush_timings(self) -> Any:
        """Count the clock readings so far; return the counters if no memory is shared."""
        if self._timings is not None:
            self._timings.flush()
        return self._buffers.export_counters(self._worker, self.low, self.high)

    def close(self) -> Failure | None:
        """Close every environment, also after failures; return the first failure."""
        members, self._members = self._members, []
        return close_all([built for member in members for built in member.built], self.low)


def _without(rows: Sequence[int], failures: Failures) -> Sequence[int]:
    """Return the rows that did not fail."""
    failed = {row for rows, _ in failures for row in rows}
    return [row for row in rows if row not in failed]
