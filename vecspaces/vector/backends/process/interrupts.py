"""Signal handlers, also Ctrl-C's, are deferred until the end of a short section, such as a fork.

A handler may raise between any two instructions of the main thread: KeyboardInterrupt by default,
or an exception of a program's own handler. The result of a system call is then lost, such as a
process or a descriptor that is never closed. Blocking signals is not enough, since the system then
delivers them to threads of native libraries, and Python still runs the handler in the main thread.
Handlers are therefore replaced for a short time by one that only notes the signal.

A handler of a native library (of a JVM, of Qt, of `faulthandler.register`) is not replaced, because
Python knows only handlers that were installed through Python, and could not restore it.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from vecspaces import system

# Signals with a name; programs rarely handle others, and each takes a call.
_SIGNALS = tuple(signal.valid_signals().intersection(signal.Signals))

# A size that is sufficient for `struct sigaction`, whose layout differs between systems.
_ACTION_BYTES = 1024


class _Handler(NamedTuple):
    """A Python handler, and the system's record of it, with flags such as SA_RESTART."""

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
        try:
            _restore()  # from here on, further signals may raise
        finally:
            _deliver(handlers)


def take_ctrl_c() -> bool:
    """Whether Ctrl-C came in the block, for a wait in it; the caller raises KeyboardInterrupt."""
    handler = _replaced.get(signal.SIGINT)
    if signal.SIGINT not in _arrived or handler is None:
        return False
    if handler.function is not signal.default_int_handler:
        return False  # it may not end the call
    _arrived.remove(signal.SIGINT)
    return True


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block Ctrl-C, also in processes that are started in the block.

    A Ctrl-C that came meanwhile is delivered at the end of the block; a worker unblocks it after it
    ignores it.
    """
    if not system.SIGMASK:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _install(number: int, handler: _Handler) -> None:
    """Install a Python handler, and restore the former flags of the C handler."""
    signal.signal(number, handler.function)
    if handler.action is not None:
        _libc().sigaction(number, handler.action, None)


def _read_action(number: int) -> ctypes.Array[ctypes.c_char] | None:
    """Return the system's record for a signal; None if there is no such call."""
    if not hasattr(_libc(), "sigaction"):
        return None
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    return None if _libc().sigaction(number, None, action) else action


_libc = lru_cache(maxsize=1)(system.load_libc)


def _is_pythons(number: int) -> bool:
    """Whether the system calls Python for a signal, and no native library."""
    return _own_handler() in (None, _c_handler(number))


@lru_cache(maxsize=1)
def _own_handler() -> int | None:
    """Return the address of Python's own C handler, found by installing it for a free signal.

    None if no signal is free; every handler then counts as Python's.
    """
    # The highest numbers are real-time signals, which programs rarely use.
    for number in sorted(signal.valid_signals(), reverse=True):
        if signal.getsignal(number) is signal.SIG_DFL and not _c_handler(number):
            try:
                signal.signal(number, _note)
                return _c_handler(number)
            finally:
                signal.signal(number, signal.SIG_DFL)
    return None


def is_caught(number: int) -> bool:
    """Whether this process has a handler for a signal, also one of a native library."""
    return _c_handler(number) > signal.SIG_IGN


def _c_handler(number: int) -> int:
    """Return the address of the function that the system calls; 0 for its default."""
    get = ctypes.pythonapi.PyOS_getsig
    get.argtypes, get.restype = [ctypes.c_int], ctypes.c_void_p
    return get(number) or 0


def _note(number: int, frame: FrameType | None) -> None:
    """Note that a signal arrived."""
    _arrived.append(number)


def _restore() -> None:
    """Restore every handler, even if one that is already restored raises."""
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
    """In a forked process: restore the program's handlers, and drop noted signals."""
    _arrived.clear()
    _restore()


system.run_in_forks(_forget)
