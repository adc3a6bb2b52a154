"""Which calls are legal when, with a vector env in each state of the table.

The golden messages have the error of each refused call.
"""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

from tests.envs import ledgers
from tests.vector.engine.states import CALLS, LEGAL, STATES, in_state
from vecspaces.errors import AlreadyPendingCallError, StepTimeoutError, VecspacesError
from vecspaces.vector import SyncVectorEnv

END = {
    "reset_async": "reset_wait",
    "step_async": "step_wait",
    "call_async": "call_wait",
    "send": "recv",
    "send_reset": "recv",
}
# Whose wait ends at once: nothing is late.
PROMPT = ("reset", "step", "call", "call before the first reset", "streaming")


@pytest.mark.parametrize("state", STATES)
def test_what_is_refused_changes_nothing_and_what_is_legal_leads_back_to_a_step(state: str) -> None:
    for call in sorted(LEGAL[state]) or [None]:
        with in_state(state) as envs:
            for refused in CALLS.keys() - LEGAL[state]:
                with pytest.raises(VecspacesError):
                    CALLS[refused](envs)
            if call is None:  # it is closed
                return
            if call.endswith("_wait") and state not in PROMPT:
                with pytest.raises(StepTimeoutError):
                    getattr(envs, call)(timeout=0.0)
            else:
                with contextlib.suppress(ValueError):  # there was no step of a rollout
                    CALLS[call](envs)
                if call in END:
                    CALLS[END[call]](envs)
            envs.reset(seed=0)
            assert envs.step([1, 2])[0][:, 2:4].tolist() == [[1, 1], [1, 2]]


def test_set_attr_render_and_stats_are_calls() -> None:
    with SyncVectorEnv(ledgers(2), buffers=2, stats=True) as envs:
        envs.reset(seed=0)
        envs.step_async([1, 1])
        for use in (partial(envs.set_attr, "number", 1), envs.render):
            with pytest.raises(AlreadyPendingCallError, match="step"):
                use()
        envs.stats()  # of what was counted so far
        assert envs.step_wait()[0][:, 3].tolist() == [1, 1]
