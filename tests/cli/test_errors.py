"""One form of errors in every command, and what Ctrl-C leaves of a long one."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.envs import is_noticed
from tests.cli.running import run
from vecspaces.vector.backends.process.stacks import StackFile

PLAY = "rollout CartPole-v1 --num-envs 2 --steps 9 --backend sync"


@pytest.mark.parametrize(
    "command",
    [
        "rollout tests.cli.envs:Falling --num-envs 2 --num-workers 1",
        "evaluate tests.cli.envs:Falling --policy random --episodes 1 --backend sync",
        "bench tests.cli.envs:Falling --num-envs 2 --max-workers 1",
    ],
)
def test_an_environment_that_fails_is_one_line_and_its_own_code(command: str) -> None:
    result = run(command)
    assert result.exit_code == 1
    first, *frames, last = result.stderr[result.stderr.index("vecspaces: ") :].splitlines()
    assert re.match("vecspaces: environment [01] failed in step: KeyError: 'gravity'", first)
    files = [line for line in frames if line.startswith("  File ")]
    assert [line.rpartition(" ")[2] for line in files] == ["step", "fall"]
    assert all("envs.py" in line for line in files)
    assert last == "(--traceback shows the rest)"


def test_traceback_shows_an_error_as_python_does() -> None:
    result = run("rollout tests.cli.envs:Falling --num-envs 1 --backend sync --traceback")
    assert isinstance(result.exception, KeyError)


@pytest.mark.parametrize(
    ("command", "env", "message"),
    [
        ("rollout", "Unbuildable", "OSError: no licence"),
        ("rollout --backend sync", "Exits", "SystemExit: 3"),
    ],
)
def test_an_environment_that_cannot_be_built_shows_where(
    command: str, env: str, message: str
) -> None:
    result = run(f"{command} tests.cli.envs:{env}")
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0].startswith("vecspaces: ") and lines[0].endswith(message)
    assert "envs.py" in lines[1] and lines[1].endswith("__init__")


def test_a_dead_worker_is_named() -> None:
    result = run("rollout tests.cli.envs:Dying --num-envs 2 --num-workers 1")
    assert result.exit_code == 1
    assert result.stderr == (
        "vecspaces: worker 0 (environments 0, 1) exited with code 3 during step while environment "
        "0 was running; environment 0 (no seed, episodes since then: 0, step 1)\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="stacks are there on Linux alone")
def test_an_environment_that_hangs_is_one_line_and_its_own_code(
    hurry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = StackFile.ask  # a busy worker may answer later
    monkeypatch.setattr(StackFile, "ask", lambda stacks, patience: ask(stacks, 60.0))
    hurry(is_noticed, 0)
    words = "--num-envs 2 --num-workers 1 --step-timeout 60 --seed 4 --env-arg linger=1.5"
    result = run(f"rollout tests.cli.envs:Hanging {words}")
    assert result.exit_code == 1
    first, *frames, last = result.stderr.splitlines()
    assert first == (
        "vecspaces: step did not end within 60 s: environments 0, 1 still busy "
        "(environment 0 running now); environment 0 (last seed 4, episodes since then: 0, step 1)"
    )
    assert [line.rpartition(" ")[2] for line in frames if "File" in line] == ["step", "fall"]
    assert last == "(--traceback shows the rest)"


def test_a_policy_whose_actions_do_not_fit_has_failed() -> None:
    words = "--policy tests.cli.envs:too_many --episodes 2 --num-envs 2 --backend sync"
    result = run(f"evaluate CartPole-v1 {words}")
    assert result.exit_code == 1
    assert result.stderr.startswith("vecspaces: the policy returned invalid actions")
    assert result.stderr.count("\n") == 1


def test_a_policy_that_fails_shows_its_own_code() -> None:
    result = run("evaluate CartPole-v1 --policy tests.cli.envs:failing --episodes 1")
    assert result.exit_code == 1
    assert result.stderr.startswith("vecspaces: ZeroDivisionError")
    assert "envs.py" in result.stderr and "1 // 0" in result.stderr


@pytest.mark.parametrize("option", ["--json found.json", "--record found.gif"])
def test_a_file_is_replaced_once_the_new_one_is_complete(here: Path, option: str) -> None:
    name = option.rpartition(" ")[2]
    old, link = here / "old", here / name
    old.write_text("old")
    old.chmod(0o640)
    os.link(old, link)  # what is written in place changes both
    before = set(os.listdir())
    result = run(f"{PLAY} {option}")
    assert result.exit_code == 0, result.output
    assert old.read_text() == "old" and link.read_bytes() != b"old"
    assert link.stat().st_mode == old.stat().st_mode
    assert set(os.listdir()) == before


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of files")
def test_a_disk_that_is_full_leaves_the_old_file(here: Path) -> None:
    import resource

    (here / "found.json").write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        result = run(f"{PLAY} --json", "found.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.exit_code != 0 and "File too large" in result.stderr
    assert (here / "found.json").read_text() == "old" and os.listdir() == ["found.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no such device")
def test_what_is_no_file_is_written_in_place(here: Path) -> None:
    assert run(f"{PLAY} --json", os.devnull).exit_code == 0
    reader, writer = os.pipe()  # has no name, as what /dev/stdout leads to in a pipeline
    assert run(f"{PLAY} --json", f"/dev/fd/{writer}").exit_code == 0
    os.close(writer)
    with open(reader) as file:
        assert json.load(file)["env"] == "CartPole-v1"
    assert "No space left" in run(f"{PLAY} --json", "/dev/full").stderr
    (here / "link.json").symlink_to("found.json")
    assert run(f"{PLAY} --json", "link.json").exit_code == 0
    assert (here / "link.json").is_symlink() and (here / "found.json").read_text()[0] == "{"
