"""The caller dies, or is interrupted: its workers leave with it, quietly and soon."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crosses import ordinarily
from tests.leaks import made_here, read_stat, shared_memory
from tests.vector.bounds import settled
from vecspaces import system

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="watches processes that are no children by pidfd (Linux)"
)

CONTEXTS = [
    method
    for method in ("fork", "spawn", "forkserver")
    if method in multiprocessing.get_all_start_methods()
]
FORK_OR_FULL = ordinarily(lambda context: context == CONTEXTS[0], zip(CONTEXTS, strict=True))

# What does not end by itself is awaited as long as any load of the machine may delay an end.
_PATIENCE_SECONDS = 30.0

# What the workers are doing when the caller dies. Native code that keeps the interpreter's lock is
# not among it: docs/reliability.md says so.
OCCUPATIONS = {
    "idle": "pass",
    "sleeping": "threading.Event().wait()",
    "computing": "while True: pass",
    "in native code": "ctypes.CDLL(None).sleep(1000)",
}

PROGRAM = """
import ctypes, os, sys, threading, time
sys.path.insert(0, {root!r})
import numpy as np
from tests.envs.faulty import FaultyEnv
from vecspaces.vector import AsyncVectorEnv

class Busy(FaultyEnv):
    def __init__(self, index):
        super().__init__(index, episode=10**9)
        if {children!r} and os.fork() == 0:
            say(f"<{{os.getpid()}}>")
            threading.Event().wait()

    def step(self, action):
        if action == 2:
            say("x")
            {occupation}
        return super().step(action)

def say(what):
    with open({pipe!r}, "w") as pipe:
        pipe.write(what)

def make(index):
    return lambda: Busy(index)

if __name__ == "__main__":
    envs = AsyncVectorEnv([make(i) for i in range(4)], num_workers=2, context={context!r})
    if {children!r} and os.fork() == 0:
        say(f"<{{os.getpid()}}>")
        threading.Event().wait()
    envs.reset()
    print(*[process.pid for process in envs.processes], flush=True)
{body}
"""


@dataclass
class Caller:
    """A program that holds a vector env of two workers.

    Attributes:
        process: The program.
        workers: A pidfd for each of its workers.
        events: What its environments say.
    """

    process: subprocess.Popen[str]
    workers: dict[int, int]
    events: int

    def all_gone(self) -> bool:
        """Whether every worker ends; a busy machine may take some seconds to let them."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for fd in self.workers.values():
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return False
        return True

    def hear(self, count: int) -> None:
        """Wait until so many environments, or children, have written something."""
        data = b""
        while data.count(b"x") + data.count(b">") < count:
            data += os.read(self.events, 64)

    def interrupt(self, count: int = 0) -> tuple[str, str]:
        """Send Ctrl-C once environments step; return the output of a program that ends in time."""
        self.hear(count)
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.all_gone()
        return self.process.communicate(timeout=_PATIENCE_SECONDS)


@contextlib.contextmanager
def caller(
    body: str,
    context: str = "fork",
    occupation: str = "pass",
    children: bool = False,
) -> Iterator[Caller]:
    folder = tempfile.TemporaryDirectory()
    pipe = os.path.join(folder.name, "events")
    os.mkfifo(pipe)
    # For reading and writing: then neither end ever waits for the other.
    reading = os.open(pipe, os.O_RDWR)
    program = PROGRAM.format(
        root=str(Path(__file__).parents[4]),
        pipe=pipe,
        context=context,
        occupation=occupation,
        children=children,
        body=textwrap.indent(textwrap.dedent(body), "    "),
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    fds: dict[int, int] = {}
    try:
        assert process.stdout is not None
        pids = list(map(int, process.stdout.readline().split()))
        assert len(pids) == 2, process.communicate()[1]
        fds = {pid: os.pidfd_open(pid) for pid in pids}
        yield Caller(process, fds, reading)
    finally:
        # Whatever the test found: nothing of the session may survive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        for fd in (*fds.values(), reading):
            os.close(fd)
        folder.cleanup()


STEP = "envs.step(np.array([2, 0, 2, 0]))"


IDLE = """
envs.call(lambda env: setattr(env, "close", lambda: say("x")))
say("<ready>")
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("what", "context"),
    ordinarily(
        lambda what, context: context == ("forkserver" if what == "sleeping" else "fork"),
        itertools.product(OCCUPATIONS, CONTEXTS),
    ),
)
def test_workers_leave_when_the_caller_is_killed(what: str, context: str) -> None:
    """Idle ones close their environments; children of all keep no inherited descriptor open."""
    names, is_idle = shared_memory(), what == "idle"
    if context == "forkserver" and not (is_idle or system.PIDFD):
        pytest.skip("the fork server's workers ask for a process descriptor (docs/reliability.md)")
    body = IDLE if is_idle else STEP
    with caller(body, context, OCCUPATIONS[what], children=not is_idle) as program:
        # Two workers in their step, a child of the caller, and one of each environment.
        program.hear(1 if is_idle else 2 + 1 + 4)
        program.process.kill()
        if is_idle:
            program.hear(4)
        assert program.all_gone(), "a worker outlived its caller"
        assert made_here(shared_memory() - names) == set()


@pytest.mark.parametrize("context", FORK_OR_FULL)
def test_ctrl_c_in_a_long_step_ends_all_and_shows_one_traceback(context: str) -> None:
    with caller(f"with envs:\n    {STEP}", context, OCCUPATIONS["computing"]) as program:
        program.hear(2)
        # After the send it has a way to go until it waits.
        assert settled(lambda: read_stat(program.process.pid)[1], "S") == "S"
        _, err = program.interrupt()
        assert err.count("Traceback") == 1
        assert "\nKeyboardInterrupt\n" in err
        assert "\nstep was waiting " in err
