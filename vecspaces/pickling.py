"""Pickling by name: which functions and classes are sent by name, and which by value."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import cloudpickle


def is_in_main(value: Any) -> bool:
    """Whether the main module has a function or class under its own name."""
    found: Any = sys.modules["__main__"]
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def dumps_by_name(value: Any, by_name: Callable[[Any], bool] = is_in_main, **options: Any) -> bytes:
    """Pickle functions and classes by reference if they have a name, otherwise by value."""
    # cloudpickle sends those of the main module by value, which a forked worker has too: there, a
    # class that is sent by value would be a second class.
    file = io.BytesIO()
    _Pickler(file, by_name, **{"protocol": 5, **options}).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """cloudpickle's pickler, except for functions and classes that `by_name` accepts."""

    def __init__(self, file: io.BytesIO, by_name: Callable[[Any], bool], **options: Any) -> None:
        super().__init__(file, **options)
        self._by_name = by_name

    def reducer_override(self, value: Any) -> Any:
        """Choose how a value is pickled."""
        if (
            isinstance(value, (type, FunctionType))
            and value.__module__ == "__main__"
            and self._by_name(value)
        ):
            return NotImplemented  # by reference
        if hasattr(type(value), "reduce_by"):  # a layout, which pickles its parts separately
            return value.reduce_by(partial(dumps_by_name, by_name=self._by_name))
        return super().reducer_override(value)
