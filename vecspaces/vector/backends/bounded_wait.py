"""One turn of a wait: until the first of some bounds, with a look at slow environments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.backends.slowness import SlowWatch
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.messages import Reply

#: Until when something may take, and what happens then.
WaitBound = tuple[Deadline, Callable[[], object]]
#: The workers that are waited for, the number of their command, and how errors name it.
Awaited = tuple[Iterable[int], int, str]


def wait_once(
    backend: Backend,
    slow: SlowWatch,
    bounds: Sequence[WaitBound],
    take_in: Callable[[deque[Reply]], object],
    awaited: Callable[[], Awaited],
    on_part: Callable[[], object] | None = None,
) -> None:
    """Take in what comes, until the first bound; then do what the bounds that passed demand.

    `on_part` is called where a reply came, or a part of one. If none came, `awaited` says which
    workers may be slow.
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
