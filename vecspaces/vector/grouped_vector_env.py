"""What every vector env of single environments does, whatever backend its groups run in.

The caller's half of a step: check the actions, write them into their rows, ring the workers, wait, and
hand out the rows that they wrote.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.errors import (
    InvalidActionError,
    ResetNeededError,
    StepTimeoutError,
    VecspacesError,
)
from vecspaces.layout import Mismatch
from vecspaces.vector import faults
from vecspaces.vector import infos as infos_module
from vecspaces.vector.agreement import ObservationMode, agree
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend, Reply
from vecspaces.vector.failures import Failure
from vecspaces.vector.infos import Columns
from vecspaces.vector.protocol import Event, Op, State, next_state
from vecspaces.vector.resets import plan_reset
from vecspaces.vector.ring import Ring, Rollout
from vecspaces.vector.stats import Stats, summarise
from vecspaces.vector.storage import StoragePlan
from vecspaces.vector.vector_env import ActType, ObsType, StepResult, VectorEnv

# After a first fault, how long others may take to report theirs, so that the lowest environment is named.
_GRACE = 0.1
# `close()` ends within five seconds: four to ask, one to insist.
_CLOSE_SECONDS = 4.0


class Settings(NamedTuple):
    """What a constructor decides about the caller's half.

    Attributes:
        observation_mode: How observation spaces are batched.
        autoreset_mode: What follows the end of an episode.
        copy: Whether observations are copied out of their rows.
        buffers: The number of slots of the ring that the caller sees.
        variable_capacity: Bytes per environment for values of variable size.
        stats: Whether steps and resets are timed.
        start_timeout: Bounds the building of environments, in seconds.
        step_timeout: Bounds every other wait, in seconds; None does not.
        budget: How many dead workers are replaced; None: none are.
    """

    observation_mode: ObservationMode
    autoreset_mode: AutoresetMode
    copy: bool = True
    buffers: int = 1
    variable_capacity: int = 65536
    stats: bool = False
    start_timeout: float = 60.0
    step_timeout: float | None = None
    budget: faults.RestartBudget | None = None

    def check(self, num_factories: int) -> None:
        """Refuse numbers that mean nothing, before anything is built.

        Raises:
            ValueError: Names the argument, and what was found.
        """
        if num_factories < 1:
            raise ValueError("env_fns must hold at least one factory, found none")
        for name, value, least in (
            ("buffers", self.buffers, 1),
            ("variable_capacity", self.variable_capacity, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, found {value}")
        for name, seconds in (
            ("start_timeout", self.start_timeout),
            ("step_timeout", self.step_timeout),
        ):
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{name} must be more than 0 seconds, found {seconds}")


class _Pending(NamedTuple):
    """A command on its way: how to repeat it for a worker that had to be replaced."""

    op: Op
    slot: int
    seq: int
    payloads: dict[int, Any]


class GroupedVectorEnv(VectorEnv[ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]):
    """A vector env of single environments; constructors choose the backend.

    Args:
        backend: Where the groups run.
        settings: The rest.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings
        self._mode = settings.autoreset_mode
        self.autoreset_mode = settings.autoreset_mode
        self.observation_mode = settings.observation_mode
        self.copy = settings.copy
        self._state = State.IDLE
        self._seq = 0
        backend.open(self._plan, settings.start_timeout)
        self._storage = backend.storage
        self._ring = Ring(settings.buffers, self._storage.plan.slots)
        # Workers that owe an answer, those that are gone or must not be used again, and what came.
        self._waiting: set[int] = set()
        self._lost_workers: set[int] = set()
        self._build_by: dict[int, float] = {}
        self._results: dict[int, Any] = {}
        self._failures: list[Failure] = []
        self._pending: _Pending | None = None
        self._finished = np.zeros(self.num_envs, dtype=np.bool_)
        self._broken: set[int] = set()
        self._seeds: list[int | None] = [None] * self.num_envs
        self._restarts = [0] * self.num_envs

    def _plan(self, descriptions: Sequence[Any]) -> StoragePlan:
        """Take in what the groups tell, and lay out the rows."""
        settings = self._settings
        (
            self.observation_space,
            self.single_observation_space,
            self.action_space,
            self.single_action_space,
        ) = agree(descriptions, settings.observation_mode)
        self.num_envs = sum(sum(description.counts) for description in descriptions)
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

    @property
    def np_random(self) -> Any:
        """The environments' own generators, as copies, one per environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        """The environments' own seeds, one per environment."""
        return self.get_attr("np_random_seed")

    # ------------------------------------------------------------------ reset

    def reset(
        self, *, seed: Any = None, options: Any = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Begin new episodes, in all environments or in those of a mask.

        Environments that an error broke are built again first.

        Args:
            seed: None, an int (environment i gets seed + i), one int or None per environment, or a
                `numpy.random.SeedSequence`, which is spawned.
            options: One mapping for all environments (autoresets get none), or a sequence of one per
                environment (its autoresets get it too). `{"reset_mask": mask}` with a bool array of
                shape `(num_envs,)` resets only the chosen ones.

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
        state = next_state(self._state, Event.RESET_ASYNC)
        plan = plan_reset(seed, options, self.num_envs)
        partial = len(plan.rows) < self.num_envs
        if partial and self._state is not State.IDLE:
            raise ResetNeededError(
                "a reset_mask was given while a call is pending or environments are broken: "
                "reset all environments first"
            )
        slot = self._ring.turn() if partial else self._ring.begin()
        if partial:
            rows = np.ones(self.num_envs, dtype=np.bool_)
            rows[plan.rows] = False
            self._carry_over(slot, np.flatnonzero(rows))
        self._replace_lost_workers()
        payloads: dict[int, Any] = {}
        for worker, within in enumerate(self._backend.slices):
            mine = plan.rows[(plan.rows >= within.start) & (plan.rows < within.stop)].tolist()
            broken = [row for row in within if row in self._broken]
            if mine:
                payloads[worker] = (
                    mine,
                    [plan.seeds[row] for row in mine],
                    [plan.options[row] for row in mine],
                    plan.keep_options,
                    broken,
                )
        for row in plan.rows:
            if plan.seeds[row] is not None:
                self._seeds[row] = plan.seeds[row]
        self._reset_rows = plan.rows
        self._state = state
        self._submit(Op.RESET, slot, payloads)

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
        slot = self._await(Event.RESET_WAIT, timeout)
        self._ring.commit(slot)
        self._broken.clear()
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

    def _replace_lost_workers(self) -> None:
        """Before a reset: replace workers that died, and those that are still busy with a late call."""
        late = self._waiting if self._state in _OVERDUE else set()
        for worker in sorted(self._lost_workers | late):
            self._build(worker, None)
            self._broken.difference_update(self._backend.slices[worker])
        self._lost_workers.clear()

    def _build(self, worker: int, lost: Mapping[int, int | None] | None) -> None:
        """Put a new worker in the place of another."""
        self._backend.submit(worker, Op.BUILD, 0, 0, lost)
        self._build_by[worker] = time.monotonic() + self._settings.start_timeout

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
        state = next_state(self._state, Event.STEP_ASYNC)
        if self._mode is AutoresetMode.DISABLED and self._finished.any():
            self._refuse_finished(np.flatnonzero(self._finished))
        self._write_actions(actions)
        if self._ring.begins_rollout:
            # The bootstrap observation becomes the first of the next rollout.
            self._storage.observations[0].copy_rows(
                self._storage.observations[self._ring.current], slice(None)
            )
            self._ring.begin_rollout()
        self._state = state
        self._submit(Op.STEP, self._ring.turn(), dict.fromkeys(range(len(self._backend.slices))))

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
        slot = self._await(Event.STEP_WAIT, timeout)
        storage = self._storage
        self._ring.commit(slot)
        terminations = storage.terminations[slot].copy()
        truncations = storage.truncations[slot].copy()
        infos = self._infos()
        if self._mode is not AutoresetMode.NEXT_STEP:
            self._finished = terminations | truncations
            if self._mode is AutoresetMode.SAME_STEP and self._finished.any():
                infos.update(self._final_observations(np.flatnonzero(self._finished)))
        return (
            storage.observations[slot].read(copy=self.copy),
            storage.rewards[slot].copy(),
            terminations,
            truncations,
            infos,
        )

    def _write_actions(self, actions: Any, at: Any = slice(None)) -> None:
        """Check a batch of actions and write it into its rows; nobody hears of a bad one."""
        try:
            self._storage.actions.write_batch(actions, at=at)
        except Mismatch as error:
            where = "" if error.row is None else f" of environment {error.row}"
            raise InvalidActionError(
                f"actions{error}{where}: a batch must fit action_space {self.action_space}"
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
        parts = [self._results[worker] for worker in sorted(self._results)]
        columns: list[Columns] = [part for part in parts if part]
        if not columns:
            return {}
        return infos_module.finish(infos_module.join(columns), self.num_envs)

    def rollout_view(self) -> Rollout:
        """Give the last `buffers - 1` steps as arrays in time order, without copying observations.

        Call it when that many steps were made since `reset` or since the last `rollout_view`. The next
        step then begins the next rollout: the last observation becomes its first, by one copy, and
        the arrays given here are written over.

        Returns:
            Observations `(T + 1, num_envs, ...)` as views of the ring; rewards, terminations and
            truncations `(T, num_envs)`, copies.

        Raises:
            ValueError: There were fewer or more steps, or observations have no fixed size.
        """
        next_state(self._state, Event.STEP_ASYNC)
        steps = self._ring.end_rollout()
        return Rollout(
            self._storage.plan.observations.ring(self._storage.arena, steps + 1),
            self._storage.rewards[1 : steps + 1].copy(),
            self._storage.terminations[1 : steps + 1].copy(),
            self._storage.truncations[1 : steps + 1].copy(),
        )

    # ------------------------------------------------------------------ calls

    def call(
        self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of the environments, or get an attribute that is no method.

        Args:
            name: The method or attribute; wrappers are looked through.
            *args: Positional arguments.
            env_ids: The environments concerned; None: all.
            **kwargs: Keyword arguments.

        Returns:
            One result per environment.

        Raises:
            ValueError: `name` is `reset`, `step` or `close`, which have methods of their own.
        """
        self.call_async(name, *args, env_ids=env_ids, **kwargs)
        return self.call_wait()

    def call_async(
        self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any
    ) -> None:
        """Begin a `call`; `call_wait` ends it. The arguments are those of `call`."""
        if name in ("reset", "step", "close"):
            raise ValueError(
                f"call({name!r}) would go past the bookkeeping of episodes: use {name}() itself"
            )
        state = next_state(self._state, Event.CALL_ASYNC)
        self._call_ids = self._chosen(env_ids)
        payloads = {
            worker: (name, args, kwargs, rows) for worker, rows in self._by_worker(self._call_ids)
        }
        self._state = state
        self._submit(Op.CALL, 0, payloads)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End a `call` that `call_async` began.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            One result per environment.

        Raises:
            NoAsyncCallError: No call is pending.
            StepTimeoutError: It took too long; the call stays pending.
        """
        self._await(Event.CALL_WAIT, timeout)
        assert self._pending is not None
        results: dict[int, Any] = {}
        for worker, values in self._results.items():
            rows = self._pending.payloads[worker][3]
            results.update(zip(rows, values, strict=True))
        return tuple(results[row] for row in self._call_ids)

    def get_attr(self, name: str, *, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Get an attribute of the environments.

        Args:
            name: The attribute.
            env_ids: The environments concerned; None: all.

        Returns:
            One value per environment.
        """
        return self.call(name, env_ids=env_ids)

    def set_attr(
        self, name: str, values: Any, *, env_ids: Sequence[int] | None = None
    ) -> None:
        """Set an attribute of the environments themselves, not of their wrappers.

        Args:
            name: The attribute.
            values: A list or tuple of one value per environment concerned, or one value for all.
            env_ids: The environments concerned; None: all.

        Raises:
            ValueError: A wrong number of values.
        """
        state = next_state(self._state, Event.CALL_ASYNC)
        ids = self._chosen(env_ids)
        if not isinstance(values, (list, tuple)):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ValueError(
                f"set_attr({name!r}) got {len(values)} values for {len(ids)} environments: give one "
                "per environment, or one that is no list or tuple for all"
            )
        chosen = dict(zip(ids, values, strict=True))
        payloads = {
            worker: (name, {row: chosen[row] for row in rows})
            for worker, rows in self._by_worker(ids)
        }
        self._state = state
        self._submit(Op.SET_ATTR, 0, payloads)
        self._await(Event.CALL_WAIT, None)

    def render(self, *, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Render environments.

        Args:
            env_ids: The environments concerned; None: all.

        Returns:
            One frame per environment, as its `render` gives it.
        """
        return self.call("render", env_ids=env_ids)

    def stats(self) -> Stats:
        """Tell how long the steps and autoresets of each environment take.

        Returns:
            Counts, means, 99th percentiles and shares of waiting.

        Raises:
            ValueError: The vector env was not made with `stats=True`.
        """
        counters = self._storage.counters()
        if counters is None:
            raise ValueError("stats() needs a vector env that was made with stats=True")
        if self._state is State.IDLE:
            self._state = next_state(self._state, Event.CALL_ASYNC)
            self._submit(Op.FLUSH, 0, dict.fromkeys(range(len(self._backend.slices))))
            self._await(Event.CALL_WAIT, None)
        return summarise(*counters, tuple(self._backend.slices))

    def _chosen(self, env_ids: Sequence[int] | None) -> list[int]:
        """Check a choice of environments."""
        if env_ids is None:
            return list(range(self.num_envs))
        ids = [int(number) for number in env_ids]
        bad = [number for number in ids if not 0 <= number < self.num_envs]
        if bad:
            raise ValueError(
                f"env_ids must lie between 0 and {self.num_envs - 1}, found {bad[0]}"
            )
        if len(set(ids)) < len(ids):
            raise ValueError(f"env_ids must name each environment once, found {ids}")
        return ids

    def _by_worker(self, ids: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Sort environments by the worker that holds them."""
        chosen = []
        for worker, within in enumerate(self._backend.slices):
            rows = [row for row in ids if row in within]
            if rows:
                chosen.append((worker, rows))
        return chosen

    # ------------------------------------------------------------------ commands and answers

    def _submit(self, op: Op, slot: int, payloads: dict[int, Any]) -> None:
        """Send one command to some workers."""
        self._seq += 1
        self._pending = _Pending(op, slot, self._seq, payloads)
        self._waiting = set(payloads)
        self._results = {}
        self._failures = []
        submit = self._backend.submit
        try:
            for worker, payload in payloads.items():
                submit(worker, op, slot, self._seq, payload)
        except BaseException:
            # Some workers heard of it and some did not: only a reset brings them together again.
            self._lost_workers.update(self._waiting)
            self._state = next_state(self._state, Event.FAULT)
            raise

    def _await(self, event: Event, timeout: float | None) -> int:
        """Wait for the answers to the pending command; give its slot."""
        state = next_state(self._state, event)
        pending = self._pending
        assert pending is not None
        if timeout is None:
            timeout = self._settings.step_timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while self._waiting:
                if self._failures:
                    deadline = time.monotonic() + _GRACE
                    if not self._gather(deadline):
                        break
                elif not self._gather(deadline) and not self._build_by:
                    self._raise_overdue(timeout)
        except BaseException as error:
            fault = not isinstance(error, (StepTimeoutError, KeyboardInterrupt))
            self._state = next_state(self._state, Event.FAULT if fault else Event.TIMEOUT)
            raise
        if self._failures:
            self._raise_failure(pending.op)
        self._state = state
        return pending.slot

    def _gather(self, deadline: float | None) -> bool:
        """Take in what comes next; tell whether anything came before the deadline."""
        limits = list(self._build_by.values())
        if deadline is not None and (not limits or self._failures):
            # While a worker is being built, start_timeout bounds the wait instead.
            limits.append(deadline)
        left = max(0.0, min(limits) - time.monotonic()) if limits else None
        replies = self._backend.collect(left)
        for reply in replies:
            self._receive(reply)
        if not replies and self._build_by and not self._failures:
            self._give_up_building()
        return bool(replies)

    def _receive(self, reply: Reply) -> None:
        """Take in one answer; late ones are known by their number and dropped."""
        worker, op, seq, payload = reply
        if op is Op.DONE:
            if seq == self._seq:
                self._waiting.discard(worker)
                self._results[worker] = payload
        elif op is Op.BUILT:
            self._build_by.pop(worker, None)
        elif op is Op.FAILED:
            if seq == self._seq or self._build_by.pop(worker, None) is not None:
                self._waiting.discard(worker)
                self._failures.append(payload)
                if seq != self._seq:
                    self._lost_workers.add(worker)
        elif op is Op.DIED:
            self._mourn(worker, payload)

    def _mourn(self, worker: int, exitcode: int | None) -> None:
        """Replace a dead worker and repeat what it was asked, or note the fault."""
        self._build_by.pop(worker, None)
        if worker in self._lost_workers:
            return
        pending, settings = self._pending, self._settings
        assert pending is not None
        rows = self._backend.slices[worker]
        restarts = settings.budget is not None
        advice = (
            "its environments are built again"
            if restarts
            else "call reset() to build its environments again, or close(); "
            'on_worker_death="restart" does so by itself'
        )
        busy = int(self._storage.progress[worker])
        command = pending.op.name.lower().removesuffix("_rows")
        error = faults.died(worker, rows, command, exitcode, busy, advice)
        try:
            if settings.budget is None:
                raise error
            settings.budget.spend(error)
        except VecspacesError as fault:
            self._lost_workers.add(worker)
            self._waiting.discard(worker)
            self._failures.append(Failure(tuple(rows), command, fault, "", worker))
            return
        lost = {}
        for row in rows:
            self._restarts[row] += 1
            lost[row] = faults.restart_seed(self._seeds[row], self._restarts[row])
        self._build(worker, lost)
        if worker in self._waiting:
            self._repeat(worker, pending)

    def _repeat(self, worker: int, pending: _Pending) -> None:
        """Ask a new worker for what its predecessor did not finish."""
        rows = np.array(self._backend.slices[worker], dtype=np.intp)
        storage = self._storage
        if pending.op is Op.STEP:
            last = storage.observations[self._ring.current]
            storage.observations[pending.slot].copy_rows(last, rows)
            if storage.finals is not None:
                storage.finals.copy_rows(last, rows)
        payload = pending.payloads[worker]
        self._backend.submit(worker, pending.op, pending.slot, pending.seq, payload)

    def _busy_rows(self) -> tuple[list[int], list[int]]:
        """The environments that have not finished, and those of them that are running now."""
        unfinished: list[int] = []
        running: list[int] = []
        for worker in sorted(self._waiting):
            within = self._backend.slices[worker]
            at = int(self._storage.progress[worker])
            if at in within:
                running.append(at)
                unfinished.extend(range(at, within.stop))
            else:
                unfinished.extend(within)
        return unfinished, running

    def _raise_overdue(self, timeout: float | None) -> None:
        assert self._pending is not None and timeout is not None
        name = self._pending.op.name.lower().removesuffix("_rows")
        raise faults.overdue(name, timeout, *self._busy_rows())

    def _give_up_building(self) -> None:
        """A worker that cannot be built in time is a fault."""
        late = [worker for worker, by in self._build_by.items() if by <= time.monotonic()]
        if not late:
            return
        rows = [row for worker in late for row in self._backend.slices[worker]]
        self._lost_workers.update(late)
        for worker in late:
            del self._build_by[worker]
            self._waiting.discard(worker)
        error = StepTimeoutError(
            f"{faults.name_rows(rows)} were not built again within start_timeout "
            f"({self._settings.start_timeout:g} s)",
            rows,
        )
        self._failures.append(Failure(tuple(rows), "build", error, "", late[0]))

    def _raise_failure(self, op: Op) -> None:
        """Raise the failure of the lowest environment, and remember which are broken."""
        failures = sorted(self._failures, key=lambda failure: failure.env_ids[:1])
        first = failures[0]
        calls = op in (Op.CALL, Op.SET_ATTR, Op.FLUSH)
        if calls and not self._lost_workers:
            # A method that raises breaks nothing: late answers of the others will be dropped.
            self._state = State.IDLE
        else:
            self._state = next_state(self._state, Event.FAULT)
            for failure in failures:
                self._broken.update(failure.env_ids)
        if isinstance(first.exception, VecspacesError) and not first.text:
            raise first.exception
        first.throw()

    # ------------------------------------------------------------------ the end

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False, **kwargs: Any
    ) -> None:
        """Close every environment; called by `close`.

        Args:
            timeout: The longest wait for environments to close, in seconds; None: 4. What has not
                ended by then is terminated, and killed within one second more.
            terminate: Whether not to ask them at all.
            **kwargs: Nothing else; for wrappers that pass more.

        Raises:
            Exception: What an environment raised in its own `close`; everything is freed all the same.
        """
        self._state = next_state(self._state, Event.CLOSE)
        seconds = _CLOSE_SECONDS if timeout is None else max(0.0, timeout)
        replies = self._backend.close(seconds, terminate)
        self._raise_from_close(replies, seconds)

    def _raise_from_close(self, replies: list[Reply], seconds: float) -> None:
        """Tell what went wrong while environments closed; all that they held is freed already."""
        late: list[int] = []
        for worker, op, _, payload in replies:
            rows = self._backend.slices[worker]
            if op is Op.CLOSE:
                late.extend(rows)
            elif op is Op.DIED:
                if worker not in self._lost_workers:
                    busy = int(self._storage.progress[worker])
                    raise faults.died(worker, rows, "close", payload, busy, "all is freed")
            elif not self._broken.intersection(payload.env_ids):
                # What a broken environment says at its end helps nobody.
                payload.throw()
        if late:
            warnings.warn(
                f"{faults.name_rows(late)} did not close within {seconds:g} s and were ended by force",
                RuntimeWarning,
                stacklevel=5,
            )


_OVERDUE = (State.OVERDUE_RESET, State.OVERDUE_STEP, State.OVERDUE_CALL)
