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
from vecspaces.interop import native_space, native_values
from vecspaces.layout import Mismatch
from vecspaces.layout.casting import fit
from vecspaces.spaces import Space
from vecspaces.vector.exchange.infos import infos_as_list
from vecspaces.vector.group.building import Built
from vecspaces.vector.group.form import InvalidResult, as_info, as_reward, failed
from vecspaces.vector.utils import iterate

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
            found = f"an info with the key {show_value(key)}"
            raise InvalidResult(InvalidInfoError, found, "expected a str")
        if isinstance(value, dict):
            check_info(value)


class Validated:
    """Resets and steps an environment; raises if a result is invalid.

    `declared` are the spaces of declared infos.
    """

    since = "of its episode"

    def __init__(
        self, env: Any, built: Built, rows: range, declared: Mapping[str, Space[Any]]
    ) -> None:
        self._env, self._rows, self._declared, self.steps = env, rows, declared, 0
        names = ("single_observation_space", "observation_space")
        original = getattr(built.env, names[not built.is_vector])
        self._rules = [observation_rule(space, original) for space in built.observation_spaces]

    def reset(self, **arguments: Any) -> Any:
        """Begin an episode in each row."""
        result = self._env.reset(**arguments)
        self.steps = 0
        return self._check(result, 2)

    def step(self, action: Any) -> Any:
        """Take an action in each row."""
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
                where = f"step {self.steps} {self.since}" if self.steps else "reset"
                raise failed(error.in_call(where), self._rows, command) from None
        return parts

    def _check_parts(self, *parts: Any) -> None:
        self._check_row(0, *parts)

    def _check_row(self, number: int, observation: Any, *others: Any) -> None:
        self._check_observation(number, observation)
        *scalars, info = others
        if scalars:
            reward, terminated, truncated = scalars
            check_reward(reward)
            check_flag("terminated", terminated)
            check_flag("truncated", truncated)
        if info or info.__class__ is not dict:
            check_info(info)
            self._check_declared(info)

    def _check_observation(self, number: int, observation: Any) -> None:
        wrong = self._rules[number](observation)
        if wrong is not None:
            raise InvalidResult.outside("observation", wrong)

    def _check_declared(self, info: Mapping[Any, Any]) -> None:
        wrong = explain_info(self._declared, info)
        if wrong is not None:
            raise InvalidResult.outside("info", wrong)


class ValidatedVector(Validated):
    """Resets and steps a vector env; raises if one of its rows is invalid."""

    since = "since its reset"

    def __init__(
        self, env: Any, built: Built, rows: range, declared: Mapping[str, Space[Any]]
    ) -> None:
        super().__init__(env, built, rows, declared)
        self._batch_space = native_space(built.env.observation_space)

    def _check_parts(self, observations: Any, *others: Any) -> None:
        *scalars, infos = others
        check_info(infos)
        count = len(self._rows)
        try:
            batch = list(iterate(self._batch_space, observations))
            columns = [np.broadcast_to(values, (count,)) for values in scalars]
            rows = list(zip(batch, *columns, infos_as_list(infos, count), strict=True))
        except Exception:  # a batch of the wrong form, which the group reports
            return
        for number, row in enumerate(rows):
            info = row[-1]
            try:
                self._check_row(number, *row)
                if "final_obs" in info:  # of an episode that ended (SAME_STEP)
                    self._check_observation(number, info["final_obs"])
                self._check_declared(info.get("final_info", {}))
            except InvalidResult as error:
                error.row = self._rows[number]
                raise
