"""The methods of vector envs for every backend: checks of actions, results, bounds of `close`.

A step checks the actions, writes them into their rows, sends the command, waits, and returns the
rows that the workers wrote.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_seconds
from vecspaces.errors import InvalidActionError, ResetNeededError
from vecspaces.layout import Mismatch
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.calls import Calls
from vecspaces.vector.engine.arguments import (
    Settings,
    action_error,
    check_env_ids,
    plan_reset,
    rows_of,
)
from vecspaces.vector.engine.batch_spaces import agree, agree_on_infos
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.ring import Rollout
from vecspaces.vector.engine.rows import ENDED
from vecspaces.vector.engine.tickets import Ticket
from vecspaces.vector.exchange.buffers import BufferPlan, index_of
from vecspaces.vector.exchange.failures import Message, name_envs
from vecspaces.vector.exchange.stats import CallerClock
from vecspaces.vector.group.building import GroupDescription
from vecspaces.vector.send_recv import SendRecv
from vecspaces.vector.states import States
from vecspaces.vector.vector_env import ActType, ObsType, VectorEnv

# `close()` ends within five seconds: four for the close command, one to terminate and kill.
_CLOSE_SECONDS = 4.0
# After Ctrl-C in a wait, `close` waits only this long.
_CLOSE_INTERRUPTED_SECONDS = 0.5
# Access to members of enumerations is slow.
_DISABLED, _SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.SAME_STEP

ManagedStep: TypeAlias = tuple[
    ObsType, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
]


class ManagedVectorEnv(
    Calls,
    SendRecv,
    States,
    VectorEnv[ObsType, ActType, npt.NDArray[Any]],
    Generic[ObsType, ActType],
):
    """A vector env of single environments; derived classes choose the backend.

    Attributes:
        num_workers: The number of worker processes or actors; None: the caller's process.
    """

    num_workers: int | None = None
    env_fns: list[Callable[[], Any]]
    _environments_are_in = "the caller's process"
    # The text about environments that do not close in time.
    _left_open = " and had to be ended by force"

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._settings = settings
        self._mode = settings.autoreset_mode
        self.autoreset_mode = settings.autoreset_mode
        self.observation_mode = settings.observation_mode
        self.copy = settings.copy
        self._backend = backend
        backend.open(self._plan, settings.start_timeout)
        self._buffers = backend.buffers
        backend.clock = CallerClock() if settings.stats else None
        self._engine = Engine(backend, settings)
        self._called = ()

    def _plan(self, descriptions: Sequence[GroupDescription]) -> BufferPlan:
        """Store the descriptions of the groups, and lay out the rows."""
        settings = self._settings
        (
            self.observation_space,
            self.single_observation_space,
            self.action_space,
            self.single_action_space,
        ) = agree(descriptions, settings.observation_mode)
        self.num_envs = sum(sum(description.counts) for description in descriptions)
        self.batch_size = self.num_envs if settings.batch_size is None else settings.batch_size
        if self.batch_size > self.num_envs:
            raise ValueError(
                f"batch_size must lie between 1 and num_envs={self.num_envs}, found "
                f"{self.batch_size}"
            )
        counts = [count for description in descriptions for count in description.counts]
        # Rows that step together, because their environments are one vector env.
        self._together = rows_of(counts)
        # Whether a step of all rows notes which episodes ended: for refusals after an end
        # (DISABLED), and for checks of actions, which the step after an end ignores (NEXT_STEP).
        self._notes_ends = self._mode is _DISABLED or (
            settings.validate and self._mode is AutoresetMode.NEXT_STEP
        )
        declared = settings.info_space
        self.info_space = (agree_on_infos(descriptions) if declared is None else declared) or None
        self.metadata = {**descriptions[0].metadata, "autoreset_mode": self._mode}
        self.render_mode = descriptions[0].render_mode
        return BufferPlan.compile(
            self.single_observation_space,
            self.single_action_space,
            self.num_envs,
            # One more slot than is visible, so that incomplete rows of a dying worker are never
            # returned.
            slots=settings.buffers + (settings.budget is not None),
            finals=self._mode is AutoresetMode.SAME_STEP,
            variable_capacity=settings.variable_capacity,
            num_workers=len(descriptions),
            stats=settings.stats,
            info_space=self.info_space,
            # A worker that dies would leave an incomplete batch, and its step is not repeated.
            pools=self._backend.pools and settings.copy and settings.budget is None,
        )

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled, since its environments live in "
            f"{self._environments_are_in}: make another one from its env_fns, or use SyncVectorEnv"
        )

    def __repr__(self) -> str:
        parts = [] if self.spec is None else [self.spec.id]
        parts.append(f"num_envs={self.num_envs}")
        if self.num_workers is not None:
            parts.append(f"num_workers={self.num_workers}")
        parts.append(f"autoreset_mode={self._mode.value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    # ------------------------------------------------------------------ reset

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[ObsType, dict[str, Any]]:
        """Begin new episodes, in all environments or in those of a mask.

        Environments that an error broke are built again first.

        Args:
            seed: None, an int (environment i gets seed + i), one int or None per environment, or a
                `numpy.random.SeedSequence`, which is spawned.
            options: One mapping for all environments, which autoresets do not get, or a sequence of
                one mapping per environment, which its autoresets get too. `{"reset_mask": mask}`
                with a bool array of shape `(num_envs,)` resets only some environments; with
                `copy=False`, it overwrites their last observations.

        Returns:
            The batch of observations of all environments, and the infos of those that were reset.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ResetNeededError: A `reset_mask` before the first `reset` or `send_reset`, while
                environments are broken, or before results of a stream were received.
            StepTimeoutError: It took longer than `step_timeout`.
        """
        self._begin_reset("reset", seed, options)
        return self._end_reset("reset", None)

    def reset_async(self, seed: Any = None, options: Any = None) -> None:
        """Begin a `reset`; `reset_wait` ends it. The arguments are those of `reset`."""
        self._begin_reset("reset_async", seed, options)

    def reset_wait(self, timeout: float | None = None) -> tuple[ObsType, dict[str, Any]]:
        """End a `reset` that `reset_async` began.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            What `reset` returns.

        Raises:
            NoAsyncCallError: No reset is pending.
            StepTimeoutError: It took too long; the reset stays pending.
        """
        return self._end_reset("reset_wait", timeout)

    def _begin_reset(self, call: str, seed: Any, options: Any) -> None:
        engine = self._engine
        engine.check("reset", call)
        plan = plan_reset(seed, options, self.num_envs)
        if len(plan.rows) < self.num_envs:
            engine.check("masked reset", call)
        needed = set(engine.rows.failures)
        for rows in self._together if needed else ():
            if 0 < len({*plan.rows.tolist()}.intersection(rows)) < len(rows) and needed & {*rows}:
                text = "{}: {:envs} have one env_fn and are built anew: let reset_mask choose all"
                raise ResetNeededError(Message(text, call, rows))
        engine.issue_reset(plan, call)

    def _end_reset(self, call: str, timeout: float | None) -> tuple[ObsType, dict[str, Any]]:
        ticket = self._engine.wait("reset", call, timeout)
        try:
            slot, infos = ticket.slot, self._engine.merged_infos(ticket)
            if self._buffers.infos:
                declared = self._buffers.infos[slot]
                masked = self._engine.masked_rows
                if masked is not None:
                    rows = np.arange(self.num_envs)
                    declared.gather(infos, rows, np.isin(rows, masked))
                else:
                    declared.read(infos, self.copy)
            observations = self._buffers.observations[slot].read(copy=self.copy)
        except Exception:
            self._engine.replies.check_open()  # `close` has freed the memory meanwhile
            raise
        self._engine.finish(ticket)
        return observations, infos

    # ------------------------------------------------------------------ step

    def step(
        self, actions: ActType, env_ids: Sequence[int] | npt.NDArray[Any] | None = None
    ) -> ManagedStep[ObsType]:
        """Take one action in every environment, or in some.

        Args:
            actions: A batch, as `action_space` describes it, or one row per entry of `env_ids`;
                cast to its dtype if of the same kind.
            env_ids: The environments to step; None: all.

        Returns:
            Observations, rewards of shape `(num_envs,)` and dtype float64, terminations and
            truncations of dtype bool, and the infos. With `env_ids`, all of these are copies with
            one row per entry, in that order.

        Raises:
            AlreadyPendingCallError: Another call is pending, or results were not received.
            InvalidActionError: The batch does not fit `action_space`; no environment was stepped.
            ResetNeededError: An environment is finished (DISABLED mode) or broken, or was not reset
                yet.
            StepTimeoutError: It took longer than `step_timeout`.
        """
        if env_ids is not None:
            rows = self._send("step", actions, env_ids)
            return self._receive(rows)[:5]
        self._write_actions("step", actions)
        return self._read_step(self._engine.step("step"))

    def step_async(self, actions: ActType) -> None:
        """Begin a `step`; `step_wait` ends it. The argument is that of `step`."""
        self._write_actions("step_async", actions)
        self._engine.issue_step("step_async")

    def step_wait(self, timeout: float | None = None) -> ManagedStep[ObsType]:
        """End a `step` that `step_async` began.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            What `step` returns.

        Raises:
            NoAsyncCallError: No step is pending.
            StepTimeoutError: It took too long; the step stays pending.
        """
        return self._read_step(self._engine.wait("step", "step_wait", timeout))

    def _write_actions(self, call: str, actions: Any) -> None:
        self._engine.check("step", call)
        if self._mode is _DISABLED:
            self._refuse_finished(slice(None))
        try:
            self._buffers.write_actions(actions)
        except Mismatch as error:
            raise action_error(error, None, self.action_space) from None
        if self._settings.validate:
            self._validate_actions(call, None)

    def _read_step(self, ticket: Ticket) -> ManagedStep[ObsType]:
        engine, buffers = self._engine, self._buffers
        try:
            slot = ticket.slot
            _, rewards, terminations, truncations = buffers.whole[slot]
            terminations, truncations = terminations.copy(), truncations.copy()
            infos = engine.merged_infos(ticket) if ticket.results else {}
            if buffers.infos:
                buffers.infos[slot].read(infos, self.copy)
            if self._notes_ends:
                engine.rows.note_ends(slice(None), terminations | truncations)
            elif self._mode is _SAME_STEP:
                # Bytes are compared in a tenth of the time of arrays.
                terminated, truncated = 1 in terminations.tobytes(), 1 in truncations.tobytes()
                if terminated or truncated:
                    ended = terminations | truncations if truncated else terminations.copy()
                    buffers.add_finals(infos, range(self.num_envs), ended)
            pool = buffers.pool
            if pool is not None and pool.number and self.copy:
                observations = pool.take()
            else:
                observations = buffers.observations[slot].read(self.copy, None)
            rewards = rewards.copy()
        except Exception:
            engine.replies.check_open()  # `close` has freed the memory meanwhile
            raise
        engine.finish(ticket)
        return observations, rewards, terminations, truncations, infos

    def send(self, actions: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Send actions to environments, without waiting for results.

        Args:
            actions: A batch with one row per entry of `env_ids`, in that order.
            env_ids: The environments; None: all.

        Raises:
            InvalidActionError: The batch does not fit; no environment was stepped.
            AlreadyPendingCallError: An environment has not answered yet, or its results were not
                received.
            ResetNeededError: An environment is finished (DISABLED mode) or failed, or was not reset
                yet.
        """
        self._send("send", actions, env_ids)

    def _send(self, call: str, actions: Any, env_ids: Any) -> list[int]:
        """Send actions to some environments; return their rows."""
        self._engine.check("send", call)
        rows = check_env_ids(env_ids, self.num_envs)
        self._check_some(rows, "send", call)
        if self._mode is _DISABLED:
            self._refuse_finished(rows)
        try:
            self._buffers.write_some_actions(actions, index=index_of(rows, ordered=True))
        except Mismatch as error:
            raise action_error(error, rows, self.action_space) from None
        if self._settings.validate:
            self._validate_actions(call, rows)
        # A partial step waits for all of its rows.
        self._engine.issue_rows(rows, call, {}, len(rows) if call == "step" else None)
        return rows

    def _validate_actions(self, call: str, rows: Sequence[int] | None) -> None:
        """Refuse written actions that are outside of the action space.

        Any action is accepted if the step begins an episode, since no environment gets it.
        """
        written = self._buffers.actions
        if rows is None and self.action_space.contains(written.read()):
            return
        space = self.single_action_space
        table = self._engine.rows
        ignored = set(table.restarted)
        if self._mode is AutoresetMode.NEXT_STEP:
            ignored.update(table.having(ENDED))
        for position, row in enumerate(range(self.num_envs) if rows is None else rows):
            mismatch = space.explain(written.item(row), name=f"actions[{position}]")
            if mismatch is not None and row not in ignored:
                message = "{}: {} for {:envs}: no environment was stepped; actions must lie in {}"
                raise InvalidActionError(Message(message, call, mismatch, [row], space))

    def _refuse_finished(self, rows: slice | Sequence[int]) -> None:
        """Raise if some rows are finished, for calls that take steps in DISABLED mode."""
        finished = np.arange(self.num_envs)[rows][self._engine.rows.ended[rows]]
        if finished.size:
            raise ResetNeededError(
                Message(
                    "{:envs} finished an episode, and autoreset is DISABLED: reset with "
                    "options={{'reset_mask': mask}} first, a bool array of finished environments",
                    finished.tolist(),
                )
            )

    # ------------------------------------------------------------------ rollouts

    def rollout_view(self) -> Rollout:
        """Return the last `buffers - 1` steps as arrays in time order; observations are not copied.

        Call it after that many steps since `reset` or the last `rollout_view`. A reset with a
        `reset_mask` is not a step, and its observations replace those that ended the episodes. The
        next step begins the next rollout: the last observation is copied as its first observation,
        and the arrays returned here are overwritten.

        Returns:
            Observations `(T + 1, num_envs, ...)` as views of the buffers; rewards, terminations and
            truncations `(T, num_envs)` as copies; and the arrays of the `info_space` as views.

        Raises:
            ValueError: There were fewer or more steps, `batch_size` is less than `num_envs`, or
                observations have no fixed size.
        """
        if self.batch_size != self.num_envs:
            raise ValueError(
                f"rollout_view() needs steps of all environments together, so batch_size must be "
                f"num_envs={self.num_envs}, found {self.batch_size}"
            )
        return self._engine.end_rollout()

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close every environment and free everything; a second call does nothing.

        Args:
            timeout: The longest wait for environments to close, in seconds; None: 4, or half a
                second after Ctrl-C. Workers that have not ended by then are terminated, and one
                second later killed.
            terminate: Whether to end them without the close command.
            **kwargs: Passed to `close_extras` of a derived class.

        Raises:
            Exception: What an environment raised in its own `close`, after everything is freed.
        """
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, zero=True)
        super().close(timeout=timeout, terminate=terminate, **kwargs)

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False, **kwargs: Any
    ) -> None:
        """Close every environment; called by `close`, with its arguments."""
        # After Ctrl-C between two calls, the end of a `with` block calls this.
        is_interrupt = isinstance(sys.exception(), KeyboardInterrupt)
        interrupted = self._engine.waits.interrupted or is_interrupt
        seconds = _CLOSE_INTERRUPTED_SECONDS if interrupted else _CLOSE_SECONDS
        if timeout is not None:
            seconds = timeout
        try:
            forced = self._engine.close(seconds, terminate)
        finally:
            self._buffers.release()
        if forced:
            warnings.warn(
                f"{name_envs(forced)} did not close within {seconds:g} s{self._left_open}",
                RuntimeWarning,
                stacklevel=5,
            )
