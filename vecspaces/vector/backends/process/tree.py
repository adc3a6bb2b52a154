"""Processes that a worker starts, such as a simulator: how they are ended after the worker.

Each worker leads a process group. This is no session, so it keeps its terminal, but Ctrl-C
reaches the caller alone. A program that starts a session leaves the group; like every program, it
inherits the environment variable `MARK`, which Linux shows in /proc.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from vecspaces import system
from vecspaces.vector.exchange.deadline import Deadline

MARK = "VECSPACES_WORKER"

# The longest time that processes have to end after SIGTERM, and after SIGKILL.
_GRACE_SECONDS, _KILL_SECONDS = 0.3, 0.2
_LOOK_SECONDS = 5e-3
# The most that is read of a file, which has all environment variables of a process.
_MOST_BYTES = 1 << 20


class Tree(NamedTuple):
    """The processes that a worker and its successors in the group start.

    Attributes:
        token: The part of their `MARK` that no other worker has.
        since: When the worker was started, in ticks since the system was.
        leader: The number of the worker's process, and so of its group.
        session: The session of the group, which the caller may leave.
    """

    token: str
    since: int
    leader: int = 0
    session: int = 0

    @classmethod
    def plant(cls) -> Tree:
        """Return the tree of a worker that is about to be started."""
        since = 0
        if system.PROC:
            since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        return cls(secrets.token_hex(8), since)

    @property
    def mark(self) -> str:
        """The value of `MARK`: if this process is a worker itself, its mark comes first."""
        return f"{os.environ.get(MARK, '')}/{self.token}"

    def lead(self) -> Tree:
        """Make this process, the worker, the leader of a group."""
        if system.GROUPS:
            os.setpgid(0, 0)
        return self.led_by(os.getpid())

    def led_by(self, leader: int) -> Tree:
        """Return the tree of a worker that was started."""
        session = 0
        if system.PROC:
            with suppress(ProcessLookupError):  # it has ended
                session = os.getsid(leader)
        return self._replace(leader=leader, session=session)


def fell(trees: Collection[Tree]) -> None:
    """End the processes of some trees, other than this process: by SIGTERM, then by SIGKILL."""
    grace, told = Deadline(_GRACE_SECONDS), set[int]()
    while (running := _find(trees)) and not grace.passed:
        _send(running - told, signal.SIGTERM)
        told |= running
        time.sleep(_LOOK_SECONDS)
    limit = Deadline(_KILL_SECONDS)
    while running and not limit.passed:
        _send(running, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
        running = _find(trees)


def _send(targets: Collection[int], number: int) -> set[int]:
    """Send a signal to processes, and to groups (negative); return those that exist."""
    sent = set()
    for target in targets:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(target, number)
            sent.add(target)
    return sent


def _find(trees: Collection[Tree]) -> set[int]:
    """Return the processes of trees that have not ended; without /proc, the groups, negative."""
    if not system.PROC:
        return _send({-tree.leader for tree in trees if system.GROUPS}, 0)
    groups = {(tree.leader, tree.session) for tree in trees}
    tokens = [tree.token.encode() for tree in trees]
    since = min((tree.since for tree in trees), default=0)
    members = set[int]()
    for name in os.listdir("/proc") if trees else ():
        with suppress(ValueError, OSError):  # no process, or it ended, or is another user's
            pid, stat = int(name), _read(f"/proc/{name}/stat")
            fields = stat[stat.rindex(b")") + 2 :].split(None, 20)
            if fields[0] in b"ZX" or int(fields[19]) < since or pid == os.getpid():
                continue
            # A number is not reused while its group has members; after that, the session
            # distinguishes another process with the number.
            is_member = (int(fields[2]), int(fields[3])) in groups
            if is_member or any(map(_read(f"/proc/{name}/environ").__contains__, tokens)):
                members.add(pid)
    return members


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
