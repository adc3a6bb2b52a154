"""The command's frame: what runs without the extra, and with it."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import vecspaces
from tests.cli.running import run
from tests.crosses import ordinarily
from tests.programs import run_python
from vecspaces.cli.app import app

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

MODULES = {
    "sized": """
import time
from vecspaces import Env, spaces

class Sized(Env):
    action_space = spaces.Discrete(2)

    def __init__(self, size, name="moon", home=(1, None), slow=0.0):
        assert (name, home) == ("moon", (1, None))
        self.slow = slow
        self.observation_space = spaces.Box(0, 1, (size,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        time.sleep(self.slow)
        return self.observation_space.low, 1.0, True, False, {}

def plain():
    return Sized(3)
"""
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_the_names_of_commands_and_options_in_full(command: str) -> None:
    assert f"  {command} " in run("--help").output
    runner = CliRunner(env={"COLUMNS": "60"})
    shown = runner.invoke(app, [command, "--help"], terminal_width=60).output
    for param in COMMANDS[command].params:
        for name in [*param.opts, *param.secondary_opts]:
            assert name in shown or name.upper() in shown
    assert max(map(len, shown.splitlines())) <= 60 and "…" not in shown


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("describe", ""),
        ("check", "--num-steps 5"),
        ("rollout", "--num-envs 2 --num-workers 1 --steps 10"),
        ("evaluate", "--policy random --episodes 2 --num-workers 1"),
        ("profile", "--num-envs 2 --num-workers 1 --seconds 0.01"),
        ("tune", "--num-envs 2 --seconds 0.1"),
        ("bench", "--num-envs 2 --rounds 1 --seconds 0.01 --backends vecspaces"),
    ],
)
def test_arguments_of_the_environment_reach_it(
    command: str, options: str, in_process: None
) -> None:
    given = "--env-arg size=3 --env-arg=name=moon --env-arg home=(1,None)"
    result = run(f"{command} sized:Sized {given} {options}")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["rollout", "profile", "tune", "evaluate"])
def test_arguments_of_the_vector_env_reach_it(command: str) -> None:
    options = {"profile": "--seconds 0.01", "tune": "--seconds 0.1", "rollout": "--steps 10"}
    given = options.get(command, "--policy random --episodes 1")
    mode = "" if command == "evaluate" else "--autoreset-mode SameStep"
    more = f"{given} {mode} --num-envs 2 --step-timeout 0.2 --start-method fork"
    # A command that is late itself sees no step that is: so each step takes ten times the bound.
    result = run(f"{command} sized:Sized --env-arg size=3 --env-arg slow=2.0 {more}")
    assert result.exit_code == 1 and "did not" in result.output, result.output


@pytest.mark.parametrize(
    ("command", "begin", "env"),
    ordinarily(
        lambda command, begin, env: (command != "describe") == ("bin" in begin) == ("Cart" in env),
        product(
            ["describe", "rollout --num-envs 2 --num-workers 1 --steps 9 --context spawn"],
            ["-P -m vecspaces", "bin/vecspaces"],
            ["CartPole-v1", "sized:plain"],
        ),
    ),
)
def test_no_file_of_the_folder_takes_the_place_of_a_module(
    here: Path, command: str, begin: str, env: str
) -> None:
    for name in ("gymnasium", "imageio", "numpy"):
        (here / f"{name}.py").write_text("raise SystemExit('imported from the folder')")
    program = "from vecspaces.cli import main; main()"
    (here / "bin").mkdir()
    (here / "bin" / "vecspaces").write_text(f"if __name__ == '__main__':\n    {program}\n")
    name, *options = command.split()
    run_python(*begin.split(), name, env, *options)


def test_the_folder_is_on_the_path_at_its_end_and_for_modules_alone(here: Path) -> None:
    for env, expected in [("CartPole-v1", False), ("sized:plain", True)]:
        run(f"describe {env}")
        assert (str(here) in sys.path) is expected
    assert sys.path[-1] == str(here)


def test_the_version_and_the_completion_of_the_shell_can_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run("--version").stdout == f"vecspaces {vecspaces.__version__}\n"
    # Else typer looks for a shell among the parent processes, and a service may have none.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = CliRunner().invoke(app, ["--show-completion", "bash"], prog_name="vecspaces")
    assert "_VECSPACES_COMPLETE=complete_bash" in shown.output


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_without_the_extra_one_line_names_it(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import vecspaces.cli as c; c.main()"
    ended = run_python("-c", program, code=2)
    assert ended.stderr.count("\n") == 1
    assert 'pip install "vecspaces[cli]"' in ended.stderr
