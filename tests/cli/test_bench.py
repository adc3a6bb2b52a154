"""`vecspaces bench`: what it measures, what follows from the figures, its JSON and its plot."""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.cli.envs import Rarely
from tests.cli.running import run, run_apart
from vecspaces.cli.bench import Report
from vecspaces.cli.contenders import BareLoops, Contender, find_contenders


# In a process of its own: Gymnasium keeps shared memory, and matplotlib keeps fonts open.
def test_bench_measures_all_settings_and_bounds_and_plots_them() -> None:
    Path("old").write_text("old")
    os.link("old", "s.png")
    given = "--num-envs 4 --max-workers 2 --seconds 1 --json found.json --plot s.png"
    output = run_apart(f"bench CartPole-v1 {given}")
    assert Path("old").read_text() == "old", "the older one is replaced, not written over"
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(Path("found.json").read_text())
    names = [(one["name"], one["processes"]) for one in found["results"]]
    gymnasiums = [("gymnasium sync", 1), ("gymnasium async", 4)]
    ours = [("sync", 1), ("async, 1", 1), ("async, 2", 2)]
    assert names[:5] == [*gymnasiums, *ours]
    assert names[-2:] == [("bare loops, 1", 1), ("bare loops, 2", 2)]
    for one in found["results"]:
        assert one["steps_per_second"] > 0 and one["spread"] > 0 and one["busy"] > 0
        assert one["name"] in output
    assert found["env"] == "CartPole-v1" and found["interrupted"] is False
    if found["code"] is None:
        assert "cannot tell" in output
    else:
        scope: dict[str, Any] = {}
        exec(f"from vecspaces import make_vec\nenvs = {found['code']}", scope)
        with scope["envs"] as envs:
            assert envs.num_envs == 4
        assert found["code"] in output


def report(granted: float = 1.0, computing: float = 1.0, **speeds: Any) -> Report:
    """Return a report of settings, each with its speeds in some rounds."""
    contenders = []
    for name, rounds in speeds.items():
        is_sync = name == "sync"
        options = {"backend": "sync"} if is_sync else {"num_workers": int(name[1:])}
        count = options.get("num_workers", 1)
        contender = Contender(name, count, lambda stack: None, options)
        contender.rounds = [(float(speed), 1.0) for speed in rounds]
        contenders.append(contender)
    made = Report("Env-v0", 8, {"size": 3}, contenders)
    made.granted, made.computing = granted, computing
    for count in (1, 2):
        bound = Contender(f"bare loops, {count}", count, lambda stack: None)
        bound.rounds = [(200.0 * count, 1.0)]
        contenders.append(bound)
    return made


def test_report_recommends_the_simplest_of_the_fastest() -> None:
    made = report(sync=[100, 100], w1=[150, 150], w2=[202, 198], w4=[203, 203])
    assert made.code() == "make_vec(\"Env-v0\", num_envs=8, num_workers=2, env_kwargs={'size': 3})"
    hints = "; ".join(made.hints())
    assert "w4: 2.03 times the steps of sync" in hints
    assert made.busy(made.contenders[2]) == 0.5
    assert "cannot tell" not in hints and "busy" not in hints and "waits" not in hints
    sync = report(sync=[100, 100], w1=[50, 50])
    assert sync.code() == 'make_vec("Env-v0", num_envs=8, backend="sync", env_kwargs={\'size\': 3})'


def test_report_says_what_makes_figures_doubtful() -> None:
    made = report(sync=[100, 100], w1=[80, 130])
    assert made.code() is None
    assert "cannot tell w1 / sync apart, as figures spread by ± 48%" in next(made.hints())
    assert report(sync=[100], w1=[900]).code() is None, "one round does not tell"
    assert "the machine is busy" in [*report(0.5, sync=[1, 1], w1=[1, 1]).hints()][-1]
    assert "more workers than cores help" in [*report(1.0, 0.1, sync=[1, 1], w1=[1, 1]).hints()][-1]


def test_gymnasium_starts_no_thousand_processes() -> None:
    names = [one.name for one in find_contenders(Rarely, 1000, [1])]
    assert names == ["gymnasium sync", "sync", "async, 1"]


def test_rare_long_steps_are_not_missed() -> None:
    """One step in a hundred takes a hundred times as long as the others together."""
    with contextlib.ExitStack() as stack:
        (sync,) = [one for one in find_contenders(Rarely, 4, []) if one.name == "sync"]
        open_sync = sync.open(stack)
        loops = BareLoops(Rarely, 4, 2, stack)
        runs = {"sync": open_sync, **{one.name: one.open(stack) for one in loops.contenders([2])}}
        rounds = {name: [run(0.1) for _ in range(5)] for name, run in runs.items()}
    for name, samples in rounds.items():
        steps, seconds = map(sum, zip(*samples, strict=True))
        expected = Rarely.every / Rarely.seconds * (1 if name == "sync" else 2)
        assert 0.3 * expected < steps / seconds < 1.5 * expected, name


def test_bare_loops_wait_for_each_other_only_in_step() -> None:
    with contextlib.ExitStack() as stack:
        loops = BareLoops(partial(gymnasium.make, "CartPole-v1"), 5, 2, stack)
        for contender in loops.contenders([1, 2]):
            steps, seconds = contender.open(stack)(0.05)
            assert steps > 10 and seconds >= 0.05
        granted, computing = loops.look()
        assert 0 < granted <= 1.01 and computing > 0


@pytest.mark.parametrize("env", ["Falling", "Dying"])
def test_an_environment_that_ends_a_loop_in_step_is_an_error(env: str) -> None:
    from tests.cli import envs

    with (
        pytest.raises(Exception, match=r"gravity|exited with code 3"),
        contextlib.ExitStack() as stack,
    ):
        loops = BareLoops(getattr(envs, env), 2, 2, stack)
        loops.run_in_step(2, 0.05)


def test_bench_leaves_out_what_gymnasium_cannot_step_and_refuses_vector_envs() -> None:
    result = run("bench tests.cli.envs:Plain --num-envs 2 --max-workers 1 --seconds 0.1")
    assert result.exit_code == 0, result.output
    assert "# gymnasium sync: " in result.output
    result = run("bench tests.cli.envs:two_cart_poles --num-envs 2 --seconds 1")
    assert result.exit_code == 2
    message = "vecspaces: ENV: bench needs a factory of single environments, found one that makes"
    assert result.output.splitlines()[-1].startswith(message)
