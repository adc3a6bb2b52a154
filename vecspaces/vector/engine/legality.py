"""Legality: the calls that each state allows, and the errors of refused calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vecspaces.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
    ResetNeededError,
    VecspacesError,
)
from vecspaces.vector.engine.rows import BUSY, FAILED, LOST, NEW, READY, RowTable
from vecspaces.vector.engine.tickets import Ticket
from vecspaces.vector.exchange.failures import Message

#: The calls that are allowed while a reset, step or call is pending; "": nothing is. `reset` is
#: also allowed if a wait for the pending command ended early.
WHILE_PENDING: Mapping[str, frozenset[str]] = {
    "": frozenset({"reset", "masked reset", "step", "send", "send_reset", "recv", "call"}),
    "reset": frozenset({"reset_wait"}),
    "step": frozenset({"step_wait"}),
    "call": frozenset({"call_wait"}),
}
#: The flags with which any row refuses a call.
REFUSED_BY_ANY: Mapping[str, int] = {
    "step": NEW | BUSY | READY | FAILED | LOST,
    "send": LOST,
    "send_reset": LOST,
    "recv": LOST,
    "call": LOST,
    "reset": 0,
    "masked reset": BUSY | READY | LOST,
}
#: The calls that are allowed before the first reset.
BEFORE_RESET = frozenset({"reset", "call", "send_reset"})
#: The flags with which a row refuses a call that names it.
REFUSED_BY_NAMED: Mapping[str, int] = {
    "send": NEW | BUSY | READY | FAILED,
    "send_reset": BUSY | READY,
    "call": BUSY | FAILED,
    "send_call": BUSY | READY | FAILED,
}


def _accepted(refused: int) -> bytes:
    """Return the states that have none of the refused flags."""
    return bytes(state for state in range(2 * LOST) if not state & refused)


_OF_ALL = {call: _accepted(flags) for call, flags in REFUSED_BY_ANY.items()}
_OF_NAMED = {call: _accepted(flags) for call, flags in REFUSED_BY_NAMED.items()}


def allows(call: str, pending: Ticket | None, rows: RowTable) -> bool:
    """Whether a vector env allows a call; for calls that name rows, see `refusing` too."""
    if pending is not None:
        return call in WHILE_PENDING[pending.call] or (call == "reset" and pending.is_overdue)
    if rows.is_new and call not in BEFORE_RESET:
        return False
    if call not in _OF_ALL or rows.state == rows.all_idle:
        return call in _OF_ALL
    # The translation deletes the accepted states.
    return not rows.state.translate(None, _OF_ALL[call])


def refusing(call: str, rows: Iterable[int], table: RowTable) -> list[int]:
    """Return the named rows that refuse a call."""
    state, accepted = table.state, _OF_NAMED[call]
    return [row for row in rows if state[row] not in accepted]


# ------------------------------------------------------------------ the errors


def refuse_closed(name: str, is_foreign: bool) -> ClosedEnvironmentError:
    """Return the error of a call after `close()`, or in a process that was forked."""
    if is_foreign:
        return ClosedEnvironmentError(
            f"{name} was called in a process that was forked from the one that made the vector "
            "env, which alone can use it: make another one here"
        )
    return ClosedEnvironmentError(f"{name} was called after close(): make a new vector env")


def refuse(
    call: str, name: str, pending: Ticket | None, rows: RowTable, late: str
) -> VecspacesError:
    """Return the error of a call that `allows` refused: why, and what to do instead.

    `name` is the method that the user called; `late` describes a pending call that is overdue.
    """
    kind = "" if pending is None else pending.call
    is_overdue = pending is not None and pending.is_overdue
    is_new, streams = rows.is_new, not kind and not allows("masked reset", None, rows)
    if call == "masked reset":
        return ResetNeededError(
            f"{name}: a reset_mask was given before the first reset, while a call is pending, "
            "or while environments are broken: reset all environments first"
        )
    if not kind and max(rows.state) >= LOST:
        return ResetNeededError(
            f"{name} was called after an error that broke environments: call reset() without a "
            "reset_mask first (it builds the broken ones again), or close()"
        )
    before = is_new and kind != "reset"
    doing = kind or ("new" if is_new else "send" if streams else "idle")
    if before and kind:
        doing = f"{kind} before the first reset"
    if is_overdue:
        doing = late
    if call.endswith("_wait"):
        wanted = call.removesuffix("_wait")
        return NoAsyncCallError(
            f"{name} was called, but no {wanted} is pending (the state is {doing!r}): "
            f"call {wanted}_async first",
            wanted,
        )
    if before and call not in ("reset", "call"):
        return ResetNeededError(f"{name} was called before the first reset: call reset() first")
    if call == "recv":
        return NoAsyncCallError(
            f"recv was called, but nothing was sent (the state is {doing!r}): send first", call
        )
    if not kind and not streams:
        return refuse_rows(name, rows.having(FAILED) or rows.having(NEW), rows)
    advice = "recv its results first" if streams else f"call {kind}_wait first"
    if streams or is_overdue:
        advice += ", or reset()"
    return AlreadyPendingCallError(
        f"{name} was called while a {doing} is still pending: {advice}", kind or "send"
    )


def refuse_rows(name: str, rows: Sequence[int], table: RowTable) -> VecspacesError:
    """Return the error for named rows that refuse a call."""
    state = table.state
    failed = [row for row in rows if state[row] & FAILED]
    busy = [row for row in rows if state[row] & BUSY]
    unread = [row for row in rows if state[row] & READY and row not in failed]
    if busy or unread:
        what = "is not there yet" if busy else "was not received yet"
        text = "{}: the last reply of {:envs} {}: recv first"
        return AlreadyPendingCallError(Message(text, name, busy or unread, what), "send")
    if not failed:
        text = "{}: {:envs} must be reset first, by reset or send_reset"
        return ResetNeededError(Message(text, name, rows))
    advice = "send_reset or reset() first"
    if not table.ready.keys().isdisjoint(failed):
        advice = "recv the exception and then send_reset, or reset()"
    them = "it" if len(failed) == 1 else "them"
    text = "{}: {:envs} failed: {}, which builds {} again"
    return ResetNeededError(Message(text, name, failed, advice, them))
