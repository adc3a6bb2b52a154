"""The leak check itself: it sees what a test can leave behind, and nothing of other programs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from tests.leaks import made_here, possessions

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
needs_names = pytest.mark.skipif(not Path("/dev/shm").exists(), reason="needs /dev/shm")


def new(before: set[str]) -> str:
    """What is there now and was not before, as one text."""
    return "\n".join(possessions() - before)


@needs_proc
def test_descriptors_threads_and_processes_are_seen(tmp_path: Path) -> None:
    """Also a process that nobody waited for, and a child of a child."""
    before, done = possessions(), threading.Event()
    thread = threading.Thread(target=done.wait)
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with (
        (tmp_path / "open").open("w"),
        subprocess.Popen(["true"]) as ended,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child,
    ):
        thread.start()
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        things = new(before)
        os.kill(grandchild, signal.SIGKILL)
        done.set()
        thread.join()
    assert "thread" in things and "/open" in things
    for pid in (ended.pid, child.pid, grandchild):
        assert f"process {pid} " in things


@needs_names
def test_shared_memory_is_seen_even_if_nobody_holds_its_name() -> None:
    before = possessions()
    anonymous = os.memfd_create("leak")
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        assert "leak" in new(before)
        path = f"/dev/shm/{memory.name}"
        assert path in made_here(possessions() - before)
        memory.close()
        assert path in made_here(possessions() - before)
    finally:
        os.close(anonymous)
        memory.unlink()
    semaphore = multiprocessing.get_context("spawn").Semaphore()
    assert [left for left in made_here(possessions() - before) if left.startswith("/dev/shm/sem.")]
    del semaphore
