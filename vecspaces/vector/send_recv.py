"""First ready: send actions to some environments, receive those that are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.checks import check_count
from vecspaces.errors import AlreadyPendingCallError, InvalidActionError, NoAsyncCallError
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange import infos as infos_module
from vecspaces.vector.exchange.failures import EnvIds, Message
from vecspaces.vector.exchange.infos import Columns
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.managed_vector_env import ManagedVectorEnv
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.ring import Rollout
from vecspaces.vector.session.session import Command
from vecspaces.vector.session.states import Event, State
from vecspaces.vector.vector_env import ActType, AutoresetMode, ObsType


class Transition(NamedTuple):
    """What some environments gave; every array has one row per entry of `env_ids`, in that order.

    Attributes:
        observations: The batch of observations.
        rewards: float64.
        terminations: bool.
        truncations: bool.
        infos: The merged infos; their arrays follow `env_ids` too.
        env_ids: The environments, int64.
    """

    observations: Any
    rewards: npt.NDArray[np.float64]
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    infos: dict[str, Any]
    env_ids: npt.NDArray[np.int64]


class StreamingVectorEnv(ManagedVectorEnv[ObsType, ActType], Generic[ObsType, ActType]):
    """A vector env whose environments need not march in step.

    Args:
        backend: Where the groups run.
        settings: The rest of the caller's half.
        batch_size: How many environments `recv` waits for; None: all.

    Raises:
        ValueError: `batch_size` does not lie between 1 and the number of environments.
    """

    def __init__(self, backend: Backend, settings: Settings, batch_size: int | None) -> None:
        if batch_size is not None:
            check_count("batch_size", batch_size)
        super().__init__(backend, settings)
        self.batch_size = self.num_envs if batch_size is None else batch_size
        if not 1 <= self.batch_size <= self.num_envs:
            self.close(terminate=True)
            raise ValueError(
                f"batch_size must lie between 1 and num_envs={self.num_envs}, found {batch_size}"
            )
        # Environments that were sent an action and have not answered, and those whose answer, or
        # whose first observation, waits to be received.
        self._outstanding = np.zeros(self.num_envs, dtype=np.bool_)
        self._ready: deque[int] = deque()
        self._fresh: set[int] = set()
        self._told: dict[int, Columns] = {}

    def reset_wait(self, timeout: float | None = None) -> tuple[ObsType, dict[str, Any]]:
        """End a `reset`; then every environment is ready to be received."""
        result = super().reset_wait(timeout)
        self._outstanding[:] = False
        rows = [int(row) for row in self._reset_rows]
        self._ready = deque(row for row in self._ready if row not in rows)
        self._ready.extend(rows)
        self._fresh.update(rows)
        joined = infos_module.join([part for part in self._session.results.values() if part])
        for row in rows:
            self._told.pop(row, None)
            if told := infos_module.take(joined, [row], [0]):
                self._told[row] = told
        return result

    def rollout_view(self) -> Rollout:
        """Give the last `buffers - 1` steps as arrays; `batch_size` must be all environments."""
        if self.batch_size != self.num_envs:
            raise ValueError(
                f"rollout_view() needs steps of all environments together, so batch_size must be "
                f"num_envs={self.num_envs}, found {self.batch_size}"
            )
        return super().rollout_view()

    def step_async(self, actions: ActType) -> None:
        """Begin a `step` of all environments; `step_wait` ends it."""
        super().step_async(actions)
        self._ready.clear()
        self._fresh.clear()
        self._told.clear()

    def send(self, actions: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Give actions to environments, and wait for none.

        Args:
            actions: A batch with one row per entry of `env_ids`, in that order.
            env_ids: The environments; None: all.

        Raises:
            InvalidActionError: The batch does not fit; no environment heard of it.
            AlreadyPendingCallError: An environment has not answered yet, or its answer was not
                received.
            ResetNeededError: An environment is finished (DISABLED mode).
        """
        session = self._session
        state = session.check(Event.SEND)
        ids = np.array(self._chosen(None if env_ids is None else list(env_ids)), dtype=np.intp)
        self._check_whole(set(ids.tolist()))
        busy = [int(row) for row in ids if self._outstanding[row]]
        unread = [row for row in self._ready if row not in self._fresh and row in set(ids.tolist())]
        if busy or unread:
            raise AlreadyPendingCallError(
                Message(
                    "send: the last answer of {} {}: recv first",
                    EnvIds(busy or unread),
                    "is not there yet" if busy else "was not received yet",
                ),
                "send",
            )
        if self._mode is AutoresetMode.DISABLED and self._finished[ids].any():
            self._refuse_finished(ids[self._finished[ids]])
        self._write_actions(actions, at=ids)
        buffers, slot = self._buffers, self._ring.current
        if self._settings.budget is not None:
            # The other slot keeps what was known, in case a worker dies while it writes.
            buffers.observations[self._ring.turn()].copy_rows(buffers.observations[slot], ids)
        sent = set(ids.tolist())
        self._ready = deque(row for row in self._ready if row not in sent)
        self._fresh -= sent
        for row in sent:
            self._told.pop(row, None)
        self._outstanding[ids] = True
        payloads = dict(self._by_worker(ids.tolist()))
        if session.state is State.STREAMING:
            session.submit_more(slot, payloads)
        else:
            session.submit(state, Op.STEP_ROWS, slot, payloads)

    def _check_whole(self, ids: set[int]) -> None:
        """A vector env among the environments takes all of its actions at once."""
        for rows in self._vector_rows:
            if 0 < len(ids.intersection(rows)) < len(rows):
                raise InvalidActionError(
                    Message(
                        "send: {} are one vector env, which steps as a whole: "
                        "send all of its actions together",
                        EnvIds(rows),
                    )
                )

    def recv(self, timeout: float | None = None) -> Transition:
        """Wait until `batch_size` environments are ready, and take those that were ready first.

        After `reset`, every environment is ready with its first observation, reward 0 and no flags.

        Args:
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            Exactly `batch_size` rows; all arrays are copies.

        Raises:
            NoAsyncCallError: Fewer than `batch_size` environments were sent an action or are ready.
            StepTimeoutError: It took too long; nothing is lost, `recv` again.
        """
        session = self._session
        state = session.check(Event.RECV)
        expected = int(self._outstanding.sum()) + len(self._ready)
        if expected < self.batch_size:
            raise NoAsyncCallError(
                f"recv waits for batch_size={self.batch_size} environments, but only {expected} "
                "were sent an action: send more first",
                "recv",
            )
        session.wait_until(lambda: len(self._ready) >= self.batch_size, timeout)
        ids = [self._ready.popleft() for _ in range(self.batch_size)]
        drained = not self._outstanding.any() and not (set(self._ready) - self._fresh)
        if state is State.STREAMING and drained:
            session.state = session.check(Event.DRAINED)
        return self._transition(ids)

    def _transition(self, ids: list[int]) -> Transition:
        """Gather the rows of some environments."""
        at = np.array(ids, dtype=np.int64)
        buffers, slot = self._buffers, self._ring.current
        rewards = buffers.rewards[slot, at]
        terminations = buffers.terminations[slot, at]
        truncations = buffers.truncations[slot, at]
        told = [
            infos_module.shift(self._told.pop(row), place)
            for place, row in enumerate(ids)
            if row in self._told
        ]
        infos = infos_module.finish(told, len(ids))
        if self._mode is not AutoresetMode.NEXT_STEP:
            ended = terminations | truncations
            self._finished[at] = ended
            if self._mode is AutoresetMode.SAME_STEP and ended.any():
                found = self._final_observations(at[ended])
                infos.update({key: values[at] for key, values in found.items()})
        self._fresh -= set(ids)
        observations = buffers.observations[slot].read(copy=True, at=at)
        return Transition(observations, rewards, terminations, truncations, infos, at)

    def _take_part(self, worker: int, rows: Sequence[int], columns: Columns | None) -> bool:
        """Some environments have answered; tell whether others of their worker have not."""
        if self._session.lost:
            self._put_back(self._ring.current, self._ring.turn(), columns)
        for row in rows:
            told = infos_module.take(columns, [row], [0]) if columns else {}
            if told:
                self._told[row] = told
        self._outstanding[rows] = False
        self._ready.extend(rows)
        within = self._backend.slices[worker]
        return bool(self._outstanding[within.start : within.stop].any())

    def _repeat(self, worker: int, command: Command) -> Any:
        if command.op is not Op.STEP_ROWS:
            return super()._repeat(worker, command)
        return [row for row in self._backend.slices[worker] if self._outstanding[row]]
