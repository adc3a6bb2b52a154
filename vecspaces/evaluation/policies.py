"""How a policy is asked for the actions of some rows: without a state, with one, or at random.

Whatever plays episodes asks through a `Player`, which alone knows what a policy takes:
observations, infos where it has a parameter of that name, all rows where it has a state.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from vecspaces.sampling import draw_action, masks_as_list
from vecspaces.seeding import derive_seed
from vecspaces.spaces import Dict, Space, Tuple
from vecspaces.vector import VectorEnv, infos_as_list
from vecspaces.vector.exchange.infos import gather, merge
from vecspaces.vector.utils import concatenate

Policy = Callable[..., Any]


class Player(Protocol):
    """What gives the actions of rows.

    Attributes:
        waits_for_all: Whether it takes the observations of all rows that play, each time.
    """

    waits_for_all: bool

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Note that rows begin episodes; what `act` is given next are their first observations."""

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        """Return the actions of some rows, for their observations and infos in that order."""


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
        self._takes_infos = _takes_infos(policy)

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        pass

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        return self._ask(observations, infos)

    def _ask(self, observations: Any, infos: Mapping[str, Any]) -> Any:
        """Call the policy with what it takes."""
        if self._takes_infos:
            return self._policy(observations, infos=infos)
        return self._policy(observations)


def _takes_infos(policy: Policy) -> bool:
    """Return whether a policy has a parameter named infos; any other has a meaning of its own."""
    # A module of PyTorch passes all that it is called with on to its `forward`.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(policy, torch.nn.Module):
        policy = policy.forward
    try:
        parameter = inspect.signature(policy).parameters.get("infos")
    except (TypeError, ValueError):  # a callable in C, without a signature
        return False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return parameter is not None and parameter.kind in by_keyword


class _Padded(_Stateless):
    """Asks for the same number of rows each time, whatever rows are ready.

    Linear algebra rounds a row otherwise in a batch of another size, and not in another place.
    """

    def __init__(self, policy: Policy, envs: VectorEnv[Any, Any, Any], batch_size: int) -> None:
        super().__init__(policy)
        self._envs, self._batch_size = envs, batch_size

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        envs, size, count = self._envs, self._batch_size, len(rows)
        if count == size:
            return self._ask(observations, infos)
        parts: list[Any] = []
        for begin in range(0, count, size):
            at = [min(number, count - 1) for number in range(begin, begin + size)]
            chosen = pick(envs.single_observation_space, observations, at)
            actions = self._ask(chosen, pick_infos(infos, at) if self._takes_infos else {})
            wanted = range(min(size, count - begin))
            parts.extend(pick(envs.single_action_space, actions, number) for number in wanted)
        return concatenate(envs.single_action_space, parts, None)


class _Stateful(_Stateless):
    """Asks for the actions of all rows each time, so that row i is always the policy's row i."""

    waits_for_all = True

    _policy: Any  # with a method `reset`

    def __init__(self, policy: Any, envs: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(policy)
        self._envs = envs
        # The last observation and info of each row: of those that do not play, the last there were.
        self._last: list[Any] = [None] * envs.num_envs
        self._last_infos: list[dict[str, Any]] = [{}] * envs.num_envs

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        self._policy.reset(np.array(rows, dtype=np.int64))

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        space = self._envs.single_observation_space
        for number, row in enumerate(rows):
            self._last[row] = pick(space, observations, number)
        every: dict[str, Any] = {}
        if self._takes_infos:
            for row, info in zip(rows, infos_as_list(infos, len(rows)), strict=True):
                self._last_infos[row] = info
            every = merge([gather(dict(enumerate(self._last_infos)))], len(self._last_infos))
        actions = self._ask(concatenate(space, self._last, None), every)
        return pick(self._envs.single_action_space, actions, rows)


class _Random:
    """Draws actions within the masks of infos; those of an episode depend on its seed alone."""

    waits_for_all = False

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._space = envs.single_action_space
        self._spaces = [copy.deepcopy(self._space) for _ in range(envs.num_envs)]

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        for row, seed in zip(rows, seeds, strict=True):
            # With the seed itself, the environment would draw the same numbers.
            own = np.random.SeedSequence(seed, spawn_key=(0,))
            self._spaces[row].seed(derive_seed(own))

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        actions = [
            draw_action(self._spaces[row], info, f"environment {row}")
            for row, info in zip(rows, masks_as_list(infos, len(rows)), strict=True)
        ]
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


def pick_infos(infos: Mapping[str, Any], at: Sequence[int]) -> dict[str, Any]:
    """Return the infos of some rows of a batch, without the keys that none of them gave.

    Example:
        >>> infos = {"n": np.array([5, 0]), "_n": np.array([True, False])}
        >>> pick_infos(infos, [0, 0]), pick_infos(infos, [1])
        ({'n': array([5, 5]), '_n': array([ True,  True])}, {})
    """
    found: dict[str, Any] = {}
    for key, values in infos.items():
        given = infos.get(f"_{key}")
        if given is None:  # a mask itself
            continue
        given = given[at]
        if given.any():
            found[key] = pick_infos(values, at) if isinstance(values, dict) else values[at]
            found[f"_{key}"] = given
    return found
