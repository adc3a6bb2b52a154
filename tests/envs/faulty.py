"""Environments that fail on demand, for tests of training code and backends.

A fault occurs once, when its file exists (`arm`). It therefore also occurs in other processes, but
not again in an environment that is built again. Everything is picklable.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vecspaces.env import Env
from vecspaces.spaces import Box, Dict, Discrete

MEGABYTE = 1 << 20


class OddError(Exception):
    """An ordinary exception of an environment."""


class UnpicklableError(Exception):
    """Cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class UnloadableError(Exception):
    """Can be pickled but not unpickled, because its constructor needs more arguments."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what} ({code})")


def _raise(error: BaseException) -> NoReturn:
    raise error


def _segfault() -> None:
    faulthandler.disable()  # pytest's would fill the terminal
    ctypes.string_at(0)


def _print_megabytes() -> None:
    for _ in range(64):
        os.write(sys.__stdout__.fileno() if sys.__stdout__ else 1, b"x" * 65535 + b"\n")


def _run_out_of_memory() -> None:
    import resource  # POSIX alone has it

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 64 * MEGABYTE, resource.RLIM_INFINITY))
    hoard = []
    try:
        while True:
            hoard.append(bytearray(MEGABYTE))
    finally:
        hoard.clear()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


#: What an environment may do instead of continuing.
FAULTS: dict[str, Callable[[], Any]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": _segfault,
    "os._exit": lambda: os._exit(3),
    "SystemExit": lambda: _raise(SystemExit(7)),
    "exception": lambda: _raise(OddError("the gripper is stuck")),
    "unpicklable exception": lambda: _raise(UnpicklableError("the gripper is locked")),
    "unloadable exception": lambda: _raise(UnloadableError(41, "the gripper is lost")),
    "hang": lambda: threading.Event().wait(),
    # A call of a PyDLL keeps the interpreter's lock.
    "hang in native code": lambda: ctypes.PyDLL(None).sleep(1000),
    "megabytes on stdout": _print_megabytes,
    "out of memory": _run_out_of_memory,
}

#: A further kind of fault: wait until `open_gate` is called.
GATE = "gate"


@dataclass(frozen=True)
class Fault:
    """A fault that occurs once, in one place, when it finds its file, which it then removes.

    `kind` is a key of `FAULTS` or of one of the dicts of invalid values, or `GATE`; `where` is
    `"build"`, `"reset"`, `"step"`, `"call"`, `"get"`, `"set"`, `"render"` or `"close"`.
    """

    kind: str
    where: str
    trigger: Path

    def run(self, where: str) -> str | None:
        """Let the fault occur once, if it is armed; return its kind if a value must be invalid."""
        if where != self.where:
            return None
        try:
            self.trigger.unlink()
        except FileNotFoundError:
            return None
        if self.kind == GATE:
            self.trigger.with_name("gate").read_bytes()
        elif self.kind in FAULTS:
            FAULTS[self.kind]()
        else:
            return self.kind
        return None


#: Observations outside of their space, and how each is made. The contract has many more.
INVALID_OBSERVATIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "observation of wrong dtype": lambda good: {**good, "phase": 2.5},
}

#: Rewards that are not numbers.
INVALID_REWARDS: dict[str, Any] = {"reward that is a word": "plenty"}


class Unloadable:
    """Can be pickled, but unpickling raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (OddError("the gripper is stuck"),)


#: Infos that cannot be sent to the caller.
INVALID_INFOS: dict[str, Callable[[], Any]] = {
    "info that cannot be pickled": lambda: {"lock": threading.Lock()},
    "info that cannot be unpickled": lambda: {"riddle": Unloadable()},
}

#: Results of a call that cannot be sent to the caller.
INVALID_RESULTS: dict[str, Callable[[], Any]] = {
    "result that cannot be pickled": threading.Lock,
    "result that cannot be unpickled": Unloadable,
}


class FaultyEnv(Env[Any, Any]):
    """An environment with one fault, which occurs once; each observation has its index."""

    observation_space = Dict(
        {"place": Box(-np.inf, np.inf, (3,), np.float32), "phase": Discrete(5)}
    )
    action_space = Discrete(3)

    def __init__(self, index: int, fault: Fault | None = None, episode: int = 4) -> None:
        self.index, self._fault, self._episode = index, fault, episode
        self._steps, self._strength = 0, 7

    def _run_fault(self, where: str) -> str | None:
        return None if self._fault is None else self._fault.run(where)

    def _observe(self, invalid: str | None) -> Any:
        place = np.array([self.index, self.np_random.random(), self._steps], np.float32)
        good = {"place": place, "phase": self._steps % 5}
        return INVALID_OBSERVATIONS[invalid](good) if invalid in INVALID_OBSERVATIONS else good

    def _inform(self, invalid: str | None) -> Any:
        return INVALID_INFOS[invalid]() if invalid in INVALID_INFOS else {"steps": self._steps}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        invalid = self._run_fault("reset")
        return self._observe(invalid), self._inform(invalid)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._steps += 1
        invalid = self._run_fault("step")
        reward = INVALID_REWARDS[invalid] if invalid in INVALID_REWARDS else float(action)
        terminated = self._steps == self._episode
        return self._observe(invalid), reward, terminated, False, self._inform(invalid)

    def poke(self, much: int = 1) -> Any:
        """A method to call."""
        invalid = self._run_fault("call")
        return INVALID_RESULTS[invalid]() if invalid in INVALID_RESULTS else self.index + much

    @property
    def strength(self) -> int:
        """An attribute to get and set."""
        self._run_fault("get")
        return self._strength

    @strength.setter
    def strength(self, value: int) -> None:
        self._run_fault("set")
        self._strength = value

    def render(self) -> Any:
        self._run_fault("render")
        return np.full((2, 2, 3), self.index, np.uint8)

    def close(self) -> None:
        self._run_fault("close")


@dataclass(frozen=True)
class Factory:
    """Makes one `FaultyEnv`; the file `log` gets a line with the index at each call."""

    index: int
    fault: Fault | None = None
    log: Path | None = None
    episode: int = 4

    def __call__(self) -> FaultyEnv:
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{self.index}\n")
        if self.fault is not None and self.fault.run("build"):
            return object()  # type: ignore[return-value]  # that is the fault
        return FaultyEnv(self.index, self.fault, self.episode)


def factories(
    count: int,
    folder: Path,
    kind: str | None = None,
    where: str = "step",
    row: int = 2,
    episode: int = 4,
) -> list[Factory]:
    """Return factories; the environment of number `row` fails after `arm` was called.

    A fault in construction is armed at once. `folder` is empty; it gets the files that arm the
    fault, and that log constructions.
    """
    log, trigger = folder / "built", folder / "trigger"
    if kind == GATE:
        os.mkfifo(folder / "gate")
    fault = None if kind is None else Fault(kind, where, trigger)
    if fault is not None and where == "build":
        arm(folder)
    return [Factory(index, fault if index == row else None, log, episode) for index in range(count)]


def arm(folder: Path) -> None:
    """Let the fault occur at its next opportunity, once."""
    (folder / "trigger").touch()


def built(folder: Path) -> list[int]:
    """Return the indices of the factories that were called, in order of the calls."""
    return [int(line) for line in (folder / "built").read_text().split()]


def open_gate(folder: Path) -> None:
    """Wait until the environment is at the gate, and let it continue."""
    (folder / "gate").write_bytes(b"!")


def disarmed(folder: Path) -> bool:
    """Return whether the fault has occurred, or was never armed."""
    return not (folder / "trigger").exists()
