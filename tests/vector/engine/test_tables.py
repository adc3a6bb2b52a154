"""The tables of docs/design.md, walked literally: which call each state allows, and workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from vecspaces.errors import ClosedEnvironmentError, StepTimeoutError
from vecspaces.vector.engine.legality import allows, refusing
from vecspaces.vector.engine.rows import BUSY, ENDED, FAILED, LOST, NEW, READY, RowTable
from vecspaces.vector.engine.supervisor import Supervisor, WorkerState
from vecspaces.vector.exchange.deadline import Deadline

STATES = range(2 * LOST)
CALLS = ("step", "send", "send_reset", "send_call", "call", "recv", "reset", "masked reset")
# The column "refused if any row is"; an unread first observation refuses nothing.
ANY = {
    "step": NEW | BUSY | READY | FAILED | LOST,
    "send": LOST,
    "send_reset": LOST,
    "call": LOST,
    "recv": LOST,
    "reset": 0,
    "masked reset": BUSY | READY | LOST,
}
# The column "refused if a named row is".
NAMED = {
    "send": NEW | BUSY | READY | FAILED,
    "send_reset": BUSY | READY,
    "call": BUSY | FAILED,
    "send_call": BUSY | READY | FAILED,
}


def rows_in(*states: int) -> RowTable:
    rows = RowTable(len(states))
    rows.is_new = False
    rows.state[:] = bytes(states)
    return rows


@pytest.mark.parametrize("call", ANY)
def test_allows_looks_at_every_row(call: str) -> None:
    for state in STATES:
        for rows in (rows_in(state, 0), rows_in(0, state)):
            assert allows(call, None, rows) is not bool(state & ANY[call]), state


@pytest.mark.parametrize("call", NAMED)
def test_refusing_looks_at_named_rows(call: str) -> None:
    for state in STATES:
        rows, refused = rows_in(state, state), bool(state & NAMED[call])
        assert refusing(call, [1], rows) == ([1] if refused else [])


def test_ends_refuse_nothing_by_themselves() -> None:
    assert allows("step", None, rows_in(ENDED))


def test_allows_before_the_first_reset() -> None:
    calls = {call for call in ANY if allows(call, None, RowTable(2))}
    assert calls == {"reset", "call", "send_reset"}


# The table of workers: the state after each event; None: nothing is started.
S = WorkerState
WORKERS: dict[WorkerState, dict[str, WorkerState | None]] = {
    S.STARTING: {"start": S.STARTING, "built": S.READY, "end": S.DEAD, "close": S.CLOSED},
    S.READY: {"start": S.STARTING, "end": S.DEAD, "close": S.CLOSED},
    S.DEAD: {"start": S.STARTING, "end": S.DEAD, "close": S.CLOSED},
    S.CLOSED: {"start": None, "end": S.CLOSED, "close": S.CLOSED},
}


class Links:
    """Workers that note what is done to them."""

    def __init__(self) -> None:
        self.slices = [range(2), range(2, 3)]
        self.started: list[int] = []
        self.ended: list[int] = []

    def start(self, worker: int, restart: Any) -> None:
        self.started.append(worker)

    def end(self, worker: int) -> None:
        self.ended.append(worker)

    def late_build_error(self, worker: int, limit: float) -> StepTimeoutError:
        return StepTimeoutError("late", self.slices[worker])


def supervise(state: WorkerState) -> tuple[Supervisor, Links]:
    links, settings = Links(), SimpleNamespace(start_timeout=9.0, budget=None)
    supervisor = Supervisor(cast("Any", links), cast("Any", settings), RowTable(3))
    supervisor.states[1] = state
    return supervisor, links


@pytest.mark.parametrize(
    ("state", "event"), [(state, event) for state, events in WORKERS.items() for event in events]
)
def test_a_worker_follows_the_table(state: WorkerState, event: str) -> None:
    supervisor, links = supervise(state)
    after = WORKERS[state][event]
    happen = {
        "start": lambda: supervisor.start(1),
        "built": lambda: supervisor.note_built(1),
        "end": lambda: supervisor.note_dead(1),
        "close": supervisor.close,
    }
    if after is None:
        with pytest.raises(ClosedEnvironmentError):
            happen[event]()
        assert (supervisor.states[1], links.ended) == (state, [1])
    else:
        happen[event]()
        assert supervisor.states[1] is after
        assert links.started == ([1] if event == "start" else [])
        assert supervisor.build_by.keys() == ({1} if after is S.STARTING else set())
    assert supervisor.states[0] is (S.CLOSED if event == "close" else S.READY)


def test_a_worker_whose_start_fails_is_dead() -> None:
    supervisor, links = supervise(S.READY)
    fails = mock.patch.object(links, "start", side_effect=OSError("no process"))
    with fails, pytest.raises(OSError, match="no process"):
        supervisor.start(1)
    assert supervisor.states == [S.READY, S.DEAD]
    assert supervisor.unusable == {1}


def test_a_worker_that_is_closed_while_it_starts_is_ended() -> None:
    supervisor, links = supervise(S.READY)

    def close(worker: int, restart: Any) -> None:
        supervisor.close()
        raise OSError("a closed descriptor")

    with mock.patch.object(links, "start", close), pytest.raises(ClosedEnvironmentError):
        supervisor.start(1)
    assert (supervisor.states[1], links.ended) == (S.CLOSED, [1])


@pytest.mark.parametrize("is_before", [True, False])
def test_start_that_is_interrupted_leaves_no_worker_without_a_limit(is_before: bool) -> None:
    supervisor, _ = supervise(S.DEAD)
    move = supervisor.move

    def interrupt(worker: int, event: str) -> None:
        if event != "start" or not is_before:
            move(worker, event)
        if event == "start":
            raise KeyboardInterrupt

    with mock.patch.object(supervisor, "move", interrupt), pytest.raises(KeyboardInterrupt):
        supervisor.start(1)
    assert supervisor.build_by.keys() == {1}
    supervisor.build_by[1] = Deadline(0.0)
    failures = supervisor.late_builds()
    assert [failure.env_ids for failure in failures] == ([] if is_before else [(2,)])
    assert (supervisor.states[1], supervisor.build_by) == (S.DEAD, {})
