"""`validate=True`: environments in front of which stands a check of all that they return.

What is here takes the place of an environment where it is reset and stepped, and is made when the
group is bound to its rows; without `validate`, nothing is tested in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any

import numpy as np

from vecspaces.checks import show_value
from vecspaces.errors import (
    InvalidFlagError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
)
from vecspaces.interop import native_space, native_values
from vecspaces.spaces import Box, Space
from vecspaces.vector.exchange.failures import Failure
from vecspaces.vector.group.members import Built
from vecspaces.vector.group.validation import Finding, as_info, as_reward, failed
from vecspaces.vector.utils import batch_differing_spaces, iterate

# The elements of an observation up to which a call costs more than the comparison.
_SMALL = 256
_BOOLS = (bool, np.bool_)
_FLAGS = ("terminated", "truncated")


class _Contents:
    """What observations must be: values of `space`, which was converted from `original`."""

    def __init__(self, space: Space[Any], original: Any) -> None:
        self.space, self._convert = space, native_values(original)

    def explain(self, observation: Any) -> str | None:
        """Return why an observation does not lie in the space; None where it does."""
        if self._convert is not None:
            observation = self._convert(observation)
        return self.space.explain(observation, name="observation")

    def check(self, observation: Any, where: str, row: int) -> None:
        """Raise where an observation does not lie in the space."""
        found = self.explain(observation)
        if found is not None:
            text = (
                f" returned an invalid observation in {where}: {found}: "
                "make it return what its observation_space holds"
            )
            raise Finding(InvalidObservationError, text, row)


class Validated:
    """Resets and steps an environment; raises where it returns what it must not.

    `defers`: the bounds are checked together with those of other rows, and `check` is called where
    they may be violated.
    """

    def __init__(self, stepper: Any, built: Built, row: int, defers: bool) -> None:
        self._env, self._row = stepper, row
        self._contents = _Contents(built.observation_spaces[0], built.env.observation_space)
        self._steps = 0
        # The dtype of observations that need no other check.
        self._dtype = built.observation_spaces[0].dtype if defers else None

    def check(self, observation: Any) -> None:
        """Check the observation of the step that was made last."""
        self._contents.check(observation, self._where, self._row)

    @property
    def _where(self) -> str:
        return f"step {self._steps} of its episode"

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode."""
        result = self._env.reset(**arguments)
        self._steps = 0
        parts = _take_apart(result, 2)
        if parts is None:
            return result  # which the caller of this reports
        try:
            self._contents.check(parts[0], "reset", self._row)
            _check_info(parts[1], "reset", self._row)
        except Finding as finding:
            raise self._located(finding, "reset") from None
        return parts

    def step(self, action: Any) -> Any:
        """Take an action."""
        result = self._env.step(action)
        self._steps += 1
        # What environments nearly always return needs no function of its own.
        if result.__class__ is tuple and len(result) == 5:
            observation, reward, terminated, truncated, info = result
            if (
                terminated is False
                and truncated is False
                and reward.__class__ is float
                and isfinite(reward)
                and info.__class__ is dict
                and not info
                and observation.__class__ is np.ndarray
                and observation.dtype is self._dtype
            ):
                return result
        return self._inspect(result)

    def _inspect(self, result: Any) -> Any:
        """Check all that a step returned, one after the other."""
        parts = _take_apart(result, 5)
        if parts is None:
            return result
        observation, reward, terminated, truncated, info = parts
        row, where = self._row, self._where
        try:
            self.check(observation)
            number = as_reward(reward, row)
            if not isfinite(number):
                raise _not_finite(number, where, row)
            for name, flag in zip(_FLAGS, (terminated, truncated), strict=True):
                if not isinstance(flag, _BOOLS):
                    found = f" returned {show_value(flag)} as {name} in {where}: expected a bool"
                    raise Finding(InvalidFlagError, found, row)
            _check_info(info, where, row)
        except Finding as finding:
            raise self._located(finding, "step") from None
        return parts

    def _located(self, finding: Finding, command: str) -> Failure:
        return failed(finding, (self._row,), command)


def batch_of_boxes(spaces: Sequence[Space[Any]]) -> Space[Any] | None:
    """Return the space of a batch whose bounds are better checked together than one by one.

    A comparison of small arrays costs as much as one of large arrays. None where the spaces are
    anything but small boxes that differ in their bounds alone.
    """
    first = spaces[0]
    if any(type(space) is not Box or space.dtype != first.dtype for space in spaces):
        return None
    if any(space.shape != first.shape for space in spaces) or prod(first.shape or ()) > _SMALL:
        return None
    return batch_differing_spaces(spaces)


class ValidatedVector:
    """Resets and steps a vector env; raises where one of its rows is what it must not be."""

    def __init__(self, built: Built, rows: range) -> None:
        self._env, self._rows = built.env, rows
        single, batch = built.env.single_observation_space, built.env.observation_space
        self._each = [_Contents(space, single) for space in built.observation_spaces]
        self._batch = _Contents(native_space(batch), batch)
        self._steps = 0

    def reset(self, **arguments: Any) -> Any:
        """Begin episodes."""
        result = self._env.reset(**arguments)
        self._steps = 0
        parts = _take_apart(result, 2)
        if parts is None:
            return result
        try:
            self._check_observations(parts[0], "reset")
            _check_info(parts[1], "reset", self._rows.start)
        except Finding as finding:
            raise self._located(finding, "reset") from None
        return parts

    def step(self, actions: Any) -> Any:
        """Step all environments."""
        result = self._env.step(actions)
        self._steps += 1
        parts = _take_apart(result, 5)
        if parts is None:
            return result
        observations, rewards, terminations, truncations, infos = parts
        first, where = self._rows.start, f"step {self._steps} since its reset"
        try:
            self._check_observations(observations, where)
            numbers = np.asarray(rewards, np.float64)
            for number in np.flatnonzero(~np.isfinite(numbers))[:1].tolist():
                raise _not_finite(numbers[number], where, first + number)
            for name, flags in zip(_FLAGS, (terminations, truncations), strict=True):
                if np.asarray(flags).dtype != np.bool_:
                    found = f" returned {show_value(flags)} as {name} in {where}: expected bools"
                    raise Finding(InvalidFlagError, found, first)
            _check_info(infos, where, first)
            self._check_finals(infos, where)
        except Finding as finding:
            raise self._located(finding, "step") from None
        return parts

    def _check_observations(self, observations: Any, where: str) -> None:
        if self._batch.explain(observations) is None:
            return
        each = _each(self._batch.space, observations, len(self._rows))
        if each is None:
            self._batch.check(observations, where, self._rows.start)
            return
        for row, contents, observation in zip(self._rows, self._each, each, strict=True):
            contents.check(observation, where, row)

    def _located(self, finding: Finding, command: str) -> Failure:
        return failed(finding, self._rows, command)

    def _check_finals(self, infos: Mapping[str, Any], where: str) -> None:
        """Check the last observations of the episodes that ended (SAME_STEP)."""
        if "final_obs" in infos and "_final_obs" in infos:
            for number in np.flatnonzero(infos["_final_obs"]).tolist():
                final = infos["final_obs"][number]
                self._each[number].check(final, where, self._rows.start + number)


def _take_apart(result: Any, count: int) -> tuple[Any, ...] | None:
    """Return the parts of a result; None where it has not as many."""
    try:
        parts = tuple(result)
    except Exception:  # what is no tuple may raise anything
        return None
    return parts if len(parts) == count else None


def _each(space: Space[Any], batch: Any, count: int) -> list[Any] | None:
    """Return the values of a batch; None where it is not one of so many."""
    try:
        each = list(iterate(space, batch))
    except Exception:  # a batch of the wrong form may break an iteration in any way
        return None
    return each if len(each) == count else None


def _not_finite(reward: float, where: str, row: int) -> Finding:
    found = f" returned {reward} as its reward in {where}: expected a finite number"
    return Finding(InvalidRewardError, found, row)


def _check_info(info: Any, where: str, row: int) -> None:
    """Check the keys of an info, and of the dicts in it, which become arrays of their own."""
    as_info(info)
    for key, value in info.items():
        if not isinstance(key, str):
            found = f" returned an info with the key {show_value(key)} in {where}: expected a str"
            raise Finding(InvalidInfoError, found, row)
        if isinstance(value, dict) and value:
            _check_info(value, where, row)
