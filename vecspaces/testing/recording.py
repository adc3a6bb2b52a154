"""Playing an environment with given seeds and actions; its results are recorded and checked."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from vecspaces.checks import show_value
from vecspaces.errors import InvalidFlagError, InvalidInfoError, InvalidRewardError
from vecspaces.interop import foreign_values, native_space
from vecspaces.sampling import fit_mask
from vecspaces.vector.group import validation
from vecspaces.vector.group.form import InvalidResult

_DEEPEST = 50
# The names of the findings about flaws.
_FINDINGS: dict[type[Exception], str] = {
    InvalidRewardError: "reward",
    InvalidFlagError: "flag",
    InvalidInfoError: "info",
}


class ResultDigest(NamedTuple):
    """Digests of one result, which can be compared between processes; `where` names the result."""

    where: str
    observation: bytes
    outcome: bytes
    info: bytes


def digest(value: Any) -> bytes:
    """Return a digest of the types, dtypes, shapes and bits of a nested value.

    Objects whose values cannot be compared between processes are represented by their type.

    Example:
        >>> digest({"a": [1, 2.5]}) == digest({"a": [1, 2.5]}) != digest({"a": [1, 2]})
        True
    """
    state = hashlib.blake2b(digest_size=16)
    _feed(state, value, 0)
    return state.digest()


def _feed(state: Any, value: Any, depth: int) -> None:
    kind = np.ndarray if isinstance(value, np.generic) else type(value)
    state.update(kind.__name__.encode())
    if isinstance(value, (np.ndarray, np.generic)):
        # A scalar is an array without axes.
        state.update(f"{value.dtype}{value.shape}".encode())
        if value.dtype.hasobject:
            for item in value.ravel().tolist():
                _feed(state, item, depth + 1)
        else:
            state.update(value.tobytes())
    elif kind in (int, float, bool, str, bytes, type(None), complex):
        state.update(repr(value).encode(errors="surrogatepass"))
    elif depth > _DEEPEST:
        return
    elif isinstance(value, dict):
        for key in sorted(value, key=repr):
            _feed(state, key, depth + 1)
            _feed(state, value[key], depth + 1)
    elif isinstance(value, (list, tuple)):
        state.update(str(len(value)).encode())
        for item in value:
            _feed(state, item, depth + 1)
    elif isinstance(value, (set, frozenset)):
        for item in sorted(map(digest, value)):
            state.update(item)


class Recorder:
    """Plays one environment: resets, steps, and resets at the end of each episode.

    `seed` is the seed of the first reset; later ones have none. `note` is called with a description
    of the next action. With `inspect`, `findings` has the faults of results; `declared` are the
    spaces of an info_space.
    """

    def __init__(
        self,
        env: Any,
        seed: int,
        num_steps: int,
        note: Callable[[str], Any],
        *,
        inspect: bool = False,
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        self.env, self._declared = env, declared
        self._seed, self._num_steps, self._note, self._inspect = seed, num_steps, note, inspect
        space = env.observation_space
        self._explain = validation.observation_rule(native_space(space), space)
        self._foreign = foreign_values(env.action_space)
        # The actions do not depend on the environment's use of its action space.
        self._actions = copy.deepcopy(native_space(env.action_space))
        self._actions.seed(seed)
        # An episode that does not end is ended by a reset after this number of steps.
        self._longest = max(2 * num_steps // 3, 1)
        self.trace: list[ResultDigest] = []
        self.findings: dict[str, str] = {}
        # The last observation and info, with their digests.
        self._kept: list[tuple[str, Any, bytes]] = []
        # The mask of the next action; None after an episode, whose last state may allow none.
        self._mask: Any = None

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
        self._begin(where)
        result = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        self._look_back()
        observation, info = self._unpack(result, "reset", "(observation, info)")
        self._take(observation, info)

    def step(self, where: str) -> bool:
        """Take an action, within the last mask; return whether the episode is over."""
        mask = self._mask
        action = self._actions.sample() if mask is None else self._actions.sample(mask=mask)
        action = action if self._foreign is None else self._foreign(action)
        before = digest(action) if self._inspect else b""
        self._begin(where)
        result = self.env.step(action)
        self._look_back()
        if self._inspect and digest(action) != before:
            self._find("action-written", "writes to the action that it is given")
        form = "(observation, reward, terminated, truncated, info)"
        observation, reward, terminated, truncated, info = self._unpack(result, "step", form)
        try:
            over = bool(terminated) or bool(truncated)
        except Exception:  # an array of several flags, which is reported as a finding
            over = True
        if over:
            self._where += ", its last"
        if self._inspect:
            self._apply(validation.check_reward, reward)
            self._apply(validation.check_flag, "terminated", terminated)
            self._apply(validation.check_flag, "truncated", truncated)
        self._take(observation, info, digest((reward, terminated, truncated)), over)
        return over

    def _begin(self, where: str) -> None:
        self._where = where
        self._note(where)

    def _unpack(self, result: Any, command: str, form: str) -> Any:
        """Return the parts of a result, if it is a tuple of this form."""
        if not isinstance(result, (tuple, list)) or len(result) != form.count(",") + 1:
            self._find(f"{command}-form", f"returns {show_value(result)}, expected {form}")
            raise StopPlaying
        return result

    def _take(self, observation: Any, info: Any, outcome: bytes = b"", over: bool = False) -> None:
        """Record a result, check it, and keep it until the next call."""
        record = ResultDigest(self._where, digest(observation), outcome, digest(info))
        self.trace.append(record)
        if self._inspect:
            wrong = self._explain(observation)
            if wrong is not None:
                self._find("observation", f"returns an observation outside of its space: {wrong}")
            self._apply(validation.check_info, info)
            if isinstance(info, dict):
                self._check_info(info)
            self._kept = [
                ("observation", observation, record.observation),
                ("info", info, record.info),
            ]
        try:
            self._mask = None if over else fit_mask(self._actions, info)
        except ValueError as error:
            self._find("action-mask", f"returns an info that does not fit: {error}")
            raise StopPlaying from None

    def _look_back(self) -> None:
        """Check whether the last call changed the result of the call before."""
        for name, value, known in self._kept:
            if digest(value) != known:
                self._find(f"reused-{name}", f"writes to the {name} that it returned before")
        self._kept = []

    def _check_info(self, info: dict[Any, Any]) -> None:
        """Check infos beyond the rules of `validate=True`: pickling, and the info_space."""
        for key, value in info.items():
            try:
                cloudpickle.dumps(value)
            except Exception as error:  # whatever a __reduce__ raises
                self._find("info", f"returns info[{key!r}], which cannot be pickled ({error})")
        declared = self._declared
        wrong = None if declared is None else validation.explain_info(declared, info)
        if wrong is not None:
            self._find("info-space", f"returns an info outside of its info_space: {wrong}")

    def _apply(self, rule: Callable[..., None], *values: Any) -> None:
        try:
            rule(*values)
        except InvalidResult as error:
            self._find(_FINDINGS[error.kind], f"returns {error.actual}: {error.expected}")

    def _find(self, name: str, message: str) -> None:
        """Keep the first finding of each kind."""
        self.findings.setdefault(name, f"{self._where}: {message}")


class StopPlaying(Exception):  # noqa: N818 (no error: a finding reports the fault)
    """The environment returned a result after which it cannot be stepped."""


class Difference(NamedTuple):
    """Where two traces differ first, and in which part of a result."""

    where: str
    part: str

    def __str__(self) -> str:
        return f"{self.where}: the {self.part}"


def first_difference(
    trace: list[ResultDigest], other: list[ResultDigest], *, infos: bool = False
) -> Difference | None:
    """Return the first difference; None if one trace begins the other.

    Infos are compared only with `infos`, and last, because some contain the time.
    """
    for parts in (("observation", "outcome"), ("info",) if infos else ()):
        for mine, theirs in zip(trace, other, strict=False):
            for part in parts:
                if getattr(mine, part) != getattr(theirs, part):
                    return Difference(mine.where, "reward or a flag" if part == "outcome" else part)
    return None
