"""The door: objects of other libraries come in here, and nothing behind it knows those libraries.

The core imports NumPy and cloudpickle alone. An object of another library can only exist if its
library is imported already; so the door reads the package from the object's class and imports the
adapter named for it in `_ADAPTERS` then, and not before. That import is by name, inside a function,
and against the direction of all other imports: this file is the one place where that is so.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import cloudpickle

from vecspaces.errors import CustomSpaceError, VecspacesError
from vecspaces.spaces.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

# Package -> "module:function" that turns a space of that package into ours.
_ADAPTERS = {"gymnasium": "vecspaces.adapters.gymnasium.spaces:from_environment"}
# Package -> "module:function" that gives, for a space of ours, what turns its values into those of
# that package; None where they are the same.
_TRANSLATORS = {"gymnasium": "vecspaces.adapters.gymnasium.spaces:translator"}


def require_extra(module: str, extra: str) -> ModuleType:
    """Import a library that an extra installs.

    Args:
        module: The module to import.
        extra: The extra of vecspaces that brings it.

    Returns:
        The module.

    Raises:
        ImportError: It is not installed; the message names the extra.

    Example:
        >>> require_extra("no_such_library", "video")
        Traceback (most recent call last):
            ...
        ImportError: no_such_library is not installed: pip install "vecspaces[video]"
    """
    library = module.partition(".")[0]
    try:
        importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise  # it is there, but lacks a library of its own: that is another story
        raise ImportError(
            f'{library} is not installed: pip install "vecspaces[{extra}]"', name=library
        ) from error
    return importlib.import_module(module)


def native_space(space: Any) -> Space[Any]:
    """Give the space of ours that stands for any space that comes in.

    Args:
        space: A `vecspaces.Space`, or a space of a library that an adapter exists for; one that a
            user derived from such a space counts as its library's.

    Returns:
        `space` itself if it is ours, else its conversion, the state of its generator included.

    Raises:
        CustomSpaceError: `space` is no space of ours or of a known library.

    Example:
        >>> from vecspaces.spaces import Discrete
        >>> native_space(Discrete(3))
        Discrete(3)
        >>> import gymnasium
        >>> native_space(gymnasium.spaces.Discrete(3)) == Discrete(3)
        True
    """
    if isinstance(space, Space):
        return space
    convert = _find(_ADAPTERS, space)
    if convert is not None:
        converted: Space[Any] = convert(space)
        return converted
    kind = type(space)
    raise CustomSpaceError(
        f"expected a space of vecspaces or of {', '.join(_ADAPTERS)}, found {space!r} of type "
        f"{kind.__module__}.{kind.__qualname__}; derive the class from vecspaces.Space"
    )


def foreign_values(space: Any) -> Callable[[Any], Any] | None:
    """Give what turns values of ours into those that a space of another library knows.

    Args:
        space: Any space that `native_space` takes.

    Returns:
        A function of a value, or of a batch; None where there is nothing to turn.

    Example:
        >>> import gymnasium
        >>> foreign_values(gymnasium.spaces.Discrete(3)) is None
        True
    """
    find = None if isinstance(space, Space) else _find(_TRANSLATORS, space)
    translator: Callable[[Any], Any] | None = find and find(native_space(space))
    return translator


def _find(table: dict[str, str], space: Any) -> Callable[..., Any] | None:
    """Import what a table names for the library that a space, or a class above it, comes from."""
    for ancestor in type(space).__mro__:
        named = table.get(ancestor.__module__.partition(".")[0])
        if named is not None:
            module, _, function = named.partition(":")
            found: Callable[..., Any] = getattr(importlib.import_module(module), function)
            return found
    return None


def is_foreign_vector_env(env: object) -> bool:
    """Whether an object is a vector environment of Gymnasium's; never imports Gymnasium.

    Args:
        env: What a factory returned.

    Returns:
        True for an instance of `gymnasium.vector.VectorEnv`.

    Example:
        >>> is_foreign_vector_env("no environment")
        False
    """
    vector = sys.modules.get("gymnasium.vector")
    return vector is not None and isinstance(env, vector.VectorEnv)


@dataclass(frozen=True)
class _Unshippable:
    """The entry point of an id that could not travel: tells the one who makes it why."""

    env_id: str
    reason: str

    def __call__(self, **kwargs: Any) -> NoReturn:
        raise VecspacesError(
            f"the Gymnasium id {self.env_id!r} was registered in the caller's process and could "
            f"not be brought to this worker: {self.reason}; register it with an entry_point of "
            "the form 'module:Class', or hand over a factory instead of the id"
        )


def pack_registrations() -> bytes:
    """Pack the Gymnasium ids that are registered in this process, for a worker to unpack.

    A worker that does not start as a copy of this process (spawn, forkserver, another machine)
    knows none of the ids that the user's program has registered. An id that cannot be pickled does
    not stop the others: it arrives as one that says why when somebody makes it.

    Returns:
        What `unpack_registrations` takes; empty if this process has not imported Gymnasium.
    """
    registration = sys.modules.get("gymnasium.envs.registration")
    if registration is None:
        return b""
    packed: dict[str, bytes | str] = {}
    # One by one, and with cloudpickle: functions of __main__ travel by value, not by name.
    for env_id, spec in registration.registry.items():
        try:
            packed[env_id] = cloudpickle.dumps(spec)
        except Exception as error:  # whatever a foreign __reduce__ raises, the id is named
            packed[env_id] = f"pickling failed with {type(error).__name__}: {error}"
    return pickle.dumps(packed)


def unpack_registrations(data: bytes) -> None:
    """Make the Gymnasium ids of another process known in this one.

    Args:
        data: What `pack_registrations` returned.
    """
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
