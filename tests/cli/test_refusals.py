"""What a command refuses: the texts are in `tests/golden/commands.txt`, each below its command.

`python -m tests.cli.test_refusals` writes the texts anew; `...` there stands for any text.
"""

from __future__ import annotations

import doctest
import os
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vecspaces.cli.app import app

GOLDEN = Path(__file__).parents[1] / "golden" / "commands.txt"
PROMPT = "$ vecspaces "

MODULES = {
    "falling": """
constant = 3

class Falling:
    pass

def needs(size):
    return Falling()

def lacking(size=0):
    from gymnasium.error import DependencyNotInstalled
    raise DependencyNotInstalled("install the moon")
"""
}


def refusals() -> dict[str, str]:
    """Return the text that each command prints."""
    sections = GOLDEN.read_text(encoding="utf-8").split(PROMPT)[1:]
    return {command: text for command, _, text in (part.partition("\n") for part in sections)}


def agrees(wanted: str, text: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, text, doctest.ELLIPSIS)


@pytest.mark.parametrize("command", refusals())
def test_wrong_input_is_one_line_before_any_work(command: str) -> None:
    result = CliRunner().invoke(app, command.split())
    wanted = refusals()[command]
    assert agrees(wanted, result.stderr), result.stderr
    assert wanted.startswith("vecspaces: ") and wanted.count("\n") == 1
    assert (result.exit_code, result.stdout) == (2, "")
    assert set(os.listdir()) <= {"falling.py", "__pycache__"}


def rewrite() -> None:
    """Write the texts of the commands anew."""
    written = ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, source in MODULES.items():
            Path(f"{name}.py").write_text(source)
        for command, wanted in refusals().items():
            text = CliRunner().invoke(app, command.split()).stderr.replace(os.getcwd(), "...")
            written += PROMPT + command + "\n" + (wanted if agrees(wanted, text) else text)
        os.chdir("/")
    GOLDEN.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(rewrite())
