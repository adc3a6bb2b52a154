"""The link without processes: one group in the caller's own process, stepped in `issue`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vecspaces.vector.autoreset import AutoresetMode
from vecspaces.vector.backends.backend import Backend, Planner
from vecspaces.vector.exchange.buffers import Buffers
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.exchange.infos import Part
from vecspaces.vector.exchange.messages import Op, Reply, Starts, Written, make_reply
from vecspaces.vector.exchange.stats import COMPUTING, WAITING
from vecspaces.vector.group.group import Group
from vecspaces.vector.group.groups import Groups, build_group

_DONE, _STEP, _STEP_ROWS = Op.DONE, Op.STEP, Op.STEP_ROWS


class InlineBackend(Backend):
    """Runs every environment in the caller's process."""

    builds_again, shares_objects = False, True
    unknown = ()

    def __init__(
        self,
        env_fns: list[Callable[[], Any]],
        autoreset_mode: AutoresetMode,
        validate: bool = False,
    ) -> None:
        self._env_fns = env_fns
        self._mode = autoreset_mode
        self._validate = validate
        self._replies: list[Reply] = []
        self._is_executing = False
        self.group: Group | Groups | None = None

    def open(self, plan: Planner, timeout: float) -> None:
        """Build every environment here; the time cannot be bounded."""
        try:
            group = build_group(self._env_fns, self._mode, 0, validate=self._validate)
        except Failure as failure:
            failure.raise_interrupt()
            failure.throw()
        try:
            self.buffers = Buffers(plan([group.describe()]))
            self.slices = [range(self.buffers.plan.num_envs)]
            group.bind(self.buffers, 0, worker=0)
        except BaseException:
            group.close()
            raise
        self.group = group

    def start(self, worker: int, restart: Starts | None) -> None:
        """Drop unread replies; the caller's own process cannot be replaced."""
        self._replies = [Reply(0, Op.BOUND, 0, None)]

    def issue(
        self, op: Op, slot: int, number: int, payloads: Mapping[int, Any]
    ) -> Sequence[Part] | None:
        """Execute the command at once; keep the reply, except that of a step."""
        group, clock = self.group, self.clock
        assert group is not None
        if clock is not None:
            clock.note(COMPUTING)
        self._is_executing = True
        try:
            result: Any = group.step(slot) if op is _STEP else group.execute(op, slot, payloads[0])
            self._is_executing = False
        except Failure as failure:
            failure.raise_interrupt()
            self._is_executing = False
            self._replies.append(Reply(0, Op.FAILED, number, failure))
        else:
            if clock is not None:
                clock.note(WAITING)
            if op is _STEP:
                infos: Sequence[Part] = result
                return infos
            if op is _STEP_ROWS:
                for _, of_rows in result.failures:
                    of_rows.raise_interrupt()
                self._replies.append(Reply(0, Op.PART, number, result))
            else:
                written = result.infos if result.__class__ is Written else result
                self._replies.append(make_reply((0, _DONE, number, written)))
        return None

    def wait(self, timeout: float | None) -> list[Reply]:
        """Return the replies so far."""
        return self._replies

    def read(self, came: list[Reply]) -> list[Reply]:
        """Return the replies that came, once."""
        self._replies = []
        return came

    def interrupted_rows(self) -> list[int]:
        """Return the environment whose call an interrupt has ended, until the next command."""
        return [self.group.last] if self._is_executing and self.group is not None else []

    def end(self, worker: int) -> None:
        """Do nothing: no environment of the caller's process is ended."""

    def close(self, timeout: float, terminate: bool = False) -> list[Reply]:
        """Close every environment, unless `terminate`."""
        group, self.group = self.group, None
        failure = None if group is None or terminate else group.close()
        return [] if failure is None else [Reply(0, Op.FAILED, 0, failure)]
