"""Wrappers that change actions and have no state: a function of a batch, and a space."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from vecspaces.spaces import Box, Space
from vecspaces.vector import VectorActionWrapper, VectorEnv
from vecspaces.vector.vector_env import ActType, ObsType
from vecspaces.vector.vector_wrapper import WrapperActType
from vecspaces.wrappers.rescaling import Bound, rescaling
from vecspaces.wrappers.transform_spaces import choose_spaces, require_box

_Array = npt.NDArray[Any]


class TransformAction(
    VectorActionWrapper[ObsType, WrapperActType, ActType, _Array],
    Generic[ObsType, WrapperActType, ActType],
):
    """Changes actions by a function.

    Args:
        env: The vector env to wrap.
        func: A function that takes a batch of actions and returns the actions for the wrapped
            vector env. For `send` and `step(env_ids=...)`, these are the rows of some environments.
        action_space: The space of the batches that `func` takes; None: that of
            `single_action_space`, or of the wrapped vector env.
        single_action_space: The space of one row; None: that of the wrapped vector env.

    Example:
        >>> from vecspaces import make_vec
        >>> envs = make_vec("Pendulum-v1", 2, backend="sync")
        >>> with TransformAction(envs, lambda actions: actions / 2) as envs:
        ...     _ = envs.reset(seed=1)
        ...     _, rewards, *_ = envs.step(np.full((2, 1), 2.0))
    """

    saved_state = (), ()

    def __init__(
        self,
        env: VectorEnv[ObsType, ActType, _Array],
        func: Callable[[WrapperActType], ActType],
        action_space: Space[Any] | None = None,
        single_action_space: Space[Any] | None = None,
    ) -> None:
        super().__init__(env)
        self.action_space, self.single_action_space = choose_spaces(
            "action", env, action_space, single_action_space
        )
        self.func = func

    def actions(self, actions: WrapperActType) -> ActType:
        """Change a batch of actions."""
        return self.func(actions)


class ClipAction(TransformAction[ObsType, _Array, _Array], Generic[ObsType]):
    """Clips actions to the bounds of the action space, a Box.

    Its own action space has no bounds.

    Args:
        env: The vector env to wrap.

    Raises:
        TypeError: The action space is not a Box.

    Example:
        >>> from vecspaces import make_vec
        >>> with ClipAction(make_vec("Pendulum-v1", 2, backend="sync")) as envs:
        ...     envs.single_action_space, envs.actions(np.array([[5.0], [1.0]])).tolist()
        (Box(-inf, inf, (1,), float32), [[2.0], [1.0]])
    """

    def __init__(self, env: VectorEnv[ObsType, _Array, _Array]) -> None:
        box = require_box(self, "action", env)
        free = Box(-np.inf, np.inf, box.shape, box.dtype)
        super().__init__(env, partial(np.clip, a_min=box.low, a_max=box.high), None, free)


class RescaleAction(TransformAction[ObsType, _Array, _Array], Generic[ObsType]):
    """Maps actions between `min_action` and `max_action` to the bounds of the action space, a Box.

    Args:
        env: The vector env to wrap.
        min_action: The new lower bound: a number, or an array of the shape of one action.
        max_action: The new upper bound, in the same form.

    Raises:
        TypeError: The action space is not a Box, or a bound is not a number.
        ValueError: A bound has another shape, is infinite although the Box's bound is finite, or
            is not below the other bound; or the Box is of integers, which the map would round.

    Example:
        >>> from vecspaces import make_vec
        >>> envs = make_vec("Pendulum-v1", 2, backend="sync")  # torques from -2 to 2
        >>> with RescaleAction(envs, 0.0, 1.0) as envs:
        ...     envs.single_action_space, envs.actions(np.array([[0.5], [1.0]])).tolist()
        (Box(0.0, 1.0, (1,), float32), [[0.0], [2.0]])
    """

    def __init__(
        self, env: VectorEnv[ObsType, _Array, _Array], min_action: Bound, max_action: Bound
    ) -> None:
        box = require_box(self, "action", env)
        change = rescaling(box, min_action, max_action, ("min_action", "max_action"))
        if np.any(change.box.low == change.box.high):
            raise ValueError(
                f"min_action: expected less than max_action={max_action}, found {min_action}: "
                "where they are equal, no action can be mapped back"
            )
        super().__init__(env, change.undo, None, change.box)
