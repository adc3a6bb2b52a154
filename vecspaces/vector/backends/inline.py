"""The backend without processes: one group in the caller's own process, stepped in `submit`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend, Planner
from vecspaces.vector.backends.worker_setup import make_group
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.messages import Op, Reply, Written, make_reply
from vecspaces.vector.exchange.stats import COMPUTING, WAITING
from vecspaces.vector.group.env_group import EnvGroup
from vecspaces.vector.group.threaded_group import Task, ThreadedGroup

_BUILD, _DONE, _STEP_ROWS = Op.BUILD, Op.DONE, Op.STEP_ROWS


class InlineBackend(Backend):
    """Runs every environment in the caller's process."""

    reset_advice = ""  # it would wait for the same threads

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        validate: bool = False,
        concurrent_envs: int = 1,
    ) -> None:
        self._env_fns = env_fns
        self._concurrent_envs = concurrent_envs
        self._mode = autoreset_mode
        self._validate = validate
        self.replies: deque[Reply] = deque()
        self.group: EnvGroup | None = None
        # The tasks of threads that have ended, and the replies to be published.
        self._found: tuple[list[Task], list[Reply]] | None = None

    def open(self, plan: Planner, timeout: float) -> None:
        """Build every environment here; the time cannot be bounded."""
        try:
            group = make_group(
                self._env_fns, self._mode, 0, self._concurrent_envs, validate=self._validate
            )
        except Failure as failure:
            failure.throw()
        try:
            self.buffers = Buffers(plan([group.describe()]))
            self.slices = [range(self.buffers.plan.num_envs)]
            group.bind(self.buffers, 0, worker=0)
        except BaseException:
            group.close()
            raise
        self.group = group

    def submit(self, op: Op, slot: int, seq: int, payloads: Mapping[int, Any]) -> None:
        """Execute the command at once, and keep the reply; threads only begin it."""
        assert self.group is not None
        replies = self.replies
        if op is _BUILD:
            # The caller's own process cannot be replaced.
            self._found = None
            replies.clear()
            replies.append(Reply(0, Op.BOUND, seq, None))
            return
        payload, clock = payloads[0], self.clock
        if isinstance(self.group, ThreadedGroup):
            self.group.start(op, slot, seq, payload)
            return
        if clock is not None:
            clock.note(COMPUTING)
        try:
            result = self.group.execute(op, slot, payload)
        except Failure as failure:
            replies.append(Reply(0, Op.FAILED, seq, failure))
        else:
            if clock is not None:
                clock.note(WAITING)
            if op is _STEP_ROWS:
                replies.append(Reply(0, Op.PART, seq, result))
            else:
                written = result.infos if isinstance(result, Written) else result
                replies.append(make_reply((0, _DONE, seq, written)))

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Return the replies so far; wait for threads, if there are none.

        Tasks are removed after their replies are in `_found`, and publishing these can be repeated,
        so an interrupt neither loses nor repeats a reply.
        """
        group = self.group
        if isinstance(group, ThreadedGroup) and (self._found is not None or not self.replies):
            if self._found is None:
                if self.clock is not None:
                    self.clock.note(COMPUTING)
                if not group.finished():
                    group.bell.wait(timeout)
                if self.clock is not None:
                    self.clock.note(WAITING)
                tasks = group.finished()
                self._found = tasks, [_reply(*task.outcome()) for task in tasks]
            tasks, replies = self._found
            group.take(tasks)
            # Plain assignments, so that no published reply is found again.
            self.replies, self._found = deque(replies), None
        return self.replies

    def end(self, worker: int) -> None:
        """Do nothing: no environment of the caller's process is ended."""

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Close every environment, unless `terminate`."""
        group, self.group = self.group, None
        if group is None or terminate:
            return []
        if isinstance(group, ThreadedGroup):
            failure = group.close(timeout)
            wrong = [Reply(0, Op.CLOSE, 0, group.late)] if group.late else []
        else:
            failure, wrong = group.close(), []
        return [*wrong, Reply(0, Op.FAILED, 0, failure)] if failure is not None else wrong


def _reply(op: Op, slot: int, seq: int, payload: Any) -> Reply:
    """Return the reply for a task of threads that has ended."""
    if op is Op.DONE and isinstance(payload, Written):
        payload = payload.infos
    return Reply(0, op, seq, payload)
