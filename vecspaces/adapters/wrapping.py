"""Functions of several adapters: which vector envs they accept, refuse or make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from vecspaces import spaces, vector
from vecspaces.make import PROCESS_ARGUMENTS
from vecspaces.vector.group.attributes import get_attribute


@contextmanager
def taken(
    source: Any,
    library: str,
    mode: vector.AutoresetMode,
    backend: str,
    arguments: Mapping[str, Any],
) -> Iterator[tuple[Any, bool]]:
    """Enter with the vector env to adapt, and whether it was made here, of factories.

    A vector env that was made here is closed if the adapter raises.
    """
    # An adapter has its vector env as an attribute. This is not `getattr`, because a wrapper around
    # an adapter would pass the attribute on, and the wrapper would be lost.
    vector_env = source
    if not isinstance(source, vector.VectorEnv):
        vector_env = getattr(source, "__dict__", {}).get("vector_env")
    made = not isinstance(vector_env, vector.VectorEnv)
    if made:
        vector_env = _make(source, mode, backend, arguments)
    elif arguments:
        names = ", ".join(arguments)
        raise TypeError(f"vector_env is made already: {names} can only go with factories")
    try:
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
        yield vector_env, made
    except BaseException:
        if made:
            vector_env.close(terminate=True)
        raise


def _make(
    source: Any, mode: vector.AutoresetMode, backend: str, arguments: Mapping[str, Any]
) -> vector.VectorEnv[Any, Any, Any]:
    """Make a vector env of factories."""
    if not isinstance(source, Iterable) or isinstance(source, str):
        raise TypeError(
            "vector_env: expected a vecspaces.vector.VectorEnv or factories of environments, "
            f"found {name_type(source)}"
        )
    if backend not in ("async", "sync"):
        raise ValueError(f"backend: expected 'async' or 'sync', found {backend!r}")
    env_fns = list(source)
    # The libraries accept environments whose Boxes have different bounds.
    options = {"autoreset_mode": mode, "observation_mode": "different", **arguments}
    if backend == "sync":
        options = {key: value for key, value in options.items() if key not in PROCESS_ARGUMENTS}
        return vector.SyncVectorEnv(env_fns, **options)
    if options.get("num_workers") is not None:
        options["num_workers"] = min(options["num_workers"], len(env_fns))
    return vector.AsyncVectorEnv(env_fns, **options)


def batch_actions(space: spaces.Space[Any], actions: Any, count: int) -> Any:
    """Convert actions, one per environment, to a batch for a vector env.

    Whole numbers may be floats, as some policies return them.
    """
    if space.dtype is not None and space.dtype.kind in "iub":
        try:
            array = np.asarray(actions)
        except Exception:  # ragged, or no array: the vector env refuses it
            return actions
        with np.errstate(invalid="ignore"):  # of NaN
            whole = array.astype(space.dtype) if array.dtype.kind == "f" else array
        return whole if np.array_equal(whole, array) else actions
    if not isinstance(space, (spaces.Dict, spaces.Tuple)) or isinstance(actions, (Mapping, tuple)):
        return actions
    empty = vector.utils.create_empty_array(space, count)
    return vector.utils.concatenate(space, actions, empty)


def has_wrapper(env: Any, wrapper: type) -> bool:
    """Whether a wrapper around an environment is an instance of a class."""
    # Not getattr: some wrappers look up a missing attribute in what they wrap.
    while (inside := getattr(env, "__dict__", {}).get("env")) is not None:
        if isinstance(env, wrapper):
            return True
        env = inside
    return False


def has_attribute(env: Any, name: str) -> bool:
    """Whether an environment, or one that it wraps, has an attribute."""
    try:
        get_attribute(env, name)
    except AttributeError:
        return False
    return True


def name_type(x: Any) -> str:
    """Return the class of an object with its module, since both libraries have a SyncVectorEnv."""
    return f"{type(x).__module__}.{type(x).__qualname__}"
