"""How tests run a command: in this process, or in one of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tests.programs import run_python
from vecspaces.cli.app import app


def run(command: str, *more: str) -> Result:
    """Run a command, whose options are separated by spaces; `more` may have spaces in them."""
    return CliRunner().invoke(app, [*command.split(), *more])


def as_json(command: str, *more: str) -> Any:
    """Run a command with `--json`, and return what it wrote."""
    result = run(command, *more, "--json", "found.json")
    assert result.exit_code == 0, result.output
    return json.loads(Path("found.json").read_text())


def run_apart(command: str) -> str:
    """Run a command in a process of its own, and return its output."""
    return run_python("-m", "vecspaces", *command.split()).stdout
