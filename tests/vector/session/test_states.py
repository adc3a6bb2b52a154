"""Which calls are legal when: every cell of the five fields, and then with real vector envs."""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import product

import pytest

from tests.envs import ledgers
from tests.vector.session.states import CALLS, LEGAL, STATES, in_state
from vecspaces.errors import AlreadyPendingCallError, StepTimeoutError, VecspacesError
from vecspaces.vector import SyncVectorEnv
from vecspaces.vector.session.states import State

KINDS = {"reset_async": "reset", "step_async": "step", "call_async": "call", "rollout": "step"}
# The fields of each state of the table.
FIELDS = {
    "idle": State(),
    "reset": State("reset"),
    "step": State("step"),
    "call": State("call"),
    "overdue reset": State("reset", overdue=True),
    "overdue step": State("step", overdue=True),
    "overdue call": State("call", overdue=True),
    "interrupted step": State("step", overdue=True),
    "new": State(new=True),
    "call before the first reset": State("call", new=True),
    "overdue call before the first reset": State("call", overdue=True, new=True),
}
END = {
    "reset_async": "reset_wait",
    "step_async": "step_wait",
    "call_async": "call_wait",
    "send": "recv",
    "send_reset": "recv",
}
PENDING = {
    "reset": "reset_wait",
    "step": "step_wait",
    "call": "call_wait",
    "call before the first reset": "call_wait",
    "streaming": "recv",
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_call_is_legal_where_the_table_says_so(name: str) -> None:
    for call in CALLS:
        kind = KINDS.get(call, "send" if call == "send_reset" else call)
        assert FIELDS[name].allows(kind) == (call in LEGAL[name]), call


def test_in_a_stream_rows_decide_about_calls() -> None:
    kinds = {"reset", "call", "send", "recv"}
    every = {*KINDS.values(), "send", "recv", *(f"{kind}_wait" for kind in ("reset", "step"))}
    assert {kind for kind in every if State("send").allows(kind)} == kinds


@pytest.mark.parametrize("pending", ["", "reset", "step", "call", "send"])
def test_a_broken_one_is_reset_and_a_closed_one_takes_no_call(pending: str) -> None:
    for overdue, new, broken in product([False, True], repeat=3):
        closed = State(pending, overdue, new, broken, closed=True)
        assert not any(closed.allows(KINDS.get(call, call)) for call in CALLS)
    for overdue, new in product([False, True], repeat=2):
        broken = State(pending, overdue, new, broken=True)
        legal = {call for call in CALLS if broken.allows(KINDS.get(call, call))}
        assert legal == {"reset_async"}


@pytest.mark.parametrize("state", STATES)
def test_what_is_legal_leads_back_to_a_step(state: str) -> None:
    for call in sorted(LEGAL[state]):
        with in_state(state) as envs:
            if call.endswith("_wait") and state not in PENDING:  # it is overdue
                with pytest.raises(StepTimeoutError):
                    getattr(envs, call)(timeout=0.0)
            else:
                with contextlib.suppress(ValueError):  # there was no step of a rollout
                    CALLS[call](envs)
                if call in END:
                    CALLS[END[call]](envs)
            envs.reset(seed=0)
            assert envs.step([1, 2])[0][:, 2:4].tolist() == [[1, 1], [1, 2]]


@pytest.mark.parametrize("state", STATES)
def test_what_is_refused_changes_nothing(state: str) -> None:
    with in_state(state) as envs:
        for call in CALLS:
            if call not in LEGAL[state]:
                with pytest.raises(VecspacesError):
                    CALLS[call](envs)
        if state in PENDING:
            CALLS[PENDING[state]](envs)
        if state in ("idle", "step", "call", "reset"):
            expected = 2 if state == "step" else 1
            assert envs.step([1, 1])[0][:, 2].tolist() == [expected, expected]
        elif state != "closed":
            envs.reset(seed=0)


def test_set_attr_render_and_stats_are_calls() -> None:
    with SyncVectorEnv(ledgers(2), buffers=2, stats=True) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        for use in (partial(envs.set_attr, "number", 1), envs.render):
            with pytest.raises(AlreadyPendingCallError, match="step"):
                use()
        envs.stats()  # of what was counted so far
        assert envs.step_wait()[0][:, 3].tolist() == [1, 1]
