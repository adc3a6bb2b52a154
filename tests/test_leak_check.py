"""The leak check itself: it sees what a test can leave behind, and nothing of other programs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from tests.leaks import made_here, possessions

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
needs_names = pytest.mark.skipif(not Path("/dev/shm").exists(), reason="needs /dev/shm")


@pytest.fixture(params=["program", "psm_", "sem.mp-"])
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name in /dev/shm that a test may use, as any program or multiprocessing gives it."""
    path = Path(f"/dev/shm/{request.param}{os.getpid()}")
    yield path.name
    path.unlink(missing_ok=True)


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
        found = new(before)
        os.kill(grandchild, signal.SIGKILL)
        done.set()
        thread.join()
    assert "thread" in found and "/open" in found
    for pid in (ended.pid, child.pid, grandchild):
        assert f"process {pid} " in found


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


MAPPING = """
import mmap, sys
with open(sys.argv[1], "wb+") as file:
    file.truncate(64)
    block = mmap.mmap(file.fileno(), 64)
print(1, flush=True)
input()
"""


@needs_names
def test_a_file_is_counted_only_while_a_child_has_it_mapped(name: str) -> None:
    path, before = f"/dev/shm/{name}", possessions()
    command = [sys.executable, "-S", "-c", MAPPING, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = made_here(possessions() - before)
        child.communicate(b"\n")
    assert path in seen
    assert path in possessions() - before  # as a file of another program
    assert made_here(possessions() - before) == set()
