"""Playing an environment with given seeds and actions, recording and inspecting what it returns."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from vecspaces.checks import show_value
from vecspaces.interop import foreign_values, native_space, native_values
from vecspaces.sampling import MASK, fit_mask
from vecspaces.testing.declared_infos import DeclaredInfos
from vecspaces.vector.group.validation import Finding, as_reward

_FLAGS = ("terminated", "truncated")


class Record(NamedTuple):
    """One result of an environment, as digests that can be compared between processes.

    Attributes:
        where: Which result it is, in words.
        observation: The digest of the observation.
        outcome: The digest of reward and flags.
        info: The digest of the info.
    """

    where: str
    observation: bytes
    outcome: bytes
    info: bytes


def digest(value: Any) -> bytes:
    """Return a digest of the types, dtypes, shapes and bits of a nested value.

    Objects without values that can be compared between processes count by their type alone.

    Example:
        >>> digest({"a": [1, 2.5]}) == digest({"a": [1, 2.5]}) != digest({"a": [1, 2]})
        True
    """
    found = hashlib.blake2b(digest_size=16)
    _feed(found, value, 0)
    return found.digest()


def _feed(found: Any, value: Any, depth: int) -> None:
    kind = np.ndarray if isinstance(value, np.generic) else type(value)
    found.update(kind.__name__.encode())
    if isinstance(value, (np.ndarray, np.generic)):
        # A scalar is an array without axes.
        found.update(f"{value.dtype}{value.shape}".encode())
        if value.dtype.hasobject:
            for item in value.ravel().tolist():
                _feed(found, item, depth + 1)
        else:
            found.update(value.tobytes())
    elif kind in (int, float, bool, str, bytes, type(None), complex):
        found.update(repr(value).encode(errors="surrogatepass"))
    elif depth > 50:
        return
    elif isinstance(value, dict):
        for key in sorted(value, key=repr):
            _feed(found, key, depth + 1)
            _feed(found, value[key], depth + 1)
    elif isinstance(value, (list, tuple)):
        found.update(str(len(value)).encode())
        for item in value:
            _feed(found, item, depth + 1)
    elif isinstance(value, (set, frozenset)):
        for item in sorted(map(digest, value)):
            found.update(item)


class Player:
    """Plays one environment: resets, steps, and resets at the end of each episode.

    Args:
        env: The environment.
        seed: Of its first reset; later ones have none.
        num_steps: How many steps to make.
        note: Called with what is done next, in words.
        inspect: Whether what it returns is checked; `findings` then gathers what is wrong.
        action_seed: Of the actions; None: `seed`.
        declared: What infos are checked against; None where nothing is declared.
        binds: Whether it writes its observations where a vector env has them, so that those that
            it returned before may change.
    """

    def __init__(
        self,
        env: Any,
        seed: int,
        num_steps: int,
        note: Callable[[str], Any],
        *,
        inspect: bool = False,
        action_seed: int | None = None,
        declared: DeclaredInfos | None = None,
        binds: bool = False,
    ) -> None:
        self.env = env
        self._declared, self._binds = declared, binds
        self._seed, self._num_steps, self._note, self._inspect = seed, num_steps, note, inspect
        self._space = native_space(env.observation_space)
        self._native = native_values(env.observation_space)
        self._foreign = foreign_values(env.action_space)
        # The actions do not depend on what the environment does to its own space.
        self._actions = copy.deepcopy(native_space(env.action_space))
        self._actions.seed(seed if action_seed is None else action_seed)
        # An episode that does not end is given up after so many steps, so that a reset is seen.
        self._longest = max(2 * num_steps // 3, 1)
        self.trace: list[Record] = []
        self.findings: dict[str, str] = {}
        # What was returned last, and its digest: observation and info.
        self._kept: list[tuple[str, Any, bytes]] = []
        # The dtypes and shapes of the masks in infos; None for what is no array.
        self.masks: set[tuple[Any, ...] | None] = set()
        # Of the next action; None after an episode, since a final state may allow no action.
        self._mask: Any = None

    def run(self) -> list[Record]:
        """Play to the end."""
        for _ in self.play():
            pass
        return self.trace

    def play(self) -> Iterator[None]:
        """Play, with a pause after each call of the environment."""
        episode, left = 0, self._num_steps
        while left > 0:
            episode += 1
            self.reset(self._seed if episode == 1 else None, f"reset {episode}")
            yield
            over, length = False, 0
            while left > 0 and not over and length < self._longest:
                left, length = left - 1, length + 1
                over = self.step(f"step {length} of episode {episode}")
                yield

    def reset(self, seed: int | None, where: str) -> None:
        """Begin an episode."""
        self._note(where)
        result = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        self._look_back(where)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            found = f"returns {show_value(result)}, expected (observation, info)"
            self._find("reset-form", found, where)
            raise StopPlaying
        observation, info = result
        self._take(observation, info, where)
        self.trace.append(Record(where, digest(observation), b"", digest(info)))
        self.take_mask(info, where)

    def step(self, where: str) -> bool:
        """Take the next action; return whether the episode is over."""
        action = self.next_action()
        before = digest(action) if self._inspect else b""
        self._note(where)
        result = self.env.step(action)
        self._look_back(where)
        if self._inspect and digest(action) != before:
            self._find("action-written", "writes to the action that it is given", where)
        if not isinstance(result, (tuple, list)) or len(result) != 5:
            found = f"returns {show_value(result)}, expected (observation, reward, terminated, "
            self._find("step-form", found + "truncated, info)", where)
            raise StopPlaying
        observation, reward, terminated, truncated, info = result
        over = self._over(terminated, truncated)
        if over:
            where += ", its last"
        if self._inspect:
            self._check_scalars(reward, terminated, truncated, where)
        self._take(observation, info, where)
        outcome = digest((reward, terminated, truncated))
        self.trace.append(Record(where, digest(observation), outcome, digest(info)))
        self.take_mask(None if over else info, where)
        return over

    def take_mask(self, info: Any, where: str) -> None:
        """Keep the mask in an info for the next action."""
        try:
            self._mask = fit_mask(self._actions, info)
        except ValueError as error:
            self._find("action-mask", f"returns an info that does not fit: {error}", where)
            raise StopPlaying from None

    def next_action(self) -> Any:
        """Draw the next action within the last mask, in the types of the environment's library."""
        mask = self._mask
        action = self._actions.sample() if mask is None else self._actions.sample(mask=mask)
        return action if self._foreign is None else self._foreign(action)

    @staticmethod
    def _over(terminated: Any, truncated: Any) -> bool:
        try:
            return bool(terminated) or bool(truncated)
        except Exception:  # an array of several flags; the finding about it reports it
            return True

    def _take(self, observation: Any, info: Any, where: str) -> None:
        """Check an observation and an info, and keep them in sight until the next call."""
        if not self._inspect:
            return
        converted = observation if self._native is None else self._native(observation)
        wrong = self._space.explain(converted, name="observation")
        if wrong is not None:
            self._find(
                "observation", f"returns an observation outside of its space: {wrong}", where
            )
        self._check_info(info, where)
        self._kept = [("info", info, digest(info))]
        if not self._binds:
            self._kept.append(("observation", observation, digest(observation)))

    def _look_back(self, where: str) -> None:
        """Find out whether the last call wrote to what the one before it had returned."""
        for name, value, known in self._kept:
            if digest(value) != known:
                found = f"writes to the {name} that it returned before"
                self._find(f"reused-{name}", found, where)
        self._kept = []

    def _check_scalars(self, reward: Any, terminated: Any, truncated: Any, where: str) -> None:
        try:
            number = as_reward(reward, 0)
        except Finding:
            found = f"returns {show_value(reward)} as its reward: expected a number"
            self._find("reward", found, where)
        else:
            if not isfinite(number):
                found = f"returns {number} as its reward: expected a finite number"
                self._find("reward", found, where)
        for name, flag in zip(_FLAGS, (terminated, truncated), strict=True):
            if not isinstance(flag, (bool, np.bool_)):
                found = f"returns {show_value(flag)} as {name}: expected a bool"
                self._find("flag", found, where)

    def _check_info(self, info: Any, where: str) -> None:
        if not isinstance(info, dict):
            self._find("info", f"returns {show_value(info)} as its info: expected a dict", where)
            return
        if MASK in info:
            mask = info[MASK]
            is_array = isinstance(mask, np.ndarray)
            self.masks.add((mask.dtype, mask.shape) if is_array else None)
        for key, value in info.items():
            if not isinstance(key, str):
                found = f"returns an info with the key {show_value(key)}: expected a str"
                self._find("info", found, where)
            try:
                cloudpickle.dumps(value)
            except Exception as error:  # whatever a __reduce__ raises
                found = f"returns info[{key!r}], which cannot be pickled ({error})"
                self._find("info", found, where)
        wrong = None if self._declared is None else self._declared.explain(dict(info))
        if wrong is not None:
            found = f"returns an info outside of its info_space: {wrong}"
            self._find("info-space", found, where)

    def _find(self, name: str, message: str, where: str) -> None:
        """Keep the first finding of each kind."""
        self.findings.setdefault(name, f"{where}: {message}")


class StopPlaying(Exception):  # noqa: N818 (no error: a finding reports the fault)
    """What the environment returned does not allow to go on."""


def first_difference(one: list[Record], other: list[Record]) -> tuple[str, str] | None:
    """Return where two traces differ first, and in what; None where one begins with the other.

    Infos count only where nothing else differs: some hold the time.
    """
    for parts in (("observation", "outcome"), ("info",)):
        for mine, theirs in zip(one, other, strict=False):
            for part in parts:
                if getattr(mine, part) != getattr(theirs, part):
                    return mine.where, "reward or a flag" if part == "outcome" else part
    return None
