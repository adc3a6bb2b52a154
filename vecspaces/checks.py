"""Errors about values: how they describe a value and its place, and checks that raise them."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from operator import index
from typing import Any, TypeAlias

import numpy as np

Path: TypeAlias = tuple[str | int, ...]
"""The path of a value in a nested value: `("camera", "left")`, `(0, 1)`."""

# The exceptions that an environment's code, and methods of the values that it returns, may raise.
# KeyboardInterrupt comes from the user and is not caught.
RAISED = (Exception, SystemExit)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a count as an int; raise if it is not an integer, or too small."""
    try:
        count = None if isinstance(value, bool) else index(value)
    except TypeError:
        count = None
    if count is None:
        actual = show_value(value)
        raise TypeError(f"{name} must be an integer of at least {least}, found {actual}")
    if count < least:
        raise ValueError(f"{name} must be an integer of at least {least}, found {count}")
    return count


def check_seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a number of seconds, infinity included, as a float; raise for anything else."""
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, found {value!r}")
    if not (value >= 0 if zero else value > 0):
        least = "at least" if zero else "more than"
        raise ValueError(f"{name} must be {least} 0 seconds, found {value}")
    try:
        return float(value)
    except OverflowError:  # an int beyond the range of floats
        return math.inf


def show_value(value: Any) -> str:
    """Describe any object briefly, such as `'abc' of type str`, also if its methods raise."""
    if value is None:
        return "None"
    kind = type(value).__name__
    try:
        if isinstance(value, np.ndarray):
            return show_type(value.dtype, value.shape)
        length = f" and length {len(value)}" if isinstance(value, (tuple, list)) else ""
        return f"{reprlib.repr(value)} of type {kind}{length}"
    except Exception:  # methods of a value may raise anything, and this is a message
        return f"an object of type {kind}"


def show_type(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Name an array by its dtype and shape: `uint8 array of shape (2, 3)`."""
    return f"{dtype} array of shape {shape}"


def show_keys(keys: Iterable[Any]) -> str:
    """List the keys of a dict."""
    names = ", ".join(map(repr, keys))
    return f"the keys {names}" if names else "no keys"


def show_path(path: Path) -> str:
    """Write a path as subscripts."""
    return "".join(f"[{key!r}]" for key in path)


class Located(str):
    """The message of an error, with the place of the value, which `add_path` extends."""

    name: str
    text: str
    path: Path

    def __new__(cls, name: str, text: str, path: Path = ()) -> Located:  # noqa: D102
        where = f"{name}{show_path(path)}"
        message = super().__new__(cls, f"{where}: {text}" if where else text)
        message.name, message.text, message.path = name, text, path
        return message

    def __getnewargs__(self) -> tuple[str, str, Path]:  # type: ignore[override]
        return self.name, self.text, self.path


def mismatch(name: str, expected: str, actual: str, path: Path = ()) -> Located:
    """Return the message `action: expected shape (2,), found shape (3,)`."""
    return Located(name, f"expected {expected}, found {actual}", path)


def add_path(error: Exception, name: str, *path: str | int) -> None:
    """Put keys in front of the path in an error's message, which is about the value `name`."""
    message = error.args[0] if error.args else None
    if not isinstance(message, str):  # of another library, and about something else
        return
    if not isinstance(message, Located) or message.name != name:
        message = Located(name, message)
    error.args = (Located(name, message.text, path + message.path), *error.args[1:])
