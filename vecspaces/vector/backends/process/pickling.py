"""How functions of `__main__` are sent to workers; factories: vector/utils/processes.py."""

from __future__ import annotations

import sys
import weakref
from types import FunctionType
from typing import Any

from vecspaces.pickling import dumps_by_name, is_in_main


class Pickling:
    """Pickles messages from the caller to its workers, whose `__main__` is not the caller's.

    Functions and classes of `__main__` (of a script, a notebook, a command line) are sent by value,
    as in factories. A forked worker has those that existed at the fork, and its environments use
    them, so these are sent by reference.
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
        """Pickle a value, with options of a pickler; exceptions of pickling are not caught."""
        return dumps_by_name(value, self._is_inherited, **options)

    def _is_inherited(self, value: Any) -> bool:
        """Whether a function or class of `__main__` is the one that forked workers have."""
        name = value.__qualname__.partition(".")[0]
        known = self._inherited.get(name)
        current = vars(sys.modules["__main__"]).get(name)
        return known is not None and known() is current and is_in_main(value)
