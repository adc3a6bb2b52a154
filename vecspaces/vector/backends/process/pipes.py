"""Steps by messages: each command to a worker, and each reply, is one message.

`Pipes` and `Words` (`words.py`) are two ways to step all rows of workers, with the same methods:
`start` a step, `wait` for answers, `read` those that no pipe carries, `drop` a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.vector.backends.process.channel import CallerEnd, Poller
from vecspaces.vector.backends.process.processes import WorkerProcess
from vecspaces.vector.backends.process.stacks import StackFile
from vecspaces.vector.exchange.messages import HEADER, Op

#: Packs a command for some workers.
Pack = Callable[[Op, int, int, int, Mapping[int, Any]], list[bytes]]

_STEP = Op.STEP


@dataclass(eq=False)
class Handle:
    """One worker, on the caller's side.

    Attributes:
        built: Whether its environments are built.
        alive: Whether it is not known to have ended.
        watched: Whether the poller watches its descriptors.
    """

    process: WorkerProcess
    channel: CallerEnd
    stacks: StackFile
    built: bool = False
    alive: bool = True
    watched: bool = True

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that report what it sends, and its end."""
        return [fd for fd in (self.channel.fd, self.process.watch) if fd is not None]

    def close(self) -> None:
        """Free the descriptors, except those of the process."""
        self.channel.close()
        self.stacks.close()


class Pipes(Poller):
    """Sends messages to workers, and waits for theirs.

    Attributes:
        is_plain: Whether every action fits into shared memory, so that a step is a bare header.
        wanted: How many more rows of a stream the caller waits for; a hint.
        known: By worker, its last answer without a message that was processed.
        command: The last command without a message, and its number, to which answers belong.
    """

    is_plain = False
    wanted = 1
    command = Op.STEP, 0

    def __init__(self, handles: Sequence[Handle], gathers: bool = False) -> None:
        super().__init__(gathers)
        self._handles = handles
        self.known: list[int] = []

    def bind(self, words: npt.NDArray[np.int64], slices: Sequence[range], is_plain: bool) -> None:
        """Note how rows are stored, and the rows of each worker."""
        self.is_plain = is_plain

    def begun(self, worker: int) -> int | None:
        """Return the number of commands without a message to a worker; None: each has one."""
        return None

    def start(
        self, op: Op, way: int, slot: int, seq: int, payloads: Mapping[int, Any], pack: Pack
    ) -> None:
        """Send a command, after all of it is packed."""
        if op is _STEP and self.is_plain:
            frames = [HEADER.pack(op, way, slot, seq, 0)] * len(payloads)
        else:
            frames = pack(op, way, slot, seq, payloads)
        for worker, frame in zip(payloads, frames, strict=True):
            channel = self._handles[worker].channel
            channel.send(frame)
            if channel.pending:
                self.watch_room(channel.out_fd, True)

    def read(self) -> tuple[list[int], list[int]]:
        """Return the current `known`, and the workers that have answered without a message."""
        return self.known, []

    def drop(self, worker: int) -> None:
        """Wait no longer for a worker that is gone, and prepare for its successor."""
