"""What containers take away: `/dev/shm`, a writable root, a home, cores, descriptors, processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.crosses import ordinarily
from tests.programs import ROOT, environ, run_python

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and namespaces of Linux")

PROGRAM = """\
import sys
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv

if __name__ == "__main__":
    workers, context = int(sys.argv[1]) or None, sys.argv[2]
    try:
        with AsyncVectorEnv(ledgers(16), num_workers=workers, context=context) as envs:
            envs.reset(seed=0)
            envs.step(envs.action_space.sample())
            envs.restart([0])
            envs.reset(seed=0)
            print("stepped by", envs.num_workers)
    except OSError as error:
        print(error)
"""

# Its own folder for files, no other place to write to, few devices, and half a core.
CONTAINER = """\
set -e
mount -t tmpfs none /var/tmp
mkdir /var/tmp/dev
for name in null zero random urandom; do
    touch /var/tmp/dev/$name
    mount --bind /dev/$name /var/tmp/dev/$name
done
cat >/var/tmp/program.py
mount -t tmpfs none /sys/fs/cgroup
echo 50000 100000 >/sys/fs/cgroup/cpu.max
mount --rbind /var/tmp/dev /dev
mount -o remount,ro,bind /
[ ! -e /dev/shm ]
! touch /here 2>/dev/null
exec "$@"
"""
PLACE = "/var/tmp/program.py"
UNSHARE = ["unshare", "--mount", "--map-root-user"]
METHODS = ordinarily(lambda method: method == "fork", [("fork",), ("forkserver",), ("spawn",)])


def can_mount() -> bool:
    mount = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/var/tmp"]
    return shutil.which(mount[0]) is not None and not subprocess.run(mount).returncode


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.mark.parametrize("method", METHODS)
def test_workers_need_no_shm_no_writable_root_no_home_and_no_whole_core(method: str) -> None:
    if not can_mount():
        pytest.skip("namespaces are forbidden here")
    run = subprocess.run(
        [*UNSHARE, "bash", "-c", CONTAINER, "container", sys.executable, PLACE, "0", method],
        input=PROGRAM,
        env={"PATH": environ()["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": "/var/tmp"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (run.stdout, run.stderr) == ("stepped by 1\n", "")


@pytest.mark.parametrize("method", METHODS)
def test_64_descriptors_suffice_for_few_workers_and_an_error_says_what_to_raise(
    method: str, program: Path
) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (64, 64))
    assert run_python(program, 4, method, preexec_fn=limit).stdout == "stepped by 4\n"
    assert run_python(program, 16, method, preexec_fn=limit).stdout == (
        "[Errno 24] Too many open files: 16 workers need more open files than `ulimit -n` allows "
        "this process, up to 12 for each worker: raise this limit, or pass a smaller num_workers\n"
    )


def test_too_few_processes_are_an_error_that_says_what_to_raise(program: Path) -> None:
    fork = "import errno, os\ndef fork(): raise BlockingIOError(errno.EAGAIN, 'unavailable')\n"
    program.write_text(fork + PROGRAM.replace("    try:", "    os.fork = fork\n    try:"))
    printed = run_python(program, 2, "fork").stdout
    assert "2 workers need more processes than `ulimit -u`, or the container (its pids" in printed
