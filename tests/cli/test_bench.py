"""`vecspaces bench`: what it measures, its JSON, its plot, and its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from vecspaces.cli.app import app
from vecspaces.cli.bench import Comparison
from vecspaces.cli.contenders import Contender
from vecspaces.cli.timing import Measurement

ROOT = Path(__file__).parents[2]
QUICK = ("--seconds", "0.002", "--rounds", "2")

MODULES = {
    "counter": """
from vecspaces import Env, spaces

class Counter(Env):
    observation_space = spaces.Box(0, 100, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        return self.observation_space.low, 0.0, False, False, {}
"""
}


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


def bench_elsewhere(*arguments: str) -> str:
    """In a process of its own: Gymnasium keeps shared memory, and matplotlib keeps fonts open."""
    command = [sys.executable, "-m", "vecspaces", "bench", *arguments, *QUICK]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
    ).stdout


def as_json(*arguments: str) -> dict[str, Any]:
    result = bench(*arguments, *QUICK, "--json", "found.json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(Path("found.json").read_text())
    return parsed


def test_every_backend_is_measured_at_every_number() -> None:
    bench_elsewhere("--num-envs", "1,3", "--json", "found.json")
    found = json.loads(Path("found.json").read_text())
    vector_envs = ("vecspaces sync", "vecspaces async", "gymnasium sync", "gymnasium async")
    assert [(entry["num_envs"], entry["backend"]) for entry in found["results"]] == [
        (number, backend) for number in (1, 3) for backend in (*vector_envs, "the limit")
    ]
    assert {entry["workload"] for entry in found["results"]} == {"CartPole-v1"}
    for entry in found["results"]:
        assert len(entry["runs"]) == 2
        assert entry["steps_per_second"] > 0
        assert entry["times_gymnasium_async"] > 0
        assert entry["share_of_the_limit"] > 0
    assert found["machine"]["usable_cores"] >= 1
    assert found["machine"]["libraries"]["numpy"]


def test_the_ratio_is_to_the_faster_of_gymnasiums() -> None:
    speeds = {"gymnasium sync": 100.0, "gymnasium async": 20.0, "vecspaces async": 150.0}
    report = Comparison(
        1, 0.1, [Measurement("w", 1, name, 1, runs=[one]) for name, one in speeds.items()]
    )
    entry = report.find("w", 1, "vecspaces async")
    assert entry is not None
    assert report.times_gymnasium(entry) == 1.5


def test_environments_of_ones_own_are_measured_by_those_that_can() -> None:
    found = as_json("counter:Counter", "--num-envs", "2", "--backends", "vecspaces,gymnasium sync")
    for entry in found["results"]:
        ours = entry["backend"].startswith("vecspaces")
        assert bool(entry["runs"]) == ours
        assert bool(entry["skipped"]) != ours


def test_the_table_says_how_many_times_and_what_share() -> None:
    output = bench_elsewhere("--num-envs", "2", "--backends", "vecspaces,gym,the limit")
    row = next(line for line in output.splitlines() if "vecspaces async " in line)
    assert "x" in row and "%" in row
    assert "Medians of 2" in output


def test_a_backend_with_too_many_processes_is_left_out_and_named() -> None:
    arguments = ("--num-envs", "3", "--max-processes", "2", "--backends", "gymnasium")
    result = bench("CartPole-v1", *arguments, *QUICK)
    assert result.exit_code == 0, result.output
    assert "gymnasium async: starts 3 processes (3)" in result.output


def test_the_workers_are_those_asked_for_but_no_more_than_environments() -> None:
    arguments = ("--num-envs", "2,4", "--num-workers", "3", "--backends", "vecspaces async")
    found = as_json("CartPole-v1", *arguments)
    assert [entry["num_workers"] for entry in found["results"]] == [2, 3]


def test_the_plot_is_a_picture() -> None:
    arguments = ("--num-envs", "1,2", "--backends", "vecspaces sync,the limit", "--plot", "s.png")
    Path("old").write_text("old")
    os.link("old", "s.png")
    bench_elsewhere("counter:Counter", "CartPole-v1", *arguments)
    assert Path("old").read_text() == "old", "the older one is replaced, not written over"
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPol-v1"], "CartPole"),
        (["no_such_module:Env"], "no_such_module"),
        (["CartPole-v1", "--num-envs", "1,x"], "--num-envs"),
        (["CartPole-v1", "--num-envs", "0"], "--num-envs"),
        (["CartPole-v1", "--backends", "nobody"], "'vecspaces sync'"),
        (["CartPole-v1", "--rounds", "0"], "--rounds"),
        (["CartPole-v1", "--seconds", "0"], "--seconds"),
        (["CartPole-v1", "--num-workers", "0"], "--num-workers"),
        (["CartPole-v1", "--json", "no/such/file.json"], "--json"),
        (["CartPole-v1", "--plot", "."], "--plot"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: list[str], message: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


def test_backends_that_are_not_installed_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Contender, "installed", property(lambda self: not self.module))
    result = bench("counter:Counter", "--backends", "gymnasium")
    assert result.exit_code == 2
    assert "--backends: 'gymnasium' needs gymnasium, not installed here" in result.output
