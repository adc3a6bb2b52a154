"""The stack of a hung or crashed environment: written by its worker, on request or in a crash.

A thread of the worker answers while the main thread runs Python, or C code that has released
Python's global interpreter lock. If C code holds the lock, no thread can run Python, and a signal
makes `faulthandler` write the stack. Only the answering thread receives the signal, since it would
end a `sleep` or `poll` of the C code. Stacks are available on Linux only.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import multiprocessing
import os
import re
import signal
import struct
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecspaces.vector.backends.process import forking
from vecspaces.vector.backends.process.interrupts import uninterrupted

if TYPE_CHECKING:
    from vecspaces.vector.backends.process.processes import WorkerProcess

# The longest time until the signal has an effect, on a busy machine, and the time between checks.
_SIGNAL_SECONDS, _LOOK_SECONDS = 0.3, 0.5e-3
# A thread that does not answer for this time runs C code: Python releases its lock every 5 ms.
_C_SECONDS = 0.05

# At the start of the file: the signal that requests a stack, the thread that runs environments or
# builds one, the factory that it calls (-1 for none), and the number of answers. The output of
# faulthandler follows.
_WORDS = struct.Struct("<qQqq")
_BUILDING = struct.Struct("<Qq")
_BUILDING_AT, _ANSWERS_AT = 8, 24
_LONGEST = 1 << 20

# The signals of a crash, which faulthandler catches.
_CRASHES = {
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL")
    if hasattr(signal, name)
}
_FATAL = "Fatal Python error: "
# Where faulthandler ends early, because a thread is starting or ending: it is asked again.
_CUT_SHORT = "<freed thread state>"
_THREAD = re.compile(r"^(C?)(?:urrent t|T)hread 0x([0-9a-f]+).*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)', re.MULTILINE)

# For /proc/PID/status. Compiled here, because each forked worker would compile it, and import a
# codec.
_MASKS = re.compile(r"^Sig(\w+):\s*([0-9a-f]+)", re.MULTILINE)
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
    """An anonymous file into which a worker writes its stacks, and an eventfd for requests.

    Both processes have one, with the same file and the same `bell`, a descriptor that is readable
    when `answer` must be called. Without them (-1) there are no stacks.
    """

    def __init__(self, file: int = -1, bell: int = -1) -> None:
        self._file, self.bell = file, bell
        self._log = -1
        self._signal = self._answers = 0

    @classmethod
    def make(cls) -> StackFile:
        """Make one; without a file if the system has no anonymous files."""
        if sys.platform != "linux" or not hasattr(os, "eventfd"):
            return cls()
        bell = partial(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        return cls(*forking.acquire_if_possible(partial(os.memfd_create, "vecspaces"), bell))

    def __reduce__(self) -> tuple[Any, ...]:
        return forking.reduced(StackFile, self.descriptors)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that the other process needs."""
        return () if self._file < 0 else (self._file, self.bell)

    def close(self) -> None:
        """Close it; can be repeated."""
        forking.close(*self.descriptors)
        self._file = self.bell = -1

    # ------------------------------------------------------------------ the worker's side

    def install(self) -> None:
        """Let `faulthandler` write to the file, and note the signal that triggers it.

        A fork inherits the caller's `faulthandler`, which would write to the caller's file.
        Handlers of others for crashes (Julia, a JVM) are not replaced.
        """
        if self._file < 0:
            return
        try:
            # Opened a second time, because only the output of `faulthandler` must be appended.
            path = f"/proc/self/fd/{self._file}"
            (self._log,) = forking.acquire(partial(os.open, path, os.O_WRONLY | os.O_APPEND))
            taken = _signals("self", "Blk", "Ign", "Cgt")
        except OSError:  # no /proc
            return
        if faulthandler.is_enabled() or not taken & _CRASHES:
            faulthandler.enable(self._log)
        free = (one for one in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1) if one not in taken)
        self._signal = next(free, 0)
        if self._signal:
            faulthandler.register(self._signal, self._log, all_threads=True, chain=False)
            signal.pthread_sigmask(signal.SIG_BLOCK, [self._signal])
        os.register_at_fork(after_in_child=self._uninstall)
        # Last, since a signal before the handler is installed would end the process.
        os.pwrite(self._file, _WORDS.pack(self._signal, threading.get_ident(), -1, 0), 0)

    def _uninstall(self) -> None:
        """Disable stacks in a process that an environment forks."""
        faulthandler.disable()
        if self._signal:
            faulthandler.unregister(self._signal)

    def receive_signals(self) -> None:
        """Let the calling thread receive the signal, and no thread that others start."""
        if self._signal:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [self._signal])

    def answer(self) -> None:
        """Write the stacks of all threads."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        if self._log >= 0:
            faulthandler.dump_traceback(self._log, all_threads=True)
            self._answers += 1
            os.pwrite(self._file, self._answers.to_bytes(8, "little"), _ANSWERS_AT)

    def note_building(self, number: int, thread: int = 0) -> None:
        """Note the factory that is called, and its thread; -1 for none."""
        if self._log >= 0:
            words = _BUILDING.pack(thread or threading.get_ident(), number)
            os.pwrite(self._file, words, _BUILDING_AT)

    # ------------------------------------------------------------------ the caller's side

    def _read_words(self) -> tuple[int, int, int, int]:
        """Return the words; zeros until the worker has written them."""
        data = b"" if self._file < 0 else os.pread(self._file, _WORDS.size, 0)
        words: tuple[int, int, int, int] = _WORDS.unpack(data.ljust(_WORDS.size, b"\0"))
        return words

    @property
    def building(self) -> int:
        """The factory that the worker calls; -1 for none or unknown."""
        _, thread, number, _ = self._read_words()
        return number if thread else -1

    def ask(self, patience: float, process: WorkerProcess | None, thread: int = 0) -> str | None:
        """Return the stack of the environment that runs; None if the worker does not answer.

        The environment runs in `thread`, or in the thread that the worker has noted (0).

        A worker that runs Python answers within a few milliseconds. If it has not answered after
        `patience` seconds, it is sent a signal, provided that `process` is given.
        """
        signal_at = time.monotonic() + patience
        while True:
            number, noted, _, answers = self._read_words()
            if not noted:
                return None
            os.ftruncate(self._file, _WORDS.size)
            _, ran = _activity(process) if process else ("", 0.0)
            os.eventfd_write(self.bell, 1)
            while self._read_words()[3] == answers:
                now = time.monotonic()
                if process is not None and now >= signal_at and _bears(process, number, ran):
                    process.send_signal(number)
                    self._await_text(thread or noted, signal_at + _SIGNAL_SECONDS)
                    break
                if now >= signal_at + (_SIGNAL_SECONDS if process and number else 0.0):
                    return None
                time.sleep(_LOOK_SECONDS)
            text = self._read_text()
            stack = environment_stack(text, thread or noted)
            if stack is not None or _CUT_SHORT not in text or time.monotonic() >= signal_at:
                return stack

    def _await_text(self, thread: int, give_up: float) -> None:
        """Wait until `faulthandler` has written all of a thread: until the text stops growing."""
        text = ""
        while time.monotonic() < give_up:
            time.sleep(10 * _LOOK_SECONDS)
            before, text = text, self._read_text()
            if before == text and environment_stack(text, thread):
                return

    def read_crash(self, exitcode: int | None) -> tuple[str | None, int]:
        """Return the stack of a worker that crashed, and the thread; None for other exits."""
        if exitcode is None or -exitcode not in _CRASHES or self._file < 0:
            return None, 0
        _, is_fatal, text = self._read_text().rpartition(_FATAL)
        if not is_fatal:
            return None, 0
        main = self._read_words()[1]
        crashed = next((int(ident, 16) for now, ident, _ in _THREAD.findall(text) if now), main)
        return environment_stack(text, crashed) or environment_stack(text, main), crashed

    def _read_text(self) -> str:
        return os.pread(self._file, _LONGEST, _WORDS.size).decode("ascii", "replace")


def environment_stack(text: str, thread: int) -> str | None:
    r"""Return the frames of an environment in the output of `faulthandler`, the innermost last.

    Example:
        >>> print(environment_stack('Thread 0x1 (...):\n  File "e", line 3 in f', 1))
          File "e", line 3, in f
    """
    found = [lines for _, ident, lines in _THREAD.findall(text) if int(ident, 16) == thread]
    frames = []
    for path, line, name in _FRAME.findall(found[-1]) if found else ():
        path, name = _unescape(path), _unescape(name)
        if (path, name) == _OUTERMOST:
            break  # below it are the frames that a fork inherited
        if not path.startswith(_NOT_THE_ENVIRONMENTS):
            linecache.checkcache(path)
            frames.append(traceback.FrameSummary(path, int(line), name))
    return "".join(traceback.format_list(frames[::-1])).rstrip("\n") or None


def _unescape(text: str) -> str:
    """Decode characters beyond ASCII, which `faulthandler` escapes, unlike backslashes."""
    return _ESCAPED.sub(lambda found: chr(int(found[0][2:], 16)), text)


def _read_proc(name: str) -> str:
    """Read a file of /proc, which an interrupt would leave open for a while."""
    with uninterrupted():
        return Path("/proc", name).read_text(encoding="utf-8", errors="replace")


def _signals(pid: int | str, *kinds: str) -> set[int]:
    """Return the signals that a process blocks (Blk), ignores (Ign) or catches (Cgt)."""
    status = _read_proc(f"{pid}/status")
    bits = 0
    for kind, mask in _MASKS.findall(status):
        bits |= int(mask, 16) if kind in kinds else 0
    return {number for number in range(1, signal.NSIG) if bits >> (number - 1) & 1}


def _activity(process: WorkerProcess) -> tuple[str, float]:
    """Return the state of a worker's main thread ("R": it runs), and its processor time."""
    pid = process.process.pid
    fields = _read_proc(f"{pid}/task/{pid}/stat").rpartition(")")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bears(process: WorkerProcess, number: int, ran: float) -> bool:
    """Whether the worker can take the signal without harm.

    The environment may have removed the handler, or changed the mask, so that the signal would
    reach its thread. `faulthandler` may crash when it reads the frames of a thread that runs
    Python, which is possible if the answer is late only because the machine is busy.
    """
    state, now = _activity(process)
    if state == "R" and now - ran < _C_SECONDS:
        return False
    pid = process.process.pid or 0
    return number in _signals(pid, "Cgt") & _signals(pid, "Blk")
