"""What adapters share: vector envs that they take or make, and checks. Imports no library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vecspaces import spaces, vector
from vecspaces.vector.group.members import get_attribute
from vecspaces.vector.options import PROCESS_ARGUMENTS


def take_vector_env(
    source: Any,
    library: str,
    mode: vector.AutoresetMode,
    backend: str,
    arguments: Mapping[str, Any],
) -> tuple[Any, bool]:
    """Return the vector env to adapt, checked, and whether it was made here, of factories."""
    # An adapter holds the vector env that it adapts; not `getattr`, since a wrapper around it would
    # find it too, and would be lost.
    given = source
    if not isinstance(source, vector.VectorEnv):
        given = getattr(source, "__dict__", {}).get("vector_env")
    if isinstance(given, vector.VectorEnv):
        if arguments:
            names = ", ".join(arguments)
            raise TypeError(f"vector_env is made already: {names} can only go with factories")
        _check(given, library)
        return given, False
    if not isinstance(source, Iterable) or isinstance(source, str):
        raise TypeError(
            "vector_env: expected a vecspaces.vector.VectorEnv or factories of environments, "
            f"found {name_type(source)}"
        )
    if backend not in ("async", "sync"):
        raise ValueError(f"backend: expected 'async' or 'sync', found {backend!r}")
    env_fns = list(source)
    arguments = {"autoreset_mode": mode, **arguments}
    if arguments.get("num_workers") is not None:
        arguments["num_workers"] = min(arguments["num_workers"], len(env_fns))
    if backend == "sync":
        for name in PROCESS_ARGUMENTS:
            arguments.pop(name, None)
    kind: Any = vector.AsyncVectorEnv if backend == "async" else vector.SyncVectorEnv
    made = kind(env_fns, **arguments)
    try:
        _check(made, library)
    except BaseException:
        made.close(terminate=True)
        raise
    return made, True


def _check(vector_env: vector.VectorEnv[Any, Any, Any], library: str) -> None:
    """Refuse what another library could not work with."""
    if not hasattr(vector_env, "call"):
        raise TypeError(
            f"vector_env: {vector_env} does not reach its environments (it has no `call`): "
            "put it into one that does, SyncVectorEnv([lambda: vector_env])"
        )
    if not getattr(vector_env, "copy", True):
        raise ValueError(
            f"vector_env: expected copy=True, found copy=False: {library} keeps the "
            "last observations, which the next step would write over"
        )


def batch_actions(space: spaces.Space[Any], actions: Any, count: int) -> Any:
    """Turn actions, one per environment, into the batch that a vector env takes."""
    if not isinstance(space, (spaces.Dict, spaces.Tuple)) or isinstance(actions, (Mapping, tuple)):
        return actions
    empty = vector.utils.create_empty_array(space, count)
    return vector.utils.concatenate(space, actions, empty)


def has_wrapper(env: Any, wrapper: type) -> bool:
    """Whether an environment, or one that it wraps, is an instance of a class."""
    while not isinstance(env, wrapper):
        # Not getattr: some wrappers look up a missing attribute in what they wrap.
        inside = vars(env).get("env") if hasattr(env, "__dict__") else None
        if inside is None:
            return False
        env = inside
    return True


def has_attribute(env: Any, name: str) -> bool:
    """Whether an environment, or one that it wraps, has an attribute."""
    try:
        get_attribute(env, name)
    except AttributeError:
        return False
    return True


def name_type(x: Any) -> str:
    """Return the name of an object's class with its module: both libraries have a SyncVectorEnv."""
    return f"{type(x).__module__}.{type(x).__qualname__}"
