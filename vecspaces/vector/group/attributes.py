"""Attributes and methods of environments, looked up through their wrappers."""

from __future__ import annotations

from typing import Any

from vecspaces.env import EnvLike
from vecspaces.vector.exchange.messages import Call as Call


def get_attribute(env: EnvLike, name: str) -> Any:
    """Look an attribute up through an environment's wrappers."""
    getter = getattr(env, "get_wrapper_attr", None)
    return getattr(env, name) if getter is None else getter(name)


def call_env(env: Any, call: Call) -> Any:
    """Call a method of an environment or a function with it, or get another attribute."""
    name, args, kwargs = call
    if callable(name):
        return name(env, *args, **kwargs)
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def set_attribute(env: EnvLike, name: str, value: Any) -> None:
    """Set an attribute where it exists, or else on the environment itself."""
    has = getattr(env, "has_wrapper_attr", None)
    if has is None:
        setattr(env, name, value)
    elif has(name):
        env.set_wrapper_attr(name, value)  # type: ignore[attr-defined]  # as has_wrapper_attr
    else:
        # Gymnasium would set it on the outermost wrapper, which the environment does not read.
        setattr(env.unwrapped, name, value)  # type: ignore[attr-defined]  # as above
