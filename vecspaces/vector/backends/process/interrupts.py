"""Signal handlers, Ctrl-C's too, are put off until a short section ends, such as a fork.

A handler may raise between any two instructions of the main thread: KeyboardInterrupt by default,
or whatever a program's own handlers raise. What a system call returned just then is lost: a process
that no one waits for, a descriptor that no one closes. Blocking signals is not enough, since the
system then delivers them to threads of native libraries, and Python runs the handler in the main
thread all the same. So handlers are replaced for a moment by one that takes a note.

A handler of a native library (a JVM's, Qt's, `faulthandler.register`'s) is left alone: Python knows
only what was last installed through it, and could not put that handler back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

# Those with a name; programs hardly handle the others, and each costs a call.
_SIGNALS = tuple(signal.valid_signals().intersection(signal.Signals))

# Bytes that hold the system's `struct sigaction`, whose layout differs between systems.
_ACTION_BYTES = 1024


class _Handler(NamedTuple):
    """A handler of Python's, and how the system knows it: with its flags, such as SA_RESTART."""

    function: Callable[..., Any]
    action: ctypes.Array[ctypes.c_char] | None


_replaced: dict[int, _Handler] = {}
_arrived: list[int] = []


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Run signal handlers after the block instead of in it; keep the block short."""
    if _replaced or threading.current_thread() is not threading.main_thread():
        yield  # inside another such block, or in a thread that runs no handlers
        return
    try:
        for number in _SIGNALS:
            function = signal.getsignal(number)
            if callable(function) and _is_pythons(number):
                _replaced[number] = handler = _Handler(function, _read_action(number))
                _install(number, handler._replace(function=_note))
        yield
    finally:
        handlers = {number: handler.function for number, handler in _replaced.items()}
        _restore()
        _deliver(handlers)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block Ctrl-C, and in processes that start in the block from their start on.

    This process gets what came meanwhile when the block ends; a worker unblocks it once it ignores
    it.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_fork_server(start_method: str | None) -> str | None:
    """Start multiprocessing's fork server, if workers come from it, and block Ctrl-C in it.

    While it imports its modules, Ctrl-C would end it with a traceback. Processes that it starts for
    others inherit the block: this is for programs whose processes are ours, as the command line.
    """
    if start_method == "forkserver":
        from multiprocessing import forkserver, resource_tracker

        resource_tracker.ensure_running()  # which would unblock Ctrl-C
        with blocked():
            forkserver.ensure_running()
    return start_method


def _install(number: int, handler: _Handler) -> None:
    """Let Python call a function, and the system know its C handler with the flags of before."""
    signal.signal(number, handler.function)
    if handler.action is not None:
        _libc().sigaction(number, handler.action, None)


def _read_action(number: int) -> ctypes.Array[ctypes.c_char] | None:
    """Read how the system handles a signal; None where there is no such call."""
    if not hasattr(_libc(), "sigaction"):
        return None
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    return None if _libc().sigaction(number, None, action) else action


@lru_cache(maxsize=1)
def _libc() -> Any:
    """Load what this process is linked with; None on Windows."""
    return None if sys.platform == "win32" else ctypes.CDLL(None)


def _is_pythons(number: int) -> bool:
    """Whether the system calls Python for a signal, and no native library."""
    return _own_handler() in (None, _c_handler(number))


@lru_cache(maxsize=1)
def _own_handler() -> int | None:
    """Return the address of Python's own C handler, of which one was just installed.

    None where no signal is free: then every handler counts as Python's.
    """
    for number in sorted(signal.valid_signals(), reverse=True):  # real-time ones, which none sends
        if signal.getsignal(number) is signal.SIG_DFL and not _c_handler(number):
            try:
                signal.signal(number, _note)
                return _c_handler(number)
            finally:
                signal.signal(number, signal.SIG_DFL)
    return None


def _c_handler(number: int) -> int:
    """Return the address of the function that the system calls; 0 for its default."""
    get = ctypes.pythonapi.PyOS_getsig
    get.argtypes, get.restype = [ctypes.c_int], ctypes.c_void_p
    return get(number) or 0


def _note(number: int, frame: FrameType | None) -> None:
    """Note that a signal arrived."""
    _arrived.append(number)


def _restore() -> None:
    """Put every handler back, even if one that is back already raises."""
    try:
        for number, handler in list(_replaced.items()):
            _install(number, handler)
            del _replaced[number]
    finally:
        if _replaced:
            _restore()


def _deliver(handlers: dict[int, Callable[..., Any]]) -> None:
    """Run the handlers of the signals that arrived, even if one raises."""
    try:
        while _arrived:
            number = _arrived.pop(0)
            handlers[number](number, sys._getframe())
    finally:
        if _arrived:
            _deliver(handlers)


def _forget() -> None:
    """In a forked process: the handlers are the program's own again, and no signal arrived."""
    _arrived.clear()
    _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
