"""Which call is allowed: the five fields of the state, and the function that decides.

`session.py` decides for which rows a call is allowed (a row under way accepts no second command).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)


class State(NamedTuple):
    """The state of a vector env; replaced as a whole, so that an interrupt sees no half of it.

    Attributes:
        pending: The command that has not ended: "reset", "step", "call", or "send" while rows are
            under way or wait to be received; "" for none.
        overdue: Whether a wait for this command ended early, by a timeout or an interrupt.
        new: Whether no reset has ended yet.
        broken: Whether workers or environments are broken after an error, and must be built by a
            reset.
        closed: Whether everything was freed.
    """

    pending: str = ""
    overdue: bool = False
    new: bool = False
    broken: bool = False
    closed: bool = False

    @cache  # noqa: B019 - there are few states
    def allows(self, call: str) -> bool:
        """Return whether a call is allowed: "reset", "step", "call", "send", "recv", or a wait."""
        if self.closed or self.broken:
            return call == "reset" and not self.closed
        if call.endswith("_wait"):
            return call == f"{self.pending}_wait"
        if call == "reset":
            return self.pending in ("", "send") or self.overdue
        if self.new and call != "call":
            return False
        return not self.pending or (self.pending == "send" and call != "step")

    def describe(self) -> str:
        """Describe the state briefly."""
        if self.closed:
            return "closed"
        if self.broken:
            return "broken until reset()"
        late = " (overdue)" if self.overdue else ""
        return f"{self.pending} pending{late}" if self.pending else "new" if self.new else "ready"

    def refusal(self, call: str, name: str, late: str) -> VecspacesError:
        """Return the error of a refused call: why, and what to do instead.

        `name` is the method that the user called; `late` describes a pending call that is overdue.
        """
        if self.closed:
            return ClosedEnvironmentError(f"{name} was called after close(): make a new vector env")
        if self.broken:
            return ResetNeededError(
                f"{name} was called after an error that broke environments: call reset() without a "
                "reset_mask first (it builds the broken ones again), or close()"
            )
        before = self.new and self.pending != "reset"
        doing = self.pending or ("new" if self.new else "idle")
        if before and self.pending:
            doing = f"{self.pending} before the first reset"
        if self.overdue:
            doing = late
        if call.endswith("_wait"):
            wanted = call.removesuffix("_wait")
            return NoAsyncCallError(
                f"{name} was called, but no {wanted} is pending (the state is {doing!r}): "
                f"call {wanted}_async first",
                wanted,
            )
        if before and call != "reset" and call != "call":
            return ResetNeededError(f"{name} was called before the first reset: call reset() first")
        if call == "recv":
            return NoAsyncCallError(
                f"recv was called, but nothing was sent (the state is {doing!r}): send first", call
            )
        streams = self.pending == "send"
        advice = "recv its results first" if streams else f"call {self.pending}_wait first"
        if streams or self.overdue:
            advice += ", or reset()"
        return AlreadyPendingCallError(
            f"{name} was called while a {doing} is still pending: {advice}", self.pending
        )
