"""What the constructors of vector envs decide about the caller's half."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from vecspaces.vector.agreement import ObservationMode
from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.faults import RestartBudget


class Settings(NamedTuple):
    """The arguments that every backend shares.

    Attributes:
        observation_mode: How observation spaces are batched.
        autoreset_mode: What follows the end of an episode.
        copy: Whether observations are copied out of their rows.
        buffers: The number of slots of the ring that the caller sees.
        variable_capacity: Bytes per environment for values of variable size.
        stats: Whether steps and resets are timed.
        start_timeout: Bounds the building of environments, in seconds.
        step_timeout: Bounds every other wait, in seconds; None does not.
        budget: How many dead workers are replaced; None: none are.
    """

    observation_mode: ObservationMode
    autoreset_mode: AutoresetMode
    copy: bool = True
    buffers: int = 1
    variable_capacity: int = 65536
    stats: bool = False
    start_timeout: float = 60.0
    step_timeout: float | None = None
    budget: RestartBudget | None = None

    def check(self, num_factories: int) -> None:
        """Refuse numbers that mean nothing, before anything is built.

        Args:
            num_factories: The number of environment factories.

        Raises:
            ValueError: Names the argument, and what was found.
        """
        if num_factories < 1:
            raise ValueError("env_fns must hold at least one factory, found none")
        check_count("buffers", self.buffers)
        check_count("variable_capacity", self.variable_capacity, least=0)
        for name, seconds in (
            ("start_timeout", self.start_timeout),
            ("step_timeout", self.step_timeout),
        ):
            if seconds is not None:
                check_seconds(name, seconds)


def list_factories(env_fns: Iterable[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """Refuse what cannot make environments, before any of them is made.

    Args:
        env_fns: Factories of environments.

    Returns:
        The factories.

    Raises:
        TypeError: `env_fns` is no iterable, or something in it cannot be called.

    Example:
        >>> list_factories([3])
        Traceback (most recent call last):
            ...
        TypeError: env_fns[0] must be a function that makes an environment, found 3 (int)
    """
    if not isinstance(env_fns, Iterable):
        raise TypeError(
            "env_fns must be a list of functions that make environments, one for each, found "
            f"{env_fns!r}: write [env_fn] * n"
        )
    factories = list(env_fns)
    for number, factory in enumerate(factories):
        if not callable(factory):
            raise TypeError(
                f"env_fns[{number}] must be a function that makes an environment, found "
                f"{factory!r} ({type(factory).__name__})"
            )
    return factories


def check_seconds(name: str, value: Any) -> None:
    """Refuse a bound on time that is no number, or not above zero.

    Args:
        name: What the argument is called.
        value: What came.

    Raises:
        TypeError: It is no number.
        ValueError: It is zero, negative or nan.
    """
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, found {value!r}")
    if not value > 0:
        raise ValueError(f"{name} must be more than 0 seconds, found {value}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Refuse an argument that is no integer, or too small.

    Args:
        name: What the argument is called.
        value: What came.
        least: The smallest that makes sense.

    Raises:
        TypeError: It is no integer.
        ValueError: It is too small.

    Example:
        >>> check_count("buffers", 0)
        Traceback (most recent call last):
            ...
        ValueError: buffers must be an integer of at least 1, found 0
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < least:
        kind = ValueError if is_integer else TypeError
        raise kind(f"{name} must be an integer of at least {least}, found {value!r}")
