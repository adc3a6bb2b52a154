"""The members of a group: how one is built, described, and reached for its attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecspaces.env import EnvLike
from vecspaces.interop import is_foreign_vector_env, native_space
from vecspaces.spaces import Space
from vecspaces.vector.exchange.failures import EnvFn, Failure, Message
from vecspaces.vector.group.vector_member import VectorMember
from vecspaces.vector.vector_env import AutoresetMode, VectorEnv

_REQUIRED = ("observation_space", "action_space", "reset", "step")


@dataclass(frozen=True)
class GroupDescription:
    """What a group tells the caller about its environments once they are built.

    Args:
        counts: The rows of each environment: 1, or m for a vector env of m.
        observation_spaces: The distinct observation spaces.
        observation_index: For each row, which of them is its own.
        action_spaces: The distinct action spaces.
        action_index: For each row, which of them is its own.
        metadata: The first environment's metadata.
        render_mode: The first environment's render mode.
    """

    counts: tuple[int, ...]
    observation_spaces: tuple[Space[Any], ...]
    observation_index: tuple[int, ...]
    action_spaces: tuple[Space[Any], ...]
    action_index: tuple[int, ...]
    metadata: dict[str, Any]
    render_mode: str | None

    @property
    def layout(self) -> tuple[Any, ...]:
        """What must not change when environments are built again."""
        return self.counts, self.observation_spaces, self.action_spaces


def build_member(env_fn: Callable[[], Any], number: int, mode: AutoresetMode) -> Any:
    """Make one environment; a vector env becomes a member of many rows.

    Args:
        env_fn: The factory.
        number: Its number among all, for messages.
        mode: The autoreset mode that a vector env must share.

    Returns:
        The environment, or a `VectorMember`.

    Raises:
        TypeError: What the factory returned is no environment.
    """
    env = env_fn()
    if isinstance(env, VectorEnv) or is_foreign_vector_env(env):
        return VectorMember(env, mode)
    if isinstance(env, type):
        raise TypeError(
            Message(
                "{} must return an environment; it returned the class {}: make an instance, {}()",
                EnvFn(number),
                env.__name__,
                env.__name__,
            )
        )
    missing = [required for required in _REQUIRED if not hasattr(env, required)]
    if missing:
        raise TypeError(
            Message(
                "{} must return an environment with {}; it returned {}, which lacks {}",
                EnvFn(number),
                ", ".join(_REQUIRED),
                type(env).__name__,
                ", ".join(missing),
            )
        )
    return env


def rows_of(member: Any) -> int:
    """Tell how many rows a member fills."""
    return member.count if isinstance(member, VectorMember) else 1


def describe_members(members: Sequence[Any]) -> GroupDescription:
    """Tell what members are like.

    Args:
        members: Environments and vector members, at least one.

    Returns:
        Their spaces, translated where they are another library's, and the first one's metadata.
    """
    observations, observation_index = _distinct(members, "observation_space")
    actions, action_index = _distinct(members, "action_space")
    first = members[0]
    return GroupDescription(
        tuple(map(rows_of, members)),
        observations,
        observation_index,
        actions,
        action_index,
        dict(getattr(first, "metadata", None) or {}),
        getattr(first, "render_mode", None),
    )


def _distinct(members: Sequence[Any], name: str) -> tuple[tuple[Space[Any], ...], tuple[int, ...]]:
    """Keep each space once, so that a thousand equal ones cross the pipe as one; index the rows."""
    kept: list[Space[Any]] = []
    index: list[int] = []
    for member in members:
        vector = isinstance(member, VectorMember)
        spaces = member.spaces(name) if vector else [getattr(member, name)]
        for space in map(native_space, spaces):
            number = next((n for n, other in enumerate(kept) if _is_twin(space, other)), len(kept))
            if number == len(kept):
                kept.append(space)
            index.append(number)
    return tuple(kept), tuple(index)


def _is_twin(one: Any, other: Any) -> bool:
    """Whether two spaces are equal to the last bit, where `==` forgives bounds that are close."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Space):
        mine, theirs = vars(one), vars(other)
        return all(
            _is_twin(value, theirs.get(name))
            for name, value in mine.items()
            if name != "_np_random"
        )
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and np.array_equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_is_twin(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_is_twin, one, other))
    return bool(one == other)


def get_attribute(env: EnvLike, name: str) -> Any:
    """Look an attribute up through an environment's wrappers."""
    getter = getattr(env, "get_wrapper_attr", None)
    return getattr(env, name) if getter is None else getter(name)


def call_member(env: Any, name: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a method of an environment, or a function with it, or get an attribute that is none."""
    if callable(name):
        return name(env, *args, **kwargs)
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def set_attribute(env: EnvLike, name: str, value: Any) -> None:
    """Set an attribute where it is, and on the environment itself where it is nowhere yet."""
    has = getattr(env, "has_wrapper_attr", None)
    if has is None:
        setattr(env, name, value)
    elif has(name):
        env.set_wrapper_attr(name, value)  # type: ignore[attr-defined]  # as has_wrapper_attr told
    else:
        # Gymnasium would set it on the outermost wrapper, where the environment never sees it.
        setattr(env.unwrapped, name, value)  # type: ignore[attr-defined]  # as above


def close_members(members: Sequence[Any], low: int) -> Failure | None:
    """Close members, whatever becomes of the others.

    Args:
        members: Environments and vector members.
        low: The row of the first.

    Returns:
        The first failure; None if there was none.
    """
    failure = None
    row = low
    for member in members:
        try:
            if hasattr(member, "close"):
                member.close()
        except (Exception, SystemExit) as error:
            failure = failure or Failure.of(error, (row,), "close")
        row += rows_of(member)
    return failure
