"""Playing an environment with given seeds and actions; its results are recorded and checked."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from vecspaces.checks import Path, show_path, show_value
from vecspaces.errors import InvalidFlagError, InvalidInfoError, InvalidRewardError
from vecspaces.interop import foreign_values, native_space
from vecspaces.layout import Mismatch
from vecspaces.memory import Arena
from vecspaces.sampling import MASK, fit_mask
from vecspaces.spaces import Dict
from vecspaces.vector.exchange.info_space import InfoLayout
from vecspaces.vector.group import validation
from vecspaces.vector.group.form import InvalidResult
from vecspaces.vector.group.info_writer import InfoWriter

_CAPACITY = 65536
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
    elif depth > _DEEPEST:
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


class Recorder:
    """Plays one environment: resets, steps, and resets at the end of each episode.

    `seed` is the seed of the first reset; later ones have none. `note` is called with a description
    of the next action. With `inspect`, `findings` has the faults of results.
    """

    def __init__(
        self,
        env: Any,
        seed: int,
        num_steps: int,
        note: Callable[[str], Any],
        *,
        inspect: bool = False,
        declared: DeclaredInfos | None = None,
    ) -> None:
        self.env = env
        self._declared = declared
        self._seed, self._num_steps, self._note, self._inspect = seed, num_steps, note, inspect
        space = env.observation_space
        self._rule = validation.ObservationRule(native_space(space), space)
        self._foreign = foreign_values(env.action_space)
        # The actions do not depend on the environment's use of its own space.
        self._actions = copy.deepcopy(native_space(env.action_space))
        self._actions.seed(seed)
        # An episode that does not end is ended by a reset after this number of steps.
        self._longest = max(2 * num_steps // 3, 1)
        self.trace: list[ResultDigest] = []
        self.findings: dict[str, str] = {}
        # The last observation and info, with their digests.
        self._kept: list[tuple[str, Any, bytes]] = []
        # The dtypes and shapes of the masks in infos; None for one that is not an array.
        self.masks: set[tuple[Any, ...] | None] = set()
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
        self._note(where)
        result = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        self._look_back(where)
        observation, info = self._unpack(result, "reset", "(observation, info)", where)
        self._take(observation, info, where)
        self.trace.append(ResultDigest(where, digest(observation), b"", digest(info)))
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
        form = "(observation, reward, terminated, truncated, info)"
        observation, reward, terminated, truncated, info = self._unpack(result, "step", form, where)
        over = _any(terminated, truncated)
        if over:
            where += ", its last"
        if self._inspect:
            self._find_flaws(validation.find_in_scalars(reward, terminated, truncated), where)
        self._take(observation, info, where)
        outcome = digest((reward, terminated, truncated))
        self.trace.append(ResultDigest(where, digest(observation), outcome, digest(info)))
        self.take_mask(None if over else info, where)
        return over

    def _unpack(self, result: Any, command: str, form: str, where: str) -> Any:
        """Return the parts of a result, if it is a tuple of this form."""
        if not isinstance(result, (tuple, list)) or len(result) != form.count(",") + 1:
            self._find(f"{command}-form", f"returns {show_value(result)}, expected {form}", where)
            raise StopPlaying
        return result

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

    def _take(self, observation: Any, info: Any, where: str) -> None:
        """Check an observation and an info, and keep them until the next call."""
        if not self._inspect:
            return
        wrong = self._rule.explain(observation)
        if wrong is not None:
            found = f"returns an observation outside of its space: {wrong}"
            self._find("observation", found, where)
        self._find_flaws(validation.find_in_info(info), where)
        if isinstance(info, dict):
            self._check_info(info, where)
        self._kept = [
            ("info", info, digest(info)),
            ("observation", observation, digest(observation)),
        ]

    def _look_back(self, where: str) -> None:
        """Check whether the last call changed the results of the one before it."""
        for name, value, known in self._kept:
            if digest(value) != known:
                found = f"writes to the {name} that it returned before"
                self._find(f"reused-{name}", found, where)
        self._kept = []

    def _check_info(self, info: dict[Any, Any], where: str) -> None:
        """Check infos beyond the rules of `validate=True`: masks, pickling, the info_space."""
        if MASK in info:
            mask = info[MASK]
            self.masks.add((mask.dtype, mask.shape) if isinstance(mask, np.ndarray) else None)
        for key, value in info.items():
            try:
                cloudpickle.dumps(value)
            except Exception as error:  # whatever a __reduce__ raises
                found = f"returns info[{key!r}], which cannot be pickled ({error})"
                self._find("info", found, where)
        wrong = None if self._declared is None else self._declared.explain(dict(info))
        if wrong is not None:
            found = f"returns an info outside of its info_space: {wrong}"
            self._find("info-space", found, where)

    def _find_flaws(self, flaws: Iterable[validation.Flaw], where: str) -> None:
        for flaw in flaws:
            self._find(_FINDINGS[flaw.kind], f"returns {flaw.found}: {flaw.expected}", where)

    def _find(self, name: str, message: str, where: str) -> None:
        """Keep the first finding of each kind."""
        self.findings.setdefault(name, f"{where}: {message}")


class StopPlaying(Exception):  # noqa: N818 (no error: a finding reports the fault)
    """The environment returned a result after which it cannot be stepped."""


class DeclaredInfos:
    """Checks infos against an info_space as a vector env with `validate=True` does."""

    def __init__(self, space: Dict[Any]) -> None:
        layout = InfoLayout.compile(space, 1, slots=1, variable_capacity=_CAPACITY, offset=0)
        (rows,) = layout.bind(Arena(layout.end))
        self._writer = InfoWriter(rows, 0, 1, validate=True)
        # The paths of the keys that no info had so far, in the order of the space.
        self._unseen = [key.path for key in layout.keys]

    def explain(self, info: dict[Any, Any]) -> str | None:
        """Return why an info is not in the space; None if it is."""
        self._unseen = [path for path in self._unseen if not _has(info, path)]
        try:
            self._writer.write({0: info}, [0])
        except Mismatch as error:
            return str(Mismatch(error.expected, error.found, error.path, name="info"))
        except InvalidResult as error:
            return error.reason
        return None

    @property
    def missing(self) -> list[str]:
        """The keys that no info had; for a Dict that no info had, without its keys."""
        tops = [path for path in self._unseen if path[:-1] not in self._unseen]
        return [f"info{show_path(path)}" for path in tops]


def _has(info: Any, path: Path) -> bool:
    if not path:
        return True
    return isinstance(info, Mapping) and path[0] in info and _has(info[path[0]], path[1:])


def _any(terminated: Any, truncated: Any) -> bool:
    try:
        return bool(terminated) or bool(truncated)
    except Exception:  # an array of several flags, which is reported as a finding
        return True


class Difference(NamedTuple):
    """Where two traces differ first, and in which part of a result."""

    where: str
    part: str

    def __str__(self) -> str:
        return f"{self.where}: the {self.part}"


def first_difference(
    one: list[ResultDigest], other: list[ResultDigest], *, infos: bool = False
) -> Difference | None:
    """Return the first difference; None if one trace begins the other.

    Infos are compared only with `infos`, and last, because some contain the time.
    """
    for parts in (("observation", "outcome"), ("info",) if infos else ()):
        for mine, theirs in zip(one, other, strict=False):
            for part in parts:
                if getattr(mine, part) != getattr(theirs, part):
                    return Difference(mine.where, "reward or a flag" if part == "outcome" else part)
    return None
