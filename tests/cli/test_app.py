"""The command's frame: what runs without the extra, and with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import vecspaces
from vecspaces.cli.app import app

ROOT = Path(__file__).parents[2]


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "rollout" in shown.output
    assert "describe" in shown.output


def test_version_is_the_packages() -> None:
    assert vecspaces.__version__ in CliRunner().invoke(app, ["--version"]).output


def test_python_m_is_the_same_command() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "vecspaces", "--version"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.stdout == f"vecspaces {vecspaces.__version__}\n"


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_without_the_extra_one_line_names_it(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import vecspaces.cli as c; c.main()"
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert 'pip install "vecspaces[cli]"' in run.stderr


def test_an_unknown_option_ends_with_exit_code_two() -> None:
    assert CliRunner().invoke(app, ["rollout", "CartPole-v1", "--nonsense"]).exit_code == 2
