"""Objects of other libraries: conversion without importing these; ids registered in Gymnasium.

An object of another library exists after that library has been imported, so the package is read
from the object's class. Then an adapter is imported, by name and inside a function, because it lies
below this file in the direction of imports.
"""

from __future__ import annotations

import importlib
import pickle
import re
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import cloudpickle

from vecspaces.errors import CustomSpaceError, VecspacesError
from vecspaces.spaces import Space

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# The module that converts spaces of Gymnasium, and the values of those that it has converted.
_ADAPTER = "vecspaces.adapters.gymnasium.spaces"
# The oldest releases that work, as in pyproject.toml; an older one may be installed nevertheless.
_OLDEST = {"gymnasium": (1, 1), "pettingzoo": (1, 27)}  # whose registry is used


def require_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an extra's library; name the extra if the library is missing or old."""
    library = module.partition(".")[0]
    try:
        package = importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise  # it is installed, but lacks a library that it needs
        raise ImportError(
            f'{library} is not installed: pip install "vecspaces[{extra}]"', name=library
        ) from error
    version = str(getattr(package, "__version__", None) or "")
    oldest = _OLDEST.get(library, ())
    if tuple(map(int, re.findall(r"\d+", version)[: len(oldest)])) < oldest:
        needed = ".".join(map(str, oldest))
        raise ImportError(
            f"vecspaces needs {library} {needed} or newer, found version {version or 'unknown'} in "
            f'{Path(str(package.__file__)).parent}: pip install --upgrade "vecspaces[{extra}]"',
            name=library,
        )
    return importlib.import_module(module)


def native_space(space: Any) -> Space[Any]:
    """Return a space of vecspaces for any space: itself, or the conversion of a known library's."""
    if isinstance(space, Space):
        return space
    adapter = _find_adapter(space)
    if adapter is not None:
        converted: Space[Any] = adapter.from_gymnasium(space)
        return converted
    kind = type(space)
    raise CustomSpaceError(
        f"expected a space of vecspaces or of gymnasium, found {space!r} of type "
        f"{kind.__module__}.{kind.__qualname__}; derive the class from vecspaces.Space"
    )


def foreign_values(space: Any, native: Space[Any] | None = None) -> Callable[[Any], Any] | None:
    """Return the function that converts values, and batches, for a third-party space, or None."""
    adapter = _find_adapter(space)
    return (
        None
        if adapter is None
        else adapter.translator(native_space(space) if native is None else native)
    )


def native_values(space: Any) -> Callable[[Any], Any] | None:
    """Return the function that does the reverse of that of `foreign_values`, or None."""
    adapter = _find_adapter(space)
    return None if adapter is None else adapter.translator(native_space(space), to_native=True)


def foreign_space(space: Any, native: Space[Any]) -> Any:
    """Return a space of vecspaces as a space of the library that `space` is from."""
    adapter = _find_adapter(space)
    return native if adapter is None else adapter.to_gymnasium(native)


def foreign_class(kind: type, env: Any) -> type:
    """Return a class of `vecspaces.envs`, also derived from `gymnasium.Env` if `env` is."""
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is None or not isinstance(env, gymnasium.Env):
        return kind
    known: dict[type, type] = importlib.import_module("vecspaces.adapters.gymnasium.envs").KINDS
    return known.get(kind, kind)


# The adapter of each class that a space had; None if it is not Gymnasium's.
_adapters: weakref.WeakKeyDictionary[type, Any] = weakref.WeakKeyDictionary()


def _find_adapter(space: Any) -> Any:
    """Import the adapter if a space's class, or one above it, is Gymnasium's; None if it is not."""
    kind = type(space)
    if kind not in _adapters:
        libraries = {ancestor.__module__.partition(".")[0] for ancestor in kind.__mro__}
        is_foreign = "gymnasium" in libraries and not issubclass(kind, Space)
        _adapters[kind] = importlib.import_module(_ADAPTER) if is_foreign else None
    return _adapters[kind]


def is_foreign_vector_env(env: object) -> bool:
    """Return whether an object is a Gymnasium vector environment, without importing Gymnasium."""
    vector = sys.modules.get("gymnasium.vector")
    return vector is not None and isinstance(env, vector.VectorEnv)


@dataclass(frozen=True)
class _Unshippable:
    """The entry point of an id that could not be sent to a worker: raises the reason."""

    env_id: str
    reason: str

    def __call__(self, **kwargs: Any) -> NoReturn:
        raise VecspacesError(
            f"the Gymnasium id {self.env_id!r} was registered in the caller's process and could "
            f"not be sent to this worker: {self.reason}; register it with an entry_point of "
            "the form 'module:Class', or pass a factory instead of the id"
        )


def pack_registrations() -> bytes:
    """Pack the Gymnasium ids of this process for workers that are not forked, which lack them."""
    registration = sys.modules.get("gymnasium.envs.registration")
    if registration is None:
        return b""
    packed: dict[str, bytes | str] = {}
    # Each id separately, so that an id that cannot be pickled does not affect the others; with
    # cloudpickle, which sends functions of __main__ by value, not by name.
    for env_id, spec in registration.registry.items():
        try:
            packed[env_id] = cloudpickle.dumps(spec)
        except Exception as error:  # a __reduce__ may raise anything; the id is named
            packed[env_id] = f"pickling failed with {type(error).__name__}: {error}"
    return pickle.dumps(packed)


def unpack_registrations(data: bytes) -> None:
    """Register the ids that `pack_registrations` packed in another process."""
    if not data:
        return
    registration = importlib.import_module("gymnasium.envs.registration")
    packed: dict[str, bytes | str] = pickle.loads(data)
    for env_id, shipped in packed.items():
        if isinstance(shipped, bytes):
            try:
                registration.registry[env_id] = pickle.loads(shipped)
                continue
            except Exception as error:  # importing the user's module may raise anything
                shipped = f"unpickling failed with {type(error).__name__}: {error}"
        registration.registry.setdefault(
            env_id, registration.EnvSpec(env_id, entry_point=_Unshippable(env_id, shipped))
        )


def refuse_parallel(env: Any) -> str | None:
    """Return why an environment of PettingZoo is not one of one agent; None for any other."""
    agents = getattr(env, "possible_agents", None)
    if agents is None or not callable(getattr(env, "observation_space", None)):
        return None
    return (
        f"an environment of one agent; it returned {type(env).__name__}, a PettingZoo "
        f"environment of {len(agents)} agents (it has possible_agents): make_vec(..., "
        "agents='rows') makes one row per agent, and agents='dict' makes one row of "
        "Dicts by agent, for agents that differ (an AEC environment: convert it by "
        "pettingzoo.utils.aec_to_parallel first)"
    )
