"""The wait for replies with a clock of its own: late rows whose answer arrives in parts."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from vecspaces.errors import StepTimeoutError
from vecspaces.vector.exchange import deadline
from vecspaces.vector.exchange.deadline import Deadline
from vecspaces.vector.exchange.messages import Op, Reply
from vecspaces.vector.exchange.positions import Place
from vecspaces.vector.session.arguments import Settings
from vecspaces.vector.session.restarts import RestartBudget
from vecspaces.vector.session.row_queue import RowQueue
from vecspaces.vector.session.wait import Wait
from vecspaces.vector.session.workers import Workers

SETTINGS = Settings(
    "same",
    None,  # type: ignore[arg-type]  # it concerns no wait
    *(True, None, 1, False, False, None),
    step_timeout=9.0,
    budget=RestartBudget(3, 60.0, on_step_timeout="restart"),
)


class Trickle:
    """A backend of one worker, which answers in `parts`, with so many seconds between them."""

    def __init__(self, clock: Any, parts: int, between: float) -> None:
        self._clock, self._parts, self._between = clock, parts, between
        self.slices, self.replies = [range(1)], deque[Reply]()
        self.buffers = SimpleNamespace(progress=[0])
        self.waited: list[float] = []

    def collect(self, timeout: float | None) -> deque[Reply]:
        assert timeout is not None
        self.waited.append(timeout)
        self._clock.now += min(timeout, self._between)
        if timeout >= self._between:
            self._parts -= 1
        if self._parts == 0:
            self.replies.append(Reply(0, Op.PART, 1, None))
        return self.replies

    def running(self, worker: int) -> list[int]:
        return [0]

    def locate(self, worker: int) -> Place:
        return Place(self.slices[worker])

    def find(self, worker: int, *_: Any) -> tuple[str, None]:
        return "", None


@pytest.mark.parametrize(("between", "is_late"), [(0.06, False), (0.2, True)])
def test_the_grace_of_a_late_row_begins_anew_with_each_part_of_its_answer(
    between: float, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: clock.now))
    backend: Any = Trickle(clock, 5, between)
    queue, workers = RowQueue(), Workers(backend, SETTINGS, [1])
    wait = Wait(backend, SETTINGS, workers, queue)
    queue.send([0], Deadline(0.0))  # its time is up, and the caller did something else meanwhile
    lost: list[Any] = []

    def take_in(replies: deque[Reply]) -> None:
        if replies or workers.deaths:
            queue.answer({0: {}})
        replies.clear()
        lost.extend(workers.deaths.values())
        workers.deaths = {}

    wait.run(lambda: queue.first(1), None, take_in)
    assert [isinstance(loss, StepTimeoutError) for loss in lost] == [True] * is_late
    # The grace is a tenth of a second, and five parts take longer than that.
    assert backend.waited == pytest.approx([0.1] * (1 if is_late else 5))
