"""What macOS and Windows lack is hidden: everything can be imported, and workers do their work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import environ, run_python

ROOT = Path(__file__).parents[1]

# First imported by whatever Python itself needs on Linux, then hidden.
WITHOUT = """\
import asyncio, importlib, multiprocessing, os, pkgutil, select, signal, socket, subprocess, sys
import multiprocessing.resource_tracker, multiprocessing.shared_memory, tempfile, ctypes
import gymnasium, numpy, cloudpickle

for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[module] = None
for name in ("forkserver", "popen_fork", "popen_forkserver"):
    sys.modules[f"multiprocessing.{name}"] = None
HIDDEN = {
    multiprocessing.reduction: ["DupFd"],
    os: "fork register_at_fork memfd_create MFD_CLOEXEC pidfd_open sched_getaffinity sched_yield "
        "mkfifo pipe2 pread pwrite set_blocking setpgid getpgid getsid getuid O_CLOEXEC O_NONBLOCK "
        "WNOHANG sysconf".split(),
    select: [name for name in dir(select) if "poll" in name.lower()],
    signal: "pthread_sigmask pidfd_send_signal siginterrupt setitimer SIGKILL SIGALRM SIGBUS "
        "SIGCHLD SIGHUP SIGQUIT SIGTTIN SIGTTOU SIG_BLOCK SIG_UNBLOCK SIG_SETMASK".split(),
    socket: ["AF_UNIX", "SCM_RIGHTS", "send_fds", "recv_fds"],
}
for module, names in HIDDEN.items():
    for name in names:
        delattr(module, name)

import vecspaces

failed, count = [], 0
for module in pkgutil.walk_packages(vecspaces.__path__, "vecspaces."):
    try:
        count += bool(importlib.import_module(module.name))
    except Exception as error:
        if "is not installed: pip install" not in str(error):  # an extra
            failed.append(f"{module.name}: {error!r}")
print(count, *failed, sep="\\n")
"""


def test_every_module_is_imported_where_windows_has_nothing_to_offer() -> None:
    count, *failed = run_python("-c", WITHOUT).stdout.split("\n")[:-1]
    assert failed == []
    assert int(count) > 100


WORKERS = """\
import multiprocessing
import numpy as np
from tests.envs import Ledger
from vecspaces import system
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class Asking(Ledger):
    def lacks(self):
        names = ["DESCRIPTORS", "EPOLL", "FORK", "MEMFD", "PIDFD", "POLL"]
        return [name for name in names if not getattr(system, name)]


if __name__ == "__main__":
    options = {"num_workers": 2, "on_worker_death": "restart", "shared_memory": SHARED}
    with AsyncVectorEnv([Asking] * 4, **options) as envs, SyncVectorEnv([Asking] * 4) as twin:
        print(*envs.call("lacks")[3], type(envs.processes[0]).__name__, sep=",")
        for both in (envs, twin):
            both.reset(seed=1)
        for number in range(6):
            ours, theirs = (both.step([0, 1, 2, 3]) for both in (envs, twin))
            assert np.array_equal(ours[0], theirs[0]) and list(ours[4]) == list(theirs[4]), number
        envs.processes[1].kill()
        print(envs.step([0, 1, 2, 3])[3].tolist())
        envs.send([1, 1, 1, 1])
        envs.processes[0].kill()
        rows = 0
        while rows < 4:
            rows += len(envs.recv(1).env_ids)
        assert len(envs.step([0] * 4)[0]) == 4
    assert multiprocessing.active_children() == []
"""


@pytest.mark.parametrize("shared_memory", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("system", "lacks"),
    [("darwin", "EPOLL,MEMFD,PIDFD"), ("portable", "DESCRIPTORS,EPOLL,FORK,MEMFD,PIDFD,POLL")],
    ids=["darwin", "portable"],
)
def test_workers_step_die_and_are_replaced_with_what_a_system_has(
    system: str, lacks: str, shared_memory: bool, tmp_path: Path
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKERS.replace("SHARED", str(shared_memory)), encoding="utf-8")
    printed = run_python(program, env=environ(VECSPACES_SYSTEM=system)).stdout.splitlines()
    assert printed == [f"{lacks},SpawnProcess", "[False, False, True, True]"]


def test_an_unknown_system_is_refused() -> None:
    program = "import vecspaces.system"
    run = run_python("-c", program, code=1, env=environ(VECSPACES_SYSTEM="beos"))
    assert "VECSPACES_SYSTEM: expected darwin or portable, found 'beos'" in run.stderr
