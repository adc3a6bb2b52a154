"""The fork server of workers: whose it is, what it has imported, and how it starts and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from tests.envs import ledgers
from tests.leaks import read_stat
from tests.programs import environ, run_python
from tests.vector.bounds import assert_gone, kill, settled
from vecspaces.vector import AsyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def server() -> Any:
    from vecspaces.vector.backends.process import fork_server

    return fork_server.server


def server_pid() -> int | None:
    pid: int | None = server()._forkserver_pid
    return pid


def make(count: int = 2, **arguments: Any) -> Any:
    return AsyncVectorEnv(ledgers(count), num_workers=count, context="forkserver", **arguments)


def run(folder: Path, script: str) -> list[str]:
    """Run a program that prints nothing on standard error; return its words."""
    (folder / "script.py").write_text(script)
    done = run_python(folder / "script.py", code=None, env=environ(folder), cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


# ---------------------------------------------------------------------- whose it is


@pytest.mark.parametrize("threads", [1, 2])
def test_workers_with_one_thread_come_from_a_server_of_their_own(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    programs = forkserver._forkserver._forkserver_pid
    with make(worker_threads=threads) as envs:
        envs.reset(seed=0)
        parents = {read_stat(process.pid)[2] for process in envs.processes}
        assert (parents == {server_pid()}) == (threads == 1)
        if threads == 1:
            assert forkserver._forkserver._forkserver_pid == programs
        envs.step([1, 2])


PROGRAM = """
import multiprocessing, os, sys
import gymnasium
from functools import partial
from vecspaces.vector import AsyncVectorEnv

def look(number):
    return "numpy" in sys.modules, os.environ.get("OMP_NUM_THREADS")

def cost(env):
    import time
    return time.process_time()

if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    multiprocessing.set_start_method("forkserver")
    make = partial(gymnasium.make, "CartPole-v1")
    with AsyncVectorEnv([make] * 2, num_workers=2) as envs:
        costs = envs.call(cost)
        threads = envs.call(lambda env: os.environ["OMP_NUM_THREADS"])
    del sys.modules["__main__"].__file__  # the program's processes import nothing of it
    os.environ["CHECKED"] = "1"
    assert costs[0] < 0.12, costs
    process = multiprocessing.Process(target=print, args=("program",))
    process.start()
    process.join()
    from multiprocessing import forkserver
    assert "vecspaces" not in str(forkserver._forkserver._preload_modules)
    print(*threads, "OMP_NUM_THREADS" in os.environ)
"""


def test_the_programs_own_server_and_variables_stay_as_they_are(tmp_path: Path) -> None:
    assert run(tmp_path, PROGRAM) == ["program", "1", "1", "False"]


# ---------------------------------------------------------------------- its end


def kill_server(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def remove_socket(pid: int) -> None:
    os.unlink(server()._forkserver_address)


@pytest.mark.parametrize("end", [kill_server, remove_socket])
def test_a_server_that_cannot_be_reached_is_replaced(end: Callable[[int], None]) -> None:
    with make(on_worker_death="restart") as envs:
        envs.reset(seed=0)
        before = server_pid()
        assert before is not None
        end(before)
        envs.step([1, 2])  # its workers live
        kill(envs.processes[:1])
        infos = envs.step([1, 2])[4]
        assert infos["worker_restarted"].tolist() == [True, False]
        assert read_stat(envs.processes[0].pid)[2] == server_pid() != before
    with contextlib.suppress(ChildProcessError):  # on a busy machine it ends a little later
        os.waitpid(before, 0)


ENDS = """
import os, signal
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.fork_server import server

if __name__ == "__main__":
    both = [
        AsyncVectorEnv(ledgers(1), num_workers=1, context="forkserver", daemon=daemon)
        for daemon in (True, False)
    ]
    print(server._forkserver_pid, *[envs.processes[0].pid for envs in both], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_the_program(tmp_path: Path) -> None:
    pids = run(tmp_path, ENDS)
    assert len(pids) == 3
    assert_gone(map(int, pids))


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
    try:
        make(start_timeout=0.5)
    except TimeoutError as error:
        print(error)
    os.replace("importing", "first")
    make()
"""


def test_a_server_that_imports_for_too_long_is_ended_by_its_time_limit_and_by_ctrl_c(
    tmp_path: Path,
) -> None:
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
    importing = tmp_path / "importing"
    give_up = time.monotonic() + 60
    first = tmp_path / "first"
    while not (first.exists() and importing.exists() and importing.read_text()):
        assert time.monotonic() < give_up and program.poll() is None
        time.sleep(0.01)
    assert settled(lambda: read_stat(program.pid)[1], "S") == "S"  # it waits for the server
    os.killpg(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert out.startswith(
        "the fork server of the workers did not start within start_timeout (0.5 s)"
    )
    assert program.returncode in (1, -signal.SIGINT)
    assert err.count("Traceback") == 1 and err.endswith("\nKeyboardInterrupt\n")
    assert "slow_import" not in err
    assert_gone([int(one.read_text()) for one in (first, importing)])


# ---------------------------------------------------------------------- who uses it


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on
def test_a_process_that_the_program_forks_has_a_server_of_its_own() -> None:
    with make() as envs:
        envs.reset(seed=0)
        own = server_pid()
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                assert server_pid() is None
                with make() as others:
                    others.reset(seed=0)
                    assert others.step([1, 2])[0][:, 2].tolist() == [1, 1]
                assert server_pid() not in (None, own)
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert envs.step([1, 2])[0][:, 2].tolist() == [1, 1]
        assert server_pid() == own


def test_threads_that_start_at_the_same_time_share_it() -> None:
    pid = server_pid()
    if pid is not None:
        kill_server(pid)
    found: list[int] = []

    def work() -> None:
        with make() as envs:
            envs.reset(seed=0)
            envs.step([1, 2])
            found.extend(read_stat(process.pid)[2] for process in envs.processes)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and set(found) == {server_pid()}


# ---------------------------------------------------------------------- what changes meanwhile


def test_modules_of_a_path_that_came_later_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make():
        pass
    (tmp_path / "came_later.py").write_text(
        "from tests.envs import Ledger\nimport os\n"
        "class Later(Ledger):\n    def where(self): return os.getcwd(), __file__\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    from came_later import Later

    with AsyncVectorEnv([Later], context="forkserver") as envs:
        assert envs.call("where") == ((str(tmp_path), str(tmp_path / "came_later.py")),)


FIRST = """
import runpy
from vecspaces.vector import AsyncVectorEnv
from tests.envs import Ledger

class Walk(Ledger):
    def name(self):
        return "first"

def main():
    with AsyncVectorEnv([Walk], context="forkserver") as envs:
        print(*envs.call("name"))

if __name__ == "__main__":
    main()
    runpy.run_path("second.py", run_name="__main__")
    main()
"""


def test_another_main_module_is_imported(tmp_path: Path) -> None:
    second = FIRST.replace('"first"', '"second"').replace("    runpy", "    pass  # runpy")
    (tmp_path / "second.py").write_text(second)
    assert run(tmp_path, FIRST) == ["first", "second", "second", "first"]
