"""The law of a vector env's life, walked pair by pair without a process, and then with one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.envs import ledgers
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.exchange.messages import HEADER, Op
from vecspaces.vector.session.states import TRANSITIONS, Event, State, next_state

PAIRS = [(state, event) for state in State for event in Event]
LEGAL = [(state, event) for state, event in PAIRS if event in TRANSITIONS[state]]
# What the workers or the clock say cannot be refused; where it makes no sense it never comes.
SAID = {Event.TIMEOUT, Event.FAULT, Event.DRAINED}
ILLEGAL = [
    (state, event)
    for state, event in PAIRS
    if event not in TRANSITIONS[state] and event not in SAID
]


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize(("state", "event"), LEGAL)
def test_a_legal_event_leads_to_a_state(state: State, event: Event) -> None:
    assert next_state(state, event) is TRANSITIONS[state][event]


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_an_illegal_event_is_refused_with_what_to_do(state: State, event: Event) -> None:
    before = {state: dict(row) for state, row in TRANSITIONS.items()}
    with pytest.raises(VecspacesError, match=event.value) as caught:
        next_state(state, event)
    assert before == TRANSITIONS
    said = str(caught.value)
    assert any(word in said for word in ("first", "make a new vector env"))
    if state is State.CLOSED:
        assert type(caught.value) is ClosedEnvironmentError
    elif state is State.BROKEN:
        assert type(caught.value) is ResetNeededError
    elif event in (Event.RESET_WAIT, Event.STEP_WAIT, Event.CALL_WAIT, Event.RECV):
        assert type(caught.value) is NoAsyncCallError
    else:
        assert type(caught.value) is AlreadyPendingCallError


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_closed(state: State) -> None:
    assert next_state(state, Event.CLOSE) is State.CLOSED


@pytest.mark.parametrize("state", set(State) - {State.CLOSED})
def test_every_state_leads_back_to_idle(state: State) -> None:
    reached, frontier = {state}, {state}
    while frontier:
        frontier = {after for one in frontier for after in TRANSITIONS[one].values()} - reached
        reached |= frontier
    assert State.IDLE in reached


@pytest.mark.parametrize(
    ("state", "wait"),
    [
        (State.RESETTING, Event.RESET_WAIT),
        (State.STEPPING, Event.STEP_WAIT),
        (State.CALLING, Event.CALL_WAIT),
    ],
)
def test_after_a_timeout_one_may_wait_again_reset_or_close(state: State, wait: Event) -> None:
    late = next_state(state, Event.TIMEOUT)
    assert next_state(late, wait) is State.IDLE
    assert next_state(late, Event.TIMEOUT) is late
    assert next_state(late, Event.RESET_ASYNC) is State.RESETTING
    assert set(TRANSITIONS[late]) - SAID == {wait, Event.RESET_ASYNC, Event.CLOSE}


@pytest.mark.parametrize("op", Op)
def test_an_op_fits_into_a_header(op: Op) -> None:
    fields = (int(op), 65535, 2**32 - 1, 2**40)
    assert HEADER.unpack(HEADER.pack(*fields)) == fields


CALLS: dict[Event, Any] = {
    Event.RESET_ASYNC: lambda envs: envs.reset_async(seed=9),
    Event.RESET_WAIT: lambda envs: envs.reset_wait(),
    Event.STEP_ASYNC: lambda envs: envs.step_async([0, 0]),
    Event.STEP_WAIT: lambda envs: envs.step_wait(),
    Event.CALL_ASYNC: lambda envs: envs.call_async("number"),
    Event.CALL_WAIT: lambda envs: envs.call_wait(),
    Event.SEND: lambda envs: envs.send([0, 0]),
    Event.RECV: lambda envs: envs.recv(),
}
# How a vector env comes into a state, and how it goes on: what is pending must still come.
PENDING: dict[State, tuple[Any, Any]] = {
    State.RESETTING: (
        lambda envs: envs.reset_async(seed=0),
        lambda envs: envs.reset_wait()[0][:, 1].tolist() == [2, 2],
    ),
    State.STEPPING: (
        lambda envs: envs.step_async([3, 4]),
        lambda envs: envs.step_wait()[0][:, 3].tolist() == [3, 4],
    ),
    State.CALLING: (
        lambda envs: envs.call_async("multiply", 2),
        lambda envs: envs.call_wait() == (0, 2),
    ),
    State.STREAMING: (
        lambda envs: envs.send([3, 4]),
        lambda envs: sorted(envs.recv().observations[:, 3].tolist()) == [3, 4],
    ),
}


@pytest.mark.parametrize("state", PENDING)
def test_what_is_refused_changes_nothing(state: State) -> None:
    begin, ends_well = PENDING[state]
    with AsyncVectorEnv(ledgers(2), num_workers=2) as envs:
        envs.reset(seed=0)
        begin(envs)
        for event in {event for other, event in ILLEGAL if other is state}:
            with pytest.raises(VecspacesError):
                CALLS[event](envs)
        assert ends_well(envs)
        envs.step([1, 1])
    for call in CALLS.values():
        with pytest.raises(ClosedEnvironmentError):
            call(envs)


def test_set_attr_stats_render_and_rollouts_obey_the_law_too() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1, buffers=2) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        for use in (partial(envs.set_attr, "number", 1), envs.render, envs.rollout_view):
            with pytest.raises(AlreadyPendingCallError, match="step"):
                use()
        assert envs.step_wait()[0][:, 3].tolist() == [1, 1]
        envs.rollout_view()
