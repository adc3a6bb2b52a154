"""`send` and `recv`: actions to some environments, results of those that are ready first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count, show_value
from vecspaces.errors import InvalidActionError, NoAsyncCallError
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.calls import check_called
from vecspaces.vector.engine.arguments import check_env_ids, check_whole
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.rows import FRESH, READY, VOID
from vecspaces.vector.engine.seeds import spread_seeds
from vecspaces.vector.exchange.buffers import Buffers, index_of
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import Part, at_places, by_first_row, merge, split
from vecspaces.vector.exchange.messages import Call
from vecspaces.vector.exchange.snapshots import snapshot
from vecspaces.vector.exchange.tables import Table, select

_SAME_STEP = AutoresetMode.SAME_STEP  # access to members of enumerations is slow


class _Fields(NamedTuple):
    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: npt.NDArray[np.int64]


class Transition(_Fields):
    """Results of some environments; every array has one row per entry of `env_ids`.

    It is a tuple of six values; the others are attributes.

    Attributes:
        observations: The batch of observations.
        rewards: float64.
        terminations: bool.
        truncations: bool.
        infos: The merged infos, with one row per entry of `env_ids`.
        env_ids: The environments, int64.
        errors: With `recv(return_errors=True)`, the exception of each environment that failed.
        results: The result of each environment that was called by `send_call`.
        row_infos: For each entry of `env_ids`, the info as the environment returned it, without the
            keys of the `info_space`.
        begins: For each entry of `env_ids`, whether it is the result of a reset, not of a step.
    """

    errors: Mapping[int, Exception] = MappingProxyType({})
    results: Mapping[int, Any] = MappingProxyType({})
    begins: npt.NDArray[np.bool_] | Sequence[bool] = ()
    _parts: Sequence[Part] = ()

    @cached_property
    def row_infos(self) -> Sequence[dict[str, Any]]:
        """The infos by rows, which are made at the first access."""
        infos: list[dict[str, Any]]
        infos = snapshot(list(split(self._parts, range(len(self.env_ids))).values()))
        return infos

    def _replace(self, **changes: Any) -> Self:
        """Return a transition with some values changed, and the same attributes."""
        transition = super()._replace(**changes)
        vars(transition).update(vars(self))
        return transition


class SendRecv:
    """The calls of `ManagedVectorEnv` for some environments, which step at their own pace.

    `_together` are rows that step together, because they are one vector env.
    """

    num_envs: int
    batch_size: int
    _engine: Engine
    _buffers: Buffers
    _mode: AutoresetMode
    _together: Sequence[range]

    def send_reset(
        self,
        env_ids: Sequence[int] | npt.NDArray[Any] | None = None,
        *,
        seed: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Send environments a reset instead of actions, without waiting for results.

        Environments that failed are built again first. `recv` returns the first observations, with
        reward 0 and no flags, while other environments step. It may begin the first episodes too.

        Args:
            env_ids: The environments; None: all.
            seed: None, an int (entry i of `env_ids` gets seed + i), one int or None per entry, or a
                `numpy.random.SeedSequence`, which is spawned.
            options: The options of these resets; autoresets do not get them.

        Raises:
            AlreadyPendingCallError: An environment has not answered yet, or its results were not
                received.
            ResetNeededError: A call of all environments failed: `reset` comes first.

        Example:
            >>> from vecspaces import make_vec
            >>> with make_vec("CartPole-v1", 3, backend="sync") as envs:
            ...     _ = envs.reset(seed=0), envs.recv()
            ...     envs.send_reset([2, 0], seed=[7, 8])
            ...     envs.recv(2).env_ids.tolist()
            [2, 0]
        """
        self._engine.check("send_reset", "send_reset")
        rows = check_env_ids(env_ids, self.num_envs)
        self._check_some(rows, "send_reset", "send_reset")
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options must be a mapping or None, found {show_value(options)}")
        seeds = zip(rows, spread_seeds(seed, len(rows)), strict=True)
        starts = {row: (row_seed, options) for row, row_seed in seeds}
        self._engine.issue_rows(rows, "send_reset", starts)

    def send_call(
        self,
        env_ids: Sequence[int] | npt.NDArray[Any] | None,
        name: str | Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Send environments a `call`, without waiting for results.

        `recv` returns the results, in `Transition.results` and not in its arrays, while other
        environments step. An exception of a call is raised by `recv`, and breaks no environment.

        Args:
            env_ids: The environments; None: all.
            name: The method, attribute or function, as in `call`.
            *args: Positional arguments.
            **kwargs: Keyword arguments.

        Raises:
            AlreadyPendingCallError: An environment has not answered yet, or its results were not
                received.
            ResetNeededError: An environment failed.
            ValueError: `name` is `reset`, `step` or `close`.

        Example:
            >>> from vecspaces import make_vec
            >>> with make_vec("CartPole-v1", 2, backend="sync") as envs:
            ...     envs.send_call([1], "get_wrapper_attr", "gravity")
            ...     envs.recv(1).results
            {1: 9.8}
        """
        check_called(name)
        self._engine.check("call", "send_call")
        rows = check_env_ids(env_ids, self.num_envs)
        self._check_some(rows, "send_call", "send_call")
        self._engine.send_call(rows, Call(name, args, kwargs), "send_call")

    def recv(
        self,
        count: int | None = None,
        timeout: float | None = None,
        *,
        at_least: int | None = None,
        return_errors: bool = False,
    ) -> Transition:
        """Wait until environments are ready, and receive those that were ready first.

        After `reset`, the environments that it reset are ready with their first observation, reward
        0 and no flags.
        An environment that shares a worker with a slow one waits for it, unless each has its own
        process (`num_workers=num_envs`).

        Args:
            count: How many environments to receive; None: `batch_size`.
            timeout: The longest wait, in seconds; None: `step_timeout`.
            at_least: After `timeout`, the environments that are ready are received if they are at
                least this many (0: there may be none), and the others stay pending. If fewer than
                `count` have a pending action, all of these are awaited. None: exactly `count` are
                received.
            return_errors: Whether environments that failed are received too: in
                `Transition.errors`, by their numbers, and not in its arrays. Deaths of workers and
                environments that exceed `step_timeout` are then failures of their rows.
                `send_reset` builds these again; `restart(..., terminate=True)` ends a worker that
                hangs.

        Returns:
            The results of `count` environments, or with `at_least` of fewer; arrays are copies.
            Those in `errors` and `results` have no rows.

        Raises:
            Exception: The exception of one of these environments, once. The next `recv` returns the
                others; `send_reset` builds this environment again.
            NoAsyncCallError: Fewer than `count`, or `at_least`, environments are ready or have a
                pending action.
            ResetNeededError: There was no reset yet, or a call of all environments failed.
            StepTimeoutError: It took too long; no result is lost, and `recv` can be repeated.
        """
        engine = self._engine
        engine.check("recv", "recv")
        if count is None:
            count = self.batch_size
        else:
            check_count("count", count)
        if at_least is not None and not 0 <= check_count("at_least", at_least, 0) <= count:
            raise ValueError(f"at_least must be at most count={count}, found {at_least}")
        expected = engine.rows.expected
        needed = count if at_least is None else at_least
        if expected < needed:
            raise NoAsyncCallError(
                f"recv waits for {needed} environments, but only {expected} were sent an action: "
                "send more first",
                "recv",
            )
        count = min(count, expected)
        read = self._read_received_or_errors if return_errors else self._read_received
        return engine.receive(read, count, timeout, None, at_least, return_errors)

    def fileno(self) -> int:
        """Return a descriptor that is readable while `recv(timeout=0)` would return something.

        An event loop can watch it. Time limits need a timer of the caller. Other answers, such as
        that of a worker that `restart` started, make it readable too, until a
        `recv(timeout=0, at_least=0)` has read them, and has perhaps returned no row.

        Returns:
            The descriptor, which belongs to the vector env.

        Raises:
            io.UnsupportedOperation: There is no such descriptor: `SyncVectorEnv`, Ray, and systems
                other than Linux.
        """
        self._engine.check("call", "fileno")
        return self._engine.fileno()

    def restart(
        self, env_ids: Sequence[int] | npt.NDArray[Any] | None = None, *, terminate: bool = False
    ) -> npt.NDArray[np.int64]:
        """End the workers of some environments, and start new ones, which build them again.

        The new workers build while the caller goes on. All environments of these workers lose their
        episode and what they were sent: no transition is returned for them. A pending reset, step
        or call that they have not answered raises `ResetNeededError`. In `SyncVectorEnv`, each of
        the environments is closed and built again by its next reset.

        Args:
            env_ids: The environments; None: all.
            terminate: Whether to end the workers without closing their environments.

        Returns:
            All environments of these workers, int64, in ascending order. Each needs a reset, at
            which a failing factory raises.

        Raises:
            ClosedEnvironmentError: The vector env was closed.

        Example:
            >>> from vecspaces import make_vec
            >>> with make_vec("CartPole-v1", 3, backend="sync") as envs:
            ...     _ = envs.reset(seed=0), envs.recv()
            ...     restarted = envs.restart([1])
            ...     envs.send_reset(restarted, seed=[5])
            ...     envs.recv(1).env_ids.tolist()
            [1]
        """
        self._engine.check_open("restart")
        rows = {*check_env_ids(env_ids, self.num_envs)}
        for together in self._together:
            if not rows.isdisjoint(together):
                rows.update(together)
        return np.array(self._engine.restart(sorted(rows), terminate), dtype=np.int64)

    def _check_some(self, rows: Sequence[int], call: str, name: str) -> None:
        """Raise if rows refuse a `send`, `send_reset` or `send_call` now."""
        check_whole(rows, self._together, name, InvalidActionError)
        self._engine.check_rows(rows, call, name)

    def _receive(self, rows: list[int]) -> Transition:
        """Receive these rows, in this order."""
        return self._engine.receive(self._read_received, len(rows), None, rows)

    def _read_received_or_errors(self, rows: list[int]) -> Transition:
        """Gather the results of ready rows, and the exceptions of those that failed."""
        table = self._engine.rows
        failures = {row: table.failures[row] for row in rows if row in table.failures}
        for row in rows:
            if isinstance(table.results.get(row), Failure):
                failures[row] = table.results[row]
        result = self._read_received([row for row in rows if row not in failures])
        result.errors = {row: failure.caught() for row, failure in failures.items()}
        return result

    def _read_received(self, rows: list[int]) -> Transition:
        """Gather the results of ready rows."""
        results = self._engine.rows.results
        if not results:
            return self._read_written(rows)
        transition = self._read_written([row for row in rows if row not in results])
        transition.results = {row: results[row] for row in rows if row in results}
        return transition

    def _read_written(self, rows: list[int]) -> Transition:
        """Gather what ready rows wrote."""
        buffers, table = self._buffers, self._engine.rows
        slot = self._engine.ring.current
        numbers = np.array(rows, dtype=np.int64)
        index = index_of(rows, ordered=True)
        answers = list(map(table.ready.__getitem__, rows))
        parts = _infos_of(rows, index, answers) if any(answers) else []
        infos: dict[str, Any] = merge(parts, len(rows)) if parts else {}
        if infos and parts[0].__class__ is not Table and rows != sorted(rows):
            infos = by_first_row(infos)  # workers step their rows in ascending order
        written = buffers.whole[slot]
        rewards = written.rewards[index].copy()
        terminations = written.terminations[index].copy()
        truncations = written.truncations[index].copy()
        flags = table.flags[index]
        # Bytes are compared in a tenth of the time of arrays; usually no row has another flag.
        is_plain = flags.tobytes() == bytes([READY]) * len(rows)
        if not is_plain:
            # A reset does not write rewards and flags, so that those of the last step stay for a
            # rollout.
            fresh = flags & FRESH != 0
            rewards[fresh] = 0.0
            terminations[fresh] = truncations[fresh] = False
        if buffers.infos:
            buffers.infos[slot].gather(infos, numbers)
        ended = terminations | truncations
        if not is_plain or 1 in ended.tobytes():
            table.note_ends(numbers, ended)
        if self._mode is _SAME_STEP and ended.any():
            buffers.add_finals(infos, rows, ended)
        observations = buffers.observations[slot].read(copy=True, index=index)
        transition = Transition(observations, rewards, terminations, truncations, infos, numbers)
        transition._parts = parts
        transition.begins = flags & (FRESH | VOID) != 0
        return transition


def _infos_of(
    rows: Sequence[int], index: slice | npt.NDArray[np.intp], answers: Sequence[Sequence[Part]]
) -> list[Part]:
    """Return the infos of rows at their places; `answers` has the infos that came with each row."""
    distinct = [answers[0]]
    if len(set(map(id, answers))) > 1:
        distinct = list({id(answer): answer for answer in answers}.values())
    if all(answers):  # otherwise, an answer may have the old infos of a row that now has none
        chosen = select([part for answer in distinct for part in answer], rows, index)
        if chosen is not None:
            return [chosen]
    parts: list[Part] = []
    for answer in distinct:
        # The infos of other rows in this answer may be old.
        places = {row: place for place, row in enumerate(rows) if answers[place] is answer}
        parts.extend([at_places(part, places) for part in answer])
    return parts
