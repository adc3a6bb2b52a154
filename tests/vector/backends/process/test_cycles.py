"""Many lives of a vector env leave the caller as it was.

Its threads, processes and descriptors are counted after every test.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs.faulty import arm, factories
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


def live(folder: Path, **arguments: Any) -> None:
    """Create, run, lose a worker, restart it, close."""
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        factories(4, folder, "SIGKILL"), num_workers=2, on_worker_death="restart", **arguments
    )
    with envs:
        envs.reset(seed=1)
        for number in range(8):
            if number == 4:
                arm(folder)
            envs.step(np.zeros(4, np.int64))
        envs.call("poke")


def mappings() -> int:
    """How often shared memory is mapped."""
    return Path("/proc/self/maps").read_text().count("memfd:")


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("times", "context", "arguments"),
    [
        (3, "fork", {"copy": False}),
        *(
            pytest.param(*long, marks=pytest.mark.full)
            for long in [
                (60, "fork", {}),
                (60, "fork", {"shared_memory": False}),
                (12, "spawn", {}),
                (30, "forkserver", {}),
            ]
        ),
    ],
)
def test_many_cycles_leave_nothing(
    times: int, context: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    def cycle(times: int) -> None:
        for _ in range(times):
            live(tmp_path, context=context, **arguments)
        gc.collect()

    cycle(2)
    before, memory = mappings(), resident()
    cycle(times)
    assert mappings() == before
    assert resident() <= 1.05 * memory
