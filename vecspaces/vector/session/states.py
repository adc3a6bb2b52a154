"""The law of a vector env's life: which call is legal when, and what a worker is asked and answers.

Everything that decides whether a call may happen lives in `TRANSITIONS`. A pair of state and event
that is not in the table is an error, and a refused event changes nothing. There is no input or
output in this file, so the tests walk the whole table without a process.

::

              reset_async ┌───────────┐ reset_wait
            ┌────────────▶│ RESETTING │────────────┐
            │             └───────────┘            │        every waiting state
       ┌────┴───┐ step_async ┌──────────┐ step_wait▼        ── timeout ──▶ OVERDUE_*
       │  IDLE  │───────────▶│ STEPPING │────────▶ IDLE     ── fault ────▶ BROKEN
       └────┬───┘            └──────────┘          ▲        OVERDUE_* ── reset_async ──▶ RESETTING
            │ call_async  ┌─────────┐ call_wait    │        BROKEN ──── reset_async ──▶ RESETTING
            ├────────────▶│ CALLING │──────────────┤        any state ── close ───────▶ CLOSED
            │ send        ┌───────────┐ drained    │
            └────────────▶│ STREAMING │────────────┘
                          └───────────┘ send, recv
"""

from __future__ import annotations

from enum import Enum

from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)


class State(str, Enum):  # strings hash four times as fast as bare members
    """What a vector env is doing, as its caller sees it; the value reads in an error message."""

    IDLE = "idle"
    RESETTING = "reset"
    STEPPING = "step"
    CALLING = "call"
    STREAMING = "send"
    OVERDUE_RESET = "reset that timed out"
    OVERDUE_STEP = "step that timed out"
    OVERDUE_CALL = "call that timed out"
    BROKEN = "broken"
    CLOSED = "closed"


class Event(str, Enum):
    """What may happen to a vector env: calls of its user, and what comes back from the workers."""

    RESET_ASYNC = "reset_async"
    RESET_WAIT = "reset_wait"
    STEP_ASYNC = "step_async"
    STEP_WAIT = "step_wait"
    CALL_ASYNC = "call_async"
    CALL_WAIT = "call_wait"
    SEND = "send"
    RECV = "recv"
    DRAINED = "drained"
    TIMEOUT = "timeout"
    FAULT = "fault"
    CLOSE = "close"


def _waiting(wait: Event, overdue: State) -> dict[Event, State]:
    """The row of a state in which every worker owes an answer."""
    return {
        wait: State.IDLE,
        Event.TIMEOUT: overdue,
        Event.FAULT: State.BROKEN,
        Event.CLOSE: State.CLOSED,
    }


def _overdue(wait: Event, overdue: State) -> dict[Event, State]:
    """The row of a state in which an answer is late: wait again, give up with a reset, or close."""
    return {**_waiting(wait, overdue), Event.RESET_ASYNC: State.RESETTING}


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.IDLE: {
        Event.RESET_ASYNC: State.RESETTING,
        Event.STEP_ASYNC: State.STEPPING,
        Event.CALL_ASYNC: State.CALLING,
        Event.SEND: State.STREAMING,
        # The first observations after a reset wait to be received, with nothing sent yet.
        Event.RECV: State.IDLE,
        Event.FAULT: State.BROKEN,
        Event.CLOSE: State.CLOSED,
    },
    State.RESETTING: _waiting(Event.RESET_WAIT, State.OVERDUE_RESET),
    State.STEPPING: _waiting(Event.STEP_WAIT, State.OVERDUE_STEP),
    State.CALLING: _waiting(Event.CALL_WAIT, State.OVERDUE_CALL),
    State.STREAMING: {
        Event.SEND: State.STREAMING,
        Event.RECV: State.STREAMING,
        Event.DRAINED: State.IDLE,
        Event.RESET_ASYNC: State.RESETTING,
        Event.TIMEOUT: State.STREAMING,
        Event.FAULT: State.BROKEN,
        Event.CLOSE: State.CLOSED,
    },
    State.OVERDUE_RESET: _overdue(Event.RESET_WAIT, State.OVERDUE_RESET),
    State.OVERDUE_STEP: _overdue(Event.STEP_WAIT, State.OVERDUE_STEP),
    State.OVERDUE_CALL: _overdue(Event.CALL_WAIT, State.OVERDUE_CALL),
    State.BROKEN: {Event.RESET_ASYNC: State.RESETTING, Event.CLOSE: State.CLOSED},
    State.CLOSED: {Event.CLOSE: State.CLOSED},
}

_WAITS = {Event.RESET_WAIT: "reset", Event.STEP_WAIT: "step", Event.CALL_WAIT: "call"}


def next_state(state: State, event: Event) -> State:
    """Look up where an event leads.

    Args:
        state: The present state.
        event: What happens.

    Returns:
        The state afterwards.

    Raises:
        VecspacesError: The event is illegal in this state; the class says why.

    Example:
        >>> next_state(State.IDLE, Event.STEP_ASYNC)
        <State.STEPPING: 'step'>
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise _refusal(state, event) from None


def _refusal(state: State, event: Event) -> VecspacesError:
    """Say why `event` is illegal in `state`, and what to do instead."""
    call = event.value
    if event is Event.CALL_ASYNC:  # it begins what has many names for its users
        call += " (or call, get_attr, set_attr, render, stats)"
    if state is State.CLOSED:
        return ClosedEnvironmentError(f"{call} was called after close(): make a new vector env")
    if state is State.BROKEN:
        return ResetNeededError(
            f"{call} was called after an error that broke environments: call reset() without a "
            "reset_mask first (it builds the broken ones again), or close()"
        )
    if event in _WAITS:
        name = _WAITS[event]
        return NoAsyncCallError(
            f"{call} was called, but no {name} is pending (the state is {state.value!r}): "
            f"call {name}_async first",
            name,
        )
    if event is Event.RECV:
        return NoAsyncCallError(
            f"recv was called, but nothing was sent (the state is {state.value!r}): send first",
            "recv",
        )
    return AlreadyPendingCallError(
        f"{call} was called while a {state.value} is still pending: "
        + (
            "recv its results first, or reset()"
            if state is State.STREAMING
            else "wait for it first (reset_wait, step_wait or call_wait)"
        ),
        state.value,
    )
