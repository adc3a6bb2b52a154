"""What every vector env of single environments does, whatever backend its groups run in.

The caller's half of a step: check the actions, write them into their rows, ring the workers, wait,
and hand out the rows that they wrote.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.errors import InvalidActionError, ResetNeededError
from vecspaces.layout import Mismatch
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange import infos as infos_module
from vecspaces.vector.exchange.buffers import BufferPlan
from vecspaces.vector.exchange.failures import EnvIds, Message
from vecspaces.vector.exchange.infos import Columns
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.exchange.stats import Stats, summarise
from vecspaces.vector.group.members import GroupDescription
from vecspaces.vector.session.arguments import Settings, plan_reset
from vecspaces.vector.session.batch_spaces import agree
from vecspaces.vector.session.ring import Ring, Rollout
from vecspaces.vector.session.session import Command, Session
from vecspaces.vector.session.states import Event, State
from vecspaces.vector.vector_env import ActType, AutoresetMode, ObsType, StepResult, VectorEnv

# `close()` ends within five seconds: four to ask, one to insist.
_CLOSE_SECONDS = 4.0
# Whoever pressed Ctrl-C in a wait has waited long enough.
_CLOSE_INTERRUPTED_SECONDS = 0.5


class ManagedVectorEnv(VectorEnv[ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]):
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
        self._buffers = backend.buffers
        self._ring = Ring(settings.buffers, self._buffers.plan.slots)
        session = Session(backend, settings, self._repeat, self._take_part)
        self._backend = backend
        self._session = session
        self._call_ids: list[int] = []
        # What is asked of whom in a step.
        self._everyone: dict[int, None] = dict.fromkeys(range(len(backend.slices)))
        # In DISABLED mode: the environments whose episode is over.
        self._finished = np.zeros(self.num_envs, dtype=np.bool_)
        self._reset_rows: npt.NDArray[np.intp] = np.arange(self.num_envs)

    def _plan(self, descriptions: Sequence[GroupDescription]) -> BufferPlan:
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
        return BufferPlan.compile(
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
        session = self._session
        state = session.check(Event.RESET_ASYNC)
        plan = plan_reset(seed, options, self.num_envs)
        partial = len(plan.rows) < self.num_envs
        if partial and session.state is not State.IDLE:
            raise ResetNeededError(
                "a reset_mask was given while a call is pending or environments are broken: "
                "reset all environments first"
            )
        slot = self._ring.turn() if partial else 0
        if partial:
            rows = np.ones(self.num_envs, dtype=np.bool_)
            rows[plan.rows] = False
            self._carry_over(slot, np.flatnonzero(rows))
        session.replace_workers()
        payloads: dict[int, Any] = {}
        for worker, within in enumerate(self._backend.slices):
            mine = plan.rows[(plan.rows >= within.start) & (plan.rows < within.stop)].tolist()
            broken = [row for row in within if row in session.broken]
            if mine:
                payloads[worker] = (
                    mine,
                    [plan.seeds[row] for row in mine],
                    [plan.options[row] for row in mine],
                    plan.keep_options,
                    broken,
                )
        session.submit(state, Op.RESET, slot, payloads)
        if not partial:
            self._ring.begin()
        for row in plan.rows:
            if plan.seeds[row] is not None:
                session.seeds[row] = plan.seeds[row]
            session.options[row] = plan.options[row] if plan.keep_options else None
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
        slot = self._session.wait(Event.RESET_WAIT, timeout)
        self._ring.commit(slot)
        self._session.broken.difference_update(self._reset_rows.tolist())
        self._session.lost.difference_update(self._reset_rows.tolist())
        self._finished[self._reset_rows] = False
        return self._buffers.observations[slot].read(copy=self.copy), self._infos()

    def _carry_over(self, slot: int, rows: npt.NDArray[np.intp]) -> None:
        """Copy the last observations, rewards and flags of rows into another slot."""
        buffers, last = self._buffers, self._ring.current
        if slot != last:
            buffers.observations[slot].copy_rows(buffers.observations[last], rows)
            buffers.rewards[slot, rows] = 0.0
            buffers.terminations[slot, rows] = False
            buffers.truncations[slot, rows] = False

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
        state = self._session.check(Event.STEP_ASYNC)
        if self._mode is AutoresetMode.DISABLED and self._finished.any():
            self._refuse_finished(np.flatnonzero(self._finished))
        self._write_actions(actions)
        if self._ring.begins_rollout:
            # The bootstrap observation becomes the first of the next rollout.
            self._buffers.observations[0].copy_rows(
                self._buffers.observations[self._ring.current], slice(None)
            )
            self._ring.begin_rollout()
        self._session.submit(state, Op.STEP, self._ring.turn(), self._everyone)

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
        slot = self._session.wait(Event.STEP_WAIT, timeout)
        buffers = self._buffers
        if self._session.lost:
            for columns in self._session.results.values():
                self._put_back(slot, self._ring.current, columns)
        self._ring.commit(slot)
        written = buffers.whole[slot]
        terminations = written.terminations.copy()
        truncations = written.truncations.copy()
        infos = self._infos()
        if self._mode is not AutoresetMode.NEXT_STEP:
            self._finished = terminations | truncations
            if self._mode is AutoresetMode.SAME_STEP and self._finished.any():
                infos.update(self._final_observations(np.flatnonzero(self._finished)))
        return (
            buffers.observations[slot].read(copy=self.copy),
            written.rewards.copy(),
            terminations,
            truncations,
            infos,
        )

    def _write_actions(self, actions: Any, at: Any = None) -> None:
        """Check a batch of actions and write it into its rows; nobody hears of a bad one."""
        try:
            self._buffers.actions.write_batch(actions, at=at)
        except Mismatch as error:
            finding = Mismatch(error.expected, error.found, error.path, name="actions")
            where: str = ""
            if error.row is not None:
                row = error.row if at is None else int(at[error.row])
                where = Message(" for {}", EnvIds([row]))
            raise InvalidActionError(
                Message("{}{}: a batch must fit action_space {}", finding, where, self.action_space)
            ) from None

    def _refuse_finished(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        raise ResetNeededError(
            Message(
                "{} finished an episode, and autoreset is DISABLED: reset with "
                "options={{'reset_mask': terminations | truncations}} first",
                EnvIds(int(row) for row in rows),
            )
        )

    def _final_observations(self, rows: npt.NDArray[np.intp]) -> dict[str, Any]:
        """The last observations of the episodes that ended, as infos hold them."""
        finals = self._buffers.finals
        assert finals is not None
        observations = np.full(self.num_envs, None, dtype=object)
        for row in rows:
            observations[row] = finals.item(int(row))
        mask = np.zeros(self.num_envs, dtype=np.bool_)
        mask[rows] = True
        return {"final_obs": observations, "_final_obs": mask}

    def _infos(self) -> dict[str, Any]:
        """Join what the workers told."""
        results = self._session.results
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
        self._session.check(Event.STEP_ASYNC)
        steps = self._ring.rollout_steps
        observations = self._buffers.plan.observations.ring(self._buffers.arena, steps + 1)
        self._ring.begins_rollout = True
        return Rollout(
            observations,
            self._buffers.rewards[1 : steps + 1].copy(),
            self._buffers.terminations[1 : steps + 1].copy(),
            self._buffers.truncations[1 : steps + 1].copy(),
        )

    # ------------------------------------------------------------------ calls

    @property
    def np_random(self) -> Any:
        """The environments' own generators, one per environment; from workers, copies."""
        return self.get_attr("np_random")

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.set_attr("np_random", value)

    @property
    def np_random_seed(self) -> Any:
        """The environments' own seeds, one per environment."""
        return self.get_attr("np_random_seed")

    def call(
        self,
        name: str | Callable[..., Any],
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Call a method of the environments, or get an attribute that is no method.

        Args:
            name: The method or attribute; wrappers are looked through. Or a function: it is called
                where the environment runs, with the environment as its first argument.
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
        self,
        name: str | Callable[..., Any],
        *args: Any,
        env_ids: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin a `call`; `call_wait` ends it. The arguments are those of `call`."""
        if name in ("reset", "step", "close"):
            raise ValueError(
                f"call({name!r}) would go past the bookkeeping of episodes: use {name}() itself"
            )
        state = self._session.check(Event.CALL_ASYNC)
        self._call_ids = self._chosen(env_ids)
        payloads = {
            worker: (name, args, kwargs, rows) for worker, rows in self._by_worker(self._call_ids)
        }
        self._session.submit(state, Op.CALL, 0, payloads)

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
        session = self._session
        session.wait(Event.CALL_WAIT, timeout)
        results: dict[int, Any] = {}
        for worker, values in session.results.items():
            rows = session.command.payloads[worker][3]
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

    def set_attr(self, name: str, values: Any, *, env_ids: Sequence[int] | None = None) -> None:
        """Set an attribute of the environments themselves, not of their wrappers.

        Args:
            name: The attribute.
            values: A list or tuple of one value per environment concerned, or one value for all.
            env_ids: The environments concerned; None: all.

        Raises:
            ValueError: A wrong number of values.
        """
        state = self._session.check(Event.CALL_ASYNC)
        ids = self._chosen(env_ids)
        if not isinstance(values, (list, tuple)):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ValueError(
                f"set_attr({name!r}) got {len(values)} values for {len(ids)} environments: "
                "give one per environment, or one that is no list or tuple for all"
            )
        chosen = dict(zip(ids, values, strict=True))
        payloads = {
            worker: (name, {row: chosen[row] for row in rows})
            for worker, rows in self._by_worker(ids)
        }
        self._session.submit(state, Op.SET_ATTR, 0, payloads)
        self._session.wait(Event.CALL_WAIT, None)

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
        buffers, session = self._backend.buffers, self._session
        if buffers.plan.stats is None:
            raise ValueError("stats() needs a vector env that was made with stats=True")
        if session.state in (State.IDLE, State.CLOSED):  # the law refuses the latter
            state = session.check(Event.CALL_ASYNC)
            everyone = dict.fromkeys(range(len(self._backend.slices)))
            session.submit(state, Op.FLUSH, 0, everyone)
            session.wait(Event.CALL_WAIT, None)
            for worker, found in session.results.items():
                if found is not None:
                    rows = self._backend.slices[worker]
                    buffers.load_counters(worker, rows.start, rows.stop, found)
        counters = buffers.counters()
        assert counters is not None
        return summarise(*counters, tuple(self._backend.slices))

    def _chosen(self, env_ids: Sequence[int] | None) -> list[int]:
        """Check a choice of environments."""
        if env_ids is None:
            return list(range(self.num_envs))
        numbers = list(env_ids) if isinstance(env_ids, Iterable) else [None]
        if {bool, np.bool_}.intersection(map(type, numbers)):
            raise TypeError(
                f"env_ids must be the numbers of environments, found booleans, {env_ids!r}: "
                "numpy.flatnonzero(mask) gives the numbers of a mask"
            )
        try:
            ids = [index(number) for number in numbers]
        except TypeError:
            raise TypeError(
                f"env_ids must be the numbers of environments, as integers, found {env_ids!r}"
            ) from None
        bad = [number for number in ids if not 0 <= number < self.num_envs]
        if bad:
            raise ValueError(f"env_ids must lie between 0 and {self.num_envs - 1}, found {bad[0]}")
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

    # ------------------------------------------------------------------ what the session asks for

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
        rows = [row for row in restarted.rows.tolist() if row in self._session.lost]
        self._session.lost.difference_update(rows)
        buffers, at = self._buffers, np.array(rows, dtype=np.intp)
        shown = buffers.observations[slot] if buffers.finals is None else buffers.finals
        shown.copy_rows(buffers.observations[known], at)

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
        session = self._session
        session.state = session.check(Event.CLOSE)
        # Ctrl-C may also have come between two calls; it is then on its way through `with`.
        interrupted = session.interrupted or isinstance(sys.exc_info()[1], KeyboardInterrupt)
        patience = _CLOSE_INTERRUPTED_SECONDS if interrupted else _CLOSE_SECONDS
        seconds = patience if timeout is None else max(0.0, timeout)
        try:
            forced = session.fail_on_close(self._backend.close(seconds, terminate))
        finally:
            self._buffers.release()
        if forced:
            warnings.warn(
                f"{EnvIds(forced)} did not close within {seconds:g} s and were ended by force",
                RuntimeWarning,
                stacklevel=4,
            )
