"""Steps without messages: words in shared memory, and three eventfds for all workers.

::

    caller                                           workers
    words of the command, start event ─────────────▶ all wake by one system call
                                                     data, own word, counter, and then a frame if
    looks at the words ◀──────────── end event ───── there are infos; the last one wakes the caller

A step of all environments, and in a stream (`send`, `recv`) the step of all rows of a worker, are
commands by words. A worker's words count its commands and its answers, and only words state what
has happened. Events only wake a process, which then reads the words, so a superfluous event costs
only a read. Epoll reports each write to the start event once to each worker, which then compares
the counts. The counter contains a token for each answer that need not wake the caller; a worker
that finds no token wakes it. A worker that dies takes no token, so after a death, and in streams,
the caller counts the tokens again before each wait.

Words and pipes keep their order: a command by words contains the number of messages before it, and
a worker that finds a message checks again whether a command by words was written before it.
"""

from __future__ import annotations

import os
import platform
import select
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from vecspaces.vector.backends.process import forking
from vecspaces.vector.backends.process.channel import Frame, WorkerEnd
from vecspaces.vector.backends.process.line import Line
from vecspaces.vector.backends.process.pipes import Handle, Pack, Pipes
from vecspaces.vector.backends.process.waiting import SpinPoll, WaitMode
from vecspaces.vector.exchange.messages import HEADER, Op

#: With fewer workers, pipes are faster.
LEAST_WORKERS = 5

# The words of a worker: twice its answers, plus one if a message holds the last; its commands; the
# messages before the last command since it was bound; that command.
_ANSWERS, _ASKED, _MESSAGES, _COMMAND = range(4)
_DONE, _PART, _STEP, _STEP_ROWS = Op.DONE, Op.PART, Op.STEP, Op.STEP_ROWS
_BUSY_POLLS = WaitMode.BUSY_POLLS
_OPS = {int(op): op for op in (_STEP, _STEP_ROWS)}


def open_events() -> tuple[int, ...]:
    """Open the start event, the counter and the end event.

    None are opened if the system has no eventfds, or may reorder stores to memory.
    """
    machine = platform.machine().lower()
    if sys.platform != "linux" or machine != "x86_64" or not hasattr(os, "eventfd"):
        return ()
    flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
    event, counter = (partial(os.eventfd, 0, flags | more) for more in (0, os.EFD_SEMAPHORE))
    with suppress(OSError):  # a sandbox forbids it, or there are too many descriptors
        return forking.acquire(event, counter, event)
    return ()


class Words(Pipes):
    """The caller's side; all other commands, and infos, are sent over the pipes."""

    def __init__(self, handles: Sequence[Handle], events: tuple[int, ...]) -> None:
        super().__init__(handles, gathers=True)
        self._start, self._counter, self._end = events
        self._words: npt.NDArray[np.int64] | None = None
        # Whether the counter has a token for each answer that need not wake the caller.
        self._has_counted = True

    def bind(self, words: npt.NDArray[np.int64], slices: Sequence[range], is_plain: bool) -> None:
        """Use words from now on, if a step needs no message."""
        super().bind(words, slices, is_plain)
        if not is_plain:
            return
        self._words, self._answers = words, words[:, _ANSWERS]
        self._rows, self._most_rows = [*map(list, slices)], max(map(len, slices))
        self.known = self._answers.tolist()
        # By worker, the number of commands by words, and the number of messages.
        self._asked, self._sent = np.zeros((2, len(slices)), np.int64)
        self.add_first(self._end)

    def begun(self, worker: int) -> int | None:
        """Return the number of commands by words to a worker; None: words are not used."""
        return None if self._words is None else int(self._asked[worker])

    def start(
        self, op: Op, way: int, slot: int, seq: int, payloads: Mapping[int, Any], pack: Pack
    ) -> None:
        """Send a command by words to the workers all of whose rows step, and by pipe to others.

        For the latter, only row numbers are packed, which cannot fail.
        """
        words = self._words
        chosen: list[int] = []
        if words is not None and op in _OPS:
            chosen = self._choose(op, seq, payloads)
        if chosen:
            share = payloads[chosen[0]][-1] if op is _STEP_ROWS else 0
            self._give(chosen, op, slot, seq, way, share)
        if len(chosen) < len(payloads):
            rest = dict(payloads)
            for worker in chosen:
                del rest[worker]
            super().start(op, way, slot, seq, rest, pack)
            if words is not None:
                self._sent[list(rest)] += 1

    def _choose(self, op: Op, seq: int, payloads: Mapping[int, Any]) -> list[int]:
        """Return workers whose command is a step of all rows, and which answered the last one."""
        counts = self._asked.tolist()
        answered = [word >> 1 for word in self.known]
        are_idle = answered == counts
        if op is _STEP:
            return list(payloads) if are_idle and len(payloads) == len(counts) else []
        if not are_idle and (op, seq) != self.command:
            return []
        return [
            worker
            for worker, (rows, starts, broken, _) in payloads.items()
            if answered[worker] == counts[worker]
            and not (starts or broken)
            and rows == self._rows[worker]
        ]

    def _give(
        self, workers: Sequence[int], op: Op, slot: int, seq: int, way: int, share: int
    ) -> None:
        """Let workers step all of their rows; after an interrupt they must be replaced."""
        words: Any = self._words
        at: Any = slice(None) if op is _STEP else np.array(workers, np.intp)
        self.command = op, seq
        self._has_counted = op is _STEP
        if op is _STEP:
            self._count_on(len(workers))
        self._asked[at] += 1
        words[at, _COMMAND:] = op, slot, seq, way, share
        words[at, _MESSAGES] = self._sent[at]
        words[at, _ASKED] = self._asked[at]
        os.eventfd_write(self._start, 1)

    def _count_on(self, answers: int) -> None:
        """Set the number of answers that wakes the caller."""
        with suppress(BlockingIOError):
            while True:
                os.eventfd_read(self._counter)
        os.eventfd_write(self._counter, max(answers - 1, 0))

    def wait(self, timeout: float | None, spin_for: Op | None = None) -> list[tuple[int, int]]:
        """Wait for messages, and for the number of answers that are wanted, or missing."""
        if not self._has_counted and self._words is not None:
            # An answer that comes in between finds too few tokens, or is found by this read.
            self._count_on(1)
            answers = self._answers.tolist()
            asked = zip(answers, self._asked.tolist(), strict=True)
            missing = sum(word >> 1 != count for word, count in asked)
            if self.command[0] is _STEP_ROWS:
                missing = min(missing, self.wanted // self._most_rows)
            os.eventfd_write(self._counter, max(missing - 1, 0))
            if answers != self.known:
                timeout = 0.0
        return super().wait(timeout, spin_for)

    def read(self) -> tuple[list[int], list[int]]:
        """Return the words of answers, and the workers that have answered since `known`."""
        if self._words is None:
            return super().read()
        with suppress(BlockingIOError):
            os.eventfd_read(self._end)
        found, known = self._answers.tolist(), self.known
        if found == known:
            return known, []
        return found, [at for at, word in enumerate(found) if word != known[at] and not word & 1]

    def drop(self, worker: int) -> None:
        """Stop waiting for a worker that is gone, and prepare the words of its successor."""
        if self._words is not None:
            self._answers[worker] = 2 * self._asked[worker] + 1  # as found by the next read
            # An interrupt may have come between the two counts of its commands.
            self._words[worker, _ASKED] = self._asked[worker]
            self._sent[worker] = 0
            self._has_counted = False

    def close(self) -> None:
        """Also release the memory."""
        super().close()
        self._words = None
        vars(self).pop("_answers", None)  # views keep the memory


class WorkerWords(WorkerEnd):
    """A worker's end, to which commands may come by words."""

    def __init__(
        self,
        line: Line,
        busy_polls: bool,
        words: npt.NDArray[np.int64],
        asked: int,
        events: Sequence[int],
    ) -> None:
        super().__init__(line)
        self.busy_polls = busy_polls
        start, self._counter, self._end = events
        self._words = words.data
        # The number of commands by words that it has begun, and of messages that it has read.
        self._asked, self._messages = asked, 0
        # The command by words that it has not answered.
        self._op: Op | None = None
        self._epoll = select.epoll()
        self._epoll.register(line.fd, select.EPOLLIN)
        self._epoll.register(start, select.EPOLLIN | select.EPOLLET)
        self._spin_poll = SpinPoll(cast(Any, self._epoll))  # without a timeout they are alike

    def receive(self) -> Frame | None:
        """Wait for a command by words or for a message, whichever was given first."""
        if self._op is not None:  # parts of a stream were the answer
            self._answer(by_word=False)
        words, spins = self._words, self.way == _BUSY_POLLS and self.busy_polls
        has_message = False
        while words[_ASKED] == self._asked and not has_message:
            found = self._spin_poll.poll(None, self._last) if spins else self._epoll.poll()
            has_message = any(descriptor == self.line.fd for descriptor, _ in found)
        if words[_ASKED] == self._asked or words[_MESSAGES] != self._messages:
            self._messages += 1
            self.way = int(WaitMode.FREE)  # the message is there
            return super().receive()
        self._asked += 1
        op, slot, seq, self.way, self.share = words[_COMMAND:].tolist()
        self._op = self._last = _OPS[op]
        return self._op, slot, seq, b""

    def send(self, data: bytes) -> bool:
        """Send a reply, by a word if it has only a header."""
        if self._op is None or data[0] == _PART:
            return super().send(data)
        is_plain = data[0] == _DONE and len(data) == HEADER.size
        self._answer(is_plain)  # first, because a long frame blocks until the caller reads
        return is_plain or super().send(data)

    def _answer(self, by_word: bool) -> None:
        """End the command by a word, which for a step precedes the message with its results."""
        was, self._op = self._op, None
        self._words[_ANSWERS] = 2 * self._asked + (not by_word)
        if by_word or was is _STEP:
            try:
                os.eventfd_read(self._counter)
            except BlockingIOError:
                os.eventfd_write(self._end, 1)
