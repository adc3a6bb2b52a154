"""Batches of observations that workers fill, and that the caller returns without a copy."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from vecspaces import system
from vecspaces.layout import Layout, Rows
from vecspaces.layout.blocks import Index
from vecspaces.memory import Arena

#: The most batches of a pool. A loop that keeps the last observations needs two; the others replace
#: those that a forked process refers to.
POOL_SIZE = 8
#: The most bytes of a pool of more than two batches, since address spaces and files may be limited.
_MOST_BYTES = 1 << 28
#: The bytes of a batch from which on a pool pays: 64 images of 84 x 84 x 4 bytes (1.8 MB) are
#: copied by the caller in 0.3 of 4.3 ms, and by two workers beside each other in 0.1. The caller
#: copies up to 0.6 MB, which stay in its cache, 20 to 40 us faster than workers do.
LEAST_BYTES = 1 << 20
# The least mean of the leaves: a view of a leaf takes as long as the copy of 16 KiB.
_LEAST_LEAF_BYTES = 1 << 15


def pool_slots(layout: Layout) -> int:
    """Return how many batches a pool has; 0: views of batches would take as long as copies."""
    nbytes = layout.nbytes * layout.n
    if not layout.fixed or nbytes < max(LEAST_BYTES, _LEAST_LEAF_BYTES * len(layout.leaves)):
        return 0
    return min(POOL_SIZE, max(2, _MOST_BYTES // nbytes))


class BatchPool:
    """Batches beside the ring of slots; a batch is filled again once nothing refers to its arrays.

    The slots cannot be returned themselves, since a masked reset and `save_state` read them again,
    and the user may write into what `step` returned.

    Attributes:
        number: The batch that the workers fill in this step, from 1 on; 0: none is free.
    """

    def __init__(self, layout: Layout, arena: Arena) -> None:
        self._layout, self._arena = layout, arena
        # By batch, a weak reference to the object to which its arrays refer; those of retired
        # batches are kept.
        self._users: list[Callable[[], Any]] = [lambda: None] * layout.slots
        self._retired: dict[int, Any] = {}
        self.number = 0
        _POOLS.append(weakref.ref(self, _POOLS.remove))

    @cached_property
    def _batches(self) -> tuple[Rows, ...]:
        """The batches as workers fill them; the caller needs none."""
        return self._layout.bind(self._arena)

    def choose(self) -> int:
        """Choose a free batch for a step; return its number."""
        free = (number for number, user in enumerate(self._users, 1) if user() is None)
        self.number = next(free, 0)
        return self.number

    def fill(self, source: Rows, index: Index) -> None:
        """Copy rows of a slot into the chosen batch, in a worker."""
        self._batches[self.number - 1].copy_rows(source, index)

    def take(self) -> Any:
        """Return the batch that was filled, as `Rows.read` would."""
        # A new object over the same memory. NumPy lets views of views refer to the last array whose
        # base is no array, which is this one, so it lives as long as any of them.
        memory = np.frombuffer(self._arena.buffer.data, np.uint8)
        self._users[self.number - 1] = weakref.ref(memory)
        return self._layout.batch(memory, self.number - 1)

    def retire(self) -> None:
        """Never fill again the batches that are referred to now, by referring to them."""
        users = [user() for user in self._users]
        self._retired.update((i, user) for i, user in enumerate(users) if user is not None)


# A list, which other threads can change while it is copied.
_POOLS: list[weakref.ref[BatchPool]] = []


def _retire_all() -> None:
    """Let the arrays that a forked process inherits never change."""
    for reference in list(_POOLS):
        pool = reference()
        if pool is not None:
            pool.retire()


system.run_before_forks(_retire_all)
