"""Checks that run in every step, even without `validate=True`: the form of results."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import RAISED, show_value
from vecspaces.errors import InvalidInfoError, InvalidObservationError, InvalidRewardError
from vecspaces.layout import Mismatch
from vecspaces.layout.columns import FLOATS
from vecspaces.vector.exchange.failures import Failure, Message

_PARTS = {
    "reset": "observation, info",
    "step": "observation, reward, terminated, truncated, info",
}
# An integer may be beyond the range of floats.
_NUMBERS = FLOATS | {int, bool}


class InvalidResult(Exception):  # noqa: N818 (`failed` makes the user's error of it)
    """An environment returned a wrong result.

    `kind` is the type of the user's error; `actual` is what was returned, or empty; `row` is None
    for the environment that ran last.
    """

    def __init__(
        self, kind: type[Exception], actual: str, expected: str, row: int | None = None
    ) -> None:
        super().__init__(kind, actual, expected, row)
        self.kind, self.actual, self.expected, self.row = kind, actual, expected, row

    @property
    def text(self) -> str:
        """The part of the message after the name of the environment."""
        return f" returned {self.actual}: {self.expected}" if self.actual else f": {self.expected}"

    def in_call(self, where: str) -> InvalidResult:
        """Return the error with the call that returned the result."""
        return InvalidResult(self.kind, f"{self.actual} in {where}", self.expected, self.row)

    @classmethod
    def outside(cls, name: str, reason: object, row: int | None = None) -> InvalidResult:
        """Make the error for an observation or info, called `name`, outside of its space."""
        is_info = name == "info"
        kind = InvalidInfoError if is_info else InvalidObservationError
        advice = ", or leave the key out" if is_info else ""
        expected = f"{reason}: make it return what its {name}_space holds{advice}"
        return cls(kind, f"an invalid {name}", expected, row)


def failed(error: BaseException, rows: Sequence[int], command: str) -> Failure:
    """Make the failure of the environment that the error names, or else of those that ran."""
    reported: BaseException = error
    if isinstance(error, Mismatch):
        name = error.name or "observation"
        reason = Mismatch(error.expected, error.actual, error.path, name=name)
        result = InvalidResult.outside(name, reason, error.row).in_call(command)
        error = result.with_traceback(error.__traceback__)
    if isinstance(error, InvalidResult):
        rows = rows if error.row is None else (error.row,)
        reported = error.kind(Message("{:envs}{}", rows, error.text))
        reported = reported.with_traceback(error.__traceback__)
    return Failure.of(reported, rows, command)


def is_from_env(error: BaseException, others_go_on: bool = True) -> bool:
    """Whether an exception belongs to the environment that raised it: its type is in `RAISED`.

    If other rows continue, this holds for all exceptions except KeyboardInterrupt: libraries that
    wait raise exceptions that are no `Exception`, such as the cancellation of a task.
    """
    kind = type(error)  # isinstance would read the exception's __class__, which may raise
    passes = not others_go_on or issubclass(kind, KeyboardInterrupt)
    return issubclass(kind, RAISED) or not passes


def wrong_form(error: Exception, command: str) -> InvalidResult:
    """Make the error for a result that could not be unpacked."""
    expected = f"{command} must return ({_PARTS[command]}): {error}"
    return InvalidResult(type(error), "", expected)


def unpack_reset(result: Any) -> tuple[Any, dict[str, Any]]:
    """Return the observation and the info of what `reset` returned."""
    try:
        observation, info = result
    except (TypeError, ValueError) as error:
        raise wrong_form(error, "reset") from None
    return observation, info if info.__class__ is dict else as_info(info, "reset")


def reward_writer(out: npt.NDArray[np.float64], low: int) -> Callable[[list[Any]], None]:
    """Make the function that writes the rewards of all rows, from `low` on, into their array."""
    pack, memory = struct.Struct(f"{len(out)}d").pack_into, out.data.cast("B")

    def write(rewards: list[Any]) -> None:
        if _NUMBERS.issuperset(map(type, rewards)):
            try:
                pack(memory, 0, *rewards)
                return
            except struct.error:
                pass  # an integer beyond the range of floats, which `as_reward` names
        try:
            batch = np.array(rewards)
        except RAISED:  # ragged, or an error of a foreign object's __array__
            batch = np.empty(0, dtype=object)
        if batch.dtype.kind not in "fiub" or batch.shape != out.shape:
            batch = np.array([as_reward(reward, row) for row, reward in enumerate(rewards, low)])
        out[:] = batch

    return write


def as_reward(reward: Any, row: int | None = None) -> float:
    """Return a reward, which is a number or an array with one number, as a float."""
    if type(reward) in _NUMBERS:
        with suppress(OverflowError):  # an integer beyond the range of floats
            return float(reward)
    is_vector = isinstance(reward, (list, tuple))
    if not is_vector:
        with suppress(*RAISED):  # a foreign object's conversion may raise anything
            array = np.asarray(reward)
            if array.dtype.kind in "fiub" and array.size == 1 and array.ndim <= 1:
                return float(array.reshape(())[()])
            is_vector = array.ndim == 1
            if array.dtype == object:
                return float(reward)
    expected = "expected a number"
    if is_vector:
        expected += "; for several objectives, wrap it in vecspaces.envs.VectorReward(env, weights)"
    raise InvalidResult(InvalidRewardError, f"{show_value(reward)} as its reward", expected, row)


def as_info(info: Any, command: str = "step") -> dict[str, Any]:
    """Return an info as a plain dict with the keys that it shows."""
    if info.__class__ is dict:
        return info
    if not isinstance(info, dict):
        actual, expected = f"{show_value(info)} as its info", "expected a dict, which may be empty"
        if command == "reset":  # it may have returned an observation of two parts, and no info
            expected += f"; reset must return ({_PARTS[command]})"
        raise InvalidResult(InvalidInfoError, actual, expected)
    return dict(info)
