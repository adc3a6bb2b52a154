"""Backend: what every backend does, and whose reply it was that cannot be pickled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import cloudpickle
import numpy as np
import numpy.typing as npt

from vecspaces.errors import InvalidInfoError, StepTimeoutError
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.failures import Failure, Message, whereabouts
from vecspaces.vector.exchange.infos import gather, split, to_plain
from vecspaces.vector.exchange.messages import Op, Reply, Written
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.exchange.stats import CallerClock
from vecspaces.vector.group.building import GroupDescription
from vecspaces.vector.group.env_group import EnvGroup

#: Makes the plan of the shared rows from the groups' descriptions of their environments.
Planner = Callable[[Sequence[GroupDescription]], BufferPlan]

#: How long a worker may take to report where its environment is, in seconds.
PATIENCE = 0.2


class Backend(Protocol):
    """The place where groups run.

    Attributes:
        slices: The rows of each worker, known once opened.
        buffers: The caller's view of the rows, bound once opened.
        replies: The replies of workers, oldest first; the session removes each after it was
            processed.
        hang_advice: The advice of errors if environments hang before their first step.
        reset_advice: The advice of errors for environments that are late.
        clock: Divides the caller's time; the backend notes waits; None without `stats`.
    """

    slices: list[range]
    buffers: Buffers
    replies: deque[Reply]
    hang_advice: str = ""
    reset_advice: str = "call reset() (which kills and builds them again), "
    clock: CallerClock | None = None

    def open(self, plan: Planner, timeout: float) -> None:
        """Build every environment, call `plan` with one description per worker, bind the rows."""

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to the workers that `payloads` has arguments for, without waiting.

        If a payload cannot be pickled, `CannotSend` is raised, and no worker has received anything;
        after any other exception, some workers may have received it. `BUILD` replaces workers by
        new ones, and can be repeated if it fails; its payload is a `Restart`, or None if a reset of
        all rows follows.

        Args:
            op: The command.
            slot: The slot of the ring to write.
            seq: The number that the replies will have.
            payloads: The arguments for each worker concerned; None for none.
        """

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Wait until something came, for `Deadline.left` at most, and return `replies`.

        It may return early, without a reply, when part of a message came, and when the time is
        over.
        """

    def running(self, worker: int) -> list[int]:
        """Return the environments that a worker is busy with, in the order in which they began."""
        busy, rows = self.buffers.busy, self.slices[worker]
        if busy is None:
            row = int(self.buffers.progress[worker])
            return [row] if row in rows else []
        found = [(since, row) for row, (thread, since) in _words(busy, rows) if thread > 0]
        return [row for _, row in sorted(found)]

    def unfinished(self, worker: int) -> Sequence[int]:
        """Return the environments that a worker has not finished in a command to all."""
        busy, rows = self.buffers.busy, self.slices[worker]
        if busy is not None:
            return [row for row, (thread, _) in _words(busy, rows) if thread] or rows
        row = int(self.buffers.progress[worker])
        return range(row, rows.stop) if row in rows else rows

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, and its position.

        If there are several, it is the one that began first.
        """
        running = self.running(worker)
        if not running:
            return Place(self.slices[worker])
        return self.buffers.positions.place(worker, running[0])

    def places(self, worker: int) -> list[Place]:
        """Return all environments that a worker is busy with, and their positions."""
        return [self.locate(worker)]

    def stack(
        self,
        worker: int,
        patience: float = PATIENCE,
        row: int | None = None,
    ) -> str | None:
        """Return the Python frames of an environment that a worker is busy with, innermost last.

        The environment is `row`, or that of `locate`. None if the frames are unknown, or the worker
        does not answer within `patience` seconds.
        """
        return None

    def find(
        self,
        worker: int,
        patience: float = PATIENCE,
        row: int | None = None,
    ) -> tuple[Message | str, str | None]:
        """Return the position of the environment `row`, or of `locate`, as text, and its stack."""
        stack = self.stack(worker, patience, row)
        place = self.locate(worker) if row is None else self.buffers.positions.place(worker, row)
        return whereabouts(place.env_ids, place.text, stack), stack

    def give_up_building(self, worker: int, limit: float) -> StepTimeoutError:
        """Return the error for a worker that was not built again within `limit` seconds."""
        rows = self.slices[worker]
        where, stack = self.find(worker)
        text = "{:envs} were not built again within start_timeout ({} s): reset() tries again{}"
        return StepTimeoutError(Message(text, rows, f"{limit:g}", where), rows, stack=stack)

    def memory(self, worker: int) -> int | None:
        """Return a worker's own proportional memory, in bytes; None if it cannot be read."""
        return None

    def retire(self, workers: Iterable[int], timeout: float) -> list[Reply]:
        """Let workers close their environments and end; return errors, as `close` does.

        Replies of other workers are collected later. The call can be repeated.
        """
        return []

    def end(self, worker: int) -> None:
        """End a worker that cannot be used any more, at once; `BUILD` replaces it."""

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """End every worker, and return the errors in closing their environments.

        `terminate`: without the close command.
        """


def _words(busy: npt.NDArray[np.int64], rows: range) -> Iterable[tuple[int, list[int]]]:
    """Return rows, each with the thread that is busy with it, and since when."""
    return enumerate(busy[rows.start : rows.stop].tolist(), rows.start)


def pack_result(
    payload: Any, result: Any, dumps: Callable[[Any], bytes], group: EnvGroup, op: Op
) -> bytes:
    """Pack the reply to a command; an error names whose part of `result` cannot be pickled."""
    try:
        return dumps(payload)
    except Exception as error:
        found = _find_unpicklable(result, op.verb)
        raise found or Failure.of(error, range(group.low, group.high), op.verb) from None


def _find_unpicklable(result: Any, command: str) -> Failure | None:
    """Find in a result the first environment that returned what cannot be pickled."""
    is_written = isinstance(result, Written)
    for row in result.rows if is_written else result or ():
        if is_written:
            info = split(result.infos, [row])[row]
            parts = {f"info[{key!r}]": value for key, value in info.items()}
        else:
            parts = {"the result of the call": result[row]}
        for what, value in parts.items():
            try:
                cloudpickle.dumps(value)
            except Exception as reason:
                message = Message("{:envs}: {} cannot be pickled: {}", [row], what, repr(reason))
                kind = InvalidInfoError if is_written else TypeError
                return Failure.of(kind(message), (row,), command)
    return None


def pack_part(
    written: Written,
    outside: tuple[Any, Any],
    pack: Callable[[Any], bytes],
    dumps: Callable[[Any], bytes],
) -> bytes:
    """Pack the results of rows of a stream; if an info cannot be pickled, only its row fails.

    `outside` has the values that are not in shared memory: those that are too large, or all rows.
    Infos are pickled separately, so that the caller knows the rows of infos that it cannot
    unpickle.
    """
    while True:
        rows, infos, failures = written
        try:
            packed = dumps(list(map(to_plain, infos))) if infos else b""
        except Exception as error:
            found = _find_unpicklable(written, "step") or Failure.of(error, rows, "step")
            infos_of = split(infos, rows)
            rest = [row for row in rows if row not in found.env_ids]
            columns = gather({row: infos_of[row] for row in rest if infos_of[row]})
            written = Written(
                rest, [columns] if columns else [], [*failures, (found.env_ids, found)]
            )
        else:
            return pack((rows, failures, packed, *outside))
