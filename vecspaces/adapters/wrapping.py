"""Checks of environments that adapters make, some of them in workers: imports no library."""

from __future__ import annotations

from typing import Any

from vecspaces.vector.group.members import get_attribute


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
