"""No other process can reach the workers: no name, no port, no memory that can be opened."""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs.faulty import Factory
from tests.leaks import descriptors
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


# A fork server is multiprocessing's own, and lives as long as the caller.
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_nothing_that_was_opened_can_be_reached(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)  # forked workers open none either
    before = descriptors()
    with AsyncVectorEnv([Factory(i) for i in range(4)], num_workers=2, context=method) as envs:
        envs.reset(seed=1)
        opened = {fd: to for fd, to in descriptors().items() if before.get(fd) != to}
        others = {to.partition(":")[0] for to in opened.values() if not to.startswith("/")}
        assert others == {"pipe", "anon_inode"}, "the caller speaks over unnamed pipes alone"
        files = [to for to in opened.values() if to.startswith("/")]
        assert files
        assert all(re.fullmatch(r"/memfd:vecspaces \(deleted\)|/dev/null", to) for to in files)
        assert not any("vecspaces" in name for name in os.listdir("/dev/shm"))
        for fd, to in opened.items():
            assert not os.get_inheritable(fd), f"{to} would survive an exec"
            if stat.S_ISREG(os.fstat(fd).st_mode):
                assert os.fstat(fd).st_uid == os.getuid()
        listening = {
            f"socket:[{line.split()[6]}]"
            for line in Path("/proc/net/unix").read_text().splitlines()[1:]
            if line.split()[3] == "00010000"
        }
        for process in envs.processes:
            assert not listening.intersection(descriptors(process.pid).values())
        envs.step(np.zeros(4, np.int64))
