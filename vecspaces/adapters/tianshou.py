"""VectorEnv: a vector env of vecspaces as a `tianshou.env.BaseVectorEnv`.

Tianshou's collectors step and reset some environments at a time, reset finished environments
themselves, and expect one info per environment. With `wait_num` or `timeout`, resets and steps are
`send_reset`, `send` and `recv`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces import spaces, vector
from vecspaces.adapters.wrapping import batch_actions, taken
from vecspaces.errors import AlreadyPendingCallError
from vecspaces.interop import require_extra
from vecspaces.vector.engine.seeds import spread_seeds
from vecspaces.vector.group.attributes import get_attribute

_venvs: Any = require_extra("tianshou.env.venvs", "tianshou")

from vecspaces.adapters.gymnasium import to_gymnasium  # noqa: E402  # Tianshou brings Gymnasium

__all__ = ["VectorEnv"]

_LIBRARY = "Tianshou"
_SPACES = ("observation_space", "action_space")
_TUPLES = (spaces.Tuple, spaces.Graph, spaces.Sequence, spaces.OneOf)

RowIds = int | Sequence[int] | npt.NDArray[Any] | None
# Tianshou's results of a step: observation, reward, terminated, truncated, info; or arrays.
Row = tuple[Any, Any, Any, Any, Any]


class VectorEnv(_venvs.BaseVectorEnv):  # type: ignore[misc]  # Tianshou need not be installed
    """A vector env of vecspaces with the interface of Tianshou's vector envs.

    Use the class as a `VectorEnvType` in Tianshou's high-level interface:
    `EnvFactoryRegistered(task="CartPole-v1", venv_type=VectorEnv)`.

    Args:
        env_fns: Factories of environments, of which a vector env in DISABLED mode is made; or such
            a vector env, or its Gymnasium interface.
        wait_num: For `AsyncCollector`: `step` returns when this number of environments is ready;
            None: all that were sent an action.
        timeout: For `AsyncCollector`: after this number of seconds, `step` returns the environments
            that are ready, but waits for the first.
        backend: `"async"` or `"sync"`: where the environments of factories run.
        **vector_kwargs: More arguments for `AsyncVectorEnv` or `SyncVectorEnv`. A `num_workers`
            above the number of environments counts as that number. With `"sync"`, those that
            concern processes have no effect.

    Attributes:
        vector_env: The vector env of vecspaces.
        env_num: The number of environments.
        is_async: Whether `step` may return only some environments, by `wait_num` or `timeout`.
        waiting_id: The environments whose step has not been returned.
        ready_id: The others.

    Raises:
        TypeError: `env_fns` is neither factories nor a vector env of single environments, or
            observations are tuples, which Tianshou does not support.
        ValueError: The vector env does not copy its observations, or resets environments itself,
            or `wait_num` or `timeout` is out of range.

    Example:
        >>> import gymnasium
        >>> from vecspaces.adapters.tianshou import VectorEnv
        >>> envs = VectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, num_workers=2)
        >>> observations, infos = envs.reset(seed=0)
        >>> envs.step([0, 1], id=[2, 0])[0].shape
        (2, 4)
        >>> envs.close()
    """

    def __init__(
        self,
        env_fns: Any,
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        backend: str = "async",
        **vector_kwargs: Any,
    ) -> None:
        # Not the constructor of Tianshou's class, which makes a worker per environment.
        mode = vector.AutoresetMode.DISABLED
        with taken(env_fns, _LIBRARY, mode, backend, vector_kwargs) as (envs, made):
            self._wrap(envs, wait_num, timeout)
        self._source = env_fns  # kept, or it would be collected and close its vector env
        if made:
            # Tianshou's high-level interface leaves closing to the garbage collector.
            weakref.finalize(self, envs.close)

    def _wrap(self, vector_env: Any, wait_num: int | None, timeout: float | None) -> None:
        """Take a vector env that was checked."""
        mode = vector.AutoresetMode.of(vector_env.metadata["autoreset_mode"])
        if mode is not vector.AutoresetMode.DISABLED:
            raise ValueError(
                "env_fns: Tianshou resets environments itself: expected a vector env with "
                f'autoreset_mode="Disabled", found {mode.value!r}'
            )
        space = vector_env.single_observation_space
        if isinstance(space, _TUPLES) and not getattr(space, "stack", False):
            raise TypeError(
                f"Tianshou does not support observations that are tuples, found {space}: use a Dict"
            )
        count = vector_env.num_envs
        if wait_num is not None and not 1 <= wait_num <= count:
            raise ValueError(f"wait_num must lie between 1 and {count}, found {wait_num}")
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout must be above 0, found {timeout}")
        self.vector_env = vector_env
        self.env_num = count
        self.wait_num, self.timeout = wait_num or count, timeout
        self.is_async = self.wait_num != count or timeout is not None
        self.is_closed = False
        self.waiting_id: list[int] = []
        # Results, or errors, that were received and are not returned yet.
        self._arrived: dict[int, Row | Exception] = {}
        # Tianshou's collectors draw random actions from these, and `seed` seeds them.
        self._spaces = {name: self._get_spaces(name) for name in _SPACES}

    @classmethod
    def create_venv(cls, factories: Iterable[Any]) -> VectorEnv:
        """Make a vector env of factories, as a `VectorEnvType` of Tianshou does."""
        return cls(list(factories))

    @property
    def ready_id(self) -> list[int]:
        """The environments that are not stepping."""
        return [number for number in range(self.env_num) if number not in self.waiting_id]

    def _get_spaces(self, name: str) -> list[Any]:
        """Return the spaces of all environments, as Gymnasium's."""
        env_spaces = self.vector_env.call(get_attribute, name)
        return [
            to_gymnasium(space) if isinstance(space, spaces.Space) else space
            for space in env_spaces
        ]

    # ------------------------------------------------------------------ reset and step

    def reset(
        self, env_id: RowIds = None, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, npt.NDArray[Any]]:
        """Begin episodes in some environments.

        Args:
            env_id: The environments; None: all.
            seed: The seed of each of them; None leaves their generators as they are.
            options: For each of them.

        Returns:
            One observation and one info per environment.

        Raises:
            AlreadyPendingCallError: An environment is stepping.
        """
        rows = self._rows(env_id)
        return self._reset(rows, [seed] * len(rows), options)

    def _reset(self, rows: list[int], seeds: Any, options: Any) -> tuple[Any, npt.NDArray[Any]]:
        if self.is_async:
            self._check_ready(rows, "reset")
            self.vector_env.send_reset(rows, seed=seeds, options=options)
            results = self._await(rows)
            return _stack([row[0] for row in results]), _as_array([row[4] for row in results])
        if len(rows) < self.env_num:
            mask = np.isin(np.arange(self.env_num), rows)
            options = {**(options or {}), "reset_mask": mask}
        seed_of = dict(zip(rows, seeds, strict=True))
        observations, merged = self.vector_env.reset(
            seed=[seed_of.get(row) for row in range(self.env_num)], options=options
        )
        infos = vector.infos_as_list(merged, self.env_num)
        chosen = self._stacked(observations, self.env_num)[rows]
        return chosen, _as_array([infos[row] for row in rows])

    def step(self, action: Any, id: RowIds = None) -> Row:
        """Take one action in some environments.

        Args:
            action: One per entry of `id`. None, if `is_async`: no actions are sent, and `len(id)`
                environments that are stepping are awaited.
            id: The environments; None: all.

        Returns:
            Observations, rewards, terminations, truncations and an array of infos; the entry
            `"env_id"` of an info is the number of its environment. If `is_async`, those of the
            environments that were ready first.

        Raises:
            ValueError: There is no action, or the numbers of actions and environments differ.
            AlreadyPendingCallError: An environment is stepping.
            ResetNeededError: The episode of an environment is over, or has not begun.
        """
        rows = self._rows(id)
        if action is None:
            if not self.is_async:
                raise ValueError("step needs an action, unless wait_num or timeout was set")
            return self._join(self._first(len(rows), None))
        self._check_ready(rows, "step")
        if len(action) != len(rows):
            raise ValueError(f"expected {len(rows)} actions, one per entry of id: {len(action)}")
        if not isinstance(action, (list, tuple)):
            action = np.asarray(action)  # a tensor, for one
        space = self.vector_env.single_action_space
        batch = batch_actions(space, list(action), len(rows))
        if self.is_async:
            self.vector_env.send(batch, rows)
            self.waiting_id += rows
            return self._join(self._first(min(self.wait_num, len(self.waiting_id)), self.timeout))
        everyone = rows == list(range(self.env_num))
        observations, *arrays, merged = self.vector_env.step(batch, None if everyone else rows)
        infos = vector.infos_as_list(merged, len(rows))
        for row, info in zip(rows, infos, strict=True):
            info["env_id"] = row
        return (self._stacked(observations, len(rows)), *arrays, _as_array(infos))

    def _first(self, count: int, timeout: float | None) -> list[int]:
        """Wait for environments that are stepping; return one or more, even after the timeout."""
        missing = count - len(self._arrived)
        if missing > 0:
            self._recv(missing, timeout)
        if not self._arrived:
            self._recv(1)
        rows = list(self._arrived)[:count]
        # An error is raised alone, so that the results of the others are there for the next call.
        return [row for row in rows if isinstance(self._arrived[row], Exception)][:1] or rows

    def _join(self, rows: list[int]) -> Row:
        """Wait for the steps of these environments, and return their results as arrays."""
        results = self._await(rows)
        for number, row in zip(rows, results, strict=True):
            row[4]["env_id"] = number
        columns = list(zip(*results, strict=True))
        return (_stack(columns[0]), *map(np.array, columns[1:4]), _as_array(columns[4]))

    def _await(self, rows: list[int]) -> list[Row]:
        """Return the results of these environments; what comes from others meanwhile is kept."""
        while missing := sum(row not in self._arrived for row in rows):
            self._recv(missing)
        self.waiting_id = [number for number in self.waiting_id if number not in rows]
        results: list[Any] = [self._arrived.pop(row) for row in rows]
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def _recv(self, count: int, timeout: float | None = None) -> None:
        """Receive environments, or after the timeout those that are ready, maybe none."""
        at_least = None if timeout is None else 0
        came = self.vector_env.recv(count, timeout, at_least=at_least, return_errors=True)
        numbers = came.env_ids.tolist()
        infos = vector.infos_as_list(came.infos, len(numbers))
        items = self._iterate(came.observations, len(numbers)) if numbers else []
        columns = zip(items, *came[1:4], infos, strict=True)
        self._arrived.update(zip(numbers, columns, strict=True))
        self._arrived.update(came.errors)

    def _iterate(self, batch: Any, count: int) -> list[Any]:
        """Return the observations of a batch."""
        space = vector.utils.batch_space(self.vector_env.single_observation_space, count)
        return list(vector.utils.iterate(space, batch))

    def _stacked(self, batch: Any, count: int) -> Any:
        """Return a batch of observations as Tianshou has it, an array."""
        return batch if isinstance(batch, np.ndarray) else _stack(self._iterate(batch, count))

    def _check_ready(self, rows: list[int], call: str) -> None:
        busy = [row for row in rows if row in self.waiting_id]
        if busy:
            raise AlreadyPendingCallError(
                f"{call}: environments {busy} are stepping: call step(None, id={busy}) first",
                "step",
            )

    def _rows(self, env_id: RowIds) -> list[int]:
        if env_id is None:
            return list(range(self.env_num))
        return [int(number) for number in np.atleast_1d(np.asarray(env_id))]

    # ------------------------------------------------------------------ the environments

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[list[int] | None]:
        """Reset all environments with seeds, and seed the spaces of random actions.

        Args:
            seed: An int (environment i gets seed + i), or one int or None per environment.

        Returns:
            A list with the seed for each environment.
        """
        seeds = spread_seeds(seed, self.env_num)
        for space, row_seed in zip(self._spaces["action_space"], seeds, strict=True):
            space.seed(row_seed)
        self._reset(self._rows(None), seeds, None)
        return [None if row_seed is None else [row_seed] for row_seed in seeds]

    def get_env_attr(self, key: str, id: RowIds = None) -> list[Any]:
        """Return an attribute of some environments, found through their wrappers."""
        rows = self._rows(id)
        if key in _SPACES:
            return [self._spaces[key][row] for row in rows]
        return list(self.vector_env.call(get_attribute, key, env_ids=rows))

    def set_env_attr(self, key: str, value: Any, id: RowIds = None) -> None:
        """Set an attribute of some environments, on the wrapper that has it."""
        rows = self._rows(id)
        self.vector_env.set_attr(key, [value] * len(rows), env_ids=rows)

    def render(self, **kwargs: Any) -> list[Any]:
        """Render all environments."""
        return list(self.vector_env.call("render", **kwargs))

    def close(self) -> None:
        """Close the environments and free their resources; a second call does nothing."""
        self.is_closed = True
        self.vector_env.close()


def _stack(items: Sequence[Any]) -> Any:
    """Stack observations as Tianshou does: dicts, and arrays without a common shape, as objects."""
    try:
        return np.stack(items)
    except ValueError:
        return _as_array(items)


def _as_array(items: Sequence[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array
