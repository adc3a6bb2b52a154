"""Forking a process whose threads a worker would need: warned of where a driver is loaded."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.envs import Ledger
from tests.programs import run_python
from vecspaces.errors import StepTimeoutError
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process import forking

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs /proc, and fork"
)

PROGRAM = """
import ctypes, os, shutil, sys, threading, time, warnings
from numpy.random import _common  # any small library will do
from tests.envs import Ledger
from vecspaces.vector import AsyncVectorEnv

def warnings_of(context):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with AsyncVectorEnv([Ledger], num_workers=1, context=context) as envs:
            envs.reset()
    return [str(w.message) for w in caught if w.category is RuntimeWarning]

folder = sys.argv[1]
for library in ("libEGL.so.1", sys.argv[2]):
    shutil.copy(_common.__file__, f"{folder}/{library}")
ctypes.CDLL(f"{folder}/libEGL.so.1")
over = threading.Event()
other = threading.Thread(target=over.wait)
other.start()
assert warnings_of("fork") == [], "threads alone"
over.set()
other.join()
while os.path.exists(f"/proc/self/task/{other.native_id}"):  # join returns a moment earlier
    time.sleep(0.01)
ctypes.CDLL(f"{folder}/{sys.argv[2]}")
assert warnings_of("fork") == [], "a renderer alone"
over.clear()
other = threading.Thread(target=over.wait)
other.start()
print(*warnings_of("fork"))
assert warnings_of("fork") == [], "once"
over.set()
"""


@pytest.mark.parametrize(
    ("library", "driver"), [("swrast_dri.so", "swrast_dri.so"), ("libcuda.so.1", "libcuda.so")]
)
def test_a_driver_with_threads_is_warned_of_once(library: str, driver: str, tmp_path: Path) -> None:
    run = run_python("-c", PROGRAM, tmp_path, library)
    assert run.stdout.startswith(
        f"workers were forked from a process with 2 threads that has loaded {driver}: "
    )
    assert 'context="forkserver"' in run.stdout


@pytest.mark.parametrize(
    "line, driver",
    [
        ("7f00 r-xp 0000 08:01 42 /usr/lib/x86_64-linux-gnu/dri/swrast_dri.so", "swrast_dri.so"),
        ("7f00 r-xp 0000 08:01 42 /usr/lib/libgallium-25.0.7.so", "libgallium-25.0.7.so"),
        ("7f00 r-xp 0000 08:01 42 /usr/lib/libnvidia-eglcore.so.550.1", "libnvidia-eglcore.so"),
        ("7f00 r-xp 0000 08:01 42 /usr/lib/libcuda.so.550.54.15", "libcuda.so"),
        ("7f00 r-xp 0000 08:01 42 /x/nvidia/cuda_runtime/lib/libcudart.so.12", None),
        ("7f00 r-xp 0000 08:01 42 /x/opencv.libs/libGLX-1.so.0.0.0", None),
        ("7f00 r-xp 0000 08:01 42 /usr/lib/libEGL_mesa.so.0.0.0", None),
    ],
)
def test_which_libraries_are_drivers(line: str, driver: str | None) -> None:
    match = forking._DRIVER.search(line)
    assert (match and match[1]) == driver


class Stuck(Ledger):
    """Hangs in its first reset, as a renderer does whose threads were not forked."""

    def reset(self, **arguments: Any) -> Any:
        threading.Event().wait()


def test_the_first_reset_is_bounded_by_start_timeout(hurry: Any) -> None:
    with AsyncVectorEnv([Ledger, Stuck], num_workers=2, context="fork") as envs:
        hurry(lambda: True, 1)
        with pytest.raises(StepTimeoutError) as late:
            envs.reset()
        said = str(late.value)
        assert "reset did not end within 300 s: environment 1 still busy" in said
        assert "(start_timeout bounds the first reset)" in said
        envs.close(terminate=True)


class SlowLater(Ledger):
    """Takes its time in every reset but the first."""

    def reset(self, **arguments: Any) -> Any:
        if self.episode:
            threading.Event().wait(0.2)
        return super().reset(**arguments)


def test_step_timeout_wins_and_later_resets_are_not_bounded(hurry: Any) -> None:
    with AsyncVectorEnv([Stuck], context="fork", step_timeout=0.3) as envs:
        with pytest.raises(StepTimeoutError, match=r"within 0\.3 s.*or close\(\)\n"):
            envs.reset()
        envs.close(terminate=True)
    with AsyncVectorEnv([SlowLater], context="fork") as envs:
        envs.reset()
        hurry(lambda: True, 0)
        envs.reset()
