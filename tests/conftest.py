"""What every test gets: a check that it leaves nothing behind, and Hypothesis's profiles."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# The ordinary run draws the same examples each time, so that it fails for what a change did and for
# nothing else; looking for new ones is the long run's business, and of whoever asks for a profile.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.register_profile("random", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "full", parent=hypothesis.settings.get_profile("random"), max_examples=1000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A job in the background of a shell is born deaf to Ctrl-C, and so would be the programs that the
# tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests in the package alone.

    Where they are looked for, a module that cannot be imported counts as skipped: that is meant for
    extras that are missing, and would hide a test file with a wrong import.
    """
    collectors = yield
    return [found for found in collectors if type(found).__name__ != "DoctestModule"]


_PATIENCE_SECONDS = 5.0
_HAS_PROC = Path("/proc/self/stat").exists()


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test after which a process, thread, file descriptor or shared memory is left."""
    before = _possessions()
    yield
    left = _possessions() - before
    if not left:
        return
    gc.collect()  # what hung in a reference cycle is no leak
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while (left := _possessions() - before) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not left, f"the test left behind: {', '.join(sorted(left))}"


def _possessions() -> set[str]:
    """What this process holds now, each thing by a name of its own."""
    threads = {f"thread {thread.ident} {thread.name!r}" for thread in threading.enumerate()}
    if not _HAS_PROC:
        children = multiprocessing.active_children()
        return threads | {f"process {child.pid}" for child in children}
    return threads | _processes() | _descriptors() | _shared_memory()


def _servants() -> dict[int | None, int | None]:
    """Multiprocessing's own two helpers, which live as long as this process: pid -> descriptor."""
    tracker, server = resource_tracker._resource_tracker, forkserver._forkserver
    return {tracker._pid: tracker._fd, server._forkserver_pid: server._forkserver_alive_fd}


def _processes() -> set[str]:
    return {f"process {pid} {name!r}" for pid, name in descendants().items()}


def descendants() -> dict[int, str]:
    """All living descendants by name: with forkserver a worker is no child of ours."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            head, _, tail = (folder / "stat").read_text().rpartition(")")
        except OSError:  # ended while we looked
            continue
        state, parent = tail.split()[:2]
        if state != "Z" or int(parent) == os.getpid():
            parents[int(folder.name)] = int(parent)
            names[int(folder.name)] = head.partition("(")[2]
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours and pid not in ours}:
        ours |= more
    return {pid: names[pid] for pid in ours - {os.getpid()} - set(_servants())}


def _descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        if int(name) in _servants().values():
            continue
        try:
            found.add(f"descriptor {name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:  # the one that listdir itself had open
            continue
    return found


def _shared_memory() -> set[str]:
    return {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
