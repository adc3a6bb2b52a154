"""A vector env in each state that calls lead to, and the errors of the calls that it refuses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

from tests.envs import Failing
from vecspaces.errors import StepTimeoutError, VecspacesError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.process.channel import Poller

CALLS: dict[str, Callable[[Any], Any]] = {
    "reset_async": lambda envs: envs.reset_async(),
    "reset_wait": lambda envs: envs.reset_wait(),
    "step_async": lambda envs: envs.step_async([0, 0]),
    "step_wait": lambda envs: envs.step_wait(),
    "call_async": lambda envs: envs.call_async("number"),
    "call_wait": lambda envs: envs.call_wait(),
    "send": lambda envs: envs.send([0], [1]),
    "send_reset": lambda envs: envs.send_reset([1]),
    "recv": lambda envs: envs.recv(1),
    "rollout": lambda envs: envs.rollout_view(),
}


class Late(Failing):
    """Fails at the action 4; takes very long to step at the action 3, to be called or reset so."""

    def step(self, action: Any) -> Any:
        if action == 3:
            self.hang()
        return super().step(action)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if options:
            self.hang()
        return super().reset(seed=seed)

    def hang(self) -> None:
        time.sleep(1000)


# The call that brings a vector env into a state, after a reset and before one.
AFTER_RESET: dict[str, Callable[[Any], Any]] = {
    "idle": lambda envs: None,
    "reset": lambda envs: envs.reset_async(),
    "step": lambda envs: envs.step_async([1, 1]),
    "call": lambda envs: envs.call_async("number"),
    "streaming": lambda envs: envs.send([1], [0]),
    "broken": lambda envs: envs.step([1, 4]),
    "closed": lambda envs: envs.close(),
    "overdue reset": lambda envs: envs.reset_async(options={"late": True}),
    "overdue step": lambda envs: envs.step_async([1, 3]),
    "overdue call": lambda envs: envs.call_async("hang"),
    "interrupted step": lambda envs: envs.step_async([1, 3]),
}
BEFORE_RESET: dict[str, Callable[[Any], Any]] = {
    "new": lambda envs: None,
    "call before the first reset": lambda envs: envs.call_async("number"),
    "overdue call before the first reset": lambda envs: envs.call_async("hang"),
}
# The calls that are legal in each state; close() is in all of them.
LEGAL: dict[str, set[str]] = {
    "idle": {"reset_async", "step_async", "call_async", "send", "send_reset", "recv", "rollout"},
    "reset": {"reset_wait"},
    "step": {"step_wait"},
    "call": {"call_wait"},
    "streaming": {"reset_async", "send", "send_reset", "recv"},
    "broken": {"reset_async"},
    "closed": set(),
    "overdue reset": {"reset_async", "reset_wait"},
    "overdue step": {"reset_async", "step_wait"},
    "overdue call": {"reset_async", "call_wait"},
    "interrupted step": {"reset_async", "step_wait"},
    "new": {"reset_async", "call_async", "send_reset"},
    "call before the first reset": {"call_wait"},
    "overdue call before the first reset": {"reset_async", "call_wait"},
}
STATES = tuple(LEGAL)


@contextlib.contextmanager
def in_state(state: str) -> Iterator[Any]:
    """Make a vector env of two environments in a state; it closes at the end."""
    late = state.startswith(("overdue", "interrupted"))
    make: Any = partial(AsyncVectorEnv, num_workers=1) if late else SyncVectorEnv
    envs = make([partial(Late, number, length=99) for number in range(2)], buffers=2)
    try:
        if state in AFTER_RESET:
            envs.reset(seed=0)
        with contextlib.suppress(FloatingPointError):
            {**AFTER_RESET, **BEFORE_RESET}[state](envs)
        if late:
            wait = getattr(envs, f"{state.split()[1]}_wait")
            if state.startswith("interrupted"):
                interrupt = mock.patch.object(Poller, "wait", side_effect=KeyboardInterrupt)
                with interrupt, contextlib.suppress(KeyboardInterrupt):
                    wait()
            else:
                with contextlib.suppress(StepTimeoutError):
                    wait(timeout=0.01)
        yield envs
    finally:
        envs.close(terminate=True)


def refusals(state: str) -> str:
    """Return the error of each call that is not in `LEGAL`, made one after the other."""
    lines = []
    with in_state(state) as envs:
        for name in [name for name in CALLS if name not in LEGAL[state]]:
            try:
                lines.append(f"{name} gave {CALLS[name](envs)}")
            except VecspacesError as error:
                pending = f" (name={error.name!r})" if hasattr(error, "name") else ""
                lines.append(f"{type(error).__name__}{pending}: {error}")
    return "\n".join(lines)
