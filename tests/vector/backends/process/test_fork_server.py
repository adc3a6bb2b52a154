"""Workers of multiprocessing's fork server: bounds of its start, its end, and changes since."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from tests.envs import ledgers
from tests.leaks import read_stat
from tests.programs import environ, run_python
from tests.vector.bounds import assert_gone, kill, settled
from vecspaces import system
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def server_pid() -> int | None:
    pid: int | None = forkserver._forkserver._forkserver_pid
    return pid


def make(count: int = 2, **arguments: Any) -> Any:
    return AsyncVectorEnv(ledgers(count), num_workers=count, context="forkserver", **arguments)


@pytest.mark.skipif(not system.PIDFD, reason="the server's end is that of its workers")
def test_restart_after_the_server_ended_starts_another() -> None:
    with make(on_worker_death="restart") as envs:
        envs.reset(seed=0)
        before = server_pid()
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert settled(lambda: read_stat(before)[1], "Z") == "Z"
        envs.step([1, 2])  # its workers live
        kill(envs.processes[:1])
        infos = envs.step([1, 2])[4]
        assert infos["worker_restarted"].tolist() == [True, False]
        assert read_stat(envs.processes[0].pid)[2] == server_pid() != before


ENDS = """
import os, signal
from multiprocessing import forkserver
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv

if __name__ == "__main__":
    both = [
        AsyncVectorEnv(ledgers(1), num_workers=1, context="forkserver", daemon=daemon)
        for daemon in (True, False)
    ]
    pids = [envs.processes[0].pid for envs in both]
    print(forkserver._forkserver._forkserver_pid, *pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_server_and_workers_end_with_the_program(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ENDS)
    done = run_python(tmp_path / "script.py", code=None, env=environ(tmp_path), cwd=tmp_path)
    assert done.stderr == ""
    pids = [*map(int, done.stdout.split())]
    assert len(pids) == 3
    assert_gone(pids)


SLOW_IMPORT = """
import os, time
with open("importing", "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""
INTERRUPTED = """
import multiprocessing, os
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv

def make(**arguments):
    return AsyncVectorEnv(ledgers(2), num_workers=2, context="forkserver", **arguments)

if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["slow_import"])
    seconds = 0.5
    while not os.path.exists("importing"):  # a busy machine may end the server before its import
        try:
            make(start_timeout=seconds)
        except TimeoutError as error:
            text, seconds = str(error), 2 * seconds
    print(text)
    os.replace("importing", "first")
    make()
"""


def test_start_timeout_and_ctrl_c_end_a_server_that_imports_for_too_long(tmp_path: Path) -> None:
    (tmp_path / "slow_import.py").write_text(SLOW_IMPORT)
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    program = subprocess.Popen(
        [sys.executable, script],
        env=environ(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first, importing = tmp_path / "first", tmp_path / "importing"
    give_up = time.monotonic() + 60
    while not (first.exists() and importing.exists() and importing.read_text()):
        assert time.monotonic() < give_up and program.poll() is None
        time.sleep(0.01)
    assert settled(lambda: read_stat(program.pid)[1], "S") == "S"  # it waits for the server
    os.kill(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert out.startswith("multiprocessing's fork server started no worker within start_timeout (")
    assert program.returncode in (1, -signal.SIGINT)
    assert err.count("Traceback") == 1 and err.endswith("\nKeyboardInterrupt\n")
    assert_gone([int(pid.read_text()) for pid in (first, importing)])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on
def test_a_process_that_the_program_forks_starts_a_server() -> None:
    with make() as envs:
        envs.reset(seed=0)
        before = server_pid()
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                with make() as others:
                    others.reset(seed=0)
                    assert others.step([1, 2])[0][:, 2].tolist() == [1, 1]
                assert server_pid() not in (None, before)
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert envs.step([1, 2])[0][:, 2].tolist() == [1, 1]
        assert server_pid() == before
