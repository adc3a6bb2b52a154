"""The leak check itself: it sees each kind of thing that a test can leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import _possessions


def test_an_open_descriptor_is_seen(tmp_path: Path) -> None:
    before = _possessions()
    with (tmp_path / "open").open("w"):
        assert any("descriptor" in left for left in _possessions() - before)


def test_a_running_thread_is_seen() -> None:
    before, done = _possessions(), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert any("thread" in left for left in _possessions() - before)
    finally:
        done.set()
        thread.join()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_grandchild_is_seen() -> None:
    before = _possessions()
    grandchild = (
        "import subprocess, sys;"
        "subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", grandchild], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = sum("process" in left for left in _possessions() - before)
        child.communicate(b"\n")
    assert seen == 2


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")
def test_anonymous_shared_memory_is_seen() -> None:
    before = _possessions()
    memory = os.memfd_create("leak")
    try:
        assert any("leak" in left for left in _possessions() - before)
    finally:
        os.close(memory)
