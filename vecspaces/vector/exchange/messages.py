"""The form of commands and replies between caller and workers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from vecspaces.pickling import unpicklable
from vecspaces.vector.exchange.infos import Part


class Op(IntEnum):
    """The meaning of a message between caller and worker.

    Modules that compare members in each step have constants for them: in Python 3.11, access to a
    member of an enumeration takes 0.1 us.
    """

    # caller to worker
    BUILD = 1
    BIND = 2
    STEP = 3
    STEP_ROWS = 4
    RESET = 5
    CALL = 6
    SET_ATTR = 7
    STATS = 8
    CLOSE = 9
    SAVE_STATE = 10
    CHECK_STATE = 11
    # worker to caller
    BUILT = 16
    BOUND = 17
    DONE = 18
    PART = 19  # some rows of `STEP_ROWS`; a process replies `DONE` with the last ones
    FAILED = 20
    TABLED = 23  # as `DONE`; infos are in cells, and the payload is their form, if it changed
    # reports about workers
    DIED = 21
    STEPPED = 22  # several workers (the payload) replied to a `STEP`, each without a payload

    @property
    def verb(self) -> str:
        """The command as errors name it."""
        return self.name.lower().removesuffix("_rows")


#: The commands that take actions.
STEPS = (Op.STEP, Op.STEP_ROWS)

# One message is this header and then its payload. A reply carries the sequence number of its
# command, so that a late one is recognised and never taken for the reply to another command.
# Op, slot, sequence number, bytes of payload. With a `BatchPool`, commands name slot and batch as
# `batch * slots + slot`; replies name the slot.
HEADER = struct.Struct("<BxxxIQQ")


class Reply(NamedTuple):
    """The reply of a worker to a command, or the report of its death."""

    worker: int
    op: Op
    seq: int  # of the command that it answers
    # Infos as in `Written`, results by row, a `Failure` or a `Death`.
    payload: Any


class Written(NamedTuple):
    """The rows that a reset or a step of a group wrote, in the slot of the command."""

    rows: Sequence[int]
    # One part per group of the process; in a message, the values of the `Form` of infos in cells.
    infos: Sequence[Part]
    # Rows of `STEP_ROWS` that failed and are not among `rows`, each with its `Failure`.
    failures: Sequence[tuple[Sequence[int], Any]] = ()


#: By row, the seed and the options of its next episode. After a restart: of the rows whose episodes
#: were lost, which the next step of each reports; a reset may give another seed.
Starts = Mapping[int, tuple["int | None", "Mapping[str, Any] | None"]]


class SaveRows(NamedTuple):
    """The arguments of `SAVE_STATE`."""

    rows: Sequence[int]


class RowState(NamedTuple):
    """The state of a row, which can be loaded into any row of an equal environment."""

    packed: bytes  # the state of the environment and its wrappers
    observation: Any  # the last observation
    infos: Mapping[str, Any]  # the infos of the `info_space`
    seed: int | None  # the last seed
    options: Any  # the options of autoresets
    has_ended: bool


class ResetRows(NamedTuple):
    """The arguments of `RESET`."""

    starts: Starts
    keep_options: bool  # whether autoresets get the options too
    broken: Sequence[int]  # rows whose environments are built again first
    states: Mapping[int, RowState]  # rows of `starts` that get a state in place of a reset


class CheckRows(NamedTuple):
    """The arguments of `CHECK_STATE`."""

    states: Mapping[int, RowState]


class StepRows(NamedTuple):
    """The arguments of `STEP_ROWS`."""

    rows: Sequence[int]
    starts: Starts  # rows that begin an episode instead of taking an action
    broken: Sequence[int]  # rows of `starts` whose environments are built again first
    share: int  # how many rows of a worker the caller waits for


class Call(NamedTuple):
    """A method, a function of an environment, or an attribute, and the arguments."""

    name: str | Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class CallRows(NamedTuple):
    """The arguments of `CALL`."""

    call: Call
    rows: Sequence[int]


class SetAttr(NamedTuple):
    """The arguments of `SET_ATTR`."""

    name: str
    values: Mapping[int, Any]  # by row


# Faster than the constructor of a named tuple, which is a Python function.
make_reply: Callable[[tuple[int, Op, int, Any]], Reply] = partial(tuple.__new__, Reply)
make_written: Callable[[tuple[Any, Any, Any]], Written] = partial(tuple.__new__, Written)


_MAKE_IT_THERE = (
    "let the environment make it; locks, queues and pipes of multiprocessing can be passed in "
    "env_fns alone, which a worker gets at its start"
)


class _Options(NamedTuple):
    """The options of resets by row, as errors name them."""

    options: Mapping[int, Any]


class CannotSend(Exception):  # noqa: N818 - a state, not a fault
    """A command could not be pickled, for a reason; no worker has received any part of it."""

    def __init__(
        self, op: Op, payload: Any, dumps: Callable[[Any], bytes], error: Exception
    ) -> None:
        super().__init__(error)
        value = payload.call if isinstance(payload, CallRows) else payload
        if isinstance(payload, ResetRows | StepRows):  # as a caller of `reset` knows them
            value = _Options({row: options for row, (_, options) in payload.starts.items()})
        self.reason = unpicklable(value, op.verb, dumps, error, _MAKE_IT_THERE)
