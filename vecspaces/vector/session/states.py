"""The table of legal calls: what may happen to a vector env in which state.

Everything that decides whether a call may happen is in `TRANSITIONS`. A pair of state and event
that is not in the table is an error, and a refused event changes nothing. There is no input or
output in this file, so the tests walk the whole table without a process.

::

              reset_async ┌───────────┐ reset_wait
   NEW ─────┬────────────▶│ RESETTING │────────────┐
            │             └───────────┘            │        every waiting state
       ┌────┴───┐ step_async ┌──────────┐ step_wait▼        ── suspend ──▶ OVERDUE_*
       │  IDLE  │───────────▶│ STEPPING │────────▶ IDLE     ── fault ────▶ BROKEN
       └────┬───┘            └──────────┘          ▲        OVERDUE_* ── reset_async ──▶ RESETTING
            │ call_async  ┌─────────┐ call_wait    │        BROKEN ──── reset_async ──▶ RESETTING
            ├────────────▶│ CALLING │──────────────┤        any state ── close ───────▶ CLOSED
            │ send        ┌───────────┐ drained    │
            └────────────▶│ STREAMING │────────────┘
                          └───────────┘ send, recv

Before its first reset a vector env is NEW: it can be reset, called and closed. CALLING_NEW and
OVERDUE_NEW are calls made then, which lead back to NEW.
"""

from __future__ import annotations

from enum import StrEnum

from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)


class State(StrEnum):  # strings hash four times as fast as bare members
    """What a vector env is doing; the value is the call that is pending."""

    NEW = "new"
    IDLE = "idle"
    RESETTING = "reset"
    STEPPING = "step"
    CALLING = "call"
    CALLING_NEW = "call before the first reset"
    STREAMING = "send"
    OVERDUE_RESET = "overdue reset"
    OVERDUE_STEP = "overdue step"
    OVERDUE_CALL = "overdue call"
    OVERDUE_NEW = "overdue call before the first reset"
    BROKEN = "broken"
    CLOSED = "closed"


class Event(StrEnum):
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
    SUSPEND = "suspend"
    FAULT = "fault"
    CLOSE = "close"


def _waiting(wait: Event, overdue: State, then: State = State.IDLE) -> dict[Event, State]:
    """The row of a state in which every worker owes a reply."""
    return {
        wait: then,
        Event.SUSPEND: overdue,
        Event.FAULT: State.BROKEN,
        Event.CLOSE: State.CLOSED,
    }


def _overdue(wait: Event, overdue: State, then: State = State.IDLE) -> dict[Event, State]:
    """The row of a state in which a wait timed out or was interrupted: wait again, or reset."""
    return {**_waiting(wait, overdue, then), Event.RESET_ASYNC: State.RESETTING}


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.NEW: {
        Event.RESET_ASYNC: State.RESETTING,
        Event.CALL_ASYNC: State.CALLING_NEW,
        Event.FAULT: State.BROKEN,
        Event.CLOSE: State.CLOSED,
    },
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
    State.CALLING_NEW: _waiting(Event.CALL_WAIT, State.OVERDUE_NEW, State.NEW),
    State.STREAMING: {
        Event.SEND: State.STREAMING,
        Event.RECV: State.STREAMING,
        Event.DRAINED: State.IDLE,
        Event.RESET_ASYNC: State.RESETTING,
        Event.SUSPEND: State.STREAMING,
        Event.FAULT: State.BROKEN,
        Event.CLOSE: State.CLOSED,
    },
    State.OVERDUE_RESET: _overdue(Event.RESET_WAIT, State.OVERDUE_RESET),
    State.OVERDUE_STEP: _overdue(Event.STEP_WAIT, State.OVERDUE_STEP),
    State.OVERDUE_CALL: _overdue(Event.CALL_WAIT, State.OVERDUE_CALL),
    State.OVERDUE_NEW: _overdue(Event.CALL_WAIT, State.OVERDUE_NEW, State.NEW),
    State.BROKEN: {Event.RESET_ASYNC: State.RESETTING, Event.CLOSE: State.CLOSED},
    State.CLOSED: {Event.CLOSE: State.CLOSED},
}

_WAITS = {Event.RESET_WAIT: "reset", Event.STEP_WAIT: "step", Event.CALL_WAIT: "call"}
_BEFORE_RESET = (State.NEW, State.CALLING_NEW, State.OVERDUE_NEW)
_OVERDUE = (State.OVERDUE_RESET, State.OVERDUE_STEP, State.OVERDUE_CALL, State.OVERDUE_NEW)


def next_state(state: State, event: Event, call: str = "", pending: str = "") -> State:
    """Return the state that an event leads to; errors name the user's call and what is pending.

    Example:
        >>> next_state(State.IDLE, Event.STEP_ASYNC)
        <State.STEPPING: 'step'>
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise _refusal(state, event, call or event.value, pending or state.value) from None


def _refusal(state: State, event: Event, call: str, pending: str) -> VecspacesError:
    """Return the error for an event that is illegal in a state, with what to do instead."""
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
            f"{call} was called, but no {name} is pending (the state is {pending!r}): "
            f"call {name}_async first",
            name,
        )
    if state in _BEFORE_RESET and event in (Event.STEP_ASYNC, Event.SEND, Event.RECV):
        return ResetNeededError(f"{call} was called before the first reset: call reset() first")
    if event is Event.RECV:
        return NoAsyncCallError(
            f"recv was called, but nothing was sent (the state is {pending!r}): send first", "recv"
        )
    name = state.value.removeprefix("overdue ").partition(" ")[0]
    advice = "recv its results first" if state is State.STREAMING else f"call {name}_wait first"
    if state is State.STREAMING or state in _OVERDUE:
        advice += ", or reset()"
    return AlreadyPendingCallError(
        f"{call} was called while a {pending} is still pending: {advice}", name
    )
