"""Single environments in consecutive rows: the loop that steps them, and their autoresets.

A list of *steppers* has one object per row, which takes the next step: the environment itself, a
`_Start`, which begins an episode, or a `_Lost`, which reports an episode that was lost with its
worker. The loop therefore has no conditions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from vecspaces.checks import RAISED
from vecspaces.errors import ResetNeededError
from vecspaces.pickling import dumps
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.failures import Failure, Message
from vecspaces.vector.exchange.infos import InfosByRow, Part
from vecspaces.vector.exchange.messages import RowState, Starts
from vecspaces.vector.exchange.snapshots import are_immutable, snapshot
from vecspaces.vector.group.attributes import Call, call_env, set_attribute
from vecspaces.vector.group.building import Built
from vecspaces.vector.group.form import (
    InvalidResult,
    as_info,
    failed,
    is_from_env,
    unpack_reset,
    wrong_form,
)
from vecspaces.vector.group.group import Failures, Group, Note, reset_arguments
from vecspaces.vector.group.slot_writer import MOST_SINGLE_WRITES, SlotWriter
from vecspaces.vector.group.states import prepare_load, save_env
from vecspaces.vector.group.validation import Validated

# Access to members of enumerations is slow.
_NEXT_STEP, _SAME_STEP = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
# The maximum number of stored writers: making a writer takes 30 us, but if each step has other
# rows, it is seldom used again.
_MOST_RUNS = 64
#: The result of a step of an environment, or of a stepper in its place.
EnvStep = tuple[Any, Any, Any, Any, Any]


class SingleEnvs(Group):
    """A run of single environments, and their rows."""

    is_vector = False
    _OF_VIEWS = (*Group._OF_VIEWS, "_slots", "_runs", "_low", "_positions", "_write_final")

    def view(self) -> None:
        """Make views of the group's rows, also for a copy of the group."""
        super().view()
        buffers, rows = self._buffers, self.rows
        # Bound once for each slot, so that a step needs no further look-up.
        self._slots = [SlotWriter(buffers, slot, rows) for slot in range(buffers.plan.slots)]
        # The writers of consecutive rows that were stepped without the others, by slot and rows.
        self._runs: dict[tuple[int, tuple[int, ...]], SlotWriter] = {}
        self._low, self._positions = rows.start, buffers.positions
        if buffers.finals is not None:
            self._write_final = buffers.write_final

    def begin_anew(self, starts: Starts) -> None:
        """Drop the state of all episodes; the next step of `starts` reports lost episodes."""
        # The objects that reset and step each environment in an episode, and the objects that take
        # the next step.
        self._envs: list[Any] = [self._stepper_of(place) for place in range(len(self.built))]
        self._steppers: list[Any] = list(self._envs)
        # The autoreset of each row, with its options.
        self._starts = [_Start(self, row) for row in self.rows]
        # The seeds of rows whose worker was replaced, until an episode begins.
        self._seeds = {row: seed for row, (seed, _) in starts.items()}
        # The ends of episodes in the step that runs: row, terminated, truncated.
        self._ended: list[tuple[int, bool, bool]] = []
        for row, (_, options) in starts.items():
            self._keep_options(row, options)
            self._steppers[row - self._low] = _Lost(self, row)

    def replace(self, place: int, built: Built) -> None:
        """Replace an environment."""
        self.built[place] = built
        self._envs[place] = self._steppers[place] = self._stepper_of(place)

    def _stepper_of(self, place: int) -> Any:
        """Return the object that resets an environment, and steps it with actions from its row."""
        built = self.built[place]
        env, translate = built.env, built.translate
        if translate is not None:
            env = _ActionTranslator(env, translate)
        if not self._builder.validate or built.env is None:
            return env
        declared = self._buffers.plan.info_spaces
        return Validated(env, built, self.rows[place : place + 1], declared)

    # ------------------------------------------------------------------ episodes

    def reset_rows(
        self, slot: int, starts: Starts, keep_options: bool, states: Mapping[int, RowState]
    ) -> Part:
        """Begin episodes in some rows, or load states."""
        infos = InfosByRow()
        writer, rows = self._slots[slot], sorted(starts)
        for row in rows:
            self._progress[0] = row
            seed, options = starts[row]
            arguments = reset_arguments(self._seeds.get(row) if seed is None else seed, options)
            try:
                if row in states:
                    observation, info = states[row].observation, dict(states[row].infos)
                    stepper = self.prepare_load(row, states[row])(options)
                else:
                    observation, info = self.reset_env(row, "reset", arguments)
                writer.write_observation(row, observation)
            except RAISED as error:
                raise failed(error, (row,), "reset") from None
            if info:
                infos[row] = info
            self._keep_options(row, options if keep_options else None)
            self.go_on(row)
            if row in states:
                self._steppers[row - self._low] = stepper
        try:
            return writer.write_infos(rows, infos)
        except RAISED as error:
            raise failed(error, rows, "reset") from None

    def reset_env(
        self, row: int, command: str, arguments: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Reset one environment; convert its exception to a `Failure`, and check its result."""
        env = self._envs[row - self._low]
        try:
            if arguments:
                self._positions.begin(self._worker, row, arguments.get("seed"))
                result = env.reset(**arguments)
            else:
                self._positions.begin_next(self._worker, row)
                result = env.reset()
        except RAISED as error:
            if type(error) is TypeError and "reset() got an unexpected keyword" in str(error):
                text = f"reset must take seed and options, and return (observation, info): {error}"
                raise failed(InvalidResult(TypeError, "", text), (row,), command) from None
            raise Failure.of(error, (row,), command) from None
        if result.__class__ is tuple and len(result) == 2 and result[1].__class__ is dict:
            return result  # without a call for the usual form
        try:
            return unpack_reset(result)
        except InvalidResult as error:
            raise failed(error, (row,), command) from None

    def begin_rows(self, starts: Starts) -> None:
        """Let the next step of some rows begin an episode; autoresets then get no options."""
        for row, (seed, options) in starts.items():
            self._keep_options(row, None)
            arguments = reset_arguments(self._seeds.get(row) if seed is None else seed, options)
            self._steppers[row - self._low] = _Start(self, row, arguments, command="reset")

    def go_on(self, row: int) -> None:
        """Let the environment take the next step of this row."""
        if self._seeds:
            self._seeds.pop(row, None)
        number = row - self._low
        self._steppers[number] = self._envs[number]

    def _keep_options(self, row: int, options: Mapping[str, Any] | None) -> None:
        """Note the options of a row's autoresets."""
        if options is not None or self._starts[row - self._low].arguments:
            arguments = None if options is None else {"options": options}
            self._starts[row - self._low] = _Start(self, row, arguments)

    def _begin_at_once(
        self, row: int, observation: Any, info: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Autoreset in the step that ends an episode; return the observation and the info."""
        # Copied before the reset, because environments reuse what they return.
        self._write_final(row, observation)
        final: dict[str, Any] = {}
        if info:  # without a call for most infos
            final = info.copy() if are_immutable(map(type, info.values())) else snapshot(info)
        observation, info = self.reset_env(row, "step", self._starts[row - self._low].arguments)
        return observation, {**info, "final_info": final}

    # ------------------------------------------------------------------ step

    def step_rows(
        self, slot: int, rows: Sequence[int] | None, note: Note | None, failures: Failures
    ) -> Part:
        """Step all environments, or those of some rows."""
        progress, writer, written, mode = self._progress, self._slots[slot], rows, self._mode
        pairs: Iterator[Any]
        if rows is None:
            pairs = zip(self.rows, self._steppers, writer.take_actions())  # noqa: B905
        else:
            run, low, steppers = self._run(slot, rows), self._low, self._steppers
            if run is None:
                actions = self._buffers.actions.items(rows)
            else:
                writer, written, actions = run, None, run.take_actions()
            pairs = zip(rows, [steppers[row - low] for row in rows], actions)  # noqa: B905
        if note is not None:
            pairs = _noting(pairs, note)
        observations: list[Any] = []
        rewards: list[Any] = []
        write_at_once = writer.write_at_once
        infos = InfosByRow()
        ended = self._ended = []
        row = -1
        while True:
            try:
                for row, stepper, action in pairs:  # continues after a row that failed
                    # One store per environment shows which row was running at a death or a hang.
                    progress[0] = row
                    try:
                        result = stepper.step(action)
                    except RAISED as error:
                        # Raised by the environment; checks of its result follow.
                        raise Failure.of(error, (row,), "step") from None
                    try:
                        observation, reward, terminated, truncated, info = result
                        over = terminated or truncated
                    except (TypeError, ValueError) as error:
                        raise wrong_form(error, "step") from None
                    # `as_info` is called only for unusual infos, because a call takes longer than
                    # both tests.
                    if info.__class__ is not dict:
                        info = as_info(info)
                    if over:
                        ended.append((row, bool(terminated), bool(truncated)))
                        if mode is _SAME_STEP:
                            observation, info = self._begin_at_once(row, observation, info)
                        elif mode is _NEXT_STEP:
                            self._steppers[row - self._low] = self._starts[row - self._low]
                    if write_at_once is None:
                        observations.append(observation)
                    else:
                        write_at_once(row, observation)
                    rewards.append(reward)
                    if info:
                        infos[row] = info
                row = -1  # an error of a writer names its row
                return writer.write(written, observations, rewards, ended, infos)
            except BaseException as error:
                if not is_from_env(error, rows is not None):
                    raise
                concerned = (row,) if row >= 0 else rows or self.rows
                failure = failed(error, concerned, "step")
                if rows is None:
                    raise failure from None
                failed_rows = set(failure.env_ids).intersection(rows) or set(rows)
                failures.append((sorted(failed_rows), failure))
                if row < 0:
                    kept = [place for place, other in enumerate(rows) if other not in failed_rows]
                    observations = [observations[place] for place in kept if observations]
                    rewards = [rewards[place] for place in kept]
                rows = [other for other in rows if other not in failed_rows]
                writer, written = self._slots[slot], rows
                infos = InfosByRow(
                    {other: infos[other] for other in infos if other not in failed_rows}
                )
                ended[:] = [other for other in ended if other[0] not in failed_rows]

    def _run(self, slot: int, rows: Sequence[int]) -> SlotWriter | None:
        """Return the writer of some rows if they are consecutive, and not too few."""
        key = slot, tuple(rows)
        run = self._runs.get(key)
        if run is None and len(rows) > MOST_SINGLE_WRITES and len(self._runs) < _MOST_RUNS:
            part = range(rows[0], rows[0] + len(rows))
            if key[1] == tuple(part):
                run = SlotWriter(self._buffers, slot, part, self._slots[slot])
                self._runs[key] = run
        return run

    # ------------------------------------------------------------------ lost episodes

    def reset_lost(self, row: int, command: str) -> tuple[Any, dict[str, Any]]:
        """Begin the episode that follows a lost episode; the result may be stored."""
        arguments = {**self._starts[row - self._low].arguments}
        if self._seeds[row] is not None:
            arguments["seed"] = self._seeds[row]
        first: tuple[Any, dict[str, Any]] = snapshot(self.reset_env(row, command, arguments))
        return first

    def report_lost(self, row: int, observation: Any, info: dict[str, Any]) -> EnvStep:
        """Return the step that ends a lost episode, after the reset that follows it."""
        self.go_on(row)
        self._ended.append((row, False, True))
        describe = getattr(self.built[row - self._low].env, "lost_info", None)
        last = {} if describe is None else describe(info)
        report: dict[str, Any] = {**last, "worker_restarted": True}
        if self._mode is AutoresetMode.SAME_STEP:
            report = {**info, "final_info": last, "worker_restarted": True}
        elif self._mode is AutoresetMode.NEXT_STEP:
            self._steppers[row - self._low] = _Start(self, row, first=(observation, info))
        # Except in SAME_STEP mode, the caller writes the last observation that it knew.
        return observation, 0.0, False, False, report

    # ------------------------------------------------------------------ states

    def save_row(self, row: int) -> tuple[bytes, bool]:
        """Return the state of a row, and whether its next step resets it."""
        self._progress[0] = row
        number = row - self._low
        stepper = self._steppers[number]
        env = self._envs[number]
        steps = env.steps if isinstance(env, Validated) else None
        position = self._buffers.positions.save(self._worker, row, steps)
        try:
            if isinstance(stepper, _Lost):
                text = "save_state: {:envs} must report a lost episode first: take a step"
                raise ResetNeededError(Message(text, [row]))
            due = isinstance(stepper, _Start)
            first = stepper.first if due else None
            return dumps((save_env(self.envs[number]), due, first, position)), due
        except RAISED as error:
            raise failed(error, (row,), "save_state") from None

    def prepare_load(self, row: int, state: RowState) -> Callable[[Any], Any]:
        """Check that a state fits a row; return the function that loads it."""
        self._progress[0] = row
        number = row - self._low
        try:
            saved, due, first, position = pickle.loads(state.packed)
            load_env = prepare_load(self.envs[number], saved)
        except RAISED as error:
            raise failed(error, (row,), "reset") from None

        def load(options: Any) -> Any:
            load_env()
            step = self._buffers.positions.load(self._worker, row, position)
            if isinstance(self._envs[number], Validated):
                self._envs[number].steps = step
            if due:
                return _Start(self, row, {} if options is None else {"options": options}, first)
            return self._envs[number]

        return load

    # ------------------------------------------------------------------ calls

    def call_rows(self, call: Call, rows: Sequence[int]) -> dict[int, Any]:
        """Call a method of some environments."""
        return {row: self._reach(row, "call", call_env, call) for row in rows}

    def set_rows(self, name: str, values: Mapping[int, Any]) -> None:
        """Set an attribute of some environments."""
        for row, value in values.items():
            self._reach(row, "set_attr", set_attribute, name, value)

    def _reach(self, row: int, command: str, do: Callable[..., Any], *args: Any) -> Any:
        """Call a function with an environment, which is reset first if its episode was lost."""
        self._progress[0] = row
        try:
            stepper = self._steppers[row - self._low]
            if isinstance(stepper, _Lost):
                stepper.reset_once(command)
            return do(self.built[row - self._low].env, *args)
        except RAISED as error:
            raise failed(error, (row,), command) from None


def _noting(items: Iterable[Any], note: Note) -> Iterator[Any]:
    """Pass items on, and note the clock after each item."""
    for item in items:
        yield item
        note(perf_counter_ns())


class _ActionTranslator:
    """Steps an environment with actions in the types of its library."""

    def __init__(self, env: Any, translate: Callable[[Any], Any]) -> None:
        self._env, self._translate = env, translate

    def reset(self, **arguments: Any) -> Any:
        return self._env.reset(**arguments)

    def step(self, action: Any) -> Any:
        return self._env.step(self._translate(action))


class _Start:
    """Begins an episode of a row: an autoreset (NEXT_STEP), or a reset that the caller sent.

    `first` is the result of a reset that was already made, after a lost episode (NEXT_STEP);
    errors name the `command`.
    """

    def __init__(
        self,
        envs: SingleEnvs,
        row: int,
        arguments: Mapping[str, Any] | None = None,
        first: tuple[Any, dict[str, Any]] | None = None,
        command: str = "step",
    ) -> None:
        self._envs, self._row, self.arguments, self.first = envs, row, arguments or {}, first
        self._command = command

    def step(self, action: Any) -> EnvStep:
        envs, row = self._envs, self._row
        envs.go_on(row)
        observation, info = self.first or envs.reset_env(row, self._command, self.arguments)
        return observation, 0.0, False, False, info


class _Lost:
    """Reports that the episode of a row was lost with its worker.

    Its environment is reset before any other call, with the seed of the restart.
    """

    def __init__(self, envs: SingleEnvs, row: int) -> None:
        self._envs, self._row = envs, row
        self._first: tuple[Any, dict[str, Any]] | None = None

    def reset_once(self, command: str) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, once; return the result."""
        if self._first is None:
            self._first = self._envs.reset_lost(self._row, command)
        return self._first

    def step(self, action: Any) -> EnvStep:
        return self._envs.report_lost(self._row, *self.reset_once("step"))
