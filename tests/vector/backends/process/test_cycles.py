"""Many lives of a vector env leave the caller as it was."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.leaks import children, made_here, shared_memory
from tests.vector.bounds import settled
from vecspaces.testing.faulty_envs import Factory, arm, factories
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


def live(**arguments: Any) -> None:
    """Create, run, close."""
    with AsyncVectorEnv([Factory(i) for i in range(4)], num_workers=2, **arguments) as envs:
        envs.reset(seed=1)
        for _ in range(8):
            envs.step(np.zeros(4, np.int64))
        envs.call("poke")


def counts() -> dict[str, int]:
    """What a leak would add to."""
    multiprocessing.active_children()  # frees what a busy system took long to end
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": len(children(os.getpid())),
        "threads": threading.active_count(),
        "mappings of shared memory": Path("/proc/self/maps").read_text().count("memfd:"),
        "names in /dev/shm": len(made_here(shared_memory())),
    }


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def cycle(times: int, **arguments: Any) -> None:
    live(**arguments)
    live(**arguments)
    gc.collect()
    before, memory = counts(), resident()
    for _ in range(times):
        live(**arguments)
    gc.collect()
    assert settled(counts, before) == before
    assert resident() <= 1.05 * memory


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("times", "context", "shared_memory"),
    [
        (5, "fork", True),
        *(
            pytest.param(*long, marks=pytest.mark.full)
            for long in [
                (100, "fork", True),
                (100, "fork", False),
                (30, "spawn", True),
                (60, "forkserver", True),
            ]
        ),
    ],
)
def test_many_cycles_leave_nothing(times: int, context: str, shared_memory: bool) -> None:
    cycle(times, context=context, shared_memory=shared_memory)


def test_faults_and_restarts_leave_nothing_either(tmp_path: Path) -> None:
    def suffer(folder: Path) -> None:
        folder.mkdir()
        envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
            factories(4, folder, "SIGKILL"),
            num_workers=2,
            context="fork",
            on_worker_death="restart",
            copy=False,
        )
        with envs:
            envs.reset(seed=1)
            arm(folder)
            for _ in range(3):
                envs.step(np.zeros(4, np.int64))

    suffer(tmp_path / "first")
    gc.collect()
    before = counts()
    for number in range(2):
        suffer(tmp_path / str(number))
    gc.collect()
    assert settled(counts, before) == before
