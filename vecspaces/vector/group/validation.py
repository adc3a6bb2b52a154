"""Checks of what environments return: rewards, infos, the form of the whole."""

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
# What a Mismatch is about: an observation, or a value of an info that is called so.
_RETURNED: dict[bool, tuple[type[Exception], str, str]] = {
    False: (InvalidObservationError, "observation", ""),
    True: (InvalidInfoError, "info", ", or leave the key out"),
}
# An integer may be beyond all floats.
_NUMBERS = FLOATS | {int, bool}
# So few rewards are written faster one by one.
_FEWEST = 2


class Finding(Exception):  # noqa: N818 (a finding, of which `failed` makes the user's error)
    """What an environment returned is not what it must be.

    Args:
        kind: The type of the error that the user gets.
        text: Its message, as it goes on after the name of the environment.
        row: The environment, where it is not the one that ran last.
    """

    def __init__(self, kind: type[Exception], text: str, row: int | None = None) -> None:
        super().__init__(kind, text, row)
        self.kind, self.text, self.row = kind, text, row


def failed(error: BaseException, rows: Sequence[int], command: str) -> Failure:
    """Make the failure of the environments that ran, or of the one that a finding is about."""
    found: BaseException = error
    if isinstance(error, Mismatch):
        rows = rows if error.row is None else (error.row,)
        kind, name, advice = _RETURNED[error.name == "info"]
        finding = Mismatch(error.expected, error.found, error.path, name=name)
        message = Message(
            "{:envs} returned an invalid {} in {}: {}: make it return what its {}_space holds{}",
            rows,
            name,
            command,
            finding,
            name,
            advice,
        )
        found = kind(message).with_traceback(error.__traceback__)
    elif isinstance(error, Finding):
        rows = rows if error.row is None else (error.row,)
        message = Message("{:envs}{}", rows, error.text)
        found = error.kind(message).with_traceback(error.__traceback__)
    return Failure.of(found, rows, command)


def wrong_form(error: Exception, command: str) -> Finding:
    """Make the finding about a result that could not be taken apart."""
    return Finding(type(error), f": {command} must return ({_PARTS[command]}): {error}")


def take_reset_apart(result: Any) -> tuple[Any, dict[str, Any]]:
    """Return the observation and the info of what `reset` returned."""
    try:
        observation, info = result
    except (TypeError, ValueError) as error:
        raise wrong_form(error, "reset") from None
    return observation, as_info(info)


def reward_writer(out: npt.NDArray[np.float64], low: int) -> Callable[[list[Any]], None]:
    """Make the function that writes the rewards of all rows, from `low` on, into their array."""
    pack, memory = struct.Struct(f"{len(out)}d").pack_into, out.data.cast("B")

    def write(rewards: list[Any]) -> None:
        if _NUMBERS.issuperset(map(type, rewards)):
            try:
                pack(memory, 0, *rewards)
                return
            except struct.error:
                pass  # an integer beyond all floats, which is named below
        out[:] = as_rewards(rewards, range(low, low + len(rewards)))

    view: Any = out.data

    def write_few(rewards: list[Any]) -> None:
        for number, reward in enumerate(rewards):
            if reward.__class__ not in FLOATS:
                write(rewards)
                return
            view[number] = reward

    return write_few if len(out) <= _FEWEST else write


def as_reward(reward: Any, row: int) -> float:
    """Turn any number, or an array that holds one, into a float."""
    with suppress(*RAISED):  # a foreign object's conversion may raise anything
        array = np.asarray(reward)
        is_list = isinstance(reward, (list, tuple))
        if array.dtype.kind in "fiub" and array.size == 1 and array.ndim <= 1 and not is_list:
            return float(array.reshape(())[()])
        if array.dtype == object and not is_list:
            return float(reward)
    found = f" returned {show_value(reward)} as its reward: expected a number"
    raise Finding(InvalidRewardError, found, row)


def as_rewards(rewards: list[Any], rows: Sequence[int]) -> npt.NDArray[Any]:
    """Make one array of the rewards of environments: numbers, or arrays that hold one."""
    try:
        batch = np.array(rewards)
    except RAISED:  # ragged, or what a foreign object's __array__ raises
        batch = np.empty(0, dtype=object)
    if batch.dtype.kind in "fiub" and batch.shape == (len(rewards),):
        return batch
    return np.array([as_reward(one, row) for one, row in zip(rewards, rows, strict=True)])


def as_info(info: Any) -> dict[str, Any]:
    """Return an info as a dict that has no more keys than it shows, checked to be one."""
    if info.__class__ is dict:
        return info
    if not isinstance(info, dict):
        found = f": expected a dict as info, found {type(info).__name__}: return {{}} for no info"
        raise Finding(InvalidInfoError, found)
    return dict(info)
