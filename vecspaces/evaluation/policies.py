"""Calls of a policy: the rows, infos and state that it gets; the random policy.

Only a `PolicyAdapter` knows the arguments of a policy: observations, infos if it has a parameter of
that name, and all rows if it has a state.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.errors import InvalidActionError
from vecspaces.layout import Layout, Mismatch
from vecspaces.sampling import draw_action, masks_as_list
from vecspaces.seeding import derive_seed
from vecspaces.spaces import Space
from vecspaces.spaces.batch_values import pick
from vecspaces.vector import VectorEnv, infos_as_list, merge_infos
from vecspaces.vector.utils import concatenate

Policy = Callable[..., Any]


def adapt_policy(
    policy: Policy | str, envs: VectorEnv[Any, Any, Any], batch_size: int | None = None
) -> PolicyAdapter:
    """Return the adapter of a policy; one without a state gets `batch_size` rows per call."""
    if isinstance(policy, str):
        return _Random(envs)
    if hasattr(policy, "reset"):
        return _Stateful(policy, envs)
    return PolicyAdapter(policy) if batch_size is None else _Padded(policy, envs, batch_size)


class PolicyAdapter:
    """Calls a policy without a state, with the rows that are ready."""

    #: Whether each call takes the observations of all rows.
    waits_for_all = False

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._takes_infos = _takes_infos(policy)

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Note that rows begin episodes: the next call of `act` has their first observations."""

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        """Return the actions of some rows, for their observations and infos in that order."""
        return self._call(observations, infos)

    def _call(self, observations: Any, infos: Mapping[str, Any]) -> Any:
        if self._takes_infos:
            return self._policy(observations, infos=infos)
        return self._policy(observations)


def _takes_infos(policy: Any) -> bool:
    """Return whether a policy has a parameter named infos."""
    # A PyTorch module passes its arguments on to its method `forward`.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(policy, torch.nn.Module):
        policy = policy.forward
    try:
        parameter = inspect.signature(policy).parameters.get("infos")
    except (TypeError, ValueError):  # a callable in C, without a signature
        return False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return parameter is not None and parameter.kind in by_keyword


class ActionRows:
    """Rows of actions, cast as in those that environments read.

    Casting also checks what a policy returned before rows of it are taken.
    """

    def __init__(self, space: Space[Any], count: int) -> None:
        self._space = space
        layout = Layout.compile(space, count)
        (self._rows,) = layout.bind(np.zeros(layout.size, np.uint8), spill=True)

    def cast(self, actions: Any, count: int) -> Any:
        """Return a batch of `count` actions."""
        rows = np.arange(count)
        try:
            self._rows.write_batch(actions, index=rows)
        except Mismatch as error:
            finding = Mismatch(error.expected, error.actual, error.path, error.row, "actions")
            raise InvalidActionError(
                f"{finding}: a policy that is called with {count} observations must return a batch "
                f"of {count} actions of {self._space}"
            ) from None
        return self._rows.read(copy=True, index=rows)


class _Padded(PolicyAdapter):
    """Calls a policy with the same number of rows each time.

    BLAS results vary with batch size, not with position.
    """

    def __init__(self, policy: Policy, envs: VectorEnv[Any, Any, Any], batch_size: int) -> None:
        super().__init__(policy)
        self._envs, self._batch_size = envs, batch_size
        self._actions = ActionRows(envs.single_action_space, batch_size)

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        envs, size, count = self._envs, self._batch_size, len(rows)
        parts: list[Any] = []
        for begin in range(0, count, size):
            numbers = np.minimum(np.arange(begin, begin + size), count - 1)
            part = pick(envs.single_observation_space, observations, numbers)
            part_infos = pick_infos(infos, numbers) if self._takes_infos else {}
            actions = self._actions.cast(self._call(part, part_infos), size)
            wanted = range(min(size, count - begin))
            parts.extend(pick(envs.single_action_space, actions, number) for number in wanted)
        return concatenate(envs.single_action_space, parts, None)


class _Stateful(PolicyAdapter):
    """Calls a policy with all rows, so that row i is the policy's row i in each call."""

    waits_for_all = True

    def __init__(self, policy: Any, envs: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(policy)
        self._envs = envs
        self._actions = ActionRows(envs.single_action_space, envs.num_envs)
        # The last observation and info of each row, also of rows that have no episode any more.
        self._last: list[Any] = [None] * envs.num_envs
        self._last_infos: list[dict[str, Any]] = [{}] * envs.num_envs

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        self._policy.reset(np.array(rows, dtype=np.int64))

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        space = self._envs.single_observation_space
        for number, row in enumerate(rows):
            self._last[row] = pick(space, observations, number)
        all_infos: dict[str, Any] = {}
        if self._takes_infos:
            for row, info in zip(rows, infos_as_list(infos, len(rows)), strict=True):
                self._last_infos[row] = info
            all_infos = merge_infos(self._last_infos)
        actions = self._call(concatenate(space, self._last, None), all_infos)
        actions = self._actions.cast(actions, self._envs.num_envs)
        return pick(self._envs.single_action_space, actions, rows)


class _Random(PolicyAdapter):
    """Draws actions within the masks of infos, by one generator per episode, from its seed."""

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._space = envs.single_action_space
        self._spaces = [copy.deepcopy(self._space) for _ in range(envs.num_envs)]

    def begin(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        for row, seed in zip(rows, seeds, strict=True):
            # With the seed itself, the generator would draw the same numbers as the environment.
            self._spaces[row].seed(derive_seed(np.random.SeedSequence(seed, spawn_key=(0,))))

    def act(self, observations: Any, infos: Mapping[str, Any], rows: Sequence[int]) -> Any:
        actions = [
            draw_action(self._spaces[row], info, f"environment {row}")
            for row, info in zip(rows, masks_as_list(infos, len(rows)), strict=True)
        ]
        return concatenate(self._space, actions, None)


def pick_infos(
    infos: Mapping[str, Any], rows: Sequence[int] | npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Return the infos of some rows of a batch, without keys that none of them has."""
    picked: dict[str, Any] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if mask is not None and mask[rows].any():  # None: a mask itself
            picked[key] = pick_infos(values, rows) if isinstance(values, dict) else values[rows]
            picked[f"_{key}"] = mask[rows]
    return picked
