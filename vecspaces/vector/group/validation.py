"""`validate=True`: the rules for results of environments, and their application in each step.

`Validated` and `ValidatedVector` replace an environment in resets and steps, so that steps without
`validate` test nothing. `check_env` applies the same rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite, prod
from typing import Any, NamedTuple

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
from vecspaces.vector.group.building import Built
from vecspaces.vector.group.form import InvalidResult, as_info, as_reward, failed
from vecspaces.vector.utils import batch_differing_spaces, iterate

# Up to this number of elements of an observation, the call takes longer than the comparison.
_SMALL = 256
_FLAGS = ("terminated", "truncated")


# ---------------------------------------------------------------------- rules


class Flaw(NamedTuple):
    """A fault of an environment's result.

    `text` is the text of an error that is also raised without `validate`.
    """

    kind: type[Exception]
    found: str
    expected: str
    text: str = ""


class ObservationRule:
    """Observations must be in `space`, which was converted from `original`."""

    def __init__(self, space: Space[Any], original: Any) -> None:
        self.space, self._convert = space, native_values(original)

    def explain(self, observation: Any) -> str | None:
        """Return why an observation is not in the space; None if it is."""
        if self._convert is not None:
            observation = self._convert(observation)
        return self.space.explain(observation, name="observation")


def find_in_scalars(reward: Any, terminated: Any, truncated: Any) -> Iterator[Flaw]:
    """Find a fault of a reward or flags."""
    try:
        number = as_reward(reward)
    except InvalidResult as error:
        yield Flaw(
            error.kind, f"{show_value(reward)} as its reward", "expected a number", error.text
        )
    else:
        if not isfinite(number):
            yield _not_finite(number)
    for name, flag in zip(_FLAGS, (terminated, truncated), strict=True):
        if not isinstance(flag, (bool, np.bool_)):
            found = f"{show_value(flag)} as {name}"
            yield Flaw(InvalidFlagError, found, "expected a bool")


def find_in_info(info: Any) -> Iterator[Flaw]:
    """Find a fault of an info, or of the dicts in it, which also become arrays."""
    try:
        items: Iterable[tuple[Any, Any]] = as_info(info).items()
    except InvalidResult as error:
        yield Flaw(error.kind, f"{show_value(info)} as its info", "expected a dict", error.text)
        return
    for key, value in items:
        if not isinstance(key, str):
            found = f"an info with the key {show_value(key)}"
            yield Flaw(InvalidInfoError, found, "expected a str")
        if isinstance(value, dict):
            yield from find_in_info(value)


def _not_finite(reward: float) -> Flaw:
    return Flaw(InvalidRewardError, f"{reward} as its reward", "expected a finite number")


# ---------------------------------------------------------------------- environments


def batch_of_boxes(spaces: Sequence[Space[Any]]) -> Space[Any] | None:
    """Return the space of a batch whose bounds are checked faster together than one by one.

    Comparing small arrays takes as long as comparing large ones. None unless the spaces are small
    boxes that differ only in their bounds.
    """
    first = spaces[0]
    if any(type(space) is not Box or space.dtype != first.dtype for space in spaces):
        return None
    if any(space.shape != first.shape for space in spaces) or prod(first.shape or ()) > _SMALL:
        return None
    return batch_differing_spaces(spaces)


class _Validating(ABC):
    """Raises the first flaw as an error that names the row and the step."""

    def __init__(self, env: Any, rows: Sequence[int], since: str) -> None:
        self._env, self._rows, self._since, self._steps = env, rows, since, 0

    @abstractmethod
    def check(self, observation: Any) -> None:
        """Check the observations of the step that was made last."""

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode in each row."""
        result = self._env.reset(**arguments)
        self._steps = 0
        parts = _unpack(result, 2)
        if parts is None:
            return result  # the caller of this method reports it
        self.check(parts[0])
        self._raise(find_in_info(parts[1]), self._rows[0])
        return parts

    def _raise(self, flaws: Iterable[Flaw], row: int) -> None:
        for flaw in flaws:
            where = f"step {self._steps} {self._since}" if self._steps else "reset"
            text = flaw.text or f" returned {flaw.found} in {where}: {flaw.expected}"
            error = InvalidResult(flaw.kind, text, row)
            raise failed(error, self._rows, "step" if self._steps else "reset")

    def _check(self, rule: ObservationRule, observation: Any, row: int) -> None:
        wrong = rule.explain(observation)
        if wrong is not None:
            expected = f"{wrong}: make it return what its observation_space holds"
            self._raise([Flaw(InvalidObservationError, "an invalid observation", expected)], row)


class Validated(_Validating):
    """Resets and steps an environment; raises if a result is invalid.

    `defers`: the bounds are checked together with those of other rows, and `check` is called if
    they may be violated.
    """

    def __init__(self, stepper: Any, built: Built, row: int, defers: bool) -> None:
        super().__init__(stepper, (row,), "of its episode")
        self._rule = ObservationRule(built.observation_spaces[0], built.env.observation_space)
        # The dtype of observations that need no other check.
        self._dtype = built.observation_spaces[0].dtype if defers else None

    def check(self, observation: Any) -> None:
        """Check an observation."""
        self._check(self._rule, observation, self._rows[0])

    def step(self, action: Any) -> Any:
        """Take an action."""
        result = self._env.step(action)
        self._steps += 1
        # The usual results need no further call.
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
        parts = _unpack(result, 5)
        if parts is None:
            return result
        observation, reward, terminated, truncated, info = parts
        self.check(observation)
        self._raise(find_in_scalars(reward, terminated, truncated), self._rows[0])
        self._raise(find_in_info(info), self._rows[0])
        return parts


class ValidatedVector(_Validating):
    """Resets and steps a vector env; raises if one of its rows is invalid."""

    def __init__(self, built: Built, rows: range) -> None:
        super().__init__(built.env, rows, "since its reset")
        self._first = rows.start
        single, batch = built.env.single_observation_space, built.env.observation_space
        self._rules = [ObservationRule(space, single) for space in built.observation_spaces]
        self._batch = ObservationRule(native_space(batch), batch)

    def step(self, actions: Any) -> Any:
        """Step all environments."""
        result = self._env.step(actions)
        self._steps += 1
        parts = _unpack(result, 5)
        if parts is None:
            return result
        observations, rewards, terminations, truncations, infos = parts
        self.check(observations)
        numbers = np.asarray(rewards, np.float64)
        for at in np.flatnonzero(~np.isfinite(numbers))[:1].tolist():
            self._raise([_not_finite(numbers[at])], self._first + at)
        for name, flags in zip(_FLAGS, (terminations, truncations), strict=True):
            if np.asarray(flags).dtype != np.bool_:
                found = f"{show_value(flags)} as {name}"
                self._raise([Flaw(InvalidFlagError, found, "expected bools")], self._first)
        self._raise(find_in_info(infos), self._first)
        self._check_finals(infos)
        return parts

    def check(self, observations: Any) -> None:
        """Check a batch of observations."""
        if self._batch.explain(observations) is None:
            return
        each = None
        with suppress(Exception):  # a batch of the wrong form may break an iteration in any way
            each = _unpack(iterate(self._batch.space, observations), len(self._rules))
        if each is None:
            self._check(self._batch, observations, self._first)
            return
        for row, (rule, observation) in enumerate(zip(self._rules, each, strict=True), self._first):
            self._check(rule, observation, row)

    def _check_finals(self, infos: Mapping[str, Any]) -> None:
        """Check the last observations of the episodes that ended (SAME_STEP)."""
        if "final_obs" in infos and "_final_obs" in infos:
            for at in np.flatnonzero(infos["_final_obs"]).tolist():
                self._check(self._rules[at], infos["final_obs"][at], self._first + at)


def _unpack(result: Any, count: int) -> tuple[Any, ...] | None:
    """Return the parts of a result; None if their number is wrong."""
    try:
        parts = tuple(result)
    except Exception:  # an object other than a tuple may raise anything
        return None
    return parts if len(parts) == count else None
