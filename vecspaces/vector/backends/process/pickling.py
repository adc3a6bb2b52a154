"""Pickling for workers: what a worker cannot import goes by value."""

from __future__ import annotations

import io
import sys
import weakref
from types import FunctionType
from typing import Any

import cloudpickle

from vecspaces.layout import Layout


class Pickling:
    """Pickles what goes from the caller to its workers, whose `__main__` is not the caller's.

    Functions and classes of `__main__` go by value, as those of the factories do: a script, a
    notebook, a command line. A forked worker has those that existed when it was forked, and its
    environments were made of them: these go by reference.

    Args:
        forked: Whether workers are forked.
    """

    def __init__(self, forked: bool) -> None:
        self._inherited: dict[str, weakref.ref[Any]] = {}
        if forked:
            self._inherited = {
                name: weakref.ref(value)
                for name, value in vars(sys.modules["__main__"]).items()
                if isinstance(value, (type, FunctionType))
            }

    def dumps(self, value: Any, **options: Any) -> bytes:
        """Pickle, with options of a pickler; raises whatever the pickling of the value raises."""
        file = io.BytesIO()
        _Pickler(file, self, **options).dump(value)
        return file.getvalue()

    def inherited(self, value: Any) -> bool:
        """Whether a function or class of `__main__` is the one that forked workers have."""
        first, *rest = value.__qualname__.split(".")
        known = self._inherited.get(first)
        found = vars(sys.modules["__main__"]).get(first)
        if known is None or known() is not found:
            return False
        for name in rest:
            found = getattr(found, name, None)
        return found is value


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """cloudpickle's, but for what forked workers have inherited."""

    def __init__(self, file: io.BytesIO, pickling: Pickling, **options: Any) -> None:
        super().__init__(file, **{"protocol": 5, **options})
        self._pickling = pickling

    def reducer_override(self, value: Any) -> Any:
        """Choose how a value is pickled."""
        if (
            isinstance(value, (type, FunctionType))
            and value.__module__ == "__main__"
            and self._pickling.inherited(value)
        ):
            return NotImplemented  # by reference
        if isinstance(value, Layout):
            return value.reduce_by(self._pickling.dumps)
        return super().reducer_override(value)
