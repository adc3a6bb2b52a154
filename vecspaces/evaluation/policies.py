"""How a policy is asked for the actions of some rows: without a state, with one, or at random."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from vecspaces.seeding import derive_seed
from vecspaces.spaces import Dict, Space, Tuple
from vecspaces.vector import VectorEnv
from vecspaces.vector.utils import concatenate

Policy = Callable[[Any], Any]


class Player(Protocol):
    """What gives the actions of rows.

    Attributes:
        waits_for_all: Whether it takes the observations of all rows that play, each time.
    """

    waits_for_all: bool

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Note that rows begin episodes; what `act` is given next are their first observations."""

    def act(self, observations: Any, rows: Sequence[int]) -> Any:
        """Return the actions of some rows."""


def make_player(
    policy: Policy | str, envs: VectorEnv[Any, Any, Any], batch_size: int | None = None
) -> Player:
    """Return a function that calls a policy, `batch_size` rows at a time where it has no state."""
    if isinstance(policy, str):
        return _Random(envs)
    if hasattr(policy, "reset"):
        return _Stateful(policy, envs)
    return _Stateless(policy) if batch_size is None else _Padded(policy, envs, batch_size)


class _Stateless:
    """Asks for the actions of whatever rows are ready."""

    waits_for_all = False

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        pass

    def act(self, observations: Any, rows: Sequence[int]) -> Any:
        return self._policy(observations)


class _Padded(_Stateless):
    """Asks for the same number of rows each time, whatever rows are ready.

    Linear algebra rounds a row otherwise in a batch of another size, and not in another place.
    """

    def __init__(self, policy: Policy, envs: VectorEnv[Any, Any, Any], batch_size: int) -> None:
        super().__init__(policy)
        self._envs, self._batch_size = envs, batch_size

    def act(self, observations: Any, rows: Sequence[int]) -> Any:
        envs, size, count = self._envs, self._batch_size, len(rows)
        if count == size:
            return self._policy(observations)
        parts: list[Any] = []
        for begin in range(0, count, size):
            at = [min(number, count - 1) for number in range(begin, begin + size)]
            actions = self._policy(pick(envs.single_observation_space, observations, at))
            wanted = range(min(size, count - begin))
            parts.extend(pick(envs.single_action_space, actions, number) for number in wanted)
        return concatenate(envs.single_action_space, parts, None)


class _Stateful:
    """Asks for the actions of all rows each time, so that row i is always the policy's row i."""

    waits_for_all = True

    def __init__(self, policy: Any, envs: VectorEnv[Any, Any, Any]) -> None:
        self._policy, self._envs = policy, envs
        # The last observation of each row: of those that do not play, the last that there was.
        self._last: list[Any] = [None] * envs.num_envs

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        self._policy.reset(np.array(rows, dtype=np.int64))

    def act(self, observations: Any, rows: Sequence[int]) -> Any:
        space = self._envs.single_observation_space
        for number, row in enumerate(rows):
            self._last[row] = pick(space, observations, number)
        actions = self._policy(concatenate(space, self._last, None))
        return pick(self._envs.single_action_space, actions, rows)


class _Random:
    """Draws actions from the action space; those of an episode depend on its seed alone."""

    waits_for_all = False

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._space = envs.single_action_space
        self._spaces = [copy.deepcopy(self._space) for _ in range(envs.num_envs)]

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        for row, seed in zip(rows, seeds, strict=True):
            # With the seed itself, the environment would draw the same numbers.
            own = np.random.SeedSequence(seed, spawn_key=(0,))
            self._spaces[row].seed(derive_seed(own))

    def act(self, observations: Any, rows: Sequence[int]) -> Any:
        actions = [self._spaces[row].sample() for row in rows]
        return concatenate(self._space, actions, None)


def pick(space: Space[Any], batch: Any, at: int | Sequence[int]) -> Any:
    """Return one row of a batch, or some as a batch; `space` is that of one row."""
    if isinstance(space, Dict):
        return {key: pick(part, batch[key], at) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        parts = zip(space.spaces, batch, strict=True)
        return tuple(pick(part, values, at) for part, values in parts)
    if isinstance(at, int) or not isinstance(batch, (tuple, list)):
        return batch[at]
    return tuple(batch[number] for number in at)  # values of variable size
