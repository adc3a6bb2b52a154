"""What the constructors of vector envs decide about the caller's half."""

from __future__ import annotations

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
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{name} must be more than 0 seconds, found {seconds}")


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
