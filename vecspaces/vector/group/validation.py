"""`validate=True`: the rules for results of environments, and their application in each step.

`Validated` and `ValidatedVector` wrap an environment in resets and steps only, so that calls,
attributes and steps without `validate` do not meet them. `check_env` applies the same rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
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
from vecspaces.layout import Layout, Mismatch
from vecspaces.spaces import Space
from vecspaces.vector.exchange.infos import infos_as_list
from vecspaces.vector.group.building import Built
from vecspaces.vector.group.form import InvalidResult, as_info, as_reward, failed
from vecspaces.vector.utils import iterate

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


class InfoRule:
    """The values of declared keys must be in their spaces, after the cast to the dtype there.

    `layouts` are those of `compile_infos`.
    """

    def __init__(self, layouts: Mapping[str, Layout]) -> None:
        self._layouts = layouts
        # One row for each key.
        self._places = {
            name: layout.of_rows(1).bind(np.zeros(layout.of_rows(1).size, np.uint8))[0]
            for name, layout in layouts.items()
            if not name.startswith("_")
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return InfoRule, (self._layouts,)

    def explain(self, info: Mapping[Any, Any]) -> str | None:
        """Return why a value is not in its space; None if all are."""
        for name, place in self._places.items():
            if name not in info:
                continue
            try:
                place.write(0, info[name])
            except Mismatch as error:
                return str(Mismatch(error.expected, error.found, (name, *error.path), name="info"))
            wrong = place.layout.space.explain(place.item(0), name=f"info[{name!r}]")
            if wrong is not None:
                return wrong
        return None


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
            text = f"{show_value(flag)} as {name}"
            yield Flaw(InvalidFlagError, text, "expected a bool")


def find_in_info(info: Any) -> Iterator[Flaw]:
    """Find a fault of an info, or of the dicts in it, which also become arrays."""
    try:
        items: Iterable[tuple[Any, Any]] = as_info(info).items()
    except InvalidResult as error:
        yield Flaw(error.kind, f"{show_value(info)} as its info", "expected a dict", error.text)
        return
    for key, value in items:
        if not isinstance(key, str):
            text = f"an info with the key {show_value(key)}"
            yield Flaw(InvalidInfoError, text, "expected a str")
        if isinstance(value, dict):
            yield from find_in_info(value)


def _not_finite(reward: float) -> Flaw:
    return Flaw(InvalidRewardError, f"{reward} as its reward", "expected a finite number")


# ---------------------------------------------------------------------- environments


class _Validating(ABC):
    """Raises the first flaw as an error that names the row and the step."""

    def __init__(self, env: Any, rows: range, since: str, layouts: Mapping[str, Layout]) -> None:
        self._env, self._rows, self._since, self._steps = env, rows, since, 0
        self._info_rule = InfoRule(layouts)

    @abstractmethod
    def _check_observations(self, observations: Any) -> None:
        """Check what the environment observed."""

    @abstractmethod
    def _check_scalars(self, rewards: Any, terminations: Any, truncations: Any) -> None:
        """Check rewards and flags."""

    @abstractmethod
    def _check_infos(self, infos: Any) -> None:
        """Check infos."""

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode in each row."""
        result = self._env.reset(**arguments)
        self._steps = 0
        parts = _unpack(result, 2)
        if parts is None:
            return result  # the caller of this method reports it
        self._check_observations(parts[0])
        self._check_infos(parts[1])
        return parts

    def step(self, action: Any) -> Any:
        """Take an action in each row."""
        result = self._env.step(action)
        self._steps += 1
        parts = _unpack(result, 5)
        if parts is None:
            return result
        self._check_observations(parts[0])
        self._check_scalars(*parts[1:4])
        self._check_infos(parts[4])
        return parts

    def _raise(self, flaws: Iterable[Flaw], row: int) -> None:
        for flaw in flaws:
            where = f"step {self._steps} {self._since}" if self._steps else "reset"
            text = flaw.text or f" returned {flaw.found} in {where}: {flaw.expected}"
            error = InvalidResult(flaw.kind, text, row)
            raise failed(error, self._rows, "step" if self._steps else "reset")

    def _check_observation(self, rule: ObservationRule, observation: Any, row: int) -> None:
        wrong = rule.explain(observation)
        if wrong is not None:
            expected = f"{wrong}: make it return what its observation_space holds"
            self._raise([Flaw(InvalidObservationError, "an invalid observation", expected)], row)

    def _check_info(self, info: Mapping[Any, Any], row: int) -> None:
        wrong = self._info_rule.explain(info)
        if wrong is not None:
            expected = f"{wrong}: make it return what its info_space holds, or leave the key out"
            self._raise([Flaw(InvalidInfoError, "an invalid info", expected)], row)


class Validated(_Validating):
    """Resets and steps an environment; raises if a result is invalid."""

    def __init__(self, env: Any, built: Built, row: int, layouts: Mapping[str, Layout]) -> None:
        super().__init__(env, range(row, row + 1), "of its episode", layouts)
        self._rule = ObservationRule(built.observation_spaces[0], built.env.observation_space)

    def _check_observations(self, observations: Any) -> None:
        self._check_observation(self._rule, observations, self._rows[0])

    def _check_scalars(self, rewards: Any, terminations: Any, truncations: Any) -> None:
        self._raise(find_in_scalars(rewards, terminations, truncations), self._rows[0])

    def _check_infos(self, infos: Any) -> None:
        self._raise(find_in_info(infos), self._rows[0])
        self._check_info(infos, self._rows[0])


class ValidatedVector(_Validating):
    """Resets and steps a vector env; raises if one of its rows is invalid."""

    def __init__(self, built: Built, rows: range, layouts: Mapping[str, Layout]) -> None:
        super().__init__(built.env, rows, "since its reset", layouts)
        single, batch = built.env.single_observation_space, built.env.observation_space
        self._rules = [ObservationRule(space, single) for space in built.observation_spaces]
        self._batch = ObservationRule(native_space(batch), batch)

    def _check_observations(self, observations: Any) -> None:
        rows = None
        with suppress(Exception):  # a batch of the wrong form may break an iteration in any way
            rows = _unpack(iterate(self._batch.space, observations), len(self._rules))
        if rows is None:
            self._check_observation(self._batch, observations, self._rows[0])
            return
        for row, rule, observation in zip(self._rows, self._rules, rows, strict=True):
            self._check_observation(rule, observation, row)

    def _check_scalars(self, rewards: Any, terminations: Any, truncations: Any) -> None:
        numbers = np.ravel(np.asarray(rewards, np.float64))
        for number in np.flatnonzero(~np.isfinite(numbers))[:1].tolist():
            self._raise([_not_finite(numbers[number])], self._rows[number])
        for name, flags in zip(_FLAGS, (terminations, truncations), strict=True):
            if np.asarray(flags).dtype != np.bool_:
                text = f"{show_value(flags)} as {name}"
                self._raise([Flaw(InvalidFlagError, text, "expected bools")], self._rows[0])

    def _check_infos(self, infos: Any) -> None:
        self._raise(find_in_info(infos), self._rows[0])
        for number, info in enumerate(infos_as_list(infos, len(self._rows))):
            row = self._rows[number]
            if "final_obs" in info:  # of an episode that ended (SAME_STEP)
                self._check_observation(self._rules[number], info["final_obs"], row)
            self._check_info(info.get("final_info", {}), row)
            self._check_info(info, row)


def _unpack(result: Any, count: int) -> tuple[Any, ...] | None:
    """Return the parts of a result; None if their number is wrong."""
    try:
        parts = tuple(result)
    except Exception:  # an object other than a tuple may raise anything
        return None
    return parts if len(parts) == count else None
