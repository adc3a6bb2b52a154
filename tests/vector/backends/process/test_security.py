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

from tests.leaks import descriptors
from vecspaces.testing.faulty_envs import Factory
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(params=["fork", "spawn"], scope="module")
def envs(request: pytest.FixtureRequest) -> Any:
    # A fork server is multiprocessing's own, and lives as long as the caller.
    before = descriptors()
    with AsyncVectorEnv(
        [Factory(i) for i in range(4)], num_workers=2, context=request.param
    ) as envs:
        envs.reset(seed=1)
        envs.opened = {fd: to for fd, to in descriptors().items() if before.get(fd) != to}
        yield envs


def test_the_caller_speaks_to_its_workers_over_unnamed_pipes_alone(envs: Any) -> None:
    others = {to.partition(":")[0] for to in envs.opened.values() if not to.startswith("/")}
    assert others == {"pipe", "anon_inode"}


def test_no_socket_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    with AsyncVectorEnv([Factory(i) for i in range(6)], num_workers=6, context="fork") as envs:
        envs.reset()
        envs.step(np.zeros(6, np.int64))


def test_memory_has_no_name(envs: Any) -> None:
    files = [to for to in envs.opened.values() if to.startswith("/")]
    assert files
    assert all(re.fullmatch(r"/memfd:vecspaces \(deleted\)|/dev/null", to) for to in files)
    assert not any("vecspaces" in name for name in os.listdir("/dev/shm"))


def test_nothing_that_was_opened_is_for_others(envs: Any) -> None:
    for fd, to in envs.opened.items():
        assert not os.get_inheritable(fd), f"{to} would survive an exec"
        if stat.S_ISREG(os.fstat(fd).st_mode):
            assert os.fstat(fd).st_uid == os.getuid()


def test_workers_listen_nowhere(envs: Any) -> None:
    listening = {
        line.split()[6]
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]
        if line.split()[3] == "00010000"
    }
    for process in envs.processes:
        held = set(descriptors(process.pid).values())
        assert not held.intersection(f"socket:[{inode}]" for inode in listening)
    envs.step(np.zeros(4, np.int64))
