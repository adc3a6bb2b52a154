"""Descriptors that a forked worker must close: those of this process's vector envs.

A fork copies every descriptor. A worker with descriptors of other vector envs would keep pipes open
whose end reports a death. Every descriptor that this package shares between processes is therefore
registered here, under a lock that each fork of this process takes. A forked worker closes the
registered descriptors, and never a number that another thread was about to close. Processes that
the user forks inherit everything, as with any library, but do not affect the workers
(`ProcessBackend.disown`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable
from multiprocessing import reduction
from typing import Any

from vecspaces.memory import Arena
from vecspaces.vector.backends.process.interrupts import uninterrupted

_lock = threading.RLock()
_descriptors: set[int] = set()
_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()
# Drivers, which are loaded when something is rendered. libGL and libEGL, which load them, do not
# show this: OpenCV and others load these libraries without rendering.
_RENDERER = re.compile(
    r"/(\w+_dri\.so|libgallium[\w.-]*\.so|libnvidia-(?:egl|gl)core\.so|libOSMesa\.so|libvulkan_\w+\.so)"
)
_warned = False


def acquire(*opens: Callable[[], int | tuple[int, ...]]) -> tuple[int, ...]:
    """Open descriptors, all or none, that forked workers do not inherit; `close` closes them."""
    opened: list[int] = []
    try:
        for open_some in opens:
            with _lock:
                found = open_some()
                opened += [found] if isinstance(found, int) else found
                _descriptors.update(opened)
    except BaseException:
        close(*opened)
        raise
    return tuple(opened)


def acquire_if_possible(*opens: Callable[[], int | tuple[int, ...]]) -> tuple[int, ...]:
    """Do the same; open none if the system has no such calls, or a sandbox forbids them."""
    try:
        return acquire(*opens)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EACCES):
            return ()
        raise


def close(*descriptors: int) -> None:
    """Close descriptors that `acquire` opened, unless they are already closed."""
    with _lock:
        for descriptor in descriptors:
            if descriptor in _descriptors:
                _descriptors.remove(descriptor)
                os.close(descriptor)


def withhold(arena: Arena) -> None:
    """Let forked workers close an arena; the one that they need is sent as a descriptor."""
    with _lock:
        _arenas.add(arena)


def alone() -> contextlib.AbstractContextManager[object]:
    """Prevent other threads from forking, closing registered descriptors, and entering this."""
    return _lock


def reduced(kind: Callable[..., object], descriptors: Iterable[int]) -> tuple[Any, ...]:
    """Let pickle make an object from its descriptors, in a process that is being started."""
    return _receive, (kind, *[reduction.DupFd(one) for one in descriptors])


def _receive(kind: Callable[..., object], *sent: Any) -> object:
    """Make an object from the descriptors that were passed to this process."""
    descriptors = acquire(*(one.detach for one in sent))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return kind(*descriptors)


def count_threads() -> int:
    """Return the number of this process's threads; 1 if the system does not list them.

    Call it after a fork, because NumPy's OpenBLAS ends its threads, which are harmless, before a
    fork.
    """
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def find_renderer() -> str | None:
    """Return the name of a graphics driver that this process has loaded."""
    try:
        with uninterrupted(), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            found = _RENDERER.search(maps.read())
    except OSError:
        return None
    return found and found[1]


def warn_of_renderer() -> None:
    """Warn, once per process, of a renderer whose threads a forked worker does not have.

    A worker that renders would wait for the threads of the graphics driver forever. There is no
    warning of other threads: those of PyTorch and many others are harmless, since workers use one
    thread.
    """
    global _warned
    renderer = None if _warned or count_threads() == 1 else find_renderer()
    if renderer is None:
        return
    _warned = True
    warnings.warn(
        f"workers were forked from a process with {count_threads()} threads that has loaded "
        f"{renderer}: environments that render may hang in them; "
        'make the vector env with context="forkserver" or "spawn"',
        RuntimeWarning,
        stacklevel=2,
    )


def drop_inheritance(own: Collection[int]) -> None:
    """Close the descriptors that a forked worker inherited, except its own."""
    for descriptor in _descriptors.difference(own):
        os.close(descriptor)
    _descriptors.intersection_update(own)
    for arena in list(_arenas):
        arena.close()


def _renew_lock() -> None:
    """Replace the lock in a forked process, which has no copy of the thread that may hold it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lock.acquire() and None,
        after_in_parent=lambda: _lock.release(),
        after_in_child=_renew_lock,
    )
