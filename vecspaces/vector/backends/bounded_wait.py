"""One turn of a wait: until the first of some time limits, with a check for slow environments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.messages import Reply

#: A time limit, and the action after it.
WaitBound = tuple[Deadline, Callable[[], object]]
#: The awaited workers, the number of their command, and its name in errors.
Awaited = tuple[Iterable[int], int, str]


def wait_once(
    backend: Backend,
    slow: SlowWatch,
    bounds: Sequence[WaitBound],
    take_in: Callable[[deque[Reply]], object],
    awaited: Callable[[], Awaited],
    on_part: Callable[[], object] | None = None,
) -> None:
    """Process what comes, until the first time limit; then call the actions of those that passed.

    `on_part` is called if a reply, or a part of one, came. If none came, `awaited` returns the
    workers that may be slow.
    """
    left = slow.interval
    if bounds:
        left = slow.shorten(min(bound for bound, _ in bounds).left)
    until = Deadline(left) if on_part else None
    replies = backend.collect(left)
    if not replies:
        slow.look(*awaited())
    if on_part and until and (replies or not until.passed):
        on_part()
    take_in(replies)
    for bound, act in bounds:
        if bound.passed:
            act()
