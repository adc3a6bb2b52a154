"""What environments return, checked: rewards, flags, infos and the form of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.checks import show_value
from vecspaces.errors import InvalidInfoError, InvalidObservationError, InvalidRewardError
from vecspaces.layout import Mismatch
from vecspaces.vector.exchange.failures import EnvIds, Message

_PARTS = {
    "reset": "observation, info",
    "step": "observation, reward, terminated, truncated, info",
}


class Finding(Exception):  # noqa: N818 (a finding, of which `as_error` makes the user's error)
    """What an environment returned is not what it must be.

    Args:
        kind: The type of the error that the user gets.
        text: Its message, as it goes on after the name of the environment.
        row: The environment, where it is not the one that ran last.
    """

    def __init__(self, kind: type[Exception], text: str, row: int | None = None) -> None:
        super().__init__(kind, text, row)
        self.kind, self.text, self.row = kind, text, row


def as_error(error: BaseException, row: int, command: str) -> tuple[BaseException, int]:
    """Return the error that the user gets for what environments returned, and its environment."""
    if isinstance(error, Mismatch):
        row = row if error.row is None else error.row
        finding = Mismatch(error.expected, error.found, error.path, name="observation")
        message = Message(
            "{} returned an invalid observation in {}: {}: "
            "make it return what its observation_space says",
            EnvIds([row]),
            command,
            finding,
        )
        return InvalidObservationError(message).with_traceback(error.__traceback__), row
    if isinstance(error, Finding):
        row = row if error.row is None else error.row
        found = error.kind(Message("{}{}", EnvIds([row]), error.text))
        return found.with_traceback(error.__traceback__), row
    return error, row


def wrong_form(error: Exception, command: str) -> Finding:
    """Make the finding about a result that could not be taken apart."""
    return Finding(type(error), f": {command} must return ({_PARTS[command]}): {error}")


def as_rewards(rewards: list[Any], rows: Sequence[int]) -> npt.NDArray[Any]:
    """Make one array of the rewards of environments: numbers, or arrays that hold one."""
    try:
        batch = np.array(rewards)
    except Exception:  # ragged, or what a foreign object's __array__ raises
        batch = np.empty(0, dtype=object)
    if batch.dtype.kind in "fiub" and batch.shape == (len(rewards),):
        return batch
    return np.array([_as_reward(one, row) for one, row in zip(rewards, rows, strict=True)])


def _as_reward(reward: Any, row: int) -> float:
    """Turn any number, or an array that holds one, into a float."""
    with suppress(Exception):  # a foreign object's conversion may raise anything
        array = np.asarray(reward)
        is_list = isinstance(reward, (list, tuple))
        if array.dtype.kind in "fiub" and array.size == 1 and array.ndim <= 1 and not is_list:
            return float(array.reshape(())[()])
        if array.dtype == object and not is_list:
            return float(reward)
    found = f" returned {show_value(reward)} as its reward: expected a number"
    raise Finding(InvalidRewardError, found, row)


def as_info(info: Any) -> dict[str, Any]:
    """Return an info, checked to be a dict."""
    if not isinstance(info, dict):
        found = f": expected a dict as info, found {type(info).__name__}: return {{}} for no info"
        raise Finding(InvalidInfoError, found)
    return info
