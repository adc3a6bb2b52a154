"""`vecspaces check`: findings as text and as JSON; the exit code tells of errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vecspaces.cli.app import app
from vecspaces.cli.check import print_report
from vecspaces.testing import Finding, Report
from vecspaces.testing.check import CATALOGUE

SOUND = "tests.testing.faults:Sound"
PAGE = (Path(__file__).parents[2] / "docs" / "checking.md").read_text(encoding="utf-8")
COMPANY = Finding("company", "error", "beside seven others, it differs", "keep no globals")
REUSED = Finding("reused-observation", "warning", "writes to what it returned", "return a copy")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", SOUND, *arguments, "--num-steps", "20"])


@pytest.fixture(params=[COMPANY, REUSED])
def finding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Finding:
    value: Finding = request.param
    report = Report((value,), 20, 1.0)
    monkeypatch.setattr("vecspaces.cli.check.check_env", lambda *args, **kwargs: report)
    return value


def test_an_environment_without_faults(in_process: None) -> None:
    result = run()
    assert result.exit_code == 0
    assert f"{SOUND}: no findings" in result.output
    assert "checked with 20 of 20 steps in" in result.output and "slow" not in result.output


def test_check_says_how_much_of_a_slow_environment_it_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report("module:factory", Report((), 4, 2.0), 60, None)
    shown = capsys.readouterr().out
    assert "checked with 4 of 60 steps in 2.0 s: steps or resets are slow" in shown


def test_findings_are_shown_and_errors_alone_are_exit_code_1(finding: Finding) -> None:
    result = run()
    assert result.exit_code == (finding.severity == "error")
    assert finding.severity in result.stdout and finding.name in result.stdout


def test_json_goes_to_a_file_or_alone_to_standard_output(finding: Finding, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert finding.name in run("--json", str(file)).stdout
    result = run("--json", "-")
    assert finding.name in result.stderr
    assert json.loads(result.stdout) == json.loads(file.read_text())
    document = json.loads(result.stdout)
    assert document["env"] == SOUND and document["ok"] is (finding.severity != "error")
    assert [entry["name"] for entry in document["findings"]] == [finding.name]


def test_names_and_brackets_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    names = sorted(CATALOGUE, key=len)[-3:]
    findings = [Finding(name, CATALOGUE[name][0], "[b]" * 30, CATALOGUE[name][1]) for name in names]
    print_report("module:factory", Report(tuple(findings), 300, 2.0), 300, None)
    shown = capsys.readouterr().out
    assert all(name in shown for name in names) and "[b][b]" in shown
    assert max(map(len, shown.splitlines())) <= 60


def test_the_page_shows_what_is_printed_and_lists_each_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    severity, advice = CATALOGUE["global-random"]
    message = "step 1 of episode 1: the observation depends on the global generators"
    finding = Finding("global-random", severity, message, advice)
    print_report("module:factory", Report((finding,), 300, 0.6), 300, None)
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert f"```text\n{shown}\n```" in PAGE
    for name, (severity, _) in CATALOGUE.items():
        assert re.search(rf"^\| .*`{name}`.* \| .*\b{severity}\b.* \|", PAGE, re.M), name
