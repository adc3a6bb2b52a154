"""Building of environments: the results of env_fns are checked, and described for the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from vecspaces.checks import RAISED
from vecspaces.interop import (
    foreign_values,
    is_foreign_vector_env,
    native_space,
    refuse_parallel,
)
from vecspaces.spaces import Dict, Space
from vecspaces.spaces.equivalence import difference, is_same, is_twin
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.exchange.failures import WORKER_PER_ENV, Failure, Message
from vecspaces.vector.exchange.info_space import check_info_space
from vecspaces.vector.group.attributes import get_attribute
from vecspaces.vector.vector_env import VectorEnv

_REQUIRED = ("observation_space", "action_space", "reset", "step")
# Some vector envs, such as SuperSuit's, have the spaces of one environment under other names.
_REQUIRED_OF_VECTORS = ("num_envs", "single_observation_space", "single_action_space")


@dataclass(frozen=True)
class WrongSpace:
    """An attribute `info_space` that is not a Dict: an error unless the argument overrides it."""

    kind: type[Exception]
    text: str


InfoSpace: TypeAlias = Dict[Any] | WrongSpace | None


@dataclass(frozen=True)
class Built:
    """The environment, or vector env, that an env_fn made, and the spaces of each of its rows."""

    env: Any
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    # Converts actions for the library that made the spaces; None: no conversion is needed.
    translate: Callable[[Any], Any] | None
    info_space: InfoSpace
    is_vector: bool = False

    @property
    def count(self) -> int:
        """The number of its rows."""
        return len(self.observation_spaces)

    def change_since(self, other: Built) -> str | None:
        """Return a text about the first space that differs from that of the same row of `other`."""
        if self.is_vector is not other.is_vector:
            kinds = ["an environment", "a vector env"][:: -1 if other.is_vector else 1]
            return _CHANGED.format("kind", *kinds, "the rows of a vector env step together")
        return GroupDescription.of([self]).change_since(GroupDescription.of([other]))


class Builder:
    """Calls factories, and checks what they return; vector envs must be in the mode `mode`.

    `validate`: whether groups check the results of resets and steps.
    """

    def __init__(self, mode: AutoresetMode, validate: bool = False) -> None:
        self.mode, self.validate = mode, validate
        # The last space of each name, and its conversion: consecutive environments with equal
        # spaces share one object.
        self._last: dict[str, tuple[Any, Space[Any]]] = {}

    def check(self, env: Any, number: int) -> Built:
        """Check the result of factory `number`; close it if it is refused."""
        try:
            if is_vector_env(env):
                return self._build_vector(env, number)
            _check_env(env, number)
            action_space = env.action_space
            native = self._native("action_space", action_space)
            return Built(
                env,
                (self._native("observation_space", env.observation_space),),
                (native,),
                foreign_values(action_space, native),
                self._info_space(env),
            )
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                env.close()
            raise

    def _build_vector(self, env: Any, number: int) -> Built:
        _check_attributes(env, number, _REQUIRED_OF_VECTORS)
        mode = mode_of(env)
        if mode is not self.mode:
            raise ValueError(
                f"the env_fn returned {env!r} in autoreset mode {mode.name}, which cannot join a "
                f"vector env in mode {self.mode.name}: use the same autoreset_mode for both"
            )
        names = ("observation_space", "action_space")
        itself = env.unwrapped is env  # a wrapper may have other spaces
        observation_mode = getattr(env, "observation_mode", "same")
        if reaches_members(env) and itself and observation_mode != "same":
            spaces = [env.get_attr(name) for name in names]
        else:
            spaces = [[getattr(env, f"single_{name}")] * env.num_envs for name in names]
        observations, actions = (
            tuple(self._native(name, space) for space in row_spaces)
            for name, row_spaces in zip(names, spaces, strict=True)
        )
        translate = foreign_values(env.single_action_space)
        return Built(env, observations, actions, translate, self._info_space(env), is_vector=True)

    def _info_space(self, env: Any) -> InfoSpace:
        """Return the info_space of an environment; equal spaces are one object."""
        space = _info_space_of(env)
        return (
            cast("Dict[Any]", self._native("info_space", space))
            if isinstance(space, Dict)
            else space
        )

    def _native(self, name: str, space: Any) -> Space[Any]:
        """Return a space of vecspaces; consecutive equal spaces are one object."""
        last, converted = self._last.get(name, (None, None))
        if converted is None or not (space is last or _is_equal(space, last)):
            converted = native_space(space)
            self._last[name] = space, converted
        return converted


def _is_equal(space: Any, other: Any) -> bool:
    try:
        return is_twin(space, other)
    except Exception:  # an attribute refers to the space itself, or raises anything
        return False


def _check_env(env: Any, number: int) -> None:
    """Refuse an object that is not an environment."""
    if isinstance(env, type):
        raise TypeError(
            Message(
                "{:env_fn} must return an environment; it returned the class {}: make an "
                "instance, {}()",
                number,
                env.__name__,
                env.__name__,
            )
        )
    advice = refuse_parallel(env)
    if advice is not None:
        raise TypeError(Message("{:env_fn} must return {}", number, advice))
    _check_attributes(env, number, _REQUIRED)


def _check_attributes(env: Any, number: int, required: Sequence[str]) -> None:
    """Refuse an environment, or a vector env, without some attribute."""
    missing = [name for name in required if not hasattr(env, name)]
    if missing:
        raise TypeError(
            Message(
                "{:env_fn} must return {} with {}; it returned {}, which lacks {}{}",
                number,
                "an environment" if required is _REQUIRED else "a vector env",
                ", ".join(required),
                type(env).__name__,
                ", ".join(missing),
                "" if required is _REQUIRED else ": set them in a wrapper or a subclass",
            )
        )


def _info_space_of(env: Any) -> InfoSpace:
    """Return the info_space of an environment, or None."""
    try:
        space = get_attribute(env, "info_space")
    except AttributeError:
        # Wrappers of other libraries may hide the attributes of the wrapped environment.
        space = getattr(getattr(env, "unwrapped", None), "info_space", None)
    try:
        return check_info_space(space)
    except (TypeError, ValueError) as error:
        return WrongSpace(type(error), str(error))


def is_vector_env(env: Any) -> bool:
    """Whether an environment is a vector env, of this library or of Gymnasium."""
    return isinstance(env, VectorEnv) or is_foreign_vector_env(env)


def holds_envs(env: Any) -> bool:
    """Whether the environments of a vector env are separate objects."""
    return hasattr(env, "call") and hasattr(env, "set_attr")


def reaches_members(env: Any) -> bool:
    """Whether each environment of a vector env can be reached separately."""
    return holds_envs(env) and not is_foreign_vector_env(env)


def mode_of(env: Any) -> AutoresetMode:
    """Return the autoreset mode of a vector env; if it names none, NEXT_STEP."""
    # Some libraries write the mode of one vector env into the metadata of its whole class.
    mode = getattr(env, "autoreset_mode", None)
    if mode is None:
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return AutoresetMode.of(mode)


# -------------------------------------------------------------------- what the caller receives


@dataclass(frozen=True)
class GroupDescription:
    """The description of a group's environments that the caller receives once they are built."""

    counts: tuple[int, ...]  # the rows of each environment: 1, or m for a vector env of m
    # The spaces of each row. Equal ones are one object, so that the pipe sends it only once.
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    info_spaces: tuple[InfoSpace, ...]  # of each environment
    # The metadata and render mode of the first environment.
    metadata: dict[str, Any]
    render_mode: str | None

    @classmethod
    def of(cls, built: Sequence[Built]) -> GroupDescription:
        """Describe one or more environments."""
        first = built[0].env
        return cls(
            tuple(result.count for result in built),
            tuple(space for result in built for space in result.observation_spaces),
            tuple(space for result in built for space in result.action_spaces),
            tuple(result.info_space for result in built),
            dict(getattr(first, "metadata", None) or {}),
            getattr(first, "render_mode", None),
        )

    def change_since(self, other: GroupDescription) -> str | None:
        """Return a text about the first difference after environments were built again, or None."""
        for kind, known, now in (
            ("number of rows", [list(other.counts)], [list(self.counts)]),
            ("observation space", other.observation_spaces, self.observation_spaces),
            ("action space", other.action_spaces, self.action_spaces),
            ("info_space", other.info_spaces, self.info_spaces),
        ):
            # Rows that share a space before and after are compared once.
            pairs = {(id(pair[0]), id(pair[1])): pair for pair in zip(known, now, strict=False)}
            for before, after in pairs.values():
                detail = "they must be equal"
                if isinstance(before, Space) and isinstance(after, Space):
                    if is_same(before, after):
                        continue
                    detail = f"the first difference: {difference(before, after)}"
                if before != after:
                    return _CHANGED.format(kind, before, after, detail)
        return None


_CHANGED = (
    "environments that were built in place of others have another {} than before: expected {}, "
    "found {}; {}: it must stay the same"
)


def close_all(built: Iterable[Built], low: int) -> Failure | None:
    """Close all environments, also after an exception; return the first failure."""
    failure = None
    for result in built:
        try:
            if hasattr(result.env, "close"):
                result.env.close()
        except RAISED as error:
            rows = range(low, low + result.count)
            latest = (
                Failure.of_vector_env(error, rows, "close")
                if is_vector_env(result.env)
                else Failure.of(error, rows, "close")
            )
            latest.raise_interrupt()
            failure = failure or latest
        low += result.count
    return failure


def check_distinct(env: Any, number: int, numbers: dict[int, int]) -> None:
    """Refuse an environment that another factory of this process also returned."""
    base = getattr(env, "unwrapped", env)
    inside = getattr(base, "envs", None) if is_vector_env(base) else None
    if isinstance(inside, (list, tuple)):  # objects of this process
        for inner in inside:
            check_distinct(inner, number, numbers)
    other = numbers.setdefault(id(base), number)
    if other != number:
        raise ValueError(
            Message(
                "{:env_fn} and {:env_fn} returned one and the same environment, which cannot be in "
                "two places: let each make a new environment, or use "
                f"{WORKER_PER_ENV}, which copies it into each worker",
                other,
                number,
            )
        )
