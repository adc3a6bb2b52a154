"""EnvGroup: k environments stepped into their rows, in whatever process they run.

An `EnvGroup` runs in the caller's process (Sync), in a worker process (Async) or in an actor (Ray),
and is the same object in each. It consists of members: runs of single environments
(`single_envs.py`, where autoresets happen) and vector envs (`vector_member.py`).
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vecspaces.checks import RAISED
from vecspaces.log import log
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import ONE_WORKER_EACH, Failure, name_envs
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Written, make_written
from vecspaces.vector.exchange.stats import Timings
from vecspaces.vector.group.attributes import Call
from vecspaces.vector.group.building import (
    Builder,
    Built,
    GroupDescription,
    check_distinct,
    close_all,
    is_vector_env,
)
from vecspaces.vector.group.chunk_stepper import GroupChunk
from vecspaces.vector.group.form import failed
from vecspaces.vector.group.members import Failures, Member, Note, Starts, Views
from vecspaces.vector.group.plain_steps import PlainSteps
from vecspaces.vector.group.single_envs import SingleEnvs
from vecspaces.vector.group.vector_member import VectorMember

# Hint for simulators that allow one instance per process.
_ONE_PER_PROCESS = f"(if this environment allows one instance per process: {ONE_WORKER_EACH})"


class EnvGroup:
    """Environments that share one process and consecutive rows.

    Every method raises `Failure`, and nothing else, for what an environment or a factory did. Each
    factory is called once, here; `first` is the index of the first one in the whole vector env.
    `replace` changes `env_fns`, which in the caller's process are those of the vector env.
    `note_building` is called with the index of each factory before that, and with -1 at the end.
    """

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        first: int = 0,
        *,
        validate: bool = False,
        note_building: Callable[[int], None] | None = None,
    ) -> None:
        self._env_fns = env_fns
        self._first = first
        self._builder = Builder(autoreset_mode)
        built: list[Built] = []
        numbers: dict[int, int] = {}  # by the identity of the environment
        for number, env_fn in enumerate(self._env_fns, first):
            advice = _ONE_PER_PROCESS if built else ""
            try:
                if note_building is not None:
                    note_building(number)
                env = env_fn()
                advice = ""  # what is wrong from here on has nothing to do with other instances
                one = self._builder.check(env, number)
                check_distinct(one.env, number, numbers)
                built.append(one)
            except BaseException as error:
                close_all(built, 0)
                if isinstance(error, RAISED):
                    raise Failure.of(error, (number,), "build").adding(advice) from None
                raise
        if note_building is not None:
            note_building(-1)
        self._members: list[Member] = []
        for is_vector, run in itertools.groupby(built, lambda one: is_vector_env(one.env)):
            if is_vector:
                self._members.extend(VectorMember(one, autoreset_mode, validate) for one in run)
            else:
                self._members.append(SingleEnvs(list(run), autoreset_mode, validate))
        self._mode, self._validate = autoreset_mode, validate
        self._failed: set[int] = set()  # rows that failed in a stream
        self._place(0)

    @property
    def envs(self) -> list[Any]:
        """What the factories returned, in order."""
        return [one.env for member in self._members for one in member.built]

    def describe(self) -> GroupDescription:
        """Describe the environments for the caller."""
        return GroupDescription.of([one for member in self._members for one in member.built])

    def _place(self, low: int) -> None:
        """Number the rows from `low` on."""
        self.low = self.high = low
        self._member_of: dict[int, Member] = {}
        for member in self._members:
            member.place(self.high)
            self.high = member.rows.stop
            self._member_of.update(dict.fromkeys(member.rows, member))

    def bind(self, buffers: Buffers, low: int, worker: int, lost: Starts | None = None) -> None:
        """Take the rows from `low` on; `lost` are those whose episodes died with a former worker.

        They go on with the seeds of `lost`, and its options are those of their autoresets.
        """
        self._place(low)
        self._buffers, self._worker = buffers, worker
        views = self._make_views()
        self._progress[0] = -1
        for member in self._members:
            member.bind(views, lost or {})

    def _make_views(self) -> Views:
        """View the memory that holds this group's rows."""
        buffers, worker = self._buffers, self._worker
        # A memoryview stores an int in half the time that an array takes.
        self._progress = buffers.progress.data[worker : worker + 1]
        self._timings: Timings | None = None
        counters = buffers.counters
        if counters is not None:
            widths = np.ones(buffers.plan.num_envs, dtype=np.intp)
            for member in self._members:
                for rows in member.whole(member.rows):
                    widths[rows[0]] = len(rows)
            self._timings = Timings(
                counters[0],
                counters[1][worker],
                self._mode is AutoresetMode.NEXT_STEP,
                np.array(self._starts(range(self.low, self.high)), dtype=np.intp),
                widths,
            )
        # The last chunk, and what tells whether the next one has the same form.
        self._chunk: tuple[Any, GroupChunk] | None = None
        self._nothing = Written(range(self.low, self.high), [])
        self._plain_steps = PlainSteps.of(
            self._members, buffers, range(self.low, self.high), self._progress
        )
        return Views(buffers, worker, self._progress, self._timings)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the views, which a copy of the group makes anew on a copy of the rows."""
        self.flush_timings()
        views = ("_progress", "_timings", "_nothing", "_plain_steps", "_chunk")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        views = self._make_views()
        for member in self._members:
            member.view(views)

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

        With `keep_options`, autoresets get a row's options too.
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
            self._progress[0] = -1
        return Written(rows, [part for part in parts if part])

    def begin(self, rows: Sequence[int], starts: Starts, broken: Iterable[int]) -> Written:
        """Let the next step of the rows of `starts` begin an episode, instead of taking an action.

        Those of `broken` are built again first. The rows of what is returned can be stepped.
        """
        failures: Failures = []
        if broken or self._failed:
            try:
                failures = self._rebuild(broken, starts)
            finally:
                self._progress[0] = -1
            self._failed.update(row for failed, _ in failures for row in failed)
        for part in self._by_member(list(starts)):
            self._member_of[part[0]].begin({row: starts[row] for row in part})
        return Written(_without(rows, failures) if failures else rows, [], failures)

    def step(self, slot: int, rows: Sequence[int] | None = None) -> Written:
        """Step all environments, or those of `rows`, with the actions that stand in their rows.

        A vector env has all of its rows in `rows`, or none. A failure in a step of all is raised;
        of `rows`, those that fail are reported beside what the others returned.
        """
        timings = self._timings
        note = None if timings is None else timings.start()
        failures: Failures = []
        if rows is not None:
            self._buffers.positions.step(rows)
        try:
            if rows is None:
                infos = self._step(slot, note)
            else:
                infos = self._step_some(slot, rows, note, failures)
        except BaseException:
            if timings is not None:
                timings.abandon()
            raise
        finally:
            self._progress[0] = -1
        if failures:
            self._failed.update(row for failed, _ in failures for row in failed)
            if timings is not None:
                timings.abandon()
        elif timings is not None:
            timings.finish(None if rows is None else self._starts(rows))
        if rows is None:
            return make_written((self._nothing.rows, infos, ())) if infos else self._nothing
        return Written(_without(rows, failures) if failures else rows, infos, failures)

    def step_chunk(
        self,
        slot: int,
        rows: Sequence[int],
        length: int,
        first: int,
        exported: Sequence[bytes],
        keeps_infos: bool,
    ) -> Written:
        """Take up to `length` steps of some rows, each until its episode ends; see `GroupChunk`.

        The results of all steps are the last columns of what is returned. The steps are numbered
        from `first`.
        """
        form = rows, length, keeps_infos
        if self._chunk is None or self._chunk[0] != form:
            self._chunk = form, GroupChunk(self._buffers, *form, self._validate)
        chunk = self._chunk[1]
        planned = chunk.begin(exported)
        is_whole = len(rows) == self.high - self.low
        # A place that is asked for meanwhile names the last step; `step` counts one of some rows.
        self._buffers.positions.step(rows, length if is_whole else length - 1)
        try:
            for member in self._members:
                member.planned = planned
            written = self.step(slot, None if is_whole else rows)
        finally:
            for member in self._members:
                member.planned = None
        for _, failure in written.failures:
            raise failure
        return Written(rows, [*written.infos, chunk.end(first)])

    def _step(self, slot: int, note: Note | None) -> list[Part]:
        """Step the members, one after the other; return the infos of those that have some."""
        if self._plain_steps is not None:
            return self._plain_steps.step(slot, note)
        if len(self._members) == 1:
            columns = self._members[0].step(slot, None, note)
            return [columns] if columns else []
        parts = [member.step(slot, None, note) for member in self._members]
        return [part for part in parts if part]

    def _step_some(
        self, slot: int, rows: Sequence[int], note: Note | None, failures: Failures
    ) -> list[Part]:
        """Step some rows of the members; those that fail keep no other one from its step."""
        parts: list[Part] = []
        for together in self._by_member(rows):
            part: Sequence[int] = together
            member = self._member_of[part[0]]
            while part:
                try:
                    columns = member.step(slot, part, note, failures)
                    if columns:
                        parts.append(columns)
                    break
                except Failure as failure:
                    wholes = [one for one in member.whole(part) if set(one) & set(failure.env_ids)]
                    failures.append(([row for whole in wholes for row in whole] or part, failure))
                    part = _without(part, failures)
        return parts

    def _by_member(self, rows: Sequence[int]) -> list[list[int]]:
        """Part rows by the members that they are of, in the order in which they are first named."""
        if len(self._members) == 1:
            return [list(rows)] if rows else []
        parts: dict[int, list[int]] = {}
        for row in rows:
            parts.setdefault(self._member_of[row].rows.start, []).append(row)
        return list(parts.values())

    def whole(self, rows: Sequence[int]) -> list[list[int]]:
        """Part rows into those that step together: one each, or all of a vector env."""
        return [
            together
            for part in self._by_member(rows)
            for together in self._member_of[part[0]].whole(part)
        ]

    def _starts(self, rows: Sequence[int]) -> list[int]:
        """Return the rows of a pass that are timed: of a vector env the first alone."""
        return [together[0] for together in self.whole(rows)]

    def _rebuild(self, broken: Iterable[int], begun: Iterable[int]) -> Failures:
        """Build environments that failed again; return the rows where this fails, and how.

        Those are the `broken` ones, and the rows among `begun` that failed in a stream: the caller
        may have sent the reset before it received the failure.
        """
        wanted = self._failed.intersection(begun).union(broken)
        failures: Failures = []
        for at, member, number, rows in self._each_env() if wanted else ():
            if wanted.intersection(rows):
                failure = self._build_again(at, member, number, rows, self._env_fns[at])
                if failure is not None:
                    failures.append((rows, failure))
        return failures

    def replace(self, env_fns: Mapping[int, Callable[[], Any]]) -> dict[int, Failure | None]:
        """Build other environments, given by their first rows; return by row what failed.

        One that fails keeps its former factory, which the next reset builds it with.
        """
        results: dict[int, Failure | None] = {}
        try:
            for at, member, number, rows in self._each_env():
                env_fn = env_fns.get(rows[0])
                if env_fn is not None:
                    failure = self._build_again(at, member, number, rows, env_fn, logs=True)
                    results.update(dict.fromkeys(rows, failure))
                    if failure is not None:
                        failure.adding("the next reset of it builds the former environment again")
        finally:
            self._progress[0] = -1
        return results

    def _each_env(self) -> Iterator[tuple[int, Member, int, list[int]]]:
        """Yield the number of each factory; its environment's member, number there, and rows."""
        at = itertools.count()
        for member in self._members:
            for number, rows in enumerate(member.whole(member.rows)):
                yield next(at), member, number, rows

    def _build_again(
        self, at: int, member: Member, number: int, rows: list[int], env_fn: Any, logs: bool = False
    ) -> Failure | None:
        """Build an environment in place of one that is closed first: memory may not hold two."""
        self._progress[0] = rows[0]
        self._failed.update(rows)  # until it is built, even if an interrupt comes
        former = member.built[number]
        failure = close_all([former], rows[0])
        if failure is not None and logs:  # that of a broken environment would hide the first one
            reason = (failure.text.strip().splitlines() or [""])[-1]
            log.warning("%s: raised while it was closed: %s", name_envs(rows), reason)
        former = dataclasses.replace(former, env=None)
        member.replace(number, former)
        gc.collect()
        try:
            index, numbers = self._first + at, dict[int, int]()
            built = self._builder.build(env_fn, index)
            for other, env in enumerate(self.envs, self._first):
                if env is not None:
                    check_distinct(env, other, numbers)
            check_distinct(built.env, index, numbers)
            change = built.change_since(former)
            if change is not None:
                close_all([built], rows[0])
                raise RuntimeError(change)
            self._env_fns[at] = env_fn  # first: after an interrupt, it is built once more
            member.replace(number, built)
            self._failed.difference_update(rows)
        except RAISED as error:
            return failed(error, rows, "build")
        return None

    # ------------------------------------------------------------------ calls and the end

    def call(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of environments, a function with them, or get an attribute; by row."""
        results: dict[int, Any] = {}
        try:
            for part in self._by_member(rows):
                results.update(self._member_of[part[0]].call(call, part))
        finally:
            self._progress[0] = -1
        return results

    def set_attr(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of environments, not of their wrappers; `values` holds one per row."""
        try:
            for part in self._by_member(list(values)):
                member = self._member_of[part[0]]
                member.set_attr(name, {row: values[row] for row in part})
        finally:
            self._progress[0] = -1

    def flush_timings(self) -> Any:
        """Count the clock readings so far; return the counters where no memory is shared."""
        if self._timings is not None:
            self._timings.flush()
        return self._buffers.export_counters(self._worker, self.low, self.high)

    def close(self) -> Failure | None:
        """Close every environment, whatever the others do; return the first failure."""
        members, self._members = self._members, []
        return close_all([one for member in members for one in member.built], self.low)


def _without(rows: Sequence[int], failures: Failures) -> Sequence[int]:
    """Return the rows that did not fail."""
    failed = {row for rows, _ in failures for row in rows}
    return [row for row in rows if row not in failed]
