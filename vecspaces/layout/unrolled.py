"""Source: functions generated at run time, for records that are written one value at a time.

`write_to_shared_memory` and the final observations of SAME_STEP write so. A loop over the members
with a call for each takes up to twice the time of the lines generated here (benchmarks.transport),
which assign each array in place, as `dataclasses` and `namedtuple` generate methods.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any


class Source:
    """Lines of a function `write(row, value)`, and the objects that they name.

    The lines hold names made here alone: keys, arrays and whatever else comes from outside are
    arguments, never text.

    Example:
        >>> source = Source()
        >>> place = source.name([0, 0])
        >>> source.line(f"{place}[row] = value; return {place}")
        >>> source.function()(1, 42)
        [0, 42]
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._objects: list[Any] = []

    def name(self, thing: Any) -> str:
        """Return the name that stands for an object in the lines."""
        self._objects.append(thing)
        return f"x{len(self._objects) - 1}"

    def line(self, text: str) -> None:
        """Add a line to the body of the function."""
        self._lines.append(text)

    def function(self) -> Callable[[int, Any], Any]:
        """Return the function."""
        make = _compile(tuple(self._lines), len(self._objects))
        function: Callable[[int, Any], Any] = make(*self._objects)
        return function


@lru_cache(maxsize=256)
def _compile(lines: tuple[str, ...], count: int) -> Callable[..., Any]:
    """Compile a function that takes the objects; the slots of a ring differ in nothing else."""
    arguments = ", ".join(f"x{i}" for i in range(count))
    body = "\n".join(f"        {line}" for line in (*lines, "return None"))
    source = f"def make({arguments}):\n    def write(row, value):\n{body}\n    return write\n"
    scope: dict[str, Any] = {}
    exec(compile(source, "<vecspaces.layout.unrolled>", "exec"), scope)
    make: Callable[..., Any] = scope["make"]
    return make
