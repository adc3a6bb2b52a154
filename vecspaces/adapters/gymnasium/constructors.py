"""SyncVectorEnv, AsyncVectorEnv and make_vec with Gymnasium's interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from vecspaces import make, vector
from vecspaces.adapters.gymnasium.errors import call
from vecspaces.adapters.gymnasium.vector_env import GymnasiumVectorEnv


# skrl's `wrap_env` checks direct base classes alone, so VectorEnv is a base of both classes.
class SyncVectorEnv(GymnasiumVectorEnv, gymnasium.vector.SyncVectorEnv, VectorEnv[Any, Any, Any]):
    """`vecspaces.vector.SyncVectorEnv` as a `gymnasium.vector.SyncVectorEnv`.

    Args:
        env_fns: Factories of environments; each is called once.
        *args: As `vecspaces.vector.SyncVectorEnv` takes them, Gymnasium's first.
        **kwargs: The same.

    Example:
        >>> import gymnasium
        >>> from vecspaces.adapters.gymnasium import SyncVectorEnv
        >>> with SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2) as envs:
        ...     envs.single_action_space, isinstance(envs, gymnasium.vector.SyncVectorEnv)
        (Discrete(2), True)
    """

    def __init__(self, env_fns: Iterable[Callable[[], Any]], *args: Any, **kwargs: Any) -> None:
        GymnasiumVectorEnv.__init__(self, call(vector.SyncVectorEnv, env_fns, *args, **kwargs))


class AsyncVectorEnv(  # type: ignore[misc]  # Gymnasium's `close_extras` has other arguments
    GymnasiumVectorEnv, gymnasium.vector.AsyncVectorEnv, VectorEnv[Any, Any, Any]
):
    """`vecspaces.vector.AsyncVectorEnv` as a `gymnasium.vector.AsyncVectorEnv`.

    Args:
        env_fns: Factories of environments; each is called once, in its worker.
        *args: As `vecspaces.vector.AsyncVectorEnv` takes them, Gymnasium's first.
        **kwargs: The same.

    Example:
        >>> import gymnasium
        >>> from vecspaces.adapters.gymnasium import AsyncVectorEnv
        >>> env_fns = [lambda: gymnasium.make("CartPole-v1")] * 4
        >>> with AsyncVectorEnv(env_fns, num_workers=2) as envs:
        ...     envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
        True
    """

    def __init__(self, env_fns: Iterable[Callable[[], Any]], *args: Any, **kwargs: Any) -> None:
        GymnasiumVectorEnv.__init__(self, call(vector.AsyncVectorEnv, env_fns, *args, **kwargs))


def _passed_on(name: str) -> Any:
    """Return a property that finds an attribute as if Gymnasium's class did not have it."""
    return property(lambda self: GymnasiumVectorEnv.__getattr__(self, name))


for _ours, _theirs in (
    (SyncVectorEnv, gymnasium.vector.SyncVectorEnv),
    (AsyncVectorEnv, gymnasium.vector.AsyncVectorEnv),
):
    for _name in vars(_theirs).keys() - vars(GymnasiumVectorEnv).keys():
        if not _name.startswith("_"):
            setattr(_ours, _name, _passed_on(_name))

# For `help` and editors: the arguments by name.
SyncVectorEnv.__signature__ = inspect.signature(vector.SyncVectorEnv)  # type: ignore[attr-defined]
AsyncVectorEnv.__signature__ = inspect.signature(vector.AsyncVectorEnv)  # type: ignore[attr-defined]


def make_vec(
    id: Any,
    num_envs: int = 1,
    vectorization_mode: Any = None,
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    **kwargs: Any,
) -> GymnasiumVectorEnv:
    """Make a `gymnasium.vector.VectorEnv`, with the arguments of `gymnasium.make_vec` and more.

    Args:
        id: The environment, as for `vecspaces.make_vec`: an id, an `EnvSpec`, `"module:factory"`, a
            factory, or a list of factories.
        num_envs: The number of environments.
        vectorization_mode: The `backend` of `vecspaces.make_vec`, or Gymnasium's `VectorizeMode`;
            None: `"async"`.
        vector_kwargs: More arguments for `AsyncVectorEnv` or `SyncVectorEnv`.
        wrappers: Applied to each environment where it runs, the first innermost.
        **kwargs: Arguments for the factory, or for `gymnasium.make`.

    Returns:
        The vector env.

    Raises:
        ValueError: The mode is `"vector_entry_point"`.
        TypeError: `backend` is among the arguments.

    Example:
        >>> with make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync") as envs:
        ...     envs.reset(seed=123)[0].shape
        (3, 4)
    """
    if "backend" in kwargs:
        raise TypeError(
            "backend: pass the mode as vectorization_mode, as for gymnasium.make_vec, and an "
            "argument of the environment as env_kwargs={'backend': ...}"
        )
    mode = getattr(vectorization_mode, "value", vectorization_mode)
    if mode == "vector_entry_point":
        raise ValueError(
            "vectorization_mode: expected 'async' or 'sync', found 'vector_entry_point', which is "
            "the environment's own vector env: use gymnasium.make_vec, or run it in workers with "
            "AsyncVectorEnv([lambda: gymnasium.make_vec(...)])"
        )
    envs = call(
        make.make_vec,
        id,
        num_envs,
        backend=mode or "async",
        vector_kwargs=vector_kwargs,
        wrappers=wrappers,
        **kwargs,
    )
    kinds = {vector.SyncVectorEnv: SyncVectorEnv, vector.AsyncVectorEnv: AsyncVectorEnv}
    kind: Any = kinds.get(type(envs), GymnasiumVectorEnv)
    made: GymnasiumVectorEnv = kind.__new__(kind)
    GymnasiumVectorEnv.__init__(made, envs)
    return made
