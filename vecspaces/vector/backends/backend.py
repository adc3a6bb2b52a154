"""Backend: what every backend offers, four methods to write and four with defaults; `execute`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import cloudpickle

from vecspaces.errors import InvalidInfoError
from vecspaces.vector.exchange.buffers import BufferPlan, Buffers
from vecspaces.vector.exchange.failures import Failure, Message, whereabouts
from vecspaces.vector.exchange.infos import gather, split, to_plain
from vecspaces.vector.exchange.messages import Op, Reply, Written
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.group.building import GroupDescription
from vecspaces.vector.group.env_group import EnvGroup

#: Turns what the groups report about their environments into the plan of the shared rows.
Planner = Callable[[Sequence[GroupDescription]], BufferPlan]

#: How long a worker may take to report where its environment is, in seconds.
PATIENCE = 0.2

_STEP = Op.STEP  # read at each step, and members of enumerations are found slowly


class Backend(Protocol):
    """Where groups run.

    Attributes:
        slices: The rows of each worker, known once opened.
        buffers: The caller's view of the rows, bound once opened.
        replies: What has come from the workers, oldest first; the session removes each reply once
            it was taken in.
        hang_advice: What an error adds where environments hang before their first step.
    """

    slices: list[range]
    buffers: Buffers
    replies: deque[Reply]
    hang_advice: str = ""

    def open(self, plan: Planner, timeout: float) -> None:
        """Build every environment, call `plan` with one description per worker, bind the rows."""

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to the workers that `payloads` has arguments for, without waiting.

        Where a payload cannot be pickled, no worker has received anything, and `CannotSend` is
        raised; after any other exception some workers may have received it. `BUILD` replaces
        workers by new ones, and can be repeated if it fails; its payload holds the seeds of the
        rows whose episodes are lost.

        Args:
            op: The command.
            slot: The slot of the ring to write.
            seq: The number that the replies will carry.
            payloads: The arguments for each worker concerned; None for none.
        """

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Wait until something came, for `Deadline.left` at most, and return `replies`.

        It may return early, with no reply: when part of a message came, and when the time is up.
        """

    def locate(self, worker: int) -> Place:
        """Return the environment that a worker is busy with, and where that one is."""
        row, rows = int(self.buffers.progress[worker]), self.slices[worker]
        return self.buffers.positions.place(worker, row) if row in rows else Place(rows)

    def stack(self, worker: int, patience: float = PATIENCE, insist: bool = True) -> str | None:
        """Return the Python frames of the environment that a worker is busy with, innermost last.

        None if they cannot be known. A worker that does not answer within `patience` seconds is
        sent a signal, if `insist` and if it does the environment no harm.
        """
        return None

    def find(
        self, worker: int, patience: float = PATIENCE, insist: bool = True
    ) -> tuple[Message | str, str | None]:
        """Return where the environment is that a worker is busy with, as text, and its stack."""
        stack, place = self.stack(worker, patience, insist), self.locate(worker)
        return whereabouts(place.env_ids, place.text, stack), stack

    def note_factories(self, worker: int, env_fns: Mapping[int, Callable[[], Any]]) -> None:
        """Restart a worker with other factories from now on, given by the first rows of theirs."""

    def memory(self, worker: int) -> int | None:
        """Return a worker's own proportional memory, in bytes; None if it cannot be read."""
        return None

    def retire(self, workers: Iterable[int], timeout: float) -> list[Reply]:
        """Let workers close their environments and end; return what went wrong, as `close` does.

        What other workers reply meanwhile is collected later. It can be repeated.
        """
        return []

    def end(self, worker: int) -> None:
        """End a worker at once, which is of no more use; `BUILD` replaces it."""

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """End every worker, and return what went wrong while their environments closed.

        `terminate`: without asking them to close their environments.
        """


def execute(group: EnvGroup, op: Op, slot: int, payload: Any) -> Any:
    """Perform a command in a group, in every backend; Failure is what it may raise.

    It returns `Written` for `STEP`, `STEP_ROWS` and `RESET`, the results by row for `CALL`, the
    counters for `FLUSH` where no memory is shared, else None.
    """
    if op is _STEP:
        return group.step(slot)
    if op is Op.STEP_ROWS:
        *begins, _ = payload
        rows, _, failures = group.begin(*begins)
        written = group.step(slot, rows) if rows else Written([], [])
        return written._replace(failures=[*failures, *written.failures]) if failures else written
    if op is Op.RESET:
        return group.reset(slot, *payload)
    if op is Op.CALL:
        return group.call(*payload)
    if op is Op.SET_ATTR:
        return group.set_attr(*payload)
    if op is Op.STEP_CHUNK:
        return group.step_chunk(slot, *payload)
    if op is Op.REPLACE:
        return group.replace(payload)
    if op is Op.FLUSH:
        return group.flush_timings()
    raise ValueError(f"{op!r} is no command for a group")


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
    """Find in a result of `execute` the first environment that returned what cannot be pickled."""
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


def pack_part(written: Written, outside: tuple[Any, Any], dumps: Callable[[Any], bytes]) -> bytes:
    """Pack what rows of a stream returned; a row whose info cannot be pickled fails alone.

    `outside` is what no shared memory holds: values that are too large for it, or all rows.
    """
    while True:
        rows, infos, failures = written
        try:
            return dumps((rows, failures, list(map(to_plain, infos)), *outside))
        except Exception as error:
            if not rows:  # no info is the reason: memory may have run out
                raise
            found = _find_unpicklable(written, "step") or Failure.of(error, rows, "step")
            infos_of = split(infos, rows)
            rest = [row for row in rows if row not in found.env_ids]
            columns = gather({row: infos_of[row] for row in rest if infos_of[row]})
            written = Written(
                rest, [columns] if columns else [], [*failures, (found.env_ids, found)]
            )
