"""Sections that no signal handler interrupts, such as from a fork until its process id is noted.

A handler may raise between any two instructions of the main thread: KeyboardInterrupt by default,
or whatever a program's own handlers raise. The result of a system call that returned just then is
lost: a process that no one waits for, a descriptor that no one closes. Blocking signals is not
enough: the system then delivers them to threads of native libraries, and Python runs the handler in
the main thread all the same. So handlers are replaced for a moment by one that takes a note.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# Those with a name; programs hardly handle the others, and each costs a call.
_SIGNALS = tuple(signal.valid_signals().intersection(signal.Signals))

_replaced: dict[int, Callable[..., Any]] = {}
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


def _note(number: int, frame: FrameType | None) -> None:
    """Note that a signal arrived."""
    _arrived.append(number)


def _restore() -> None:
    """Put every handler back, even if one that is back already raises."""
    try:
        for number, handler in list(_replaced.items()):
            signal.signal(number, handler)
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
