"""Commands and replies: what caller and workers send each other."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple


class Op(IntEnum):
    """What a frame between caller and worker means."""

    # caller to worker
    BUILD = 1
    BIND = 2
    STEP = 3
    STEP_ROWS = 4
    RESET = 5
    CALL = 6
    SET_ATTR = 7
    FLUSH = 8
    CLOSE = 9
    # worker to caller
    BUILT = 16
    DONE = 17
    PART = 18
    FAILED = 19
    # said of a worker, not by it
    DIED = 20

    @property
    def verb(self) -> str:
        """What environments are doing meanwhile, as errors name it."""
        return self.name.lower().removesuffix("_rows")


# One frame is this header and then its payload. The sequence number of an answer is that of its
# question, so that a late one is recognised and never taken for the next step's.
HEADER = struct.Struct("<BxHxxxxQQ")  # op, ring slot, sequence number, bytes of payload


class Reply(NamedTuple):
    """What came back from a worker.

    Attributes:
        worker: Its index.
        op: `DONE`, `PART`, `FAILED`, `BUILT` or `DIED`.
        seq: The sequence number of the command that it answers.
        payload: Merged infos or results, a `Failure`, or a `Death`.
    """

    worker: int
    op: Op
    seq: int
    payload: Any
