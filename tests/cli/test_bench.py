"""`vecspaces bench`: what it measures, its JSON, its plot, and its refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.running import run, run_apart
from vecspaces.cli.bench import Comparison
from vecspaces.cli.contenders import Contender
from vecspaces.cli.timing import Measurement

QUICK = "--seconds 0.002 --rounds 2"


# In a process of its own: Gymnasium keeps shared memory, and matplotlib keeps fonts open.
def test_every_backend_is_measured_at_every_number_and_plotted() -> None:
    Path("old").write_text("old")
    os.link("old", "s.png")
    given = f"--num-envs 1,2 --num-workers 2 --json found.json --plot s.png {QUICK}"
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
    workers = [one["num_workers"] for one in results if one["backend"] == "vecspaces async"]
    assert workers == [1, 2]
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


def test_what_cannot_be_measured_is_left_out_and_says_why() -> None:
    given = "--num-envs 3,4,3 --num-workers 2 --max-processes 2 --json found.json"
    backends = ("--backends", "vecspaces async,gymnasium,")
    result = run(f"bench tests.cli.envs:Plain CartPole-v1 {given} {QUICK}", *backends)
    assert "gymnasium async: starts 3 processes (3)" in result.output, result.output
    results = json.loads(Path("found.json").read_text())["results"]
    assert len(results) == 12
    for one in results:
        is_foreign = "gymnasium" in one["backend"] and one["workload"] != "CartPole-v1"
        assert bool(one["runs"]) is not (is_foreign or one["backend"] == "gymnasium async"), one
        assert bool(one["skipped"]) is not bool(one["runs"]), one


def test_backends_that_are_not_installed_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Contender, "installed", property(lambda self: not self.module))
    result = run("bench tests.cli.envs:Plain --backends gymnasium")
    assert result.exit_code == 2
    assert "--backends: 'gymnasium' needs gymnasium, not installed here" in result.output
