"""The journal: each finished episode as a line of JSON, from which a later call goes on."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_FORMAT = "vecspaces.evaluate 1"
_BEGINNING = json.dumps({"journal": _FORMAT})[:-1].encode()


class Episode(NamedTuple):
    """One finished episode.

    Attributes:
        episode: Its number.
        seed: Its seed.
        total: The sum of its rewards.
        length: The number of its steps.
        terminated: Whether the environment ended it.
        retries: How often it was begun anew.
        infos: The numbers of its final info.
    """

    episode: int
    seed: int
    total: float
    length: int
    terminated: bool
    retries: int
    infos: dict[str, float]


class Journal:
    """A file of finished episodes.

    A line is written with one system call when its episode has ended. What an interrupted call left
    of its last line is ignored, and cut off.

    Args:
        path: The file; it need not exist.
        arguments: What the episodes depend on, in plain types; another call's must be equal.
        seeds: The seeds of all episodes; None: those of the journal, or these fresh ones.
        fresh: Seeds for a journal that does not exist yet.

    Attributes:
        seeds: The seeds of all episodes.
        finished: What the journal held.

    Raises:
        ValueError: The file is no journal, or one of other arguments.
    """

    def __init__(
        self,
        path: str | Path,
        arguments: Mapping[str, Any],
        seeds: Sequence[int] | None,
        fresh: Sequence[int],
    ) -> None:
        self.path = Path(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(self.path, flags, 0o666)
        try:
            lines, size = self._read()
            self.seeds = list(fresh if seeds is None else seeds)
            self.finished: list[Episode] = []
            if not lines:
                os.ftruncate(self._descriptor, 0)
                self._write({"journal": _FORMAT, "arguments": arguments, "seeds": self.seeds})
                return
            header = self._parse(lines[0], 1)
            if seeds is None:
                self.seeds = header["seeds"]
            self._check(header, {"arguments": arguments, "seeds": self.seeds})
            for number, line in enumerate(lines[1:], 2):
                episode = Episode(**self._parse(line, number))
                if self.seeds[episode.episode] != episode.seed:
                    raise self._refusal(number)
                self.finished.append(episode)
            os.ftruncate(self._descriptor, size)
        except BaseException:
            self.close()
            raise

    def _read(self) -> tuple[list[bytes], int]:
        """Return the complete lines, and the bytes that they take."""
        content = self.path.read_bytes()
        size = content.rfind(b"\n") + 1
        known = min(len(content), len(_BEGINNING))
        if content[:known] != _BEGINNING[:known]:
            raise self._refusal(1)
        return content[:size].splitlines(), size

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        expected = {"journal", "arguments", "seeds"} if number == 1 else set(Episode._fields)
        if not isinstance(found, dict) or set(found) != expected:
            raise self._refusal(number)
        return found

    def _check(self, header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        """Refuse a journal of other arguments, by the name of the first."""
        for name, wanted in {**expected["arguments"], "seed": expected["seeds"]}.items():
            found = header["seeds"] if name == "seed" else header["arguments"].get(name)
            # As it reads once it was written: a tuple is a list then.
            if found == json.loads(json.dumps(wanted)):
                continue
            if name == "seed":
                differs = f"whose seeds differ from episode {_first(found, wanted)} on"
            else:
                differs = f"of {name} {found!r}, and this call has {wanted!r}"
            raise ValueError(
                f"journal: {self.path} holds episodes of another evaluation, {differs}: name "
                "another file, or remove it"
            )

    def _refusal(self, number: int) -> ValueError:
        return ValueError(
            f"journal: {self.path} is no journal of evaluate, as its line {number} shows: "
            "name another file"
        )

    def add(self, episode: Episode) -> None:
        """Write a finished episode."""
        self._write(episode._asdict())

    def _write(self, found: Mapping[str, Any]) -> None:
        left = (json.dumps(found) + "\n").encode()
        while left:  # one call, unless the disk is full
            left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _first(found: Sequence[int], wanted: Sequence[int]) -> int:
    """Return the number of the first seed that differs."""
    pairs = zip(found, wanted)  # noqa: B905 - the shorter one ends
    return next((k for k, (one, other) in enumerate(pairs) if one != other), len(wanted))


def describe(value: Any) -> Any:
    """Describe an argument in plain types: equal for equal arguments, also in another process.

    Functions and classes are described by their names: what they do is not compared.

    Example:
        >>> describe(describe), describe({"gravity": 9.81})
        ('vecspaces.evaluation.journal:describe', {'gravity': 9.81})
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): describe(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(part) for part in value]
    if isinstance(value, np.generic):
        return describe(value.item())
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, functools.partial):
        return [describe(value.func), describe(value.args), describe(value.keywords)]
    registration = sys.modules.get("gymnasium.envs.registration")
    if registration is not None and isinstance(value, registration.EnvSpec):
        return [value.id, describe(value.kwargs)]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
