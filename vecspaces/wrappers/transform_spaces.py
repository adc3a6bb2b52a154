"""The spaces of wrappers that change actions or observations."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from vecspaces.interop import native_space
from vecspaces.spaces import Box, Space
from vecspaces.vector import VectorEnv
from vecspaces.vector.utils import batch_space
from vecspaces.vector.vector_wrapper import check_vector_env


def choose_spaces(
    kind: Literal["action", "observation"],
    env: VectorEnv[Any, Any, Any],
    batch: Space[Any] | None,
    single: Space[Any] | None,
) -> tuple[Space[Any], Space[Any]]:
    """Return the spaces of a batch and of one row, of which the user may have passed any."""
    row = getattr(env, f"single_{kind}_space") if single is None else native_space(single)
    if batch is not None:
        chosen = native_space(batch)
    elif single is not None:
        chosen = batch_space(row, env.num_envs)
    else:
        chosen = getattr(env, f"{kind}_space")
    if chosen != batch_space(row, env.num_envs):
        warnings.warn(
            f"{kind}_space={chosen} is not the space of {env.num_envs} rows of {row}: give "
            f"single_{kind}_space too",
            UserWarning,
            stacklevel=3,
        )
    return chosen, row


def single_space(kind: Literal["action", "observation"], env: Any) -> Space[Any]:
    """Return the space of one row of the vector env to wrap."""
    space: Space[Any] = getattr(check_vector_env(env), f"single_{kind}_space")
    return space


def require_box(wrapper: object, kind: Literal["action", "observation"], env: Any) -> Box:
    """Return the space of one row of the vector env to wrap; raise unless it is a Box."""
    space = single_space(kind, env)
    if not isinstance(space, Box):
        name = type(wrapper).__name__
        raise TypeError(f"{name} needs a Box as {kind} space of one environment, found {space}")
    return space


def call_func(wrapper: Any, batch: Any) -> Any:
    """Return what the function of a wrapper returns; raise if it has no `return`."""
    result = wrapper.func(batch)
    if result is None:
        name = type(wrapper).__name__
        raise TypeError(f"{name}: func must return the changed batch, found None: add a `return`")
    return result
