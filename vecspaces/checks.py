"""Checks of arguments, and how error messages write the values and places they speak of."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from operator import index
from typing import Any, TypeAlias

import numpy as np

Path: TypeAlias = tuple[str | int, ...]
"""Where a value sits in a nested one: `("camera", "left")`, `(0, 1)`."""


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an argument that counts something as an int; raise where it is none, or too small.

    Example:
        >>> check_count("buffers", 0)
        Traceback (most recent call last):
            ...
        ValueError: buffers must be an integer of at least 1, found 0
    """
    try:
        count = None if isinstance(value, bool) else index(value)
    except TypeError:
        count = None
    if count is None:
        found = show_value(value)
        raise TypeError(f"{name} must be an integer of at least {least}, found {found}")
    if count < least:
        raise ValueError(f"{name} must be an integer of at least {least}, found {count}")
    return count


def show_value(value: Any) -> str:
    """Describe any object in a few words; never raises.

    Example:
        >>> show_value(np.zeros((2, 3), np.uint8)), show_value("abc"), show_value([1, 2])
        ('uint8 array of shape (2, 3)', "'abc' of type str", '[1, 2] of type list and length 2')
    """
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return show_type(value.dtype, value.shape)
    kind = type(value).__name__
    try:
        length = f" and length {len(value)}" if isinstance(value, (tuple, list)) else ""
        return f"{reprlib.repr(value)} of type {kind}{length}"
    except Exception:  # a foreign __repr__ may do anything, and this is a message
        return f"an object of type {kind}"


def show_type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Name an array by its dtype and shape: `uint8 array of shape (2, 3)`."""
    return f"{dtype} array of shape {shape}"


def show_keys(keys: Iterable[Any]) -> str:
    """List the keys of a dict.

    Example:
        >>> show_keys(("left", "right")), show_keys(())
        ("the keys 'left', 'right'", 'no keys')
    """
    names = ", ".join(map(repr, keys))
    return f"the keys {names}" if names else "no keys"


def show_path(path: Path) -> str:
    """Write a path as the subscripts that lead there.

    Example:
        >>> show_path(("camera", 0))
        "['camera'][0]"
    """
    return "".join(f"[{key!r}]" for key in path)


def check_seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """Check that an argument is a number of seconds, infinity included.

    Args:
        name: The argument.
        value: Its value.
        zero: Whether 0 is allowed.

    Returns:
        The number as a float.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or nan, or 0 where that is not allowed.

    Example:
        >>> check_seconds("step_timeout", -1)
        Traceback (most recent call last):
            ...
        ValueError: step_timeout must be more than 0 seconds, found -1
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, found {value!r}")
    if not (value >= 0 if zero else value > 0):
        least = "at least" if zero else "more than"
        raise ValueError(f"{name} must be {least} 0 seconds, found {value}")
    return math.inf if value > 1e300 else float(value)
