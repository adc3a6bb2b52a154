"""What environments return, checked: rewards, flags and infos, and who returned what cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from vecspaces.errors import InvalidInfoError, InvalidObservationError, InvalidRewardError
from vecspaces.layout import Mismatch


def as_rewards(rewards: list[Any], rows: Sequence[int]) -> npt.NDArray[Any]:
    """Make one array of the rewards of some environments.

    Args:
        rewards: Numbers, or arrays that hold one.
        rows: The environments, for the message.

    Returns:
        An array of numbers, one per environment.

    Raises:
        InvalidRewardError: One is no number; the arguments are the message and its environment.
    """
    try:
        batch = np.array(rewards)
    except ValueError:  # ragged
        batch = np.empty(0, dtype=object)
    if batch.dtype.kind in "fiub" and batch.shape == (len(rewards),):
        return batch
    return np.array([_as_reward(one, row) for one, row in zip(rewards, rows, strict=True)])


def _as_reward(reward: Any, row: int) -> float:
    """Turn any number, or an array that holds one, into a float."""
    array = np.asarray(reward)
    is_list = isinstance(reward, (list, tuple))
    if array.dtype.kind in "fiub" and array.size == 1 and array.ndim <= 1 and not is_list:
        return float(array.reshape(())[()])
    if array.dtype == object and not is_list:
        with suppress(TypeError, ValueError, OverflowError):
            return float(reward)
    raise InvalidRewardError(
        f"environment {row} returned {reward!r} ({type(reward).__name__}) as its reward: "
        "expected a number",
        row,
    )


def as_info(info: Any) -> dict[str, Any]:
    """Check that an info is a dict.

    Args:
        info: What an environment returned.

    Returns:
        The info itself.

    Raises:
        InvalidInfoError: It is none.
    """
    if not isinstance(info, dict):
        raise InvalidInfoError(
            f"expected a dict as info, found {type(info).__name__}: return {{}} for no info"
        )
    return info


def name_culprit(error: BaseException, row: int, command: str) -> tuple[BaseException, int]:
    """Say of a finding which environment it concerns.

    Args:
        error: What was raised while environments ran.
        row: The environment that ran.
        command: What it was asked to do.

    Returns:
        The error that the user shall see, and its environment; an environment's own error as it is.
    """
    if isinstance(error, Mismatch):
        row = row if error.row is None else error.row
        finding = Mismatch(error.expected, error.found, error.path, name="observation")
        invalid = InvalidObservationError(
            f"environment {row} returned an invalid observation in {command}: {finding}: "
            "make it return what its observation_space says"
        )
        return invalid.with_traceback(error.__traceback__), row
    if isinstance(error, InvalidInfoError):
        return InvalidInfoError(f"environment {row}: {error}"), row
    if isinstance(error, InvalidRewardError):
        message, row = error.args
        return InvalidRewardError(message), row
    if isinstance(error, (TypeError, ValueError)) and _raised_by_group(error):
        # Not the environment's own code: what it returned could not be taken apart.
        parts = "observation, info"
        if command == "step":
            parts = "observation, reward, terminated, truncated, info"
        message = f"environment {row}: {command} must return ({parts}): {error}"
        return type(error)(message).with_traceback(error.__traceback__), row
    return error, row


def _raised_by_group(error: BaseException) -> bool:
    """Whether an error comes from a line of `EnvGroup` itself and from nothing that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals["__name__"].endswith("group.env_group")
