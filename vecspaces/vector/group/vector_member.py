"""A vector env among the environments: several rows, filled by one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from time import perf_counter_ns
from typing import Any, NoReturn

import numpy as np

from vecspaces.checks import RAISED
from vecspaces.errors import ResetNeededError
from vecspaces.interop import is_foreign_vector_env
from vecspaces.layout import Mismatch
from vecspaces.seeding import derive_seed
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.failures import Failure, Message
from vecspaces.vector.exchange.infos import Columns, columns_of, gather
from vecspaces.vector.exchange.messages import RowState, Starts
from vecspaces.vector.exchange.snapshots import snapshot
from vecspaces.vector.group.attributes import Call, get_attribute
from vecspaces.vector.group.building import Built, holds_envs, reaches_members
from vecspaces.vector.group.form import failed, unpack_reset, wrong_form
from vecspaces.vector.group.group import Failures, Group, Note, reset_arguments
from vecspaces.vector.group.info_writer import InfoWriter


class VectorMember(Group):
    """A vector env of vecspaces or Gymnasium, and its rows; it performs its own autoresets."""

    is_vector = True
    _OF_VIEWS = (*Group._OF_VIEWS, "_info_writers")

    def view(self) -> None:
        """Make views of the group's rows, also for a copy of the group."""
        super().view()
        low, high = self.rows.start, self.rows.stop
        self._info_writers = [InfoWriter(infos, low, high) for infos in self._buffers.infos]

    @property
    def _env(self) -> Any:
        return self.built[0].env

    @property
    def _slice(self) -> slice:
        return slice(self.rows.start, self.rows.stop)

    def begin_anew(self, starts: Starts) -> None:
        """Drop the state of all episodes; the next step of `starts` reports lost episodes."""
        self._slot = 0  # with its last observations
        # Rows whose worker was replaced, until they begin an episode or a step reports their loss.
        # `_first` is the result of the reset after the replacement, until a step returns it.
        self._lost = starts
        self._first: tuple[Any, Columns] | None = None
        # Seeds and options, if the next step must begin an episode in all rows.
        self._starts: Starts = {}

    def replace(self, place: int, built: Built) -> None:
        """Replace the vector env."""
        self.built[place] = built

    # ------------------------------------------------------------------ episodes

    def reset_rows(
        self, slot: int, starts: Starts, keep_options: bool, states: Mapping[int, RowState]
    ) -> Columns:
        """Begin episodes in all rows, or in some through `reset_mask`."""
        self._progress[0] = self.rows.start
        self._starts = {}
        rows = [row for row in self.rows if row in starts]
        # An environment that was not reset since its restart gets the seed of the restart.
        seeds = {row: seed for row, (seed, _) in self._lost.items()}
        seeds.update({row: starts[row][0] for row in rows if starts[row][0] is not None})
        positions = self._buffers.positions
        for row in rows:  # its autoresets are not counted
            positions.begin(self._worker, row, seeds.get(row), counts=False)
        seed = self._seed([seeds.get(row) if row in starts else None for row in self.rows])
        try:
            options = self._options([starts[row][1] for row in rows], keep_options)
            if len(rows) < len(self.rows):
                columns = self._reset_some(slot, rows, seed, dict(options or {}))
            else:
                observations, columns = self._reset("reset", seed, options)
                self._lost, self._first = {}, None
                self._write(slot, observations)
            if self._info_writers:
                columns = self._info_writers[slot].write_columns(columns, rows)
        except RAISED as error:
            raise failed(error, self.rows, "reset") from None
        return columns

    def _reset_some(
        self, slot: int, rows: list[int], seed: Any, options: dict[str, Any]
    ) -> Columns:
        """Reset some rows; refuse another library's vector env if it resets other rows too."""
        if self._lost or self._first is not None:
            text = "reset: the worker of {:envs}, one vector env, was replaced: reset all of them"
            raise ResetNeededError(Message(text, self.rows))
        buffers, others = self._buffers, np.setdiff1d(self.rows, rows)
        # Vector envs of vecspaces support the mask, and wrappers of them may change the other rows.
        # Values without a fixed size may be with the caller, so they are not compared.
        before = None
        if not (reaches_members(self._env) or buffers.plan.observations.has_variable):
            before = buffers.observations[self._slot].read(copy=True, index=others)
        options["reset_mask"] = np.isin(self.rows, rows)
        observations, columns = self._reset("reset", seed, options)
        self._write(slot, observations)
        if before is not None and not _same(before, buffers.observations[slot].read(index=others)):
            raise ValueError(
                f"{self._env!r} does not know options['reset_mask']: it reset all of its "
                "environments; reset them together"
            )
        return columns

    def _reset(self, command: str, seed: Any, options: Any) -> tuple[Any, Columns]:
        """Reset the vector env; return its observations, and its infos by rows of the batch."""
        arguments = reset_arguments(seed, options)
        observations, infos = unpack_reset(self._run(command, self._env.reset, **arguments))
        return observations, self._columns(infos)

    def _reset_lost(self, command: str) -> tuple[Any, Columns] | None:
        """Return the result of the reset after a restart, which precedes any other call."""
        if self._lost and self._first is None:
            starts = [self._lost.get(row, (None, None)) for row in self.rows]
            seed = self._seed([seed for seed, _ in starts])
            options = self._options([options for _, options in starts], keep=True)
            observations, columns = self._reset(command, seed, options)
            self._first = snapshot(observations), columns
        return self._first

    # ------------------------------------------------------------------ step

    def begin_rows(self, starts: Starts) -> None:
        """Let the next step begin an episode, in all rows."""
        self._starts = starts

    def step_rows(
        self, slot: int, rows: Sequence[int] | None, note: Note | None, failures: Failures
    ) -> Columns:
        """Step all environments, together."""
        self._progress[0] = self.rows.start
        try:
            if self._starts:
                columns = self.reset_rows(slot, self._starts, False, {})
                self._write_scalars(slot, 0.0, False, False)
            else:
                columns = self._go_on(slot)
                if self._info_writers:
                    columns = self._info_writers[slot].write_columns(columns, self.rows)
        except RAISED as error:
            raise failed(error, self.rows, "step") from None
        if note is not None:
            note(perf_counter_ns())
        return columns

    def _go_on(self, slot: int) -> Columns:
        """Step the vector env, or return the pending results of a restart."""
        if self._lost:
            return self._report_lost(slot)
        if self._first is not None and self._mode is AutoresetMode.NEXT_STEP:
            (observations, columns), self._first = self._first, None
            self._write(slot, observations)
            self._write_scalars(slot, 0.0, False, False)
            return columns
        self._first = None
        return self._step(slot)

    def _ended(self, slot: int) -> list[int]:
        """Return the rows whose episodes a step ended."""
        buffers, span = self._buffers, self._slice
        ended = np.flatnonzero(buffers.terminations[slot, span] | buffers.truncations[slot, span])
        rows: list[int] = (ended + self.rows.start).tolist()
        return rows

    def _step(self, slot: int) -> Columns:
        """Step the vector env, and write what it returns."""
        actions = self._buffers.actions.read(copy=True, index=self._slice)
        if self.built[0].translate is not None:
            actions = self.built[0].translate(actions)
        result = self._run("step", self._env.step, actions)
        try:
            observations, rewards, terminations, truncations, infos = result
            infos = dict(infos)
        except (TypeError, ValueError) as error:
            raise wrong_form(error, "step") from None
        self._write(slot, observations)
        self._write_scalars(slot, rewards, terminations, truncations)
        if self._mode is AutoresetMode.SAME_STEP:
            self._write_finals(slot, infos.pop("final_obs", None))
            infos.pop("_final_obs", None)
        return self._columns(infos)

    def _report_lost(self, slot: int) -> Columns:
        """Take the step that ends lost episodes, in all rows, because they step together."""
        first = self._reset_lost("step")
        assert first is not None
        observations, columns = first
        report: dict[str, Any] = {"worker_restarted": True}
        if self._mode is AutoresetMode.SAME_STEP:
            report["final_info"] = {}
        marks = gather(dict.fromkeys(self.rows, report))
        # The caller shows the last known observations of the rows that were lost.
        self._write(slot, observations)
        self._write_scalars(slot, 0.0, False, True)
        self._lost = {}
        if self._mode is not AutoresetMode.SAME_STEP:
            return marks
        self._first = None
        finals = self._buffers.finals
        assert finals is not None
        finals.copy_rows(self._buffers.observations[slot], list(self.rows))
        return {**columns, **marks}

    def _write(self, slot: int, observations: Any) -> None:
        """Write the observations of all rows."""
        buffers = self._buffers
        try:
            buffers.observations[slot].write_batch(observations, index=self._slice)
        except Mismatch as error:
            raise error.placed((), self.rows.start + (error.row or 0)) from None
        self._slot = slot

    def _write_scalars(self, slot: int, rewards: Any, terminations: Any, truncations: Any) -> None:
        buffers, span = self._buffers, self._slice
        buffers.rewards[slot, span] = rewards
        buffers.terminations[slot, span] = terminations
        buffers.truncations[slot, span] = truncations

    def _write_finals(self, slot: int, observations: Any) -> None:
        """Write the last observations of the episodes that ended in this step (SAME_STEP)."""
        ended, finals = self._ended(slot), self._buffers.finals
        if ended and observations is None:
            raise ValueError(f"{self._env!r} ended an episode in SAME_STEP without final_obs")
        assert finals is not None
        for row in ended:
            finals.write(row, observations[row - self.rows.start])

    def save_row(self, row: int) -> NoReturn:
        """Refuse: the state of a vector env is not that of its rows."""
        text = "{:envs} are one vector env, {}, whose state cannot be saved: save that of its own"
        error = TypeError(Message(text, self.rows, repr(self._env)))
        raise Failure.of(error, self.rows, "save_state")

    def prepare_load(self, row: int, state: RowState) -> NoReturn:
        """Refuse, as `save_row` does."""
        self.save_row(row)

    # ------------------------------------------------------------------ calls

    def call_rows(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of some environments, or of a vector env without separate environments.

        A function is called with an environment, or with the vector env if it is Gymnasium's, which
        does not support this.
        """
        self._progress[0] = rows[0]
        try:
            self._reset_lost("call")
            values = self._run("call", self._call, call, rows)
            return dict(zip(rows, values, strict=True))
        except RAISED as error:
            raise failed(error, self.rows, "call") from None

    def _call(self, call: Call, rows: Sequence[int]) -> list[Any]:
        name, args, kwargs = call
        env, numbers = self._env, [row - self.rows.start for row in rows]
        if name is get_attribute and holds_envs(env) and is_foreign_vector_env(env):
            name, args = args[0], ()  # it takes names alone
        if name == "render":
            frames = env.render()
            return [None if frames is None else frames[number] for number in numbers]
        if not holds_envs(env) or (callable(name) and is_foreign_vector_env(env)):
            attribute = partial(name, env) if callable(name) else getattr(env, name)
            result = attribute(*args, **kwargs) if callable(attribute) else attribute
            return [result] * len(rows)
        if reaches_members(env):
            return list(env.call(name, *args, env_ids=numbers, **kwargs))
        self._check_all(rows, f"call({name!r})")
        results = env.call(name, *args, **kwargs)
        return [results[number] for number in numbers]

    def set_rows(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of some environments, or of a vector env without separate ones."""
        self._progress[0] = next(iter(values))
        try:
            self._reset_lost("set_attr")
            self._run("set_attr", self._set_attr, name, values)
        except RAISED as error:
            raise failed(error, self.rows, "set_attr") from None

    def _set_attr(self, name: str, values: Mapping[int, Any]) -> None:
        env, rows, chosen = self._env, list(values), list(values.values())
        if reaches_members(env):
            env.set_attr(name, chosen, env_ids=[row - self.rows.start for row in rows])
            return
        self._check_all(rows, f"set_attr({name!r})")
        if holds_envs(env):
            env.set_attr(name, [values[row] for row in self.rows])
        elif not all(_same(value, chosen[0]) for value in chosen):
            raise ValueError(
                f"set_attr({name!r}) got different values for the environments of {env!r}, "
                "which has one attribute for all of them"
            )
        else:
            setattr(env.unwrapped, name, chosen[0])

    def _check_all(self, rows: Sequence[int], what: str) -> None:
        if len(rows) < len(self.rows):
            raise ValueError(
                Message(
                    "{} concerns some environments of {}, which takes all of them or none: "
                    "name {:envs} together",
                    what,
                    repr(self._env),
                    range(len(self.rows)),
                )
            )

    # ------------------------------------------------------------------ helpers

    def _run(self, command: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function with the vector env; an exception names the rows of the batch."""
        try:
            return do(*args, **kwargs)
        except RAISED as error:
            raise Failure.of_vector_env(error, self.rows, command) from None

    def _columns(self, infos: Mapping[str, Any]) -> Columns:
        """Convert its infos to columns over the rows of the batch."""
        return columns_of(infos, len(self.rows), self.rows.start) if infos else {}

    def _seed(self, seeds: Sequence[int | None]) -> int | list[int | None] | None:
        """Return seeds in the form for the vector env: all accept an int, only some a list."""
        by_env: list[int | None] = self._by_env(seeds)
        known = [seed for seed in by_env if seed is not None]
        if not known:
            return None
        if by_env == list(range(known[0], known[0] + len(by_env))):
            return known[0]
        if holds_envs(self._env):
            return by_env
        # Its environments share a generator, whose seed is derived from all of their seeds.
        return derive_seed(np.random.SeedSequence(known))

    def _by_env(self, values: Sequence[Any]) -> list[Any]:
        """Return one value per environment: the value of its first row."""
        counts = getattr(self._env, "rows_per_env", (1,) * len(values))
        return [values[end - count] for end, count in zip(accumulate(counts), counts, strict=True)]

    def _options(self, options: Sequence[Mapping[str, Any] | None], keep: bool) -> Any:
        """Return options for the vector env: all accept one mapping, only ours several.

        `keep`: whether autoresets get them too.
        """
        if keep and reaches_members(self._env) and any(mapping is not None for mapping in options):
            return self._by_env(options)
        if not all(_same(mapping, options[0]) for mapping in options):
            raise ValueError(
                f"{self._env!r} is a vector env: its environments take one mapping of options, "
                "and different ones were given"
            )
        return None if options[0] is None else dict(options[0])


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal, arrays bit for bit.

    A value that is sent to workers becomes several objects; a number may become several objects
    even within one message.
    """
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(_same(value[key], other[key]) for key in value)
    if isinstance(value, (tuple, list)):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, np.ndarray):
        return bool(value.dtype == other.dtype and value.shape == other.shape) and (
            value.tobytes() == other.tobytes()
        )
    try:
        # The last test is for NaN.
        return bool(value == other or (value != value and other != other))
    except Exception:
        return False
