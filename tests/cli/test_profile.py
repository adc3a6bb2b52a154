"""`vecspaces profile`: its tables, what it finds, and the timeline that it writes."""

from __future__ import annotations

import bisect
import itertools
import json
import re
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.vector.bounds import quietly


def test_the_slow_environment_comes_first_and_is_named() -> None:
    def profile() -> tuple[list[str], str]:
        result = run("profile tests.cli.envs:Waiting --num-envs 4 --num-workers 2 --seconds 0.5")
        assert result.exit_code == 0, result.output
        table = result.output[result.output.index("step, mean") :].splitlines()
        named = [said for said in SAID if said in result.output]
        return named, table[2].split("│")[1].strip()

    assert quietly(profile, lambda found: found == (SAID, "3")) == (SAID, "3")


SAID = ["environment 3 takes", "worker 0 waits"]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_timeline_shows_what_workers_do_in_each_call(mode: str) -> None:
    given = f"--num-envs 3 --num-workers 2 --autoreset-mode {mode} --seconds 0.2"
    result = run(f"profile CartPole-v1 {given} --trace trace.json")
    assert result.exit_code == 0, result.output
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    workers = ["worker 0: environments 0 to 0", "worker 1: environments 1 to 2"]
    assert names == dict(enumerate(["caller", *workers]))
    tracks: dict[int, list[tuple[float, float, str]]] = {track: [] for track in names}
    for one in events:
        if one["ph"] == "X":
            tracks[one["tid"]].append((one["ts"], one["ts"] + one["dur"], one["name"]))
    for spans in tracks.values():
        spans.sort()
        assert all(end <= begin + 1e-3 for (_, end, _), (begin, *_) in itertools.pairwise(spans))
    assert {name for *_, name in tracks[0]} == {"reset", "step_async", "step_wait"}
    begins = [begin for begin, _, name in tracks[0] if name != "step_wait"]
    ends = [end for _, end, name in tracks[0] if name != "step_async"]
    seen = set()
    for begin, end, name in tracks[1] + tracks[2]:
        seen.add(name)
        assert begin >= begins[0] and end <= ends[bisect.bisect(begins, begin) - 1]
    assert seen == {f"{name} {env}" for name in ("reset", "step") for env in range(3)}


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
