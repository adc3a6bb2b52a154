"""`vecspaces check`: findings as a table and as JSON; the exit code tells of errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vecspaces.cli.app import app
from vecspaces.cli.check import show
from vecspaces.testing import Finding, Report
from vecspaces.testing.check import CATALOGUE

SOUND = "tests.testing.faults:Sound"
REUSED = "tests.testing.faults:ReusedObservation"
SHARED = "tests.testing.faults:SharedCounter"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", *arguments, "--num-steps", "20"])


def test_an_environment_without_faults() -> None:
    result = run(SOUND)
    assert result.exit_code == 0
    assert f"{SOUND}: no findings" in result.output
    assert "a step takes" in result.output and "64 are fastest with" in result.output


def test_warnings_are_shown_and_are_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    result = run(REUSED, "--json", str(file))
    assert result.exit_code == 0
    assert "warning" in result.output and "reused-observation" in result.output
    found = json.loads(file.read_text())
    assert found["env"] == REUSED and found["ok"] is True
    assert [one["name"] for one in found["findings"]] == ["reused-observation"]


def test_errors_are_exit_code_1_and_json_alone_goes_to_standard_output() -> None:
    result = run(SHARED, "--json", "-")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["findings"][0]["severity"] == "error"
    assert "company" in result.stderr


@pytest.mark.parametrize("width", [60, 120])
def test_names_stay_whole_and_the_table_fits(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = sorted(CATALOGUE, key=len)[-3:]
    findings = [Finding(name, CATALOGUE[name][0], "[b]" * 30, CATALOGUE[name][1]) for name in names]
    show("module:factory", Report(tuple(findings), None, 300, 2.0), None)
    shown = capsys.readouterr().out
    assert all(name in shown for name in names) and "[b][b]" in shown
    assert {len(line) for line in shown.splitlines()[:-1]} == {width}


@pytest.mark.parametrize(
    "arguments",
    [["CartPol-v1"], ["no_such:thing"], [SOUND, "--seed", "-1"], [SOUND, "--timeout", "0"]],
)
def test_bad_input_is_one_clear_line(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
