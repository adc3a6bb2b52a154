"""The loop of a worker process whose environments step at the same time (`concurrent_envs`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from vecspaces.vector.backends.process.channel import Poller
from vecspaces.vector.backends.process.worker import Worker
from vecspaces.vector.exchange.messages import WRITES, Op, Written
from vecspaces.vector.group.threaded_group import Outcome, ThreadedGroup, joined


class ThreadedWorker(Worker):
    """Starts commands as they come, and replies to each when its threads have ended it."""

    _group: ThreadedGroup
    _command = Op.RESET  # the last one that writes rows

    def _serve(self) -> tuple[Op, int, int, bytes] | None:
        channel, group, poller = self._channel, self._group, Poller()
        poller.add(channel.line.fd)
        poller.add(group.bell.fd)
        while True:
            ready = {fd for fd, _ in poller.wait(None)}
            if group.bell.fd in ready:
                group.bell.silence()
                if not self._report():
                    return None
            if channel.line.fd in ready:
                message = channel.receive()
                if message is None or message[0] is Op.CLOSE:
                    group.flush_timings()  # a worker that replaces this one continues the counts
                    return message
                self._begin(*message)

    def _begin(self, op: Op, slot: int, seq: int, data: bytes) -> None:
        """Start a command."""
        group = self._group
        try:
            payload = self._unpack(op, data) if data else None
            if op in WRITES:
                self._command = op
            if op is Op.STEP:
                self._buffers.positions.steps[self._index] += 1
            group.start(op, slot, seq, payload)
        except BaseException as error:
            self._channel.send(self._pack_failure(slot, seq, error, op.verb))

    def _load(self, op: Op, arguments: Any, actions: Any) -> None:
        """Write only the actions of the command's rows: threads read those of rows under way."""
        low = self._group.low
        for row in arguments[0] if op is Op.STEP_ROWS else range(low, self._group.high):
            parts = [part[row - low : row - low + 1] for part in actions]
            self._buffers.actions.load(row, row + 1, parts)

    def _report(self) -> bool:
        """Reply to commands that have ended; return whether the caller is there."""
        tasks = self._group.finished()
        outcomes = [task.outcome() for task in tasks]
        self._group.take(tasks)
        return all(self._reply(*outcome) for outcome in _merged(outcomes))

    def _reply(self, op: Op, slot: int, seq: int, payload: Any) -> bool:
        """Send the reply to a command, or to the part of a stream that has ended."""
        try:
            if op is Op.PART:
                return self._channel.send(self._pack_part(slot, seq, payload))
            command = self._command if isinstance(payload, Written) else Op.CALL
            frame = self._pack_result(op, slot, seq, payload, command)
        except BaseException as error:
            frame = self._pack_failure(slot, seq, error, "step")
        return self._channel.send(frame)


def _merged(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Report rows of a stream together if they are ready together."""
    for (op, *number), group in groupby(outcomes, key=itemgetter(0, 1, 2)):
        payloads = [outcome[3] for outcome in group]
        for payload in [joined(payloads)] if op is Op.PART else payloads:
            yield op, *number, payload
