"""`validate=True`: environments whose resets and steps are checked, and the rules.

A group resets and steps a `Validated` in place of the environment, and uses it for nothing else, so
calls and attributes do not meet it. `check_env` applies the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from vecspaces.checks import show_value
from vecspaces.errors import InvalidFlagError, InvalidInfoError, InvalidRewardError
from vecspaces.interop import native_values
from vecspaces.layout import Mismatch
from vecspaces.layout.casting import fit
from vecspaces.spaces import Space
from vecspaces.vector.group.building import Built
from vecspaces.vector.group.form import InvalidResult, as_info, as_reward, failed

_BOOLS = (bool, np.bool_)


def observation_rule(space: Space[Any], original: Any) -> Callable[[Any], str | None]:
    """Return the function that explains why an observation is not in a space; None if it is.

    `space` was converted from `original`.
    """
    convert = native_values(original)
    rule = partial(space.explain, name="observation")
    return rule if convert is None else partial(_explain_converted, rule, convert)


def _explain_converted(
    rule: Callable[[Any], str | None], convert: Callable[[Any], Any], observation: Any
) -> str | None:
    return rule(convert(observation))


def explain_info(spaces: Mapping[str, Space[Any]], info: Mapping[Any, Any]) -> str | None:
    """Return why a value, after its cast, is not in its declared space; None if all are."""
    for key, space in spaces.items():
        if key in info:
            dtype, shape, name = space.dtype, space.shape, f"info[{key!r}]"
            assert dtype is not None and shape is not None  # of every space that can be declared
            try:
                value = fit(info[key], dtype, shape)
            except Mismatch as error:
                return str(error.called(name))
            wrong = space.explain(value[()], name=name)
            if wrong is not None:
                return wrong
    return None


def check_reward(reward: Any) -> None:
    """Refuse a reward that is not a finite number."""
    number = as_reward(reward)
    if not isfinite(number):
        raise InvalidResult(
            InvalidRewardError, f"{number} as its reward", "expected a finite number"
        )


def check_flag(name: str, flag: Any) -> None:
    """Refuse `terminated` or `truncated` that is not a bool."""
    if flag.__class__ not in _BOOLS:
        raise InvalidResult(InvalidFlagError, f"{show_value(flag)} as {name}", "expected a bool")


def check_info(info: Any) -> None:
    """Refuse an info that is not a dict of strings, as are the dicts in it."""
    items: dict[Any, Any] = as_info(info)
    for key, value in items.items():
        if not isinstance(key, str):
            actual = f"an info with the key {show_value(key)}"
            raise InvalidResult(InvalidInfoError, actual, "expected a str")
        if isinstance(value, dict):
            check_info(value)


class Validated:
    """Resets and steps an environment; raises if a result is invalid.

    `declared` are the spaces of declared infos.
    """

    def __init__(
        self, env: Any, built: Built, rows: range, declared: Mapping[str, Space[Any]]
    ) -> None:
        self._env, self._rows, self._declared, self.steps = env, rows, declared, 0
        (space,) = built.observation_spaces
        self._explain = observation_rule(space, built.env.observation_space)

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode."""
        result = self._env.reset(**arguments)
        self.steps = 0
        return self._check(result, 2)

    def step(self, action: Any) -> Any:
        """Take an action."""
        result = self._env.step(action)
        self.steps += 1
        return self._check(result, 5)

    def _check(self, result: Any, length: int) -> Any:
        try:
            parts = tuple(result)
        except Exception:  # an object other than a tuple may raise anything
            return result  # the group reports it
        if len(parts) == length and (length > 2 or isinstance(parts[1], dict)):
            try:
                self._check_parts(*parts)
            except InvalidResult as error:
                command = "step" if self.steps else "reset"
                where = f"step {self.steps} of its episode" if self.steps else "reset"
                raise failed(error.in_call(where), self._rows, command) from None
        return parts

    def _check_parts(self, observation: Any, *others: Any) -> None:
        wrong = self._explain(observation)
        if wrong is not None:
            raise InvalidResult.outside("observation", wrong)
        *scalars, info = others
        if scalars:
            reward, terminated, truncated = scalars
            check_reward(reward)
            check_flag("terminated", terminated)
            check_flag("truncated", truncated)
        if info or info.__class__ is not dict:
            check_info(info)
            wrong = explain_info(self._declared, info)
            if wrong is not None:
                raise InvalidResult.outside("info", wrong)
