"""`save_state` and `load_state`: the states of environments, to go on from later or elsewhere."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecspaces.files import replacing
from vecspaces.pickling import dumps
from vecspaces.spaces import Dict, Space
from vecspaces.spaces.equivalence import difference
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.engine.arguments import ResetPlan, check_env_ids
from vecspaces.vector.engine.engine import Engine
from vecspaces.vector.engine.replies import results_of
from vecspaces.vector.engine.rows import ENDED
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.messages import CheckRows, Op, RowState, SaveRows

_VERSION = 1


class WrapperState(NamedTuple):
    """The state of a vector wrapper."""

    name: str  # of its class
    observation_space: Space[Any] | None
    rows: dict[str, Any]  # with an entry per environment
    others: dict[str, Any]

    def check(self, name: str, observation_space: Space[Any]) -> None:
        """Refuse the state of another wrapper."""
        if self.name != name:
            raise ValueError(f"expected the state of {name}, found that of {self.name}")
        change = self.observation_space and difference(observation_space, self.observation_space)
        if change is not None:
            raise ValueError(f"the observation_space of {name} differs: {change}")


@dataclass(frozen=True, repr=False, eq=False)
class VectorState:
    """The states of some environments of a vector env; `envs.save_state()` returns it.

    It can be pickled, and `len` is the number of environments. Loading a state runs code, as
    unpickling does: load only states that you trust.

    Attributes:
        observation_space: The space of one environment's observation.
        action_space: The space of one environment's action.
        info_space: The declared keys of infos; None: no key.
        autoreset_mode: The mode of the vector env.

    Example:
        >>> from vecspaces import make_vec
        >>> with make_vec("CartPole-v1", 2, backend="sync") as envs:
        ...     _ = envs.reset(seed=0)
        ...     state = envs.save_state([1])
        >>> state, state.observation_space.shape
        (VectorState(num_envs=1, autoreset_mode='NextStep'), (4,))
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    info_space: Dict[Any] | None
    autoreset_mode: AutoresetMode
    rows: tuple[RowState, ...]
    wrappers: tuple[WrapperState, ...] = ()  # the outermost last
    version: int = _VERSION

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"VectorState(num_envs={len(self)}, autoreset_mode={self.autoreset_mode.value!r})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file; one that exists is replaced when the new one is complete.

        Args:
            path: The file.
        """
        with replacing(Path(path)) as new, new.open("wb") as file:
            file.write(dumps(self))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VectorState:
        """Read a file of `save`. This runs code: read only files that you trust.

        Args:
            path: The file.

        Returns:
            The state.

        Raises:
            ValueError: The file is incomplete, of another kind or another version.
        """
        data = Path(path).read_bytes()
        try:
            state = pickle.loads(data)
        except Exception as error:
            text = f"{path}: expected a complete file of VectorState.save, found {error!r}"
            raise ValueError(text) from error
        version = getattr(state, "version", None) if isinstance(state, cls) else type(state)
        if version != _VERSION:
            raise ValueError(f"{path}: expected a VectorState {_VERSION}, found {version}")
        return state  # type: ignore[no-any-return]


class States:
    """The calls of `ManagedVectorEnv` that save and load states."""

    num_envs: int
    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    info_space: Dict[Any] | None
    autoreset_mode: AutoresetMode
    _engine: Engine
    _buffers: Buffers

    def save_state(self, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> VectorState:
        """Return the states of environments, with their wrappers and generators.

        Args:
            env_ids: The environments; None: all.

        Returns:
            A copy of everything from which the environments go on in the same way.

        Raises:
            TypeError: An attribute of an environment cannot be saved.
            AlreadyPendingCallError: An environment has not answered, or its results were not
                received.
            ResetNeededError: An environment was not reset, or failed.
        """
        engine = self._engine
        engine.check("send", "save_state")
        rows = check_env_ids(env_ids, self.num_envs)
        engine.check_rows(rows, "send", "save_state")
        workers = engine.supervisor.of_rows(rows).items()
        payloads = {worker: SaveRows(chosen) for worker, chosen in workers}
        engine.issue_call("save_state", Op.SAVE_STATE, payloads)
        ticket = engine.wait("call", "save_state", None)
        saved = results_of(ticket)
        engine.finish(ticket)
        return VectorState(
            self.single_observation_space,
            self.single_action_space,
            self.info_space,
            self.autoreset_mode,
            tuple(self._saved_row(row, *saved[row]) for row in rows),
        )

    def _saved_row(self, row: int, packed: bytes, is_due: bool) -> RowState:
        table, slot = self._engine.rows, self._engine.ring.current
        infos = self._declared(slot, np.array([row]))
        declared = {key: infos[key][0] for key in self.info_space or () if key in infos}
        observation = self._buffers.observations[slot].item(row)
        has_ended = is_due or bool(table.state[row] & ENDED)
        seed, options = table.seeds[row], table.options[row]
        return RowState(packed, observation, declared, seed, options, has_ended)

    def _declared(self, slot: int, rows: npt.NDArray[np.intp]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        if self._buffers.infos:
            self._buffers.infos[slot].gather(infos, rows)
        return infos

    def load_state(
        self, state: VectorState, env_ids: Sequence[int] | npt.NDArray[Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Let environments go on from states, in place of a reset.

        Args:
            state: What `save_state` returned. Its only environment may be copied into several.
            env_ids: The environments, one per environment of `state`; None: all. Others go on.

        Returns:
            The last observations of these environments, and their infos of the `info_space`, as
            copies with one row per entry.

        Raises:
            ValueError: The state does not fit; nothing was changed.
            AlreadyPendingCallError: A call is pending, or results were not received.
            ResetNeededError: Only some environments are named, and no environment was reset yet.

        Example:
            >>> from vecspaces import make_vec
            >>> with make_vec("CartPole-v1", 4, backend="sync") as envs:
            ...     observations, _ = envs.reset(seed=0)
            ...     copies, _ = envs.load_state(envs.save_state([3]), [0, 1])
            >>> bool((copies == observations[3]).all())
            True
        """
        engine, everyone = self._engine, range(self.num_envs)
        rows = check_env_ids(env_ids, self.num_envs)
        is_masked = len(rows) < self.num_envs
        engine.check("send" if is_masked else "call", "load_state")
        engine.check_rows(everyone, "send_reset", "load_state")
        self._check_state(state, len(rows))
        states = dict(zip(rows, state.rows * (len(rows) if len(state) == 1 else 1), strict=True))
        parts = engine.supervisor.of_rows(rows).items()
        checks = {worker: CheckRows({row: states[row] for row in part}) for worker, part in parts}
        engine.issue_call("load_state", Op.CHECK_STATE, checks)
        engine.finish(engine.wait("call", "load_state", None))
        plan = ResetPlan(
            np.array(rows, np.intp),
            [states[row].seed if row in states else None for row in everyone],
            [states[row].options if row in states else None for row in everyone],
            keep_options=True,
            is_masked=is_masked,
            states=states,
        )
        engine.issue_reset(plan, "load_state")
        ticket = engine.wait("reset", "load_state", None)
        infos = self._declared(ticket.slot, plan.rows)
        observations = self._buffers.observations[ticket.slot].read(copy=True, index=plan.rows)
        engine.finish(ticket)
        return observations, infos

    def _check_state(self, state: Any, count: int) -> None:
        """Refuse a state that does not fit `count` environments."""
        if not isinstance(state, VectorState):
            raise TypeError(f"state: expected a VectorState, found {type(state).__name__}")
        if len(state) not in (1, count):
            raise ValueError(
                f"expected the state of {count} environments, or of 1, found that of {len(state)}"
            )
        if state.wrappers:
            state.wrappers[-1].check("no wrapper", self.single_observation_space)
        if state.autoreset_mode is not self.autoreset_mode:
            raise ValueError(
                f"autoreset_mode: expected {self.autoreset_mode}, found {state.autoreset_mode}"
            )
        for name, space, other in (
            ("observation_space", self.single_observation_space, state.observation_space),
            ("action_space", self.single_action_space, state.action_space),
            ("info_space", self.info_space or Dict(), state.info_space or Dict()),
        ):
            change = difference(space, other)
            if change is not None:
                raise ValueError(f"the {name} of the state differs: {change}")
