"""`vecspaces profile`: its tables, what it finds, and the timeline that it writes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tests.vector.bounds import quietly


def timeline(command: str) -> list[dict[str, Any]]:
    result = run(f"profile {command} --seconds 0.2 --trace trace.json")
    assert result.exit_code == 0, result.output
    events: list[dict[str, Any]] = json.loads(Path("trace.json").read_text())["traceEvents"]
    return events


def test_the_slow_environment_comes_first_and_is_named() -> None:
    def profile() -> tuple[list[str], str]:
        result = run("profile tests.cli.envs:Waiting --num-envs 4 --num-workers 2 --seconds 0.5")
        assert result.exit_code == 0, result.output
        table = result.output[result.output.index("step, mean") :].splitlines()
        named = [said for said in SAID if said in result.output]
        return named, table[2].split("│")[1].strip()

    assert quietly(profile, lambda found: found == (SAID, "3")) == (SAID, "3")


SAID = ["environment 3 takes", "worker 0 waits"]


def test_the_timeline_has_a_track_for_the_caller_and_for_each_worker() -> None:
    events = timeline("tests.cli.envs:Waiting --num-envs 3 --num-workers 2")
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert names == {
        0: "caller",
        1: "worker 0: environments 0 to 0",
        2: "worker 1: environments 1 to 2",
    }
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in spans if event["tid"] == 0} == {
        "reset",
        "step_async",
        "step_wait",
    }
    assert {event["args"]["env"] for event in spans if event["args"]} == {0, 1, 2}
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_spans_of_one_track_nest(mode: str) -> None:
    by_track = defaultdict(list)
    for event in timeline(f"CartPole-v1 --num-envs 4 --num-workers 2 --autoreset-mode {mode}"):
        if event["ph"] == "X":
            by_track[event["tid"]].append((event["ts"], -event["dur"]))
    assert set(by_track) == {0, 1, 2}
    for spans in by_track.values():
        open_ends: list[float] = []
        for begin, negative in sorted(spans):
            while open_ends and open_ends[-1] <= begin + 1e-3:
                open_ends.pop()
            end = begin - negative
            assert not open_ends or end <= open_ends[-1] + 1e-3
            open_ends.append(end)


def test_steps_of_the_environments_lie_within_the_callers_step() -> None:
    events = timeline("tests.cli.envs:Waiting --num-envs 2")
    spans = [event for event in events if event["ph"] == "X"]
    begins = [event["ts"] for event in spans if event["name"] == "step_async"]
    ends = [event["ts"] + event["dur"] for event in spans if event["name"] == "step_wait"]
    for env in (0, 1):
        steps = [event for event in spans if event["name"] == f"step {env}"]
        assert len(steps) == len(begins) == len(ends)
        for begin, step, end in zip(begins, steps, ends, strict=True):
            assert begin <= step["ts"] and step["ts"] + step["dur"] <= end


def test_one_sentence_names_the_bottleneck() -> None:
    command = "profile tests.cli.envs:Slow --num-envs 2 --num-workers 2 --seconds 0.5"
    # On a busy machine processes wait for cores more than for environments.
    assert re.search("^(the environments take|waiting takes) [0-9]+%", run(command).output, re.M)
    result = quietly(
        lambda: run(f"{command} --policy tests.cli.envs:ponder"),
        lambda result: "the policy takes" in result.output,
    )
    assert result.exit_code == 0, result.output
    assert "the policy takes" in result.output and "more workers will not help" in result.output
    result = run(
        "profile tests.cli.envs:Brief --num-envs 1 --seconds 0.5 --policy tests.cli.envs:Recurrent"
    )
    assert result.exit_code == 0, result.output
    assert result.output.count("begun: [0]") >= 2


def test_a_policy_that_cannot_be_found_is_refused() -> None:
    result = run("profile CartPole-v1 --policy steady")
    assert result.exit_code == 2
    assert "--policy: expected module:function or random, found 'steady'" in result.output
