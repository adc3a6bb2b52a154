"""`vecspaces tune`: the costs that it shows, the settings that it tries, and the line to paste."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.cli.running import as_json, run
from tests.vector.bounds import quietly
from vecspaces.cli import costs as costs_module
from vecspaces.cli.costs import Costs, measure_costs
from vecspaces.cli.tune import Candidate, _hints, best, candidates
from vecspaces.errors import SlowEnvironmentWarning
from vecspaces.vector import AsyncVectorEnv
from vecspaces.vector.backends.process.cores import count_usable_cores


def costs(**changes: Any) -> Costs:
    usual: dict[str, Any] = {
        "step_mean": 1e-5,
        "step_p99": 2e-5,
        "step_spread": 0.1,
        "reset_mean": 1e-5,
        "computing": 1.0,
        "granted": 1.0,
        "cores": 2,
        "idle_cores": 1.0,
        "observation_bytes": 16,
        "memory_bytes": 1000,
        "build_seconds": 0.1,
    }
    return Costs(**{**usual, **changes})


def test_it_shows_the_costs_and_prints_a_line_that_runs() -> None:
    result = run("tune CartPole-v1 --num-envs 4 --seconds 0.4 --json t.json")
    assert result.exit_code == 0, result.output
    for label in ("step, mean", "99th percentile", "reset", "observation", "memory", "16 bytes"):
        assert label in result.output
    found = json.loads(Path("t.json").read_text())
    assert found["code"] in result.output
    assert "vector_kwargs" not in found["code"] and "'" not in found["code"]
    scope: dict[str, Any] = {}
    exec(f"from vecspaces import make_vec\nenvs = {found['code']}", scope)
    with scope["envs"] as envs:
        assert envs.num_envs == 4


def test_an_environment_that_waits_gets_more_workers_than_cores() -> None:
    def tune() -> tuple[str, Any, set[int]]:
        result = run("tune tests.cli.envs:Sleeper --num-envs 8 --seconds 1 --json t.json")
        assert result.exit_code == 0, result.output
        found = json.loads(Path("t.json").read_text())
        counts = {tried["options"].get("num_workers") for tried in found["tried"]}
        return result.output, found, counts

    output, found, counts = quietly(tune, lambda tuned: 8 in tuned[2])
    assert found["costs"]["computing"] < 0.5 and 8 in counts
    workers = int((re.findall(r"num_workers=(\d+)", found["code"]) or [0])[0])
    words = f"waits more than it computes: {workers} workers share {found['costs']['cores']} cores"
    assert (words in " ".join(output.split())) is (workers > found["costs"]["cores"])


def test_hints_come_from_the_choice_and_the_machine() -> None:
    few, many = (Candidate("async", {"num_workers": count}, runs=[90, 110]) for count in (1, 16))
    waiting = costs(computing=0.1)
    assert "16 workers share 2 cores" in "".join(_hints(many, [few, many], waiting))
    assert not any("cores" in hint for hint in _hints(few, [few, many], waiting))
    assert _hints(few, [Candidate("sync", runs=[99, 101])], costs()) == []
    assert "spread by up to 11%" in _hints(few, [Candidate("sync", runs=[89, 111])], costs())[0]
    busy: list[dict[str, Any]] = [{"granted": 0.5}, {"idle_cores": 0.1}]
    quiet: list[dict[str, Any]] = [
        {},
        {"idle_cores": None},
        {"cores": 64, "idle_cores": 60.0},
        {"cores": 4, "idle_cores": 120.0},
    ]
    for changes in busy + quiet:
        hints = _hints(few, [few], costs(**changes))
        assert any("the machine is busy" in hint for hint in hints) is (changes in busy), changes


def test_the_time_of_all_steps_is_not_reported_as_a_slow_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(costs_module, "AsyncVectorEnv", partial(AsyncVectorEnv, slow_warning=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowEnvironmentWarning)
        assert measure_costs(partial(gymnasium.make, "CartPole-v1"), 0.5).step_mean > 0


def test_contention_is_no_waiting() -> None:
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(2 * count_usable_cores())]
    try:
        found = quietly(
            lambda: measure_costs(partial(gymnasium.make, "CartPole-v1"), 1.0),
            lambda costs: costs.is_busy and costs.computing > 0.6,
        )
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert found.granted < 0.9 and found.is_busy
    assert not found.waits and found.computing > 0.6


def test_the_time_of_the_policy_counts() -> None:
    found = as_json("tune CartPole-v1 --num-envs 2 --seconds 0.4 --agent-ms 5")
    lockstep = [tried for tried in found["tried"] if "batch_size" not in tried["options"]]
    assert all((tried["steps_per_second"] or 0) <= 2 / 0.005 for tried in lockstep)


def test_candidates_stay_within_the_environments_and_the_cores() -> None:
    counts = [one.options.get("num_workers") for one in candidates(64, costs(cores=6))]
    assert counts == [None, 1, 2, 4, 6, 6, 6]
    assert max(one.options.get("num_workers", 0) for one in candidates(3, costs(cores=6))) == 3
    waiting = candidates(64, costs(computing=0.1, cores=6))
    assert max(one.options.get("num_workers", 0) for one in waiting) == 48
    assert not any("batch_size" in one.options for one in candidates(1, costs()))


def test_the_simplest_of_the_fastest_is_best() -> None:
    sync, few, many = (
        Candidate("sync", runs=[50.0]),
        Candidate("async", {"num_workers": 1}, runs=[99.0]),
        Candidate("async", {"num_workers": 2}, runs=[100.0]),
    )
    assert best([sync, few, many]) is few
    assert best([Candidate("sync", skipped="no")]) is None


def test_vector_envs_are_not_measured() -> None:
    result = run("tune tests.cli.envs:two_cart_poles --num-envs 2 --seconds 1")
    assert result.exit_code == 2
    message = "vecspaces: ENV: tune needs a factory of single environments, found one that makes"
    assert result.output.splitlines()[-1].startswith(message)
