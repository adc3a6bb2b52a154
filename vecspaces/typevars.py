"""TypeVar with a default, which type checkers and Python 3.13 or newer support."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVar
else:
    import typing

    def TypeVar(name: str, *, default: Any = None, **options: Any) -> Any:  # noqa: N802
        """Make a type variable; its default is only for type checkers."""
        made = typing.TypeVar(name, **options)
        made.__module__ = sys._getframe(1).f_globals["__name__"]  # where pickles look for it
        return made
