"""The backend without processes: one group in the caller's own process, stepped in `submit`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend, Planner, execute
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.messages import Op, Reply, Written, make_reply
from vecspaces.vector.group.env_group import EnvGroup


class InlineBackend(Backend):
    """Runs every environment in the caller's process."""

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        validate: bool = False,
    ) -> None:
        self._env_fns = env_fns
        self._mode = autoreset_mode
        self._validate = validate
        self.replies: deque[Reply] = deque()
        self.group: EnvGroup | None = None

    def open(self, plan: Planner, timeout: float) -> None:
        """Build every environment here; nothing can bound the time that takes."""
        try:
            group = EnvGroup(self._env_fns, self._mode, validate=self._validate)
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
        """Execute the command at once, and keep the reply."""
        assert self.group is not None
        replies = self.replies
        if op is Op.BUILD:
            # The caller's own process cannot be replaced: a reset brings its environments back.
            replies.clear()
            replies.append(Reply(0, Op.BOUND, seq, None))
            return
        payload = payloads[0]
        try:
            result = execute(self.group, op, slot, payload)
        except Failure as failure:
            replies.append(Reply(0, Op.FAILED, seq, failure))
        else:
            if op is Op.STEP_ROWS:
                replies.append(Reply(0, Op.PART, seq, result))
            else:
                written = result.infos if isinstance(result, Written) else result
                replies.append(make_reply((0, Op.DONE, seq, written)))

    def collect(self, timeout: float | None) -> deque[Reply]:
        """Return the replies so far: every command was executed when it was submitted."""
        return self.replies

    def note_factories(self, worker: int, env_fns: Mapping[int, Callable[[], Any]]) -> None:
        """Do nothing: the group has noted them, and no process is restarted."""

    def end(self, worker: int) -> None:
        """Do nothing: what bounds no time finds nothing late."""

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Close every environment; `terminate` leaves them alone."""
        group, self.group = self.group, None
        if group is None or terminate:
            return []
        failure = group.close()
        return [] if failure is None else [Reply(0, Op.FAILED, 0, failure)]
