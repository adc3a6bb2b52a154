"""Commands to the workers and their answers: who still owes one, who failed, who is replaced.

The vector env decides what is asked; the `Session` sees to it that every worker is asked, that
every wait is bounded, that a late answer is never taken for another's, and that the caller hears
the truth about faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from vecspaces.errors import StepTimeoutError, VecspacesError
from vecspaces.vector.backends.backend import Backend
from vecspaces.vector.exchange.failures import (
    Death,
    EnvIds,
    Failure,
    Message,
    died,
    overdue,
)
from vecspaces.vector.exchange.messages import Op, Reply
from vecspaces.vector.group.vector_member import Wanted
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.restarts import restart_seed
from vecspaces.vector.session.states import Event, State, next_state

# After a first fault, how long others may take to report theirs: then the lowest environment is
# named.
_GRACE = 0.1

_CALLS = (Op.CALL, Op.SET_ATTR, Op.FLUSH)


class Command(NamedTuple):
    """What was last asked: enough to repeat it for a worker that had to be replaced.

    Attributes:
        op: The command.
        slot: The slot of the ring that it writes.
        payloads: The arguments of each worker that was asked.
    """

    op: Op
    slot: int
    payloads: Mapping[int, Any]


class Session:
    """Drives a backend through the protocol.

    Args:
        backend: Where the groups run, opened.
        settings: Timeouts and the budget of restarts.
        repeat: Called as `repeat(worker, command)` when a worker was replaced: gives what the new
            one is asked for, if the command is still open.
        on_part: Called as `on_part(worker, rows, columns)` with each part of a stream; tells
            whether the worker owes more.

    Attributes:
        state: What the vector env is doing.
        results: By worker, what it answered to the last command.
        broken: Environments that must be built again.
        lost: Environments whose episode died with their worker, until a step has said so.
        interrupted: Whether Ctrl-C ended the last command or the wait for it.
        seeds: The seed of each environment's last seeded reset.
        options: The options that each environment's autoresets get.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        repeat: Callable[[int, Command], Any],
        on_part: Callable[[int, Sequence[int], Any], bool],
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._repeat = repeat
        self._on_part = on_part
        self._seq = 0
        self._waiting: set[int] = set()
        # Of those that owe an answer, the ones whose caller gave up waiting.
        self._late: set[int] = set()
        # Workers that are gone, or must not be used again, and those that are being built again.
        self._gone: set[int] = set()
        self._build_by: dict[int, float] = {}
        self._failures: list[Failure] = []
        num_envs = backend.buffers.plan.num_envs
        self._restarts = [0] * num_envs
        self.seeds: list[int | None] = [None] * num_envs
        self.options: list[Mapping[str, Any] | None] = [None] * num_envs
        self.state = State.IDLE
        self.results: dict[int, Any] = {}
        self.broken: set[int] = set()
        self.lost: set[int] = set()
        self.interrupted = False
        self.command = Command(Op.RESET, 0, {})

    def check(self, event: Event) -> State:
        """Give the state that an event leads to, or raise what makes it illegal."""
        return next_state(self.state, event)

    # ------------------------------------------------------------------ asking

    def submit(self, state: State, op: Op, slot: int, payloads: Mapping[int, Any]) -> None:
        """Send a command to some workers.

        Args:
            state: The state from here on, as `check` gave it.
            op: The command.
            slot: The slot of the ring that it writes.
            payloads: The arguments for each worker concerned.

        Raises:
            Exception: What the pickling of the arguments raises; nobody heard of it, and an idle
                vector env stays so.
        """
        self._seq += 1
        self.interrupted = False
        try:
            self._backend.submit(op, slot, self._seq, payloads)
        except BaseException as error:
            if not isinstance(error, Exception) or self.state is not State.IDLE:
                # Some may have heard of it: only new workers can begin together again.
                self._gone.update(payloads)
                self.interrupted = isinstance(error, KeyboardInterrupt)
                self.state = next_state(state, Event.FAULT)
            raise
        self.command = Command(op, slot, payloads)
        self._waiting = set(payloads)
        self._late = set()
        self.results = {}
        self._failures = []
        self.state = state

    def submit_more(self, slot: int, payloads: Mapping[int, Any]) -> None:
        """Send more rows of a stream, under the number with which the stream began."""
        self._backend.submit(Op.STEP_ROWS, slot, self._seq, payloads)
        self._waiting.update(payloads)

    def replace_workers(self) -> None:
        """Before a reset: replace workers that are gone, or still busy with a call that is late."""
        for worker in sorted(self._gone | (self._late & self._waiting)):
            self._build(worker, None)
            self.broken.difference_update(self._backend.slices[worker])
        self._gone.clear()

    def _build(self, worker: int, lost: Wanted | None) -> None:
        """Put a new worker in the place of another."""
        self._backend.submit(Op.BUILD, 0, 0, {worker: lost})
        self._build_by[worker] = time.monotonic() + self._settings.start_timeout

    # ------------------------------------------------------------------ waiting

    def wait(self, event: Event, timeout: float | None) -> int:
        """Wait for the answers to the last command.

        Args:
            event: The call that waits.
            timeout: The longest wait, in seconds; None: `step_timeout`.

        Returns:
            The slot that was written.

        Raises:
            StepTimeoutError: Time is up; the command stays pending.
            Exception: What an environment raised, or what became of a worker.
        """
        state = next_state(self.state, event)
        self.wait_until(lambda: not self._waiting, timeout)
        self.state = state
        return self.command.slot

    def wait_until(self, done: Callable[[], bool], timeout: float | None) -> None:
        """Take in answers until a condition holds; raise what `wait` raises."""
        if timeout is None:
            timeout = self._settings.step_timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not done() and not self._failures:
                building = bool(self._build_by)
                heard = self._gather(deadline)
                if timeout is None:
                    continue
                if building:  # that has a bound of its own
                    deadline = time.monotonic() + timeout
                elif not heard:
                    raise overdue(self.command.op.verb, timeout, *self._busy_rows())
            if self._failures:
                self._hear_others()
        except (StepTimeoutError, KeyboardInterrupt) as error:
            self.state = next_state(self.state, Event.TIMEOUT)
            self._late = set(self._waiting)
            self.interrupted = isinstance(error, KeyboardInterrupt)
            raise
        if self._failures:
            self._raise_failure()

    def _hear_others(self) -> None:
        """After a fault, take in what else comes within the grace."""
        deadline = time.monotonic() + _GRACE
        while self._waiting and time.monotonic() < deadline:
            for reply in self._backend.collect(max(0.0, deadline - time.monotonic())):
                self._receive(reply)

    def _gather(self, deadline: float | None) -> bool:
        """Take in what comes next; tell whether anything came in time."""
        # While a worker is being built, start_timeout bounds the wait instead.
        limit = min(self._build_by.values()) if self._build_by else deadline
        replies = self._backend.collect(
            None if limit is None else max(0.0, limit - time.monotonic())
        )
        for reply in replies:
            self._receive(reply)
        if not replies and self._build_by:
            self._give_up_building()
        return bool(replies)

    def _receive(self, reply: Reply) -> None:
        """Take in one answer; a late one is known by its number, and dropped."""
        worker, op, seq, payload = reply
        if op is Op.DONE:
            if seq == self._seq:
                self._waiting.discard(worker)
                self.results[worker] = payload
        elif op is Op.PART:
            if seq == self._seq and not self._on_part(worker, *payload):
                self._waiting.discard(worker)
        elif op is Op.BUILT:
            self._build_by.pop(worker, None)
        elif op is Op.DIED:
            self._handle_death(worker, payload)
        elif op is Op.FAILED:
            unbuilt = self._build_by.pop(worker, None) is not None
            if unbuilt:
                self._gone.add(worker)
            if unbuilt or seq == self._seq:
                self._waiting.discard(worker)
                self._failures.append(payload)

    # ------------------------------------------------------------------ faults

    def _handle_death(self, worker: int, death: Death) -> None:
        """Replace a dead worker and repeat what it was asked, or note the fault."""
        self._build_by.pop(worker, None)
        if worker in self._gone:
            return
        rows = self._backend.slices[worker]
        budget = self._settings.budget
        advice = (
            "its environments are built again"
            if budget is not None
            else "call reset() to build its environments again, or close(); "
            'on_worker_death="restart" goes on by itself'
        )
        error = died(worker, rows, self.command.op.verb, death, self._running(worker), advice)
        try:
            if budget is None:
                raise error
            budget.spend(error)
        except VecspacesError as fault:
            self._gone.add(worker)
            self._waiting.discard(worker)
            self._failures.append(Failure(tuple(rows), self.command.op.verb, fault, "", worker))
            return
        again = {}
        for row in rows:
            self._restarts[row] += 1
            seed = restart_seed(self.seeds[row], self._restarts[row])
            again[row] = seed, self.options[row]
        self.lost.update(rows)
        payload = self._repeat(worker, self.command)
        self._build(worker, again)
        if worker in self._waiting:
            command = self.command
            self._backend.submit(command.op, command.slot, self._seq, {worker: payload})

    def _running(self, worker: int) -> int:
        """The environment that a worker is busy with; -1 for none."""
        return int(self._backend.buffers.progress[worker])

    def _busy_rows(self) -> tuple[list[int], list[int]]:
        """The environments that have not finished, and those of them that are running now."""
        unfinished: list[int] = []
        running: list[int] = []
        for worker in sorted(self._waiting):
            within = self._backend.slices[worker]
            at = self._running(worker)
            if at in within:
                running.append(at)
                unfinished.extend(range(at, within.stop))
            else:
                unfinished.extend(within)
        return unfinished, running

    def _give_up_building(self) -> None:
        """A worker that is not built in time is a fault."""
        now = time.monotonic()
        late = [worker for worker, by in self._build_by.items() if by <= now]
        for worker in late:
            del self._build_by[worker]
            self._gone.add(worker)
            self._waiting.discard(worker)
            rows = self._backend.slices[worker]
            error = StepTimeoutError(
                Message(
                    "{} were not built again within start_timeout ({} s): reset() tries again",
                    EnvIds(rows),
                    f"{self._settings.start_timeout:g}",
                ),
                rows,
            )
            self._failures.append(Failure(tuple(rows), "build", error, "", worker))

    def _raise_failure(self) -> NoReturn:
        """Raise the failure of the lowest environment, and remember which are broken."""
        failures = sorted(self._failures, key=lambda failure: failure.env_ids[:1])
        self._failures = []
        first = failures[0]
        if self.command.op in _CALLS and not self._gone:
            # A method that raises breaks nothing, and late answers of others will be dropped.
            self.state = State.IDLE
        else:
            self.state = next_state(self.state, Event.FAULT)
            for failure in failures:
                self.broken.update(failure.env_ids)
        first.throw()

    def fail_on_close(self, replies: Sequence[Reply]) -> list[int]:
        """Raise what went wrong while environments closed; everything is freed already.

        Args:
            replies: What the backend's `close` gave.

        Returns:
            The environments that had to be ended by force.
        """
        late: list[int] = []
        for worker, op, _, payload in sorted(replies, key=lambda reply: reply.worker):
            rows = self._backend.slices[worker]
            if op is Op.CLOSE:
                late.extend(rows)
            elif op is Op.DIED:
                if worker not in self._gone:
                    raise died(
                        worker, rows, "close", payload, self._running(worker), "all is freed"
                    )
            elif not self.broken.intersection(payload.env_ids):
                # What a broken environment says at its end helps nobody.
                payload.throw()
        return late
