"""Threads of the caller, which a fork does not copy, so that a forked worker may hang."""

from __future__ import annotations

import os
import re
import warnings

# Drivers, which are loaded when something is rendered. libGL and libEGL, which load them, do not
# show this: OpenCV and others load these libraries without rendering.
_DRIVER = re.compile(
    r"/(libcuda\.so|\w+_dri\.so|libgallium[\w.-]*\.so|libnvidia-(?:egl|gl)core\.so|libOSMesa\.so|libvulkan_\w+\.so)"
)
_warned = False


def count_threads() -> int:
    """Return the number of this process's threads; 1 if the system does not list them.

    Call it after a fork, because NumPy's OpenBLAS ends its threads, which are harmless, before a
    fork.
    """
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def find_driver() -> str | None:
    """Return the name of a driver, of graphics or CUDA, that this process has loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            driver = _DRIVER.search(maps.read())
    except OSError:
        return None
    return driver and driver[1]


def warn_of_driver() -> None:
    """Warn, once per process, of a driver whose threads a forked worker does not have.

    A worker that renders would wait for the threads of a graphics driver forever, and one that uses
    CUDA, which the caller may have initialised, would fail. There is no
    warning of other threads: those of PyTorch and many others are harmless, since workers use one
    thread.
    """
    global _warned
    driver = None if _warned or count_threads() == 1 else find_driver()
    if driver is None:
        return
    _warned = True
    warnings.warn(
        f"workers were forked from a process with {count_threads()} threads that has loaded "
        f"{driver}: environments that render, or use CUDA, may hang or fail in them; "
        'make the vector env with context="forkserver" or "spawn"',
        RuntimeWarning,
        stacklevel=2,
    )
