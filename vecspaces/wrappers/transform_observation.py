"""Wrappers that change observations and have no state: a function of a batch, and a space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    flatten_space,
)
from vecspaces.vector import VectorEnv, VectorObservationWrapper
from vecspaces.vector.vector_env import ActType, ObsType
from vecspaces.vector.vector_wrapper import WrapperObsType
from vecspaces.wrappers.batches import flatten_rows
from vecspaces.wrappers.rescaling import Bound, rescaling
from vecspaces.wrappers.transform_spaces import call_func, choose_spaces, require_box, single_space

_Array = npt.NDArray[Any]


class TransformObservation(
    VectorObservationWrapper[WrapperObsType, ActType, ObsType, _Array],
    Generic[WrapperObsType, ActType, ObsType],
):
    """Changes observations by a function.

    Args:
        env: The vector env to wrap.
        func: A function that takes a batch of observations and returns the same number of rows. For
            `recv`, `step(env_ids=...)` and last observations (`infos["final_obs"]`), the batch may
            have fewer rows than there are environments.
        observation_space: The space of the batches that `func` returns; None: that of
            `single_observation_space`, or of the wrapped vector env.
        single_observation_space: The space of one row; None: that of the wrapped vector env.

    Example:
        >>> from vecspaces import make_vec
        >>> from vecspaces.spaces import Box
        >>> envs = make_vec("CartPole-v1", 2, backend="sync")
        >>> position = Box(-4.8, 4.8, (1,))
        >>> with TransformObservation(envs, lambda obs: obs[:, :1], None, position) as envs:
        ...     observations, _ = envs.reset(seed=1)
        ...     observations.shape, envs.observation_space
        ((2, 1), Box(-4.8, 4.8, (2, 1), float32))
    """

    saved_state = (), ()

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, _Array],
        func: Callable[[ObsType], WrapperObsType],
        observation_space: Space[Any] | None = None,
        single_observation_space: Space[Any] | None = None,
    ) -> None:
        super().__init__(env)
        self.observation_space, self.single_observation_space = choose_spaces(
            "observation", env, observation_space, single_observation_space
        )
        self.func = func

    def observations(self, observations: ObsType) -> WrapperObsType:
        """Change a batch of observations."""
        changed: WrapperObsType = call_func(self, observations)
        return changed


class FilterObservation(TransformObservation[Any, ActType, Any], Generic[ActType]):
    """Keeps some members of observations that are dicts or tuples.

    Args:
        env: The vector env to wrap.
        filter_keys: The keys of a Dict to keep, or the positions of a Tuple, in that order.

    Raises:
        TypeError: `filter_keys` is not a sequence, or has keys of another kind.
        ValueError: The observation space is not a Dict or Tuple, or has no such member, or no
            member would be kept.

    Example:
        >>> from vecspaces import make_vec
        >>> envs = make_vec("Blackjack-v1", 2, backend="sync")
        >>> with FilterObservation(envs, [0, 2]) as envs:  # your sum, and whether you have an ace
        ...     envs.single_observation_space
        Tuple(Discrete(32), Discrete(2))
    """

    def __init__(
        self, env: VectorEnv[Any, ActType, _Array], filter_keys: Sequence[str | int]
    ) -> None:
        if not isinstance(filter_keys, Sequence):
            raise TypeError(f"filter_keys: expected a sequence of keys, found {filter_keys!r}")
        space = single_space("observation", env)
        if not isinstance(space, (Dict, Tuple)):
            raise ValueError(
                f"FilterObservation needs observations of Dict or Tuple, found {space}"
            )
        kind = str if isinstance(space, Dict) else int
        if not all(isinstance(key, kind) for key in filter_keys):
            raise TypeError(
                f"filter_keys: expected {kind.__name__} for a {type(space).__name__}, found "
                f"{filter_keys!r}"
            )
        known = list(space) if isinstance(space, Dict) else range(-len(space), len(space))
        missing = [key for key in filter_keys if key not in known]
        if missing:
            raise ValueError(f"filter_keys: expected some of {list(known)}, found {missing}")
        if not filter_keys:
            raise ValueError("filter_keys: expected at least one key, found none")
        if isinstance(space, Tuple) and len(set(filter_keys)) < len(filter_keys):
            raise ValueError(f"filter_keys: expected each position once, found {filter_keys!r}")
        self.filter_keys = filter_keys
        keys: Any = filter_keys
        kept: Space[Any]
        if isinstance(space, Dict):
            kept = Dict({key: space[key] for key in keys}, sort_keys=space.sort_keys)
            super().__init__(env, partial(_keep_keys, list(kept)), None, kept)
        else:
            kept = Tuple([space[key] for key in keys])
            super().__init__(env, partial(_keep_positions, keys), None, kept)


class FlattenObservation(TransformObservation[_Array, ActType, ObsType], Generic[ActType, ObsType]):
    """Flattens observations, as `vecspaces.spaces.flatten` does.

    Args:
        env: The vector env to wrap.

    Example:
        >>> from vecspaces import make_vec
        >>> with FlattenObservation(make_vec("FrozenLake-v1", 2, backend="sync")) as envs:
        ...     envs.observation_space, envs.reset(seed=1)[0].sum(axis=1).tolist()
        (Box(0, 1, (2, 16), int64), [1, 1])
    """

    def __init__(self, env: VectorEnv[ObsType, ActType, _Array]) -> None:
        space = single_space("observation", env)
        super().__init__(env, partial(flatten_rows, space), None, flatten_space(space))


class RescaleObservation(TransformObservation[_Array, ActType, _Array], Generic[ActType]):
    """Maps observations linearly from the bounds of a Box to other bounds.

    Args:
        env: The vector env to wrap.
        min_obs: The new lower bound: a number, or an array of the shape of one observation.
        max_obs: The new upper bound.

    Raises:
        TypeError: The observation space is not a Box, or a bound is not a number.
        ValueError: A bound has another shape, is infinite although the Box's bound is finite, or is
            above the other; or the Box is of integers, which the map would round.

    Example:
        >>> from vecspaces import make_vec
        >>> envs = make_vec("MountainCar-v0", 2, backend="sync")
        >>> with RescaleObservation(envs, 0.0, 1.0) as envs:
        ...     envs.single_observation_space
        Box(0.0, 1.0, (2,), float32)
    """

    def __init__(
        self, env: VectorEnv[_Array, ActType, _Array], min_obs: Bound, max_obs: Bound
    ) -> None:
        box = require_box(self, "observation", env)
        change = rescaling(box, min_obs, max_obs, ("min_obs", "max_obs"))
        super().__init__(env, change.apply, None, change.box)


class DtypeObservation(TransformObservation[_Array, ActType, _Array], Generic[ActType]):
    """Casts observations to another dtype.

    Args:
        env: The vector env to wrap.
        dtype: The dtype.

    Raises:
        TypeError: The observation space is not a Box, Discrete, MultiDiscrete or MultiBinary.

    Example:
        >>> from vecspaces import make_vec
        >>> with DtypeObservation(make_vec("CartPole-v1", 2, backend="sync"), np.float64) as envs:
        ...     envs.reset(seed=1)[0].dtype
        dtype('float64')
    """

    def __init__(self, env: VectorEnv[_Array, ActType, _Array], dtype: npt.DTypeLike) -> None:
        self.dtype = dtype
        space = _with_dtype(single_space("observation", env), dtype)
        super().__init__(env, partial(np.array, dtype=space.dtype), None, space)


def _keep_keys(keys: Sequence[str], observations: Any) -> dict[str, Any]:
    return {key: observations[key] for key in keys}


def _keep_positions(positions: Sequence[int], observations: Any) -> tuple[Any, ...]:
    return tuple(observations[position] for position in positions)


def _with_dtype(space: Space[Any], dtype: Any) -> Space[Any]:
    """Return a space of the same values in another dtype."""
    if isinstance(space, Box):
        return Box(space.low, space.high, space.shape, dtype)
    if isinstance(space, Discrete):
        return Box(space.start, space.start + space.n - 1, (), dtype)
    if isinstance(space, MultiDiscrete):
        return MultiDiscrete(space.nvec, dtype=dtype, start=space.start)
    if isinstance(space, MultiBinary):
        return Box(0, 1, space.shape, dtype)
    raise TypeError(
        "DtypeObservation needs observations of Box, Discrete, MultiDiscrete or MultiBinary, found "
        f"{space}"
    )
