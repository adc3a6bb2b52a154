"""Signal handlers, also Ctrl-C's, are deferred until the end of a short section, such as a fork.

A handler may raise between any two instructions of the main thread: KeyboardInterrupt by default,
or an exception of a program's own handler. The result of a system call is then lost, such as a
process or a descriptor that is never closed. Blocking signals is not enough, since the system then
delivers them to threads of native libraries, and Python still runs the handler in the main thread.
Handlers are therefore replaced for a short time by one that only notes the signal.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from vecspaces import system

# Signals with a name; programs rarely handle others, and each takes a call.
_SIGNALS = tuple(signal.valid_signals().intersection(signal.Signals))

_Handler = Callable[..., Any]
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
            handler = signal.getsignal(number)
            if callable(handler):
                _replaced[number] = handler
                signal.signal(number, _note)
        yield
    finally:
        handlers = dict(_replaced)
        try:
            _restore()  # from here on, further signals may raise
        finally:
            _deliver(handlers)


def take_ctrl_c() -> bool:
    """Whether Ctrl-C came in the block, for a wait in it; the caller raises KeyboardInterrupt."""
    if signal.SIGINT not in _arrived:
        return False
    if _replaced.get(signal.SIGINT) is not signal.default_int_handler:
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


def _note(number: int, frame: FrameType | None) -> None:
    """Note that a signal arrived."""
    _arrived.append(number)


def _restore() -> None:
    """Restore every handler, even if one that is already restored raises."""
    try:
        for number, handler in list(_replaced.items()):
            signal.signal(number, handler)
            del _replaced[number]
    finally:
        if _replaced:
            _restore()


def _deliver(handlers: dict[int, _Handler]) -> None:
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
