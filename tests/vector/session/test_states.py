"""Which calls are legal when: the whole table without a process, and then with real vector envs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import ledgers
from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    StepTimeoutError,
    VecspacesError,
)
from vecspaces.testing.faulty_envs import GATE, FaultyEnv, OddError, arm, factories, open_gate
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.exchange.messages import HEADER, Op
from vecspaces.vector.session.states import Event, State, next_state

# The calls that are legal in each state; close() is in all of them.
LEGAL: dict[State, set[Event]] = {
    State.NEW: {Event.RESET_ASYNC, Event.CALL_ASYNC},
    State.IDLE: {
        Event.RESET_ASYNC,
        Event.STEP_ASYNC,
        Event.CALL_ASYNC,
        Event.SEND,
        Event.RECV,
    },
    State.RESETTING: {Event.RESET_WAIT},
    State.STEPPING: {Event.STEP_WAIT},
    State.CALLING: {Event.CALL_WAIT},
    State.CALLING_NEW: {Event.CALL_WAIT},
    State.STREAMING: {Event.SEND, Event.RECV, Event.RESET_ASYNC},
    State.OVERDUE_RESET: {Event.RESET_WAIT, Event.RESET_ASYNC},
    State.OVERDUE_STEP: {Event.STEP_WAIT, Event.RESET_ASYNC},
    State.OVERDUE_CALL: {Event.CALL_WAIT, Event.RESET_ASYNC},
    State.OVERDUE_NEW: {Event.CALL_WAIT, Event.RESET_ASYNC},
    State.BROKEN: {Event.RESET_ASYNC},
    State.CLOSED: set(),
}
BEFORE_RESET = {State.NEW, State.CALLING_NEW, State.OVERDUE_NEW}
NEEDS_RESET = {Event.STEP_ASYNC, Event.SEND, Event.RECV}
WAITS = {Event.RESET_WAIT, Event.STEP_WAIT, Event.CALL_WAIT}
# What comes from the workers or the clock is never refused: where it makes no sense it never comes.
CALLS = [event for event in Event if event not in (Event.SUSPEND, Event.FAULT, Event.DRAINED)]


def after(state: State, *events: Event) -> State:
    """The state that events lead to, one after the other."""
    for event in events:
        state = next_state(state, event)
    return state


# ---------------------------------------------------------------------- without a process


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_closed_for_good(state: State) -> None:
    assert after(state, Event.CLOSE) is after(state, Event.CLOSE, Event.CLOSE) is State.CLOSED


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", [event for event in CALLS if event is not Event.CLOSE])
def test_a_call_is_taken_where_it_is_legal_and_nowhere_else(state: State, event: Event) -> None:
    if event in LEGAL[state]:
        assert next_state(state, event) not in (State.BROKEN, State.CLOSED)
        return
    with pytest.raises(VecspacesError, match=event.value) as caught:
        next_state(state, event)
    assert any(word in str(caught.value) for word in ("first", "make a new vector env"))
    if state is State.CLOSED:
        assert type(caught.value) is ClosedEnvironmentError
    elif state is State.BROKEN or (state in BEFORE_RESET and event in NEEDS_RESET):
        assert type(caught.value) is ResetNeededError
    elif event in WAITS or event is Event.RECV:
        assert type(caught.value) is NoAsyncCallError
    else:
        assert type(caught.value) is AlreadyPendingCallError


@pytest.mark.parametrize("state", [state for state in State if state is not State.CLOSED])
def test_every_state_leads_back_to_idle_also_after_a_fault(state: State) -> None:
    for event in [Event.RESET_ASYNC, *WAITS]:
        if event in LEGAL[state]:
            state = after(state, event)
            break
    if state is State.NEW:
        state = after(state, Event.RESET_ASYNC)
    if state is State.RESETTING:
        state = after(state, Event.RESET_WAIT)
    assert state is State.IDLE
    broken = after(state, Event.STEP_ASYNC, Event.FAULT)
    assert after(broken, Event.RESET_ASYNC, Event.RESET_WAIT) is State.IDLE


@pytest.mark.parametrize(
    ("begin", "wait"),
    [
        (Event.RESET_ASYNC, Event.RESET_WAIT),
        (Event.STEP_ASYNC, Event.STEP_WAIT),
        (Event.CALL_ASYNC, Event.CALL_WAIT),
    ],
)
def test_after_a_timeout_one_may_wait_again_or_reset(begin: Event, wait: Event) -> None:
    late = after(State.IDLE, begin, Event.SUSPEND)
    assert after(late, Event.SUSPEND, wait) is State.IDLE
    assert after(late, Event.RESET_ASYNC, Event.RESET_WAIT) is State.IDLE


def test_a_stream_ends_when_everything_was_received() -> None:
    sent = after(State.IDLE, Event.SEND)
    assert after(sent, Event.SEND, Event.RECV, Event.SUSPEND, Event.RECV) is sent
    assert after(sent, Event.RECV, Event.DRAINED) is State.IDLE


@pytest.mark.parametrize("op", Op)
def test_an_op_fits_into_a_header(op: Op) -> None:
    fields = (int(op), 2, 65535, 2**32 - 1, 2**40)
    assert HEADER.unpack(HEADER.pack(*fields)) == fields


# ---------------------------------------------------------------------- with two workers

ACTIONS = np.array([1, 2])
LATE = 0.02

CALL: dict[Event, Callable[[Any], Any]] = {
    Event.RESET_ASYNC: lambda envs: envs.reset_async(seed=9),
    Event.RESET_WAIT: lambda envs: envs.reset_wait(),
    Event.STEP_ASYNC: lambda envs: envs.step_async(ACTIONS),
    Event.STEP_WAIT: lambda envs: envs.step_wait(),
    Event.CALL_ASYNC: lambda envs: envs.call_async("poke", 3),
    Event.CALL_WAIT: lambda envs: envs.call_wait(),
    Event.SEND: lambda envs: envs.send(ACTIONS[:1], env_ids=[0]),
    Event.RECV: lambda envs: envs.recv(),
}
# The call that is pending in a state.
PENDING = {
    State.RESETTING: Event.RESET_ASYNC,
    State.STEPPING: Event.STEP_ASYNC,
    State.CALLING: Event.CALL_ASYNC,
    State.CALLING_NEW: Event.CALL_ASYNC,
    State.STREAMING: Event.SEND,
    State.OVERDUE_RESET: Event.RESET_ASYNC,
    State.OVERDUE_STEP: Event.STEP_ASYNC,
    State.OVERDUE_CALL: Event.CALL_ASYNC,
    State.OVERDUE_NEW: Event.CALL_ASYNC,
}
OVERDUE = {
    State.OVERDUE_RESET: "reset",
    State.OVERDUE_STEP: "step",
    State.OVERDUE_CALL: "call",
    State.OVERDUE_NEW: "call",
}
END = {
    Event.RESET_ASYNC: Event.RESET_WAIT,
    Event.STEP_ASYNC: Event.STEP_WAIT,
    Event.CALL_ASYNC: Event.CALL_WAIT,
    Event.SEND: Event.RECV,
}


def receive_both(envs: Any) -> list[Any]:
    """Receive two environments; which of them is first is left to chance."""
    got = [envs.recv() for _ in range(2)]
    rows = [(one.env_ids[0], one.rewards[0], one.observations["place"][0].tolist()) for one in got]
    return sorted(rows)


class InState:
    """A vector env of two workers in a state, and a model that had the same calls.

    The model is neither late nor broken.

    Args:
        state: The state that `bring` leads to, by calls alone.
        folder: For what makes the second environment late, or fail.
    """

    def __init__(self, state: State, folder: Path) -> None:
        self.state, self.folder = state, folder
        deed = GATE if state in OVERDUE else "exception" if state is State.BROKEN else None
        env_fns = factories(2, folder, deed, OVERDUE.get(state, "step"), at=1)
        self.envs: Any = AsyncVectorEnv(env_fns, num_workers=2, batch_size=1)
        healthy = [partial(FaultyEnv, index) for index in range(2)]
        self.model: Any = AsyncVectorEnv(healthy, num_workers=1, batch_size=1)

    def bring(self) -> None:
        """Bring the vector env into the state."""
        state = self.state
        if state not in BEFORE_RESET:
            self.both(lambda envs: envs.reset(seed=5))
        arm(self.folder)
        if state in PENDING:
            self.both(CALL[PENDING[state]])
        if state in OVERDUE:
            with pytest.raises(StepTimeoutError):
                getattr(self.envs, f"{OVERDUE[state]}_wait")(timeout=LATE)
        if state is State.BROKEN:
            with pytest.raises(OddError):
                self.envs.step(ACTIONS)
        if state is State.CLOSED:
            self.envs.close()

    def close(self) -> None:
        self.model.close()
        self.envs.close(terminate=True)

    def both(self, do: Callable[[Any], Any]) -> None:
        """Do it with both, which gives the same."""
        assert_identical(do(self.envs), do(self.model))

    def take(self, event: Event) -> None:
        """Make a legal call, and the one that ends it; afterwards both can step."""
        if event is Event.RESET_ASYNC:
            if self.state in PENDING and self.state is not State.STREAMING:
                CALL[END[PENDING[self.state]]](self.model)
            self.envs.reset_async(seed=9)
            assert_identical(self.envs.reset_wait(), self.model.reset(seed=9))
        elif event in (Event.SEND, Event.RECV):
            if event is Event.SEND:
                row = 1 if self.state is State.STREAMING else 0
                self.both(lambda envs: envs.send(ACTIONS[[row]], env_ids=[row]))
            self.both(receive_both)
        else:
            if self.state in OVERDUE:
                open_gate(self.folder)
            self.both(CALL[event])
            if event in END:
                self.both(CALL[END[event]])
            if self.state in BEFORE_RESET:
                self.both(lambda envs: envs.reset(seed=5))
        self.both(lambda envs: envs.step(ACTIONS))


@pytest.fixture
def in_state(tmp_path: Path) -> Iterator[Callable[[State], InState]]:
    """Make a vector env in a state, and close it after the test."""
    with contextlib.ExitStack() as stack:

        def make(state: State) -> InState:
            made = InState(state, tmp_path)
            stack.callback(made.close)
            made.bring()
            return made

        yield make


needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the gate is a FIFO")


@needs_fifo
@pytest.mark.parametrize(
    ("state", "event"),
    [(state, event) for state in State for event in CALL if event in LEGAL[state]],
)
def test_what_is_legal_gives_the_right_answer(
    state: State, event: Event, in_state: Callable[[State], InState]
) -> None:
    in_state(state).take(event)


@needs_fifo
@pytest.mark.parametrize("state", State)
def test_what_is_refused_changes_nothing(
    state: State, in_state: Callable[[State], InState]
) -> None:
    made = in_state(state)
    for event in CALL:
        if event not in LEGAL[state]:
            with pytest.raises(VecspacesError):
                CALL[event](made.envs)
    if state is not State.CLOSED:
        made.take(END[PENDING[state]] if state in PENDING else Event.RESET_ASYNC)


def test_set_attr_stats_render_and_rollouts_are_refused_too() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=1, buffers=2) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        for use in (partial(envs.set_attr, "number", 1), envs.render, envs.rollout_view):
            with pytest.raises(AlreadyPendingCallError, match="step"):
                use()
        assert envs.step_wait()[0][:, 3].tolist() == [1, 1]
        envs.rollout_view()
