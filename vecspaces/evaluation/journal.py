"""The journal of an evaluation: one line of JSON per finished episode, to continue from."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecspaces import system
from vecspaces.checks import show_value
from vecspaces.evaluation.result import EpisodeResult

_FORMAT = "vecspaces.evaluate 1"
_BEGINNING = json.dumps({"journal": _FORMAT})[:-1].encode()

# The JSON types of the fields of an episode.
_TYPES = (int, int, float, int, bool, int, dict)

# The journals that this process writes, by device and inode, because a file lock excludes only
# other processes.
_OPEN: dict[tuple[int, int], Journal] = {}


class Journal:
    """A file of finished episodes, locked while it is open.

    Each line is written by one system call, when its episode has ended. An incomplete last line, of
    an interrupted call, is removed.
    """

    def __init__(
        self,
        path: str | Path,
        arguments: Mapping[str, Any],
        seeds: Sequence[int],
        *,
        seeds_are_fresh: bool = False,
    ) -> None:
        """Open or make a journal; ValueError: it has other arguments, or is another file.

        `arguments` are in plain types. The seeds of an existing journal replace fresh ones.
        """
        self.path = Path(path)
        # Checked before opening, since closing the file would release the writer's lock.
        if self.path.exists() and _identify(os.stat(self.path)) in _OPEN:
            raise self._taken()
        self._descriptor = self._open()
        status = os.fstat(self._descriptor)
        self._file = _identify(status)
        try:
            if not stat.S_ISREG(status.st_mode):  # some devices never end
                raise self._no_file("which is no file")
            self._lock()
            lines, size = self._read()
            self.seeds = list(seeds)
            #: The episodes in the journal, by their numbers.
            self.finished: dict[int, EpisodeResult] = {}
            if not lines:
                os.ftruncate(self._descriptor, 0)
                self._write({"journal": _FORMAT, "arguments": arguments, "seeds": self.seeds})
                return
            header = self._parse(lines[0], 1, {"journal", "arguments", "seeds"})
            types = type(header["arguments"]), type(header["seeds"])
            if header["journal"] != _FORMAT or types != (dict, list):
                raise self._refusal(1)
            if seeds_are_fresh:
                self.seeds = header["seeds"]
            self._check({**header["arguments"], "seed": header["seeds"]}, arguments)
            if len(self.seeds) != len(seeds):
                raise self._refusal(1)
            for number, line in enumerate(lines[1:], 2):
                episode = self._parse_episode(line, number)
                self.finished[episode.episode] = episode
            os.ftruncate(self._descriptor, size)
        except BaseException:
            self.close()
            raise

    def _open(self) -> int:
        if self.path.is_dir():
            raise self._no_file("a folder")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | system.O_BINARY
        return os.open(self.path, flags, 0o666)

    def _no_file(self, kind: str) -> ValueError:
        return ValueError(f"journal: expected a file or a new name, found {self.path}, {kind}")

    def _lock(self) -> None:
        """Refuse a file that another evaluation writes."""
        if _OPEN.setdefault(self._file, self) is not self:
            raise self._taken()
        if not system.lock_file(self._descriptor):
            raise self._taken()

    def _taken(self) -> ValueError:
        return ValueError(
            f"journal: another evaluation writes {self.path}: wait for its end, or name another "
            "file"
        )

    def _read(self) -> tuple[list[bytes], int]:
        """Return the complete lines, and their size in bytes."""
        # Closing a second descriptor of the file would release the lock.
        with open(self._descriptor, "rb", closefd=False) as file:
            content = file.read()
        size = content.rfind(b"\n") + 1
        known = min(len(content), len(_BEGINNING))
        if content[:known] != _BEGINNING[:known]:
            raise self._refusal(1)
        return content[:size].splitlines(), size

    def _parse(self, line: bytes, number: int, names: set[str]) -> dict[str, Any]:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or set(fields) != names:
            raise self._refusal(number)
        return fields

    def _parse_episode(self, line: bytes, number: int) -> EpisodeResult:
        episode = EpisodeResult(**self._parse(line, number, set(EpisodeResult._fields)))
        if (
            tuple(map(type, episode)) != _TYPES
            or not 0 <= episode.episode < len(self.seeds)
            or episode.seed != self.seeds[episode.episode]
            or episode.episode in self.finished
        ):
            raise self._refusal(number)
        return episode

    def _check(self, recorded: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Refuse a journal with other arguments; the error names the first that differs."""
        # An argument that only the journal has is None in this call.
        for name, wanted in {**dict.fromkeys(recorded), **arguments, "seed": self.seeds}.items():
            had = recorded.get(name)
            if _is_equal(had, wanted):
                continue
            differs = f"of {name} {had!r}, and this call has {wanted!r}"
            if name in ("seed", "options") and had and wanted:
                pairs = enumerate(zip(had, wanted, strict=False))
                first = next((k for k, pair in pairs if not _is_equal(*pair)), len(wanted))
                differs = f"whose {name.removesuffix('s')}s differ from episode {first} on"
                if name == "options":
                    differs += f", {had[first]!r}, and this call has {wanted[first]!r}"
            raise ValueError(
                f"journal: {self.path} holds episodes of another evaluation, {differs}: name "
                "another file, or remove it"
            )

    def _refusal(self, number: int) -> ValueError:
        return ValueError(
            f"journal: {self.path} is no journal of evaluate, as its line {number} shows: "
            "name another file"
        )

    def add(self, episode: EpisodeResult) -> None:
        """Write a finished episode."""
        self._write(episode._asdict())

    def _write(self, line: Mapping[str, Any]) -> None:
        left = (json.dumps(line) + "\n").encode()
        while left:  # one call, unless the disk is full
            left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if _OPEN.get(self._file) is self:
                del _OPEN[self._file]


def _is_equal(value: Any, other: Any) -> bool:
    """Compare values as JSON, in which a tuple is a list, and nan equals nan."""
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def identify(value: Any, name: Callable[[Any], Any] | None = None) -> Any:
    """Describe an argument in plain types, equally in every process.

    `name` describes what has no plain type; None: the module and name of a function or a type.

    Example:
        >>> identify(identify), identify({"gravity": 9.81})
        ('vecspaces.evaluation.journal:identify', {'gravity': 9.81})
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): identify(part, name) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [identify(part, name) for part in value]
    if isinstance(value, np.generic) and type(value.item()) is not type(value):
        return identify(value.item(), name)
    if isinstance(value, np.ndarray):
        return [str(value.dtype), identify(value.tolist(), name)]
    if name is not None:
        return name(value)
    if isinstance(value, functools.partial):
        return [identify(value.func), identify(value.args), identify(value.keywords)]
    registration = sys.modules.get("gymnasium.envs.registration")
    if registration is not None and isinstance(value, registration.EnvSpec):
        return [value.id, identify(value.kwargs)]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def identify_policy(policy: Any) -> Any:
    """Describe a policy, and its parameters by their digest, since checkpoints share a class.

    Parameters are those of `state_dict` (PyTorch) or `get_parameters` (Stable-Baselines3), of the
    policy or of the object whose method it is.
    """
    owner = getattr(policy, "__self__", policy)
    for method in ("state_dict", "get_parameters"):
        read = getattr(owner, method, None)
        if callable(read) and not isinstance(owner, type):
            digest = hashlib.sha256()
            _add_values(read(), digest)
            return [identify(policy), digest.hexdigest()]
    return identify(policy)


def _add_values(value: Any, digest: Any) -> None:
    """Add the keys and numbers of nested parameters to a digest."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _add_values(value[key], digest)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _add_values(part, digest)
    else:
        if hasattr(value, "detach"):  # a tensor, maybe on another device
            value = value.detach().cpu().numpy()
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(repr(value).encode() if array.dtype.hasobject else array.tobytes())


def identify_options(options: Sequence[Mapping[str, Any] | None]) -> list[Any]:
    """Describe the options of episodes in plain types; refuse values that have none.

    Example:
        >>> identify_options([{"state": np.zeros(2)}, None])
        [{'state': ['float64', [0.0, 0.0]]}, None]
    """
    return [identify(entry, functools.partial(_refuse, k)) for k, entry in enumerate(options)]


def _refuse(k: int, value: Any) -> Any:
    raise TypeError(
        f"journal: options of episode {k}: expected numbers, strings, arrays, lists and dicts, "
        f"which can be compared when the evaluation continues, found {show_value(value)}"
    )
