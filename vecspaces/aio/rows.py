"""Rows: the commands to the environments of a pool, and the repair of rows and workers.

Nothing waits here: `turn` processes what has come, and one timer finds late rows. A row is held by
a conversation, or usable by the next one, or being restored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from vecspaces.errors import InvalidActionError, StepTimeoutError, WorkerDiedError
from vecspaces.layout import Mismatch
from vecspaces.log import log
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.failures import (
    Death,
    Failure,
    Message,
    overdue,
    reworded,
    without_advice,
)
from vecspaces.vector.exchange.messages import Op
from vecspaces.vector.session.restarts import RestartBudget
from vecspaces.vector.session.row_queue import NEVER

if TYPE_CHECKING:
    from vecspaces.aio.env import PoolEnv

# The longest time that the event loop waits for the stack of an environment that is late.
_STACK_SECONDS = 0.05
# How long a worker may take to give up an environment; code that holds Python's lock prevents it.
_GIVE_UP_SECONDS = 2.0
AGAIN = "acquire another environment"


@dataclass(slots=True, eq=False)
class Command:
    """A command to a row: "reset", "step", "call", or "build" of one that failed."""

    call: str
    seconds: float | None  # how long it may take
    future: asyncio.Future[dict[str, Any]] | None  # the awaited future; None: it is a rebuild
    error: StepTimeoutError | None = None  # why it was given up

    @property
    def is_awaited(self) -> bool:
        """Whether a conversation awaits the answer."""
        return self.future is not None and not self.future.done()

    def answer(self, info: dict[str, Any]) -> bool:
        """Wake the conversation; return whether one waits."""
        if self.future is None or self.future.done():
            return False
        self.future.set_result(info)
        return True


class Rows:
    """The rows of a pool and their workers.

    Attributes:
        commands: By row, the command that it has not answered.
        lost: By row that was removed from the pool, the reason.
        counts: The number of commands of each kind, of failures ("failure") and timeouts
            ("timeout").
        restarts: How often each worker was restarted.
    """

    def __init__(
        self,
        envs: AsyncVectorEnv[Any, Any],
        held: Mapping[int, PoolEnv],
        lend: Callable[[int], object],
        withdraw: Callable[[], object],
    ) -> None:
        """Manage all rows; `held` are those that conversations hold.

        `lend` is called with each row that is usable; `withdraw` is called if some are not.
        """
        self._envs, self._session, self._backend = envs, envs._session, envs._backend
        self._workers = self._session.workers
        self._held, self._lend, self._withdraw = held, lend, withdraw
        self.commands: dict[int, Command] = {}
        self.lost: dict[int, Exception] = {}
        # Rows that were not reset since their worker was started.
        self._new = set(range(envs.num_envs))
        self.counts = Counter[str]()
        settings = envs._settings
        self._step_seconds, self._start_seconds = settings.step_timeout, settings.start_timeout
        self._budgets = [
            RestartBudget(settings.max_restarts, settings.restart_window)
            for _ in self._backend.slices
        ]
        self.restarts = [0] * len(self._budgets)
        self._loop: asyncio.AbstractEventLoop
        # The times of the next checks for late rows, and for slow ones.
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = self._slow_at = NEVER
        self._session.drain((), ())  # with recycle_after: this caller distributes episodes

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the checks for slow environments."""
        self._loop = loop
        self._slow_at = Deadline(self._session.wait.slow.interval)
        self._look_no_later_than(self._slow_at)

    def detach(self) -> None:
        """End all checks; can be repeated."""
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ commands

    def send(self, row: int, call: str, submit: Callable[[Deadline], None]) -> Command:
        """Send a row a command; `submit` is called with its time limit."""
        seconds = self._step_seconds
        is_first = call == "reset" and row in self._new  # which may start a simulator
        if call == "build" or (is_first and seconds is None):
            seconds = self._start_seconds
        until = NEVER if seconds is None else Deadline(seconds)
        try:
            submit(until)
        except BaseException as error:
            worker = self._workers.of[row]
            if worker in self._workers.gone:  # it may have received part of it
                self._lose(Failure.of(error, self._backend.slices[worker], "send", worker))
            raise
        self.counts[call] += 1
        future = None if call == "build" else self._loop.create_future()
        command = self.commands[row] = Command(call, seconds, future)
        self._look_no_later_than(until)
        return command

    def write_action(self, row: int, action: Any) -> None:
        """Write an action where the worker reads it."""
        space = self._envs.single_action_space
        found: object = None
        try:
            self._envs._buffers.write_action(row, action)
            if self._envs._settings.validate:
                found = space.explain(action, name="action")
        except Mismatch as error:
            found = Mismatch(error.expected, error.found, error.path, name="action")
        if found is not None:
            text = "step: {} for {:envs}: the environment was not stepped; actions must lie in {}"
            raise InvalidActionError(Message(text, found, [row], space))

    def read(self, row: int, info: dict[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Read what a row wrote."""
        buffers, slot = self._envs._buffers, self._session.ring.current
        if buffers.infos:
            buffers.infos[slot].add_to(info, row)
        return (
            buffers.observations[slot].item(row),
            float(buffers.rewards[slot, row]),
            bool(buffers.terminations[slot, row]),
            bool(buffers.truncations[slot, row]),
            info,
        )

    # ------------------------------------------------------------------ the event loop

    def turn(self) -> None:
        """Process what has come, wake the conversations, and repair rows and workers that ended."""
        session, workers = self._session, self._workers
        building = set(workers.build_by)
        failures = session.poll()
        answered = session.queue.ready
        if answered:
            session.commit_rows(answered)
        for row, info in answered.items():
            command = self.commands.pop(row)
            if command.call == "reset" and row not in session.broken:
                self._new.discard(row)
            if not command.answer(info):
                self.restore(row, command.call)
        for failure in failures:
            self._lose(failure)
        for worker in building - workers.build_by.keys() - workers.gone:
            for row in self._backend.slices[worker]:
                self.restore(row)

    def _look_no_later_than(self, until: Deadline) -> None:
        """Check for late rows at this time at the latest."""
        if until < self._look_at:
            self.detach()
            self._look_at = until
            self._timer = self._loop.call_later(until.left or 0.0, self._look)

    def _look(self) -> None:
        """Give up late rows, and warn of slow ones."""
        self._look_at, session = NEVER, self._session
        try:
            self.turn()  # answers may have come while the event loop did something else
            for row in session.queue.late(()):
                self._overrun(row)
            if self._slow_at.passed:
                self._slow_at = Deadline(session.wait.slow.interval)
                session.wait.look()
        finally:  # a warning may be an error
            bounds = [*session.queue.under_way.values(), *self._workers.build_by.values()]
            self._look_no_later_than(min([self._slow_at, *bounds]))

    # ------------------------------------------------------------------ repairs

    def serves(self, row: int) -> bool:
        """Whether the worker of a row accepts commands, and will not be replaced."""
        worker, workers = self._workers.of[row], self._workers
        recycling = self._session.recycling
        draining = recycling.draining if recycling is not None else ()
        return not (worker in workers.gone or worker in workers.build_by or worker in draining)

    def restore(self, row: int, after: str = "", episodes: int = 0) -> None:
        """Make a row that no conversation holds usable, and then lend it.

        Called whenever the row's state changes: when it has answered the command `after`, or when a
        conversation that has begun some `episodes` returns it.
        """
        session = self._session
        if session.recycling is not None:
            session.drain([row] * episodes, self._held.keys() | self.commands.keys())
            self._withdraw()
            self._look_at_builds()
        if row in self._held or row in self.commands or row in self.lost or not self.serves(row):
            return
        session.returned.pop(row, None)
        failure = session.broken.get(row)
        if failure is None:
            self._lend(row)
        elif after != "build" or self._may_try_again(row, failure):
            rebuild = partial(session.send_call, row, Op.REBUILD, [row])
            self.send(row, "build", rebuild)

    def _may_try_again(self, row: int, failure: Failure) -> bool:
        """Whether a row that could not be built again may be tried once more."""
        worker = self._workers.of[row]
        what = Message("{:envs} could not be built again: {}", [row], failure.last_line)
        error = WorkerDiedError(Message("{}: {}{}", what, "", ""), [row], worker, "build")
        error.__cause__ = failure
        try:
            self._budgets[worker].spend(error, Death(None))
        except WorkerDiedError as fault:
            self._part_with([row], fault)
            return False
        return True

    def _overrun(self, row: int) -> None:
        """Give up an environment that did not answer in time; if this fails, end its worker."""
        command, worker = self.commands.get(row), self._workers.of[row]
        if command is None:  # its worker was ended for another row
            return
        if command.error is None:
            self.counts["timeout"] += 1
            command.error = self._as_late(row, command)
            log.warning("%s", without_advice(command.error))
            env = self._held.get(row)
            if env is not None:
                env.fail(command.error)
            if self._session.give_up(row, command.error, Deadline(_GIVE_UP_SECONDS)):
                return
        self._session.end_worker(worker, command.error)
        self.turn()

    def _as_late(self, row: int, command: Command) -> StepTimeoutError:
        """Return the error for a row that did not answer in time, with its stack."""
        worker = self._workers.of[row]
        running = self._backend.running(worker)
        of = row if row in running else None
        where = self._backend.find(worker, _STACK_SECONDS, row=of)
        advice = f"it is built again: {AGAIN}"
        return overdue(command.call, command.seconds or 0.0, [row], running, advice, *where)

    def _lose(self, failure: Failure) -> None:
        """Restart a worker that has ended, and raise the error in the conversations of its rows."""
        worker = failure.worker
        rows = self._backend.slices[worker]
        for row in rows:
            self.commands.pop(row, None)
        self._new.update(rows)
        self._session.forget(worker)
        self._withdraw()
        lost = _as_loss(failure, rows)
        try:
            self._budgets[worker].spend(lost, Death(lost.exitcode))
            self._workers.replace(worker)
        except Exception as fault:  # too many restarts, or the system refused a process
            self._backend.end(worker)
            self._part_with(rows, fault)
        else:
            self.restarts[worker] += 1
            self._look_at_builds()
        for row in rows:
            if row in self._held:
                advice = f"the episode is lost: {AGAIN}"
                self._held[row].fail(reworded(lost, without_advice(lost), advice))

    def _look_at_builds(self) -> None:
        """Check the workers that are being built, after their time limit."""
        self._look_no_later_than(min(self._workers.build_by.values(), default=NEVER))

    def _part_with(self, rows: Sequence[int], fault: Exception) -> None:
        """Remove environments from the pool."""
        self.lost.update(dict.fromkeys(rows, fault))
        log.error("%s", Message("{:envs} left the pool: {}", rows, str(fault)))
        self._withdraw()


def _as_loss(failure: Failure, rows: Sequence[int]) -> WorkerDiedError:
    """Return the error for conversations that lose their environments with a worker."""
    error, worker = failure.exception, failure.worker
    if isinstance(error, WorkerDiedError):
        return error
    reason: str = failure.last_line or repr(error)
    if isinstance(error, StepTimeoutError):
        reason = "its environments were not built again within start_timeout"
        if failure.command != "build":
            reason = without_advice(error)
    what = Message("{:worker} ({:envs}) was ended: {}", worker, rows, reason)
    lost = WorkerDiedError(Message("{}: {}{}", what, AGAIN, ""), rows, worker, failure.command)
    lost.__cause__ = error or failure
    return lost
