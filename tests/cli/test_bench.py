"""`vecspaces bench`: what it measures, its JSON, its plot, and its refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.running import as_json, run, run_apart
from vecspaces.cli.bench import Comparison
from vecspaces.cli.contenders import Contender
from vecspaces.cli.timing import Measurement

QUICK = "--seconds 0.002 --rounds 2"


# In a process of its own: Gymnasium keeps shared memory, and matplotlib keeps fonts open.
def test_every_backend_is_measured_at_every_number_and_plotted() -> None:
    Path("old").write_text("old")
    os.link("old", "s.png")
    given = f"--num-envs 1,2 --json found.json --plot s.png {QUICK}"
    output = run_apart(f"bench CartPole-v1 tests.cli.envs:Plain {given}")
    assert Path("old").read_text() == "old", "the older one is replaced, not written over"
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    row = next(line for line in output.splitlines() if "vecspaces async " in line)
    assert "x" in row and "%" in row and "Medians of 2" in output
    found = json.loads(Path("found.json").read_text())
    vector_envs = ("vecspaces sync", "vecspaces async", "gymnasium sync", "gymnasium async")
    results = [entry for entry in found["results"] if entry["workload"] == "CartPole-v1"]
    assert [(entry["num_envs"], entry["backend"]) for entry in results] == [
        (number, backend) for number in (1, 2) for backend in (*vector_envs, "the limit")
    ]
    for entry in results:
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


def test_only_backends_that_can_step_an_environment_are_measured() -> None:
    backends = ("--backends", "vecspaces,gymnasium sync,")
    found = as_json(f"bench tests.cli.envs:Plain --num-envs 2,2 {QUICK}", *backends)
    names = [entry["backend"] for entry in found["results"]]
    assert names == ["vecspaces sync", "vecspaces async", "gymnasium sync"]
    for entry in found["results"]:
        ours = entry["backend"].startswith("vecspaces")
        assert bool(entry["runs"]) == ours
        assert bool(entry["skipped"]) != ours


def test_a_backend_with_too_many_processes_is_left_out_and_named() -> None:
    result = run(f"bench --num-envs 3 --max-processes 2 --backends gymnasium {QUICK}")
    assert result.exit_code == 0, result.output
    assert "gymnasium async: starts 3 processes (3)" in result.output


def test_there_are_no_more_workers_than_environments() -> None:
    workers = ("--num-workers", "3", "--backends", "vecspaces async")
    found = as_json(f"bench --num-envs 2,4 {QUICK}", *workers)
    assert [entry["num_workers"] for entry in found["results"]] == [2, 3]


def test_backends_that_are_not_installed_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Contender, "installed", property(lambda self: not self.module))
    result = run("bench tests.cli.envs:Plain --backends gymnasium")
    assert result.exit_code == 2
    assert "--backends: 'gymnasium' needs gymnasium, not installed here" in result.output
