"""What every vector env of single environments does, whatever backend its groups run in.

The caller's half of a step: check the actions, write them into their rows, ring the workers, wait,
and hand out the rows that they wrote.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.errors import InvalidActionError, ResetNeededError
from vecspaces.layout import Mismatch
from vecspaces.vector import faults
from vecspaces.vector import infos as infos_module
from vecspaces.vector.agreement import agree
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.calling import CallingVectorEnv
from vecspaces.vector.conductor import Command, Conductor
from vecspaces.vector.infos import Columns
from vecspaces.vector.members import GroupDescription
from vecspaces.vector.protocol import Event, Op, State
from vecspaces.vector.resets import plan_reset
from vecspaces.vector.ring import Ring, Rollout
from vecspaces.vector.settings import Settings
from vecspaces.vector.storage import StoragePlan
from vecspaces.vector.vector_env import ActType, ObsType, StepResult

# `close()` ends within five seconds: four to ask, one to insist.
_CLOSE_SECONDS = 4.0
# Whoever pressed Ctrl-C in a wait has waited long enough.
_CLOSE_INTERRUPTED_SECONDS = 0.5


class GroupedVectorEnv(CallingVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """A vector env of single environments; constructors choose the backend.

    Args:
        backend: Where the groups run.
        settings: The rest.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._settings = settings
        self._mode = settings.autoreset_mode
        self.autoreset_mode = settings.autoreset_mode
        self.observation_mode = settings.observation_mode
        self.copy = settings.copy
        backend.open(self._plan, settings.start_timeout)
        self._storage = backend.storage
        self._ring = Ring(settings.buffers, self._storage.plan.slots)
        conductor = Conductor(backend, settings, self._repeat, self._take_part)
        super().__init__(backend, conductor)
        # What is asked of whom in a step.
        self._everyone: dict[int, None] = dict.fromkeys(range(len(backend.slices)))
        # In DISABLED mode: the environments whose episode is over.
        self._finished = np.zeros(self.num_envs, dtype=np.bool_)
        self._reset_rows: npt.NDArray[np.intp] = np.arange(self.num_envs)

    def _plan(self, descriptions: Sequence[GroupDescription]) -> StoragePlan:
        """Take in what the groups tell, and lay out the rows."""
        settings = self._settings
        (
            self.observation_space,
            self.single_observation_space,
            self.action_space,
            self.single_action_space,
        ) = agree(descriptions, settings.observation_mode)
        self.num_envs = sum(sum(description.counts) for description in descriptions)
        counts = [count for description in descriptions for count in description.counts]
        ends = np.cumsum(counts).tolist()
        # Rows that step together, because their environments are one vector env.
        self._vector_rows = [
            range(end - count, end) for end, count in zip(ends, counts, strict=True) if count > 1
        ]
        self.metadata = {**descriptions[0].metadata, "autoreset_mode": self._mode}
        self.render_mode = descriptions[0].render_mode
        return StoragePlan.compile(
            self.single_observation_space,
            self.single_action_space,
            self.num_envs,
            # One slot more than the caller sees: what a dying worker tears is never shown.
            slots=settings.buffers + (settings.budget is not None),
            finals=self._mode is AutoresetMode.SAME_STEP,
            variable_capacity=settings.variable_capacity,
            num_workers=len(descriptions),
            stats=settings.stats,
        )

    # ------------------------------------------------------------------ reset

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[ObsType, dict[str, Any]]:
        """Begin new episodes, in all environments or in those of a mask.

        Environments that an error broke are built again first.

        Args:
            seed: None, an int (environment i gets seed + i), one int or None per environment, or a
                `numpy.random.SeedSequence`, which is spawned.
            options: One mapping for all environments (autoresets get none), or a sequence of one
                per environment (its autoresets get it too). `{"reset_mask": mask}` with a bool
                array of shape `(num_envs,)` resets only the chosen ones.

        Returns:
            The batch of observations of all environments, and the infos of those that were reset.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            StepTimeoutError: It took longer than `step_timeout`.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(self, seed: Any = None, options: Any = None) -> None:
        """Begin a `reset`; `reset_wait` ends it. The arguments are those of `reset`."""
        conductor = self._conductor
        state = conductor.check(Event.RESET_ASYNC)
        plan = plan_reset(seed, options, self.num_envs)
        partial = len(plan.rows) < self.num_envs
        if partial and conductor.state is not State.IDLE:
            raise ResetNeededError(
                "a reset_mask was given while a call is pending or environments are broken: "
                "reset all environments first"
            )
        slot = self._ring.turn() if partial else 0
        if partial:
            rows = np.ones(self.num_envs, dtype=np.bool_)
            rows[plan.rows] = False
            self._carry_over(slot, np.flatnonzero(rows))
        conductor.replace_workers()
        payloads: dict[int, Any] = {}
        for worker, within in enumerate(self._backend.slices):
            mine = plan.rows[(plan.rows >= within.start) & (plan.rows < within.stop)].tolist()
            broken = [row for row in within if row in conductor.broken]
            if mine:
                payloads[worker] = (
                    mine,
                    [plan.seeds[row] for row in mine],
                    [plan.options[row] for row in mine],
                    plan.keep_options,
                    broken,
                )
        conductor.submit(state, Op.RESET, slot, payloads)
        if not partial:
            self._ring.begin()
        for row in plan.rows:
            if plan.seeds[row] is not None:
                conductor.seeds[row] = plan.seeds[row]
            conductor.options[row] = plan.options[row] if plan.keep_options else None
        self._reset_rows = plan.rows

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
        slot = self._conductor.wait(Event.RESET_WAIT, timeout)
        self._ring.commit(slot)
        self._conductor.broken.difference_update(self._reset_rows.tolist())
        self._conductor.lost.difference_update(self._reset_rows.tolist())
        self._finished[self._reset_rows] = False
        return self._storage.observations[slot].read(copy=self.copy), self._infos()

    def _carry_over(self, slot: int, rows: npt.NDArray[np.intp]) -> None:
        """Copy the last observations, rewards and flags of rows into another slot."""
        storage, last = self._storage, self._ring.current
        if slot != last:
            storage.observations[slot].copy_rows(storage.observations[last], rows)
            storage.rewards[slot, rows] = 0.0
            storage.terminations[slot, rows] = False
            storage.truncations[slot, rows] = False

    # ------------------------------------------------------------------ step

    def step(self, actions: ActType) -> StepResult:
        """Take one action in every environment.

        Args:
            actions: A batch, as `action_space` describes it; cast to its dtype if of the same kind.

        Returns:
            Observations, rewards of shape `(num_envs,)` and dtype float64, terminations and
            truncations of dtype bool, and the infos.

        Raises:
            InvalidActionError: The batch does not fit `action_space`; no environment heard of it.
            ResetNeededError: An environment is finished (DISABLED mode) or broken.
            StepTimeoutError: It took longer than `step_timeout`.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: ActType) -> None:
        """Begin a `step`; `step_wait` ends it. The argument is that of `step`."""
        state = self._conductor.check(Event.STEP_ASYNC)
        if self._mode is AutoresetMode.DISABLED and self._finished.any():
            self._refuse_finished(np.flatnonzero(self._finished))
        self._write_actions(actions)
        if self._ring.begins_rollout:
            # The bootstrap observation becomes the first of the next rollout.
            self._storage.observations[0].copy_rows(
                self._storage.observations[self._ring.current], slice(None)
            )
            self._ring.begin_rollout()
        self._conductor.submit(state, Op.STEP, self._ring.turn(), self._everyone)

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """End a `step` that `step_async` began.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            What `step` returns.

        Raises:
            NoAsyncCallError: No step is pending.
            StepTimeoutError: It took too long; the step stays pending.
        """
        slot = self._conductor.wait(Event.STEP_WAIT, timeout)
        storage = self._storage
        if self._conductor.lost:
            for columns in self._conductor.results.values():
                self._put_back(slot, self._ring.current, columns)
        self._ring.commit(slot)
        written = storage.whole[slot]
        terminations = written.terminations.copy()
        truncations = written.truncations.copy()
        infos = self._infos()
        if self._mode is not AutoresetMode.NEXT_STEP:
            self._finished = terminations | truncations
            if self._mode is AutoresetMode.SAME_STEP and self._finished.any():
                infos.update(self._final_observations(np.flatnonzero(self._finished)))
        return (
            storage.observations[slot].read(copy=self.copy),
            written.rewards.copy(),
            terminations,
            truncations,
            infos,
        )

    def _write_actions(self, actions: Any, at: Any = None) -> None:
        """Check a batch of actions and write it into its rows; nobody hears of a bad one."""
        try:
            self._storage.actions.write_batch(actions, at=at)
        except Mismatch as error:
            finding = Mismatch(error.expected, error.found, error.path, name="actions")
            where = ""
            if error.row is not None:
                where = f" for environment {error.row if at is None else at[error.row]}"
            raise InvalidActionError(
                f"{finding}{where}: a batch must fit action_space {self.action_space}"
            ) from None

    def _refuse_finished(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        raise ResetNeededError(
            f"{faults.name_rows([int(row) for row in rows])} finished an episode, and autoreset is "
            "DISABLED: reset with options={'reset_mask': terminations | truncations} first"
        )

    def _final_observations(self, rows: npt.NDArray[np.intp]) -> dict[str, Any]:
        """The last observations of the episodes that ended, as infos hold them."""
        finals = self._storage.finals
        assert finals is not None
        observations = np.full(self.num_envs, None, dtype=object)
        for row in rows:
            observations[row] = finals.item(int(row))
        mask = np.zeros(self.num_envs, dtype=np.bool_)
        mask[rows] = True
        return {"final_obs": observations, "_final_obs": mask}

    def _infos(self) -> dict[str, Any]:
        """Join what the workers told."""
        results = self._conductor.results
        if not any(results.values()):
            return {}
        columns: list[Columns] = [results[worker] for worker in sorted(results) if results[worker]]
        return infos_module.finish(columns, self.num_envs)

    def rollout_view(self) -> Rollout:
        """Give the last `buffers - 1` steps as arrays in time order, without copying observations.

        Call it when that many steps were made since `reset` or since the last `rollout_view`. The
        next step then begins the next rollout: the last observation becomes its first, by one copy,
        and the arrays given here are written over.

        Returns:
            Observations `(T + 1, num_envs, ...)` as views of the ring; rewards, terminations and
            truncations `(T, num_envs)`, copies.

        Raises:
            ValueError: There were fewer or more steps, or observations have no fixed size.
        """
        self._conductor.check(Event.STEP_ASYNC)
        steps = self._ring.rollout_steps
        observations = self._storage.plan.observations.ring(self._storage.arena, steps + 1)
        self._ring.begins_rollout = True
        return Rollout(
            observations,
            self._storage.rewards[1 : steps + 1].copy(),
            self._storage.terminations[1 : steps + 1].copy(),
            self._storage.truncations[1 : steps + 1].copy(),
        )

    # ------------------------------------------------------------------ what the conductor asks for

    def _repeat(self, worker: int, command: Command) -> Any:
        """Give what a new worker is asked for in place of the one that died."""
        return command.payloads.get(worker)

    def _put_back(self, slot: int, known: int, columns: Columns | None) -> None:
        """Where a step reports lost episodes, show the last observations that were known.

        Args:
            slot: The slot that the step wrote.
            known: The slot that holds what was known before.
            columns: The infos of the step.
        """
        restarted = columns.get("worker_restarted") if columns else None
        if restarted is None:
            return
        # An environment may use the key for something of its own.
        rows = [row for row in restarted.rows.tolist() if row in self._conductor.lost]
        self._conductor.lost.difference_update(rows)
        storage, at = self._storage, np.array(rows, dtype=np.intp)
        shown = storage.observations[slot] if storage.finals is None else storage.finals
        shown.copy_rows(storage.observations[known], at)

    def _take_part(self, worker: int, rows: Sequence[int], columns: Any) -> bool:
        """A part of a stream has come; only vector envs that stream get any."""
        raise NotImplementedError(f"{type(self).__name__} does not stream")

    # ------------------------------------------------------------------ the end

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False, **kwargs: Any
    ) -> None:
        """Close every environment; called by `close`.

        Args:
            timeout: The longest wait for environments to close, in seconds; None: 4, or half a
                second after Ctrl-C. What has not ended by then is terminated, and killed within
                one second more.
            terminate: Whether not to ask them at all.
            **kwargs: Nothing else; for wrappers that pass more.

        Raises:
            Exception: What an environment raised in its own `close`; everything is freed all the
                same.
        """
        conductor = self._conductor
        conductor.state = conductor.check(Event.CLOSE)
        # Ctrl-C may also have come between two calls; it is then on its way through `with`.
        interrupted = conductor.interrupted or isinstance(sys.exc_info()[1], KeyboardInterrupt)
        patience = _CLOSE_INTERRUPTED_SECONDS if interrupted else _CLOSE_SECONDS
        seconds = patience if timeout is None else max(0.0, timeout)
        try:
            forced = conductor.fail_on_close(self._backend.close(seconds, terminate))
        finally:
            self._storage.release()
        if forced:
            warnings.warn(
                f"{faults.name_rows(forced)} did not close within {seconds:g} s and were ended "
                "by force",
                RuntimeWarning,
                stacklevel=4,
            )
