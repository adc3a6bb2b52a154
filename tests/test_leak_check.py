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


def test_an_open_descriptor_is_seen(tmp_path: Path) -> None:
    before = possessions()
    with (tmp_path / "open").open("w"):
        assert "descriptor" in new(before)


@needs_proc
def test_a_running_thread_and_its_child_are_seen() -> None:
    before, started, done = possessions(), threading.Event(), threading.Event()
    children = []

    def start() -> None:
        children.append(subprocess.Popen(["sleep", "60"]))
        started.set()
        done.wait()

    thread = threading.Thread(target=start)
    thread.start()
    started.wait()
    try:
        assert "thread" in new(before) and "process" in new(before)
    finally:
        children[0].kill()
        children[0].wait()
        done.set()
        thread.join()


@needs_proc
def test_a_child_that_nobody_waited_for_is_seen() -> None:
    before = possessions()
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert f"process {child.pid}" in new(before)


@needs_proc
def test_a_grandchild_is_seen() -> None:
    before = possessions()
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert f"process {child.pid} " in new(before) and f"process {grandchild} " in new(before)
        os.kill(grandchild, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")
def test_anonymous_shared_memory_is_seen() -> None:
    before = possessions()
    memory = os.memfd_create("leak")
    try:
        assert "leak" in new(before)
    finally:
        os.close(memory)


@needs_names
def test_shared_memory_with_a_name_is_seen_even_if_nobody_holds_it() -> None:
    before = possessions()
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        path = f"/dev/shm/{memory.name}"
        assert path in made_here(possessions() - before)
        memory.close()
        assert path in made_here(possessions() - before)
    finally:
        memory.unlink()


@needs_names
def test_a_semaphore_with_a_name_is_seen() -> None:
    before = possessions()
    semaphore = multiprocessing.get_context("spawn").Semaphore()
    assert [left for left in made_here(possessions() - before) if left.startswith("/dev/shm/sem.")]
    del semaphore


@needs_names
def test_a_file_of_any_name_is_seen_while_a_child_has_it_mapped(name: str) -> None:
    before = possessions()
    program = (
        "import mmap, sys; file = open(sys.argv[1], 'wb+'); file.truncate(64);"
        "block = mmap.mmap(file.fileno(), 64); file.close(); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, f"/dev/shm/{name}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = made_here(possessions() - before)
        child.communicate(b"\n")
    assert f"/dev/shm/{name}" in seen


@needs_names
def test_a_file_of_another_program_is_not_counted(name: str) -> None:
    before = possessions()
    Path(f"/dev/shm/{name}").write_bytes(b"theirs")
    assert f"/dev/shm/{name}" in possessions() - before
    assert made_here(possessions() - before) == set()


# Starts a program that makes shared memory as multiprocessing does, and ends: no child of the test.
STRANGER = """
import os, sys
from multiprocessing import shared_memory
if os.fork():
    os._exit(0)
memory = shared_memory.SharedMemory(create=True, size=64)
os.write(1, f"{memory.name}\\n".encode())
sys.stdin.read()
memory.close()
memory.unlink()
"""


@needs_names
def test_shared_memory_of_a_python_program_that_runs_beside_is_not_counted() -> None:
    before = possessions()
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdin is not None and starter.stdout is not None
        name = starter.stdout.readline().decode().strip()
        starter.wait()
        # Other programs, such as other workers of pytest-xdist, may make files meanwhile.
        left = {thing for thing in possessions() - before if thing.startswith("/dev/shm/")}
        assert f"/dev/shm/{name}" in left
        assert made_here(left) == set()
        starter.stdin.close()
        starter.stdout.read()  # until it and its tracker of resources ended
    assert not Path(f"/dev/shm/{name}").exists()
