"""What a vector env promises, in lists: each environment by itself, one call after the other.

It shares no code with what it is compared to: no layout, no env group, no session, no wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.compare import assert_identical


class Shown(NamedTuple):
    """What a reset or a step of one environment shows; `rewards` are those of its episode."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    rewards: list[float]

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


class Row:
    """One environment as a wrapper shows it.

    `finals` tells whether the last observation of an episode is changed where the infos have it.
    """

    def __init__(
        self,
        env: Any,
        act: Callable[[Any], Any] = lambda action: action,
        see: Callable[[Any, int], Any] = lambda observation, time: observation,
        pay: Callable[[float], float] = lambda reward: reward,
        finals: bool = True,
    ) -> None:
        self.env, self.act, self.see, self.pay = env, act, see, pay
        self.finals = finals

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        self.time = 0
        return self.show(observation), info

    def step(self, action: Any) -> Any:
        observation, reward, *others = self.env.step(self.act(action))
        self.time += 1
        shown = self.show(observation)
        self.final = shown if self.finals else observation
        return shown, self.pay(reward), *others

    def show(self, observation: Any) -> Any:
        return self.see(observation, self.time)


class Model:
    """The rows of a vector env.

    Attributes:
        last: What each environment showed last.
        seen: The observations of a rollout, step by step; `taken` are its steps.
        ready: What `recv` may return, by row.
        fresh: Those of these rows that were reset and not stepped.
        failed: The rows that failed, and that `recv` has not reported.
        over: The rows that must be reset before they are stepped (DISABLED).
    """

    def __init__(self, envs: Sequence[Row], mode: str, buffers: int) -> None:
        self.envs, self.mode, self.buffers = list(envs), mode, buffers
        self.last: list[Shown] = [Shown(None, 0.0, False, False, {}, [])] * len(self.envs)
        self.ready: dict[int, Shown] = {}
        self.fresh: set[int] = set()
        self.failed: set[int] = set()
        self.over: set[int] = set()
        # The options that autoresets get, and the resets that come in place of the next step.
        self.options: dict[int, Any] = {}
        self.due: dict[int, dict[str, Any]] = {}

    @property
    def streams(self) -> bool:
        return self.ready.keys() != self.fresh or bool(self.failed)

    def reset(
        self, seeds: Sequence[Any], options: Sequence[Any], rows: Iterable[int], masked: bool
    ) -> list[Shown]:
        """Reset rows; options of a list are for each row's autoresets too."""
        rows = list(rows)
        for row in rows:
            self._begin(row, {"seed": seeds[row], "options": options[row]})
            self.options.pop(row, None)
        self.ready.update({row: self.last[row] for row in rows})
        self.fresh.update(rows)
        if not masked:
            self._begin_rollout()
        self.seen[-1] = [shown.observation for shown in self.last]
        return [
            shown if row in rows else shown._replace(info={}) for row, shown in enumerate(self.last)
        ]

    def _begin_rollout(self) -> None:
        """Forget all steps but the last observations."""
        self.seen = [[shown.observation for shown in self.last]]
        self.taken: list[list[Shown]] = []
        self.is_mixed = self.is_rolled = False

    def _begin(self, row: int, arguments: dict[str, Any]) -> None:
        named = {name: value for name, value in arguments.items() if value is not None}
        observation, info = self.envs[row].reset(**named)
        reward = self.envs[row].pay(0.0)
        self.last[row] = Shown(observation, reward, False, False, dict(info), [])
        self.over.discard(row)
        self.due.pop(row, None)

    def step(self, actions: Mapping[int, Any]) -> list[Shown]:
        """Step rows, with one action each."""
        for row, action in actions.items():
            if row in self.due:
                self._begin(row, self.due[row])
            else:
                self._step(row, action)
        return [self.last[row] for row in actions]

    def _step(self, row: int, action: Any) -> None:
        observation, reward, terminated, truncated, info = self.envs[row].step(action)
        last = self.last[row]
        rewards = [*([] if last.ended else last.rewards), float(reward)]
        shown = Shown(observation, float(reward), terminated, truncated, dict(info), rewards)
        arguments = {"options": self.options.get(row)}
        if shown.ended and self.mode == "SameStep":
            self._begin(row, arguments)
            first = self.last[row]
            finals = {"final_obs": self.envs[row].final, "final_info": dict(info)}
            shown = shown._replace(observation=first.observation, info={**first.info, **finals})
        elif shown.ended and self.mode == "NextStep":
            self.due[row] = arguments
        elif shown.ended:
            self.over.add(row)
        self.last[row] = shown

    def step_all(self, actions: Sequence[Any]) -> list[Shown]:
        """Step all rows together, which is a step of a rollout."""
        if self.is_rolled:
            self._begin_rollout()
        self.taken.append(self.step(dict(enumerate(actions))))
        self.seen.append([shown.observation for shown in self.last])
        self.ready, self.fresh = {}, set()
        return self.taken[-1]

    def send(self, actions: Mapping[int, Any]) -> None:
        """Step rows by themselves; `recv` may return them."""
        self.is_mixed |= bool(actions)
        self.step(actions)
        self.fresh.difference_update(actions)
        self.ready.update({row: self.last[row] for row in actions})
        self.seen[-1] = [shown.observation for shown in self.last]

    def send_reset(self, starts: Mapping[int, Any]) -> None:
        """Reset rows by themselves: each with a seed and options."""
        for row, (seed, options) in starts.items():
            self.options.pop(row, None)
            self.due[row] = {"seed": seed, "options": options}
        self.send(dict.fromkeys(starts))

    def fail(self, rows: Sequence[int]) -> None:
        """Let rows have failed in a step by themselves; what they showed before is not received."""
        self.is_mixed = True
        self.fresh.difference_update(rows)
        self.failed.update(rows)
        for row in rows:
            self.ready.pop(row, None)

    def receive(self, rows: Iterable[int]) -> list[Shown]:
        self.fresh.difference_update(rows)
        return [self.ready.pop(row) for row in rows]

    @property
    def has_rollout(self) -> bool:
        """Whether `seen` and `taken` are a whole rollout."""
        return not self.is_mixed and 0 < len(self.taken) == self.buffers - 1


def assert_shows(items: Iterable[Any], result: Any, shown: Sequence[Shown]) -> None:
    """Each row of a result shows this; `items` are its observations, one by one."""
    assert_identical(list(items), [row.observation for row in shown])
    if len(result) > 2:
        assert_identical(result[1], np.array([row.reward for row in shown], np.float64))
        assert_identical(result[2], np.array([row.terminated for row in shown], np.bool_))
        assert_identical(result[3], np.array([row.truncated for row in shown], np.bool_))
    assert_tells(result[-1], [row.info for row in shown])


def assert_tells(infos: Mapping[str, Any], expected: Sequence[Mapping[str, Any]]) -> None:
    """Each key that a row has stands in an array of all rows, with a mask of those that have it."""
    keys = {key for info in expected for key in info}
    assert infos.keys() == keys | {f"_{key}" for key in keys}
    for key in keys:
        known = {place: info[key] for place, info in enumerate(expected) if key in info}
        values = list(known.values())
        mask = [place in known for place in range(len(expected))]
        assert_identical(infos[f"_{key}"], np.array(mask))
        if key != "final_obs" and all(isinstance(value, dict) for value in values):
            assert_tells(infos[key], [known.get(place, {}) for place in range(len(expected))])
        elif key == "final_obs" or isinstance(values[0], (str, list, np.bool_, type(None))):
            assert infos[key].dtype == object
            assert_identical(infos[key].tolist(), [known.get(row) for row in range(len(expected))])
        else:
            numbers = np.array(values)
            whole = np.zeros((len(expected), *numbers.shape[1:]), numbers.dtype)
            whole[list(known)] = numbers
            assert_identical(infos[key], whole)
