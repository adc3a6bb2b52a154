"""The memory of chunks: k actions per row, the rewards of k steps, and the numbers of steps."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from vecspaces.layout import Layout

#: Up to this number of steps of every environment, chunks are in shared memory; longer ones are
#: sent over pipes. Unused pages take no memory.
SHARED_STEPS = 256
#: The key under which a worker adds the declared infos of all steps to its first info.
ALL_INFOS = "infos of chunks"


class ChunkRows:
    """The chunks of all rows, `length` steps each; they are in `room`, if it is large enough.

    Attributes:
        is_shared: Whether they are in `room`, which all processes share.
        actions: The actions, k for each row.
        single_actions: The same actions one by one, as `step` would read them.
        rewards: Shape `(num_envs, k)`; 0 after the last step of a row.
        steps: The number of steps of each row; shape `(num_envs,)`.
    """

    def __init__(self, layout: Layout, length: int, room: npt.NDArray[np.uint8]) -> None:
        chunks, count = layout.of_chunks(length), layout.n * length
        size = size_of_chunks(layout, length)
        self.length, self.is_shared = length, size <= len(room)
        memory = room[:size] if self.is_shared else np.zeros(size, np.uint8)
        (self.actions,) = chunks.bind(memory)
        (self.single_actions,) = layout.of_rows(count).bind(memory)
        results = memory[chunks.size :]
        self.rewards = results[: 8 * count].view(np.float64).reshape(-1, length)
        self.steps = results[8 * count :].view(np.int64)
        self.write_actions = self.actions.batch_writer()

    def write_results(
        self, rows: Sequence[int], rewards: Sequence[float], missing: Mapping[int, int]
    ) -> None:
        """Write k rewards for each of some rows; `missing` are steps that a row did not take."""
        packed = struct.pack(f"{len(rewards)}d", *rewards)  # in a fourth of the time of an array
        at = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        self.rewards[at] = np.frombuffer(packed).reshape(-1, self.length)
        self.steps[at] = self.length
        for row, count in missing.items():
            self.steps[row] -= count


def size_of_chunks(layout: Layout, length: int) -> int:
    """Return the bytes that chunks of actions of a layout need."""
    return layout.of_chunks(length).size + 8 * layout.n * (length + 1)
