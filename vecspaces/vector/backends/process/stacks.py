"""The stack of a hung or crashed environment: written by its worker, on request or in a crash.

A thread of the worker answers while the main thread runs Python, or C code that has released
Python's global interpreter lock. While C code holds the lock, no thread can run Python, and the
stack is unknown. On Windows there are no stacks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import multiprocessing
import os
import pickle
import re
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vecspaces import system
from vecspaces.memory import anonymous_file
from vecspaces.vector.backends.process import descriptors

# The time between checks for an answer.
_LOOK_SECONDS = 0.5e-3

# At the start of the file: the thread that runs environments, the factory that it calls (-1 for
# none), the number of answers. The last answer follows, then what faulthandler wrote in a crash.
_HEAD = struct.Struct("<Qqq")
_BUILDING_START, _ANSWERS_START = 8, 16
_LONGEST, _MOST_FRAMES = 1 << 20, 10_000
_CRASH_START = _HEAD.size + _LONGEST

# The signals of a crash, which faulthandler catches.
_CRASHES = {
    number
    for number in signal.Signals
    if number.name in ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL")
}
_THREAD = re.compile(r"^(C?)(?:urrent t|T)hread 0x([0-9a-f]+).*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)', re.MULTILINE)

_ESCAPED = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")

_PACKAGE = f"{Path(__file__).parents[3]}{os.sep}"
_NOT_THE_ENVIRONMENTS = (
    _PACKAGE,
    f"{Path(multiprocessing.__file__).parent}{os.sep}",
    threading.__file__,
    "<frozen importlib.",
)
_OUTERMOST = f"{_PACKAGE}vector{os.sep}backends{os.sep}process{os.sep}worker.py", "worker_main"


class StackFile:
    """An anonymous file into which a worker writes its stacks, and a pipe for requests.

    Both processes have a StackFile, with the same file. Without a file (-1) there are no stacks.

    Attributes:
        bell: The worker's end of the pipe, which is readable when `answer` must be called.
    """

    _file = bell = _ring = -1

    def __init__(self, file: int = -1, bell: int = -1, ring: int = -1) -> None:
        self._file, self.bell, self._ring = file, bell, ring
        self._thread = self._answers = self._asked = 0

    @classmethod
    def make(cls) -> StackFile:
        """Make a StackFile; without a file where processes do not inherit descriptors."""
        if not system.DESCRIPTORS:
            return cls()
        pipe = descriptors.nonblocking_pipe
        return cls(*descriptors.acquire_if_possible(anonymous_file, pipe))

    def __reduce__(self) -> tuple[Any, ...]:
        return descriptors.reduced(StackFile, () if self._file < 0 else (self._file, self.bell))

    def close_workers_end(self) -> None:
        """Close, in the caller, what only the worker needs."""
        descriptors.close_attributes(self, "bell")

    def close(self) -> None:
        """Close it; can be repeated."""
        descriptors.close_attributes(self, "_file", "_ring", "bell")

    # ------------------------------------------------------------------ the worker's side

    def install(self) -> None:
        """Let `faulthandler` write to the file.

        A fork inherits the caller's `faulthandler`, which would write to the caller's file.
        """
        if self._file < 0:
            return
        self._thread = threading.get_ident()
        os.pwrite(self._file, _HEAD.pack(self._thread, -1, 0), 0)
        os.lseek(self._file, _CRASH_START, os.SEEK_SET)
        faulthandler.enable(self._file)
        # A process that an environment forks has no stacks here.
        system.run_in_forks(faulthandler.disable)

    def answer(self) -> None:
        """Write the stack of the environment."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.bell, _LONGEST)
        # The caller reads the lines of code: this thread only gets a core for a moment.
        stack = traceback.walk_stack(sys._current_frames()[self._thread])
        frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in stack]
        self._answers += 1
        os.pwrite(self._file, pickle.dumps(frames[:_MOST_FRAMES]), _HEAD.size)
        os.pwrite(self._file, self._answers.to_bytes(8, "little"), _ANSWERS_START)

    def note_building(self, number: int) -> None:
        """Note the factory that is called; -1 for none."""
        if self._file >= 0:
            os.pwrite(self._file, number.to_bytes(8, "little", signed=True), _BUILDING_START)

    # ------------------------------------------------------------------ the caller's side

    def _read_head(self) -> tuple[int, int, int]:
        """Return the thread, the factory and the number of answers; zeros before `install`."""
        data = b"" if self._file < 0 else os.pread(self._file, _HEAD.size, 0)
        head: tuple[int, int, int] = _HEAD.unpack(data.ljust(_HEAD.size, b"\0"))
        return head

    @property
    def building(self) -> int:
        """The factory that the worker calls; -1 for none or unknown."""
        thread, number, _ = self._read_head()
        return number if thread else -1

    def ask(self, patience: float) -> str | None:
        """Return the stack of the environment that runs; None without an answer within `patience`.

        A worker that runs Python answers within a few milliseconds.
        """
        deadline = time.monotonic() + patience
        thread, _, answers = self._read_head()
        if not thread:
            return None
        # The answer to a second request would overwrite the first answer while it is read.
        if answers >= self._asked:
            os.write(self._ring, b"?")
            self._asked = answers + 1
        while self._read_head()[2] < self._asked:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_SECONDS)
        return _format(pickle.loads(os.pread(self._file, _LONGEST, _HEAD.size)))

    def read_crash(self, exitcode: int | None) -> str | None:
        """Return the stack of a worker that crashed; None for other exits."""
        if exitcode is None or -exitcode not in _CRASHES or self._file < 0:
            return None
        text = os.pread(self._file, _LONGEST, _CRASH_START).decode("ascii", "replace")
        main = self._read_head()[0]
        crashed = next((int(ident, 16) for now, ident, _ in _THREAD.findall(text) if now), main)
        return environment_stack(text, crashed) or environment_stack(text, main)


def environment_stack(text: str, thread: int) -> str | None:
    r"""Return the frames of an environment in the output of `faulthandler`, the innermost last.

    Example:
        >>> print(environment_stack('Thread 0x1 (...):\n  File "e", line 3 in f', 1))
          File "e", line 3, in f
    """
    stacks = [lines for _, ident, lines in _THREAD.findall(text) if int(ident, 16) == thread]
    frames = _FRAME.findall(stacks[-1]) if stacks else []
    return _format([(_unescape(path), int(line), _unescape(name)) for path, line, name in frames])


def _format(frames: Sequence[tuple[str, int, str]]) -> str | None:
    """Format the frames of an environment among some, whose innermost is the first."""
    return format_environment(
        traceback.FrameSummary(*frame, lookup_line=False) for frame in reversed(frames)
    )


def format_environment(frames: Iterable[traceback.FrameSummary]) -> str | None:
    """Format the frames of an environment among some, the innermost last; None without any."""
    chosen: list[traceback.FrameSummary] = []
    for frame in frames:
        if (frame.filename, frame.name) == _OUTERMOST:
            chosen.clear()  # those before it are what a fork inherited
        elif not frame.filename.startswith(_NOT_THE_ENVIRONMENTS):
            chosen.append(frame)
    for frame in chosen:
        linecache.checkcache(frame.filename)
    return "".join(traceback.format_list(chosen)).rstrip("\n") or None


def _unescape(text: str) -> str:
    """Decode characters beyond ASCII, which `faulthandler` escapes, unlike backslashes."""
    return _ESCAPED.sub(lambda match: chr(int(match[0][2:], 16)), text)
