"""What a test can leave behind: threads, processes, descriptors, shared memory.

Counted is what this process and its descendants made. What other programs do at the same time, also
other workers of pytest-xdist, is not.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from multiprocessing import forkserver, resource_tracker
from multiprocessing import shared_memory as shared_memory_module
from pathlib import Path

_HAS_PROC = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_SHARED_MEMORY = "/dev/shm/"
_TAG = f"t{os.getpid():x}-"  # short, as names in shared memory must be


def possessions() -> set[str]:
    """Return what this process holds, each thing under a name of its own.

    Names in /dev/shm are listed for all processes that made them: `made_here` distinguishes them.
    """
    threads = {f"thread {thread.ident} {thread.name!r}" for thread in threading.enumerate()}
    if not _HAS_PROC:
        children = multiprocessing.active_children()
        return threads | {f"process {child.pid}" for child in children}
    processes = {f"process {pid} {name!r}" for pid, name in descendants().items()}
    return threads | processes | _descriptors() | shared_memory()


def made_here(things: set[str]) -> set[str]:
    """Return those `possessions` that are not files in /dev/shm of other programs.

    A file is this process's if it or a descendant has it open or mapped, or if `tag_names` gave the
    name: others may leave files behind too, which no process holds any more.
    """
    files = {thing for thing in things if thing.startswith(_SHARED_MEMORY)}
    if not files:
        return things
    family = {os.getpid(), *descendants()}
    held = set().union(*map(_files_of, family))
    tagged = {file for file in files if Path(file).name.removeprefix("sem.").startswith(_TAG)}
    return (things - files) | (files & held) | tagged


def tag_names() -> None:
    """Let multiprocessing name what this process makes, and those that it forks, after it.

    Semaphores of workers that are spawned carry the tag too; their shared memory does not.
    """
    multiprocessing.current_process()._config["semprefix"] = f"/{_TAG}"  # type: ignore[attr-defined]
    shared_memory_module._SHM_NAME_PREFIX = f"/{_TAG}"  # type: ignore[attr-defined]


def descendants() -> dict[int, str]:
    """Return the names of all descendants by pid: with forkserver a worker is no direct child.

    The processes that multiprocessing and vecspaces keep, as long as this one lives, are left
    out; of those that ended, only those that wait for this process are in.
    """
    names: dict[int, str] = {}
    unseen = list(children(os.getpid()))
    while unseen:
        pid = unseen.pop()
        try:
            name, state, parent = read_stat(pid)
        except OSError:  # ended meanwhile
            continue
        if state != "Z" or parent == os.getpid():
            names[pid] = name
        unseen.extend(children(pid))
    return {pid: name for pid, name in names.items() if pid not in _helpers()}


def read_stat(pid: int) -> tuple[str, str, int]:
    """Return the name of a process, its state ("S": asleep, "Z": ended), and its parent."""
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    state, parent = tail.split()[:2]
    return head.partition("(")[2], state, int(parent)


def children(pid: int) -> list[int]:
    """Return the children of a process; none if it ended."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                pids.extend(map(int, file.read().split()))
    except OSError:
        pass
    return pids


def shared_memory() -> set[str]:
    """Return the files in /dev/shm, of all processes."""
    return {_SHARED_MEMORY + name for name in os.listdir(_SHARED_MEMORY)}


def _helpers() -> dict[int | None, int | None]:
    """Multiprocessing's tracker of resources, and its fork server: pid -> this process's end."""
    tracker, server = resource_tracker._resource_tracker, forkserver._forkserver
    return {tracker._pid: tracker._fd, server._forkserver_pid: server._forkserver_alive_fd}


def descriptors(pid: int | str = "self") -> dict[int, str]:
    """Return where each descriptor of a process leads; inodes tell pipes and sockets apart."""
    targets = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # the one that listdir itself had open
            targets[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return targets


def _descriptors() -> set[str]:
    helpers = _helpers().values()
    return {f"descriptor {fd} {to}" for fd, to in descriptors().items() if fd not in helpers}


def _files_of(pid: int) -> set[str]:
    """The files that a process has open or mapped, as far as this one may know."""
    files = set()
    try:
        with open(f"/proc/{pid}/maps") as maps:
            files.update(line.split(None, 5)[-1].rstrip("\n") for line in maps)
        for name in os.listdir(f"/proc/{pid}/fd"):
            files.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    except OSError:  # it ended, or belongs to another user
        pass
    return files
