"""Interface of a backend; errors for replies that cannot be pickled."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import cloudpickle

from vecspaces.errors import InvalidInfoError, StepTimeoutError
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.failures import Failure, Message, whereabouts
from vecspaces.vector.exchange.infos import Part, gather, split
from vecspaces.vector.exchange.messages import Op, Reply, Starts, Written
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.exchange.stats import CallerClock
from vecspaces.vector.group.building import GroupDescription
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups

#: Makes the plan of the shared rows from the groups' descriptions of their environments.
Planner = Callable[[Sequence[GroupDescription]], BufferPlan]

#: Pickles plain values, which need no search for what cannot be sent.
pack_plain = partial(pickle.dumps, protocol=5)

#: How long a worker may take to report where its environment is, in seconds.
PATIENCE = 0.2


class Backend(Protocol):
    """The place where groups run, and how commands reach them.

    It knows nothing of steps and episodes. After an interrupt in one of its methods other than
    `wait`, the workers in `unknown` must be replaced.

    Attributes:
        slices: The rows of each worker, known once opened.
        buffers: The caller's view of the rows, bound once opened.
        open_tickets: The numbers of commands whose replies are still wanted.
        unknown: The workers that may have received, or sent, a part of a message.
        builds_again: Whether `start` builds the environments of a worker again.
        shares_objects: Whether infos are the environments' own objects, which these may change.
        reset_advice: The advice of errors for environments that are late.
        has_spare_core: Whether the caller computes while all workers step.
        pools: Whether workers can copy observations into a `BatchPool`.
        clock: Divides the caller's time; the backend notes waits; None without `stats`.
    """

    slices: list[range]
    buffers: Buffers
    open_tickets: Container[int] = ()
    builds_again: bool = True
    shares_objects: bool = False
    reset_advice: str = "call reset() (which kills and builds them again), "
    has_spare_core: bool = True
    pools: bool = False
    clock: CallerClock | None = None

    @property
    def unknown(self) -> Iterable[int]:
        """The workers that may have received, or sent, a part of a message."""

    def open(self, plan: Planner, timeout: float) -> None:
        """Build every environment, call `plan` with one description per worker, bind the rows."""

    def start(self, worker: int, restart: Starts | None) -> None:
        """Start a worker in place of another, without waiting; it replies with `BOUND`.

        `restart` says how its episodes begin; None: a reset of all rows follows. It can be repeated
        if it fails.
        """

    def issue(
        self, op: Op, slot: int, number: int, payloads: Mapping[int, Any]
    ) -> Sequence[Part] | None:
        """Send a command to the workers that `payloads` has arguments for, without waiting.

        If a payload cannot be pickled, `CannotSend` is raised, and no worker has received anything.

        Args:
            op: The command.
            slot: The slot of the ring to write.
            number: The number of its ticket, which the replies will have.
            payloads: The arguments for each worker concerned; None for none.

        Returns:
            The infos of a step that is done, if it runs in this method; no reply follows.
        """

    def wait(self, timeout: float | None) -> Any:
        """Wait until something came, for `Deadline.left` at most; return what to `read`.

        It changes nothing, so it can be repeated after an interrupt.
        """

    def read(self, came: Any) -> Iterable[Reply]:
        """Return the complete replies in what `wait` returned; there may be none."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something to read, or `ring` says so.

        Raises:
            io.UnsupportedOperation: There is no such descriptor.
        """
        raise io.UnsupportedOperation(
            f"{type(self).__name__} has no descriptor that can be watched: wait in a thread"
        )

    def ring(self, rings: bool) -> None:
        """Note whether rows wait to be received, for `fileno`."""
        return

    def interrupted_rows(self) -> Sequence[int]:
        """Return the environments of this process whose call was interrupted."""
        return ()

    def written_by(self, worker: int) -> Buffers:
        """Return the rows into which a worker writes, and where it notes what it is doing."""
        return self.buffers

    def running(self, worker: int) -> list[int]:
        """Return the environment that a worker is busy with, or none."""
        row = int(self.written_by(worker).progress[worker])
        return [row] if row in self.slices[worker] else []

    def unfinished(self, worker: int) -> Sequence[int]:
        """Return the environments that a worker has not finished in a command to all."""
        row, rows = int(self.written_by(worker).progress[worker]), self.slices[worker]
        return range(row, rows.stop) if row in rows else rows

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, and its position."""
        running = self.running(worker)
        if not running:
            return Place(self.slices[worker])
        return self.written_by(worker).positions.place(worker, running[0])

    def is_answering(self, worker: int) -> bool:
        """Whether a part of a worker's reply has come: only its transfer is slow."""
        return False

    def stack(self, worker: int, patience: float = PATIENCE) -> str | None:
        """Return the Python frames of the environment that a worker is busy with, innermost last.

        None if the worker does not answer within `patience` seconds.
        """
        return None

    def find(self, worker: int, patience: float = PATIENCE) -> tuple[Message | str, str | None]:
        """Return the position of the environment of `locate`, as text, and its stack."""
        stack, place = self.stack(worker, patience), self.locate(worker)
        return whereabouts(place.env_ids, place.text, stack), stack

    def late_build_error(self, worker: int, limit: float) -> StepTimeoutError:
        """Return the error for a worker that was not built again within `limit` seconds."""
        rows = self.slices[worker]
        where, stack = self.find(worker)
        text = "building {:envs} again did not end within start_timeout ({} s): reset() tries it{}"
        return StepTimeoutError(Message(text, rows, f"{limit:g}", where), rows, stack=stack)

    def retire(self, workers: Iterable[int], timeout: float) -> list[Reply]:
        """Let workers close their environments and end; return errors, as `close` does.

        Replies of other workers are read later.
        """
        return []

    def end(self, worker: int) -> None:
        """End a worker that cannot be used any more, at once; `start` replaces it."""

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """End every worker, and return the errors in closing their environments.

        `terminate`: without the close command.
        """


def pack_result(
    payload: Any, result: Any, dumps: Callable[[Any], bytes], group: Group | Groups, op: Op
) -> bytes:
    """Pack the reply to a command; an error names whose part of `result` cannot be pickled."""
    try:
        return dumps(payload)
    except Exception as error:
        failure = _find_unpicklable(result, op.verb)
        raise failure or Failure.of(error, group.rows, op.verb) from None


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
            packed = dumps(infos) if infos else b""
        except Exception as error:
            failure = _find_unpicklable(written, "step") or Failure.of(error, rows, "step")
            infos_of = split(infos, rows)
            rest = [row for row in rows if row not in failure.env_ids]
            columns = gather({row: infos_of[row] for row in rest if infos_of[row]})
            written = Written(
                rest, [columns] if columns else [], [*failures, (failure.env_ids, failure)]
            )
        else:
            return pack((rows, failures, packed, *outside))
