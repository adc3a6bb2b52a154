"""SyncVectorEnv, AsyncVectorEnv and make_vec with Gymnasium's interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from vecspaces import make, vector
from vecspaces.adapters.gymnasium.errors import call
from vecspaces.adapters.gymnasium.vector_env import GymnasiumVectorEnv, as_gymnasium


# skrl's `wrap_env` checks direct base classes only, so both classes have Gymnasium's as one.
class SyncVectorEnv(GymnasiumVectorEnv, VectorEnv[Any, Any, Any]):
    """`vecspaces.vector.SyncVectorEnv` as a `gymnasium.vector.VectorEnv`.

    Args:
        env_fns: Factories of environments; each is called once.
        *args: As `vecspaces.vector.SyncVectorEnv` takes them, Gymnasium's first.
        **kwargs: The same.

    Example:
        >>> import gymnasium
        >>> from vecspaces.adapters.gymnasium import SyncVectorEnv
        >>> with SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2) as envs:
        ...     envs.single_action_space, isinstance(envs, gymnasium.vector.VectorEnv)
        (Discrete(2), True)
    """

    def __init__(self, env_fns: Iterable[Callable[[], Any]], *args: Any, **kwargs: Any) -> None:
        super().__init__(call(vector.SyncVectorEnv, env_fns, *args, **kwargs))


class AsyncVectorEnv(GymnasiumVectorEnv, VectorEnv[Any, Any, Any]):
    """`vecspaces.vector.AsyncVectorEnv` as a `gymnasium.vector.VectorEnv`.

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
        super().__init__(call(vector.AsyncVectorEnv, env_fns, *args, **kwargs))


# For `help` and editors: the arguments by name.
SyncVectorEnv.__signature__ = inspect.signature(vector.SyncVectorEnv)  # type: ignore[attr-defined]
AsyncVectorEnv.__signature__ = inspect.signature(vector.AsyncVectorEnv)  # type: ignore[attr-defined]


def make_vec(
    id: Any,
    num_envs: int = 1,
    vectorization_mode: Any = None,
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    *,
    backend: str | None = None,
    **kwargs: Any,
) -> GymnasiumVectorEnv:
    """Make a `gymnasium.vector.VectorEnv`, with the arguments of `gymnasium.make_vec` and more.

    Args:
        id: The environment, as for `vecspaces.make_vec`: an id, an `EnvSpec`, `"module:factory"`, a
            factory, or a list of factories.
        num_envs: The number of environments.
        vectorization_mode: Gymnasium's name for `backend`; a str or its `VectorizeMode`.
        vector_kwargs: More arguments for `AsyncVectorEnv` or `SyncVectorEnv`.
        wrappers: Applied to each environment where it runs, the first one innermost.
        backend: `"async"`, the default, or `"sync"`.
        **kwargs: Arguments for the factory, or for `gymnasium.make`.

    Returns:
        The vector env.

    Raises:
        ValueError: `backend` and `vectorization_mode` were both given, or the mode is
            `"vector_entry_point"`.

    Example:
        >>> with make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync") as envs:
        ...     envs.reset(seed=123)[0].shape
        (3, 4)
    """
    mode = getattr(vectorization_mode, "value", vectorization_mode)
    if backend is not None and mode is not None:
        raise ValueError(
            f"backend={backend!r} and vectorization_mode={mode!r} are two names for one thing: "
            "give one of them"
        )
    if mode == "vector_entry_point":
        raise ValueError(
            "vectorization_mode: expected 'async' or 'sync', found 'vector_entry_point', which is "
            "the environment's own vector env: use gymnasium.make_vec, or run it in workers with "
            "AsyncVectorEnv([lambda: gymnasium.make_vec(...)])"
        )
    return as_gymnasium(
        call(
            make.make_vec,
            id,
            num_envs,
            backend=backend or mode or "async",
            vector_kwargs=vector_kwargs,
            wrappers=wrappers,
            **kwargs,
        )
    )
