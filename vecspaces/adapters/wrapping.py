"""Questions that adapters ask about what they are given, some in workers: imports no library."""

from __future__ import annotations

from typing import Any

from vecspaces.vector.group.members import get_attribute


def has_wrapper(env: Any, wrapper: type) -> bool:
    """Whether an environment, or one that it wraps, is an instance of a class.

    Args:
        env: The environment.
        wrapper: The class of a wrapper.

    Returns:
        True if there is one.
    """
    while not isinstance(env, wrapper):
        # Not getattr: some wrappers hand on to what they wrap what they do not have themselves.
        inside = vars(env).get("env") if hasattr(env, "__dict__") else None
        if inside is None:
            return False
        env = inside
    return True


def has_attribute(env: Any, name: str) -> bool:
    """Whether an environment, or one that it wraps, has an attribute.

    Args:
        env: The environment.
        name: The attribute.

    Returns:
        True if there is one.
    """
    try:
        get_attribute(env, name)
    except AttributeError:
        return False
    return True


def name_type(x: Any) -> str:
    """Name the class of an object with its module: both libraries have a SyncVectorEnv.

    Args:
        x: Any object.

    Returns:
        The name.

    Example:
        >>> name_type(3)
        'builtins.int'
    """
    return f"{type(x).__module__}.{type(x).__qualname__}"
