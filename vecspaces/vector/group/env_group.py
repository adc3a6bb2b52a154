"""k environments stepped into their rows: autoreset, seeds and options live here; processes do not.

An `EnvGroup` runs in the caller's process (Sync), in a worker process (Async) or in an actor (Ray),
and is the same object in each. Autoreset is written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from vecspaces.interop import foreign_values
from vecspaces.vector.exchange import infos as infos_module
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import EnvironmentFailed, Failure
from vecspaces.vector.exchange.infos import Columns
from vecspaces.vector.exchange.stats import Timings
from vecspaces.vector.group.members import (
    GroupDescription,
    build_member,
    call_member,
    close_members,
    describe_members,
    rows_of,
    set_attribute,
)
from vecspaces.vector.group.validation import as_error, as_info, as_rewards, wrong_form
from vecspaces.vector.group.vector_member import VectorMember, Wanted
from vecspaces.vector.vector_env import AutoresetMode

Info = Mapping[str, Any]

# What an environment's own code may raise at us. KeyboardInterrupt is the user's and passes
# through.
_RAISED = (Exception, SystemExit)


class EnvGroup:
    """Environments that share one process and a contiguous slice of rows.

    Args:
        env_fns: Factories; each is called once, here.
        autoreset_mode: What follows the end of an episode.
        first: The index of the first factory among all of the vector env's, for messages.

    Raises:
        EnvironmentFailed: A factory raised.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        first: int = 0,
    ) -> None:
        self._env_fns = list(env_fns)
        self._mode = autoreset_mode
        self._first = first
        self._member_of: dict[int, int] = {}
        self._timings: Timings | None = None
        self.members: list[Any] = []
        # By member: what turns our actions into those that another library's spaces know.
        self._translators: dict[int, Callable[[Any], Any]] = {}
        for number in range(len(self._env_fns)):
            try:
                self.members.append(self._build(number))
            except _RAISED as error:
                close_members(self.members, 0)
                raise EnvironmentFailed.of(error, (first + number,), "build") from None
        self._place(0)

    # ------------------------------------------------------------------ building

    def _build(self, number: int) -> Any:
        """Make one member."""
        member = build_member(self._env_fns[number], self._first + number, self._mode)
        if not isinstance(member, VectorMember):
            translate = foreign_values(member.action_space)
            if translate is not None:
                self._translators[number] = translate
        return member

    def _place(self, low: int) -> None:
        """Number the rows from `low` on."""
        self.low = row = low
        self._singles: list[tuple[int, Any]] = []
        self._vectors: list[VectorMember] = []
        self._member_of = {}
        for number, member in enumerate(self.members):
            if isinstance(member, VectorMember):
                member.low = row
                self._vectors.append(member)
            else:
                self._singles.append((row, member))
            count = rows_of(member)
            self._member_of.update(dict.fromkeys(range(row, row + count), number))
            row += count
        self.high = row

    def describe(self) -> GroupDescription:
        """Tell the caller what was built."""
        return describe_members(self.members)

    def bind(
        self,
        buffers: Buffers,
        low: int,
        worker: int,
        lost: Wanted | None = None,
    ) -> None:
        """Take a place among all rows.

        Args:
            buffers: Where the rows lie.
            low: The number of this group's first row.
            worker: The index of the worker that this group is.
            lost: After a restart, for each row whose episode died with the former worker: the seed
                to go on with, and the options of its autoresets.
        """
        self._place(low)
        self._buffers, self._worker = buffers, worker
        self._bind_views()
        self._progress[0] = -1
        # Rows whose next step is no step: a reset is due, or their episode was lost.
        self._due: set[int] = set()
        self._lost = {row: seed for row, (seed, _) in (lost or {}).items()}
        self._due.update(self._lost)
        # Rows that a step leaves as they are: their lost episodes ended with nothing to show.
        self._unseen: set[int] = set()
        self._seeds: dict[int, int | None] = {}
        self._options = {
            row: given for row, (_, given) in (lost or {}).items() if given is not None
        }

    def _bind_views(self) -> None:
        """View the memory that holds this group's rows."""
        buffers, worker = self._buffers, self._worker
        # A memoryview stores an int in half the time that an array takes.
        self._progress = buffers.progress.data[worker : worker + 1]
        counters = buffers.counters()
        if counters is not None:
            starts = [row for row, _ in self._singles] + [member.low for member in self._vectors]
            widths = np.ones(buffers.plan.num_envs, dtype=np.intp)
            for member in self._vectors:
                widths[member.low] = member.count
            self._timings = Timings(
                counters[0],
                counters[1][worker],
                self._mode is AutoresetMode.NEXT_STEP,
                np.array(starts, dtype=np.intp),
                widths,
            )
        self._slices = [
            buffers.slice(slot, self.low, self.high) for slot in range(buffers.plan.slots)
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the views, which a copy of the group makes anew on a copy of the rows."""
        self.flush_timings()
        views = ("_progress", "_slices", "_timings")
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._timings = None
        self._bind_views()

    # ------------------------------------------------------------------ the life of an environment

    def reset(
        self,
        slot: int,
        rows: Sequence[int],
        seeds: Sequence[int | None],
        options: Sequence[Mapping[str, Any] | None],
        keep_options: bool = False,
        broken: Iterable[int] = (),
    ) -> Columns:
        """Begin new episodes.

        Args:
            slot: The slot of the ring that takes the observations.
            rows: The rows to reset.
            seeds: One per row.
            options: One mapping or None per row.
            keep_options: Whether autoresets get a row's options too.
            broken: Rows whose environments failed and must be built again first.

        Returns:
            The merged infos.

        Raises:
            EnvironmentFailed: An environment raised, or returned what its space does not hold.
        """
        self._rebuild(broken)
        write = self._buffers.observations[slot].write
        infos: list[tuple[int, Info]] = []
        columns: list[Columns] = []
        wanted = {
            # A restarted environment that was not reset since starts from its own seed.
            row: (self._lost.get(row, self._seeds.get(row)) if seed is None else seed, given)
            for row, seed, given in zip(rows, seeds, options, strict=True)
        }
        row = self.low
        try:
            for row, (_, given) in wanted.items():
                self._options.pop(row, None)
                if keep_options and given is not None:
                    self._options[row] = given
            for row, env in self._singles:
                if row not in wanted:
                    continue
                self._progress[0] = row
                seed, given = wanted[row]
                observation, info = self._reset_env(row, env, "reset", seed=seed, options=given)
                write(row, observation)
                if info.__class__ is not dict or info:
                    infos.append((row, as_info(info)))
                self._forget(row)
            for member in self._vectors:
                self._progress[0] = row = member.low
                inside = [number for number in member.rows if number in wanted]
                if inside:
                    told = member.reset(self._buffers, slot, inside, wanted, keep_options)
                    columns.append(told)
                    for number in inside:
                        self._forget(number)
            merged = infos_module.merge_into(columns, infos)
        except _RAISED as error:
            raise self._failed(error, row, "reset") from None
        self._progress[0] = -1
        return merged

    def step(self, slot: int, rows: Sequence[int] | None = None) -> Columns:
        """Step environments with the actions that stand in their rows.

        Args:
            slot: The slot of the ring that takes observations, rewards and flags.
            rows: The rows to step; None: all of the group's.

        Returns:
            The merged infos.

        Raises:
            EnvironmentFailed: An environment raised, or returned what cannot be handled.
        """
        due, timings, progress = self._due, self._timings, self._progress
        singles, actions = self._work(rows)
        observations: list[Any] = []
        rewards: list[Any] = []
        ended: list[tuple[int, bool, bool]] = []
        infos: list[tuple[int, Info]] = []
        columns: list[Columns] = []
        row = self.low
        note = None if timings is None else timings.start()
        try:
            for (row, env), action in zip(singles, actions, strict=True):
                progress[0] = row
                if row in due:
                    observation, reward, terminated, truncated, info = self._resume(slot, row, env)
                    if truncated:
                        ended.append((row, terminated, truncated))
                else:
                    try:
                        result = env.step(action)
                    except _RAISED as error:
                        raise EnvironmentFailed.of(error, (row,), "step") from None
                    try:
                        observation, reward, terminated, truncated, info = result
                        over = terminated or truncated
                    except (TypeError, ValueError) as error:
                        raise wrong_form(error, "step") from None
                    if over:
                        ended.append((row, bool(terminated), bool(truncated)))
                        observation, info = self._end_episode(row, env, observation, info)
                observations.append(observation)
                rewards.append(reward)
                if info.__class__ is not dict or info:
                    infos.append((row, as_info(info)))
                if note is not None:
                    note(perf_counter_ns())
            if singles:
                self._put(slot, singles, observations, rewards, ended)
            for member in self._vectors:
                progress[0] = row = member.low
                if rows is None or row in rows:
                    columns.append(self._step_vector(slot, member))
                    if note is not None:
                        note(perf_counter_ns())
            merged = infos_module.merge_into(columns, infos)
        except _RAISED as error:
            if timings is not None:
                timings.abandon()
            raise self._failed(error, row, "step") from None
        progress[0] = -1
        if timings is not None:
            timings.finish(None if rows is None else self._timed_rows(rows, singles))
        return merged

    def _work(self, rows: Sequence[int] | None) -> tuple[list[tuple[int, Any]], list[Any]]:
        """The single environments to step, and their actions."""
        stored = self._buffers.actions
        if rows is None and not self._vectors:
            singles, actions = self._singles, stored.items(self.low, self.high)
        else:
            wanted = None if rows is None else set(rows)
            singles = [pair for pair in self._singles if wanted is None or pair[0] in wanted]
            actions = [stored.item(row) for row, _ in singles]
        for position, (row, _) in enumerate(singles if self._translators else ()):
            translate = self._translators.get(self._member_of[row])
            if translate is not None:
                actions[position] = translate(actions[position])
        return singles, actions

    def _timed_rows(self, rows: Sequence[int], singles: list[tuple[int, Any]]) -> list[int]:
        """The rows that were stepped, in order; of a vector env the first only."""
        lows = [member.low for member in self._vectors if member.low in rows]
        return [row for row, _ in singles] + lows

    def _end_episode(self, row: int, env: Any, observation: Any, info: Any) -> tuple[Any, Any]:
        """Do what the mode asks for at the end of an episode; give what `step` returns."""
        if self._mode is AutoresetMode.NEXT_STEP:
            self._due.add(row)
        elif self._mode is AutoresetMode.SAME_STEP:
            # Copied before the reset: environments reuse what they return.
            assert self._buffers.finals is not None
            self._buffers.finals.write(row, observation)
            final_info = infos_module.snapshot(as_info(info))
            observation, info = self._autoreset(row, env)
            info = {**as_info(info), "final_info": final_info}
        return observation, info

    def _autoreset(self, row: int, env: Any) -> tuple[Any, Any]:
        """Reset one environment without being asked to."""
        arguments: dict[str, Any] = {}
        if row in self._options:
            arguments["options"] = self._options[row]
        seed = self._seeds.pop(row, None)
        if seed is not None:
            arguments["seed"] = seed
        began = perf_counter_ns()
        result = self._reset_env(row, env, "step", **arguments)
        if self._timings is not None:
            self._timings.reset(row, perf_counter_ns() - began)
        return result

    def _reset_env(self, row: int, env: Any, command: str, **arguments: Any) -> tuple[Any, Any]:
        """Reset one environment; what it raises is its own, what it returns is checked."""
        try:
            result = env.reset(**arguments)
        except _RAISED as error:
            raise EnvironmentFailed.of(error, (row,), command) from None
        try:
            observation, info = result
        except (TypeError, ValueError) as error:
            raise wrong_form(error, "reset") from None
        return observation, info

    def _resume(self, slot: int, row: int, env: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take the step of a row that has no episode to step: begin one, or report a lost one."""
        self._due.discard(row)
        if row not in self._lost:
            observation, info = self._autoreset(row, env)
            return observation, 0.0, False, False, info
        self._seeds[row] = self._lost.pop(row)
        observation, info = None, {"worker_restarted": True}
        if self._mode is AutoresetMode.SAME_STEP:
            observation, first_info = self._autoreset(row, env)
            info = {**as_info(first_info), "final_info": {}, **info}
            return observation, 0.0, False, True, info
        # The caller shows the last observation that it knew.
        self._unseen.add(row)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._due.add(row)
        else:
            self._autoreset(row, env)
        return observation, 0.0, False, True, info

    def _step_vector(self, slot: int, member: VectorMember) -> Columns:
        """Step a vector env of many rows, or report that its episodes were lost."""
        lost_rows = self._lost.keys() & set(member.rows) if self._lost else ()
        if not lost_rows:
            return member.step(self._buffers, slot)
        lost = {row: (self._lost.pop(row), self._options.get(row)) for row in sorted(lost_rows)}
        self._due.difference_update(lost)
        return member.report_lost(self._buffers, slot, lost)

    def _put(
        self,
        slot: int,
        singles: list[tuple[int, Any]],
        observations: list[Any],
        rewards: list[Any],
        ended: list[tuple[int, bool, bool]],
    ) -> None:
        """Write what the environments of some rows returned; raise for the first misfit."""
        buffers = self._buffers
        if len(singles) == self.high - self.low and not self._unseen:
            views = self._slices[slot]
            views.write(observations)
            views.rewards[:] = as_rewards(rewards, range(self.low, self.high))
            views.terminations.fill(False)
            views.truncations.fill(False)
        else:
            rows = [row for row, _ in singles]
            for row, observation in zip(rows, observations, strict=True):
                if row not in self._unseen:
                    buffers.observations[slot].write(row, observation)
            self._unseen.clear()
            buffers.rewards[slot, rows] = as_rewards(rewards, rows)
            buffers.terminations[slot, rows] = buffers.truncations[slot, rows] = False
        if ended:
            terminations, truncations = buffers.terminations[slot], buffers.truncations[slot]
            for row, terminated, truncated in ended:
                terminations[row], truncations[row] = terminated, truncated

    # ------------------------------------------------------------------ calls and the end

    def call(
        self,
        name: str | Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        rows: Sequence[int],
    ) -> list[Any]:
        """Call a method of environments, or get an attribute.

        Args:
            name: The method or attribute, or a function of the environment; `render` renders.
            args: Positional arguments.
            kwargs: Keyword arguments.
            rows: The rows concerned.

        Returns:
            One result per row.

        Raises:
            EnvironmentFailed: An environment raised, or lacks the attribute.
        """
        results: dict[int, Any] = {}
        for part in self.whole(rows):
            self._progress[0] = row = part[0]
            member = self.members[self._member_of[row]]
            try:
                if isinstance(member, VectorMember):
                    values = member.call(name, args, kwargs, part)
                    results.update(zip(part, values, strict=True))
                else:
                    results[row] = call_member(member, name, args, kwargs)
            except _RAISED as error:
                raise self._failed(error, row, "call") from None
        self._progress[0] = -1
        return [results[row] for row in rows]

    def set_attr(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of environments, not of their wrappers.

        Args:
            name: The attribute.
            values: The value for each row concerned.

        Raises:
            EnvironmentFailed: An environment refused.
        """
        for rows in self.whole(sorted(values)):
            member = self.members[self._member_of[rows[0]]]
            try:
                if isinstance(member, VectorMember):
                    member.set_attr(name, [values[row] for row in rows], rows)
                else:
                    set_attribute(member, name, values[rows[0]])
            except _RAISED as error:
                raise self._failed(error, rows[0], "set_attr") from None

    def whole(self, rows: Sequence[int]) -> list[list[int]]:
        """Part rows into those that step together: one each, or all of a vector env.

        Args:
            rows: Rows of this group.

        Returns:
            The rows of each member, in the order in which they are first named.
        """
        parts: dict[int, list[int]] = {}
        for row in rows:
            parts.setdefault(self._member_of[row], []).append(row)
        return list(parts.values())

    def flush_timings(self) -> Any:
        """Count the clock readings gathered so far, for `stats()`.

        Returns:
            The counters, for a caller that shares no memory with this process; else None.
        """
        if self._timings is not None:
            self._timings.flush()
        return self._buffers.export_counters(self._worker, self.low, self.high)

    def close(self) -> Failure | None:
        """Close every environment, whatever the others do; give the first failure."""
        members, self.members = self.members, []
        return close_members(members, self.low)

    # ------------------------------------------------------------------ helpers

    def _rebuild(self, broken: Iterable[int]) -> None:
        """Build environments that failed again."""
        for row, *_ in self.whole(sorted(broken)):
            number = self._member_of[row]
            # What a broken environment says at its end helps nobody: it is broken already.
            close_members([self.members[number]], row)
            try:
                self.members[number] = self._build(number)
            except _RAISED as error:
                raise self._failed(error, row, "build") from None
        self._place(self.low)

    def _forget(self, row: int) -> None:
        """A reset row owes nothing any more."""
        self._due.discard(row)
        self._unseen.discard(row)
        self._lost.pop(row, None)
        self._seeds.pop(row, None)

    def _failed(self, error: BaseException, row: int, command: str) -> EnvironmentFailed:
        """Say which environment it was."""
        self._progress[0] = -1
        if isinstance(error, EnvironmentFailed):
            return error
        error, row = as_error(error, row, command)
        return EnvironmentFailed(Failure.of(error, (row,), command))
