"""The command's frame: what runs without the extra, and with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import vecspaces
from tests.cli.envs import is_noticed
from tests.cli.running import run
from tests.crosses import diagonal
from tests.programs import run_python
from vecspaces.cli.app import app

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]

MODULES = {"own": "from tests.cli.envs import Plain"}


def test_help_shows_the_names_of_commands_and_options_in_full() -> None:
    overview, runner = run("--help").output, CliRunner(env={"COLUMNS": "60"})
    for name, command in COMMANDS.items():
        assert f"  {name} " in overview
        shown = runner.invoke(app, [name, "--help"], terminal_width=60).output
        for param in command.params:
            for option in [*param.opts, *param.secondary_opts]:
                assert option in shown or option.upper() in shown
        assert max(map(len, shown.splitlines())) <= 60 and "…" not in shown


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("check", "--num-steps 5"),
        ("rollout", "--num-envs 2 --num-workers 1 --steps 10"),
        ("evaluate", "--policy random --episodes 2 --num-workers 1"),
        ("bench", "--num-envs 2 --seconds 0.05"),
    ],
)
def test_arguments_of_the_environment_reach_it(
    command: str, options: str, in_process: None
) -> None:
    words = "--env-arg size=3 --env-arg=name=moon --env-arg home=(1,None)"
    result = run(f"{command} tests.cli.envs:Sized {words} {options}")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("command", "options"),
    [("rollout", "--steps 10 --num-workers 1"), ("evaluate", "--policy random --episodes 1")],
)
def test_arguments_of_the_vector_env_reach_it(command: str, options: str, hurry: Any) -> None:
    hurry(is_noticed, 0)
    words = f"{options} --num-envs 2 --step-timeout 60 --start-method fork"
    result = run(f"{command} tests.cli.envs:Hanging {words}")
    assert result.exit_code == 1 and "did not end within 60" in result.output, result.output


@diagonal(
    command=[
        "rollout {} --num-envs 3 --steps 200 --num-workers 2",
        "bench {} --num-envs 4 --seconds 0.05",
    ],
    env=["Strict", "Unequal", "Later"],
)
def test_commands_draw_actions_that_masks_allow(command: str, env: str) -> None:
    result = run(command.format(f"tests.envs.masked:{env}"))
    assert result.exit_code == 0, result.output
    assert "is not allowed" not in result.output


@pytest.mark.parametrize(
    ("command", "begin", "env"),
    [
        pytest.param("rollout --steps 9", "-P -m vecspaces", "CartPole-v1", marks=pytest.mark.full),
        (
            "rollout --num-envs 2 --num-workers 1 --steps 9 --context spawn",
            "bin/vecspaces",
            "own:Plain",
        ),
    ],
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
    for env, expected in [("CartPole-v1", False), ("own:Plain", True)]:
        run(f"rollout {env} --num-envs 1 --steps 9 --backend sync")
        assert (str(here) in sys.path) is expected
    assert sys.path[-1] == str(here)


def test_the_version_can_be_shown() -> None:
    assert run("--version").stdout == f"vecspaces {vecspaces.__version__}\n"


def test_without_the_extra_one_line_names_it() -> None:
    program = "import sys; sys.modules['rich'] = None; import vecspaces.cli as c; c.main()"
    ended = run_python("-c", program, code=2)
    assert ended.stderr.count("\n") == 1
    assert 'pip install "vecspaces[cli]"' in ended.stderr
