"""`vecspaces bench`: what it measures, what follows from the figures, and its JSON."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import vecspaces.cli.contenders as contenders_module
from tests.cli import envs
from tests.cli.running import as_json, run, run_apart
from vecspaces.cli.bench import Report
from vecspaces.cli.contenders import Contender, Cost, find_contenders, measure_cost


# In a process of its own: Gymnasium keeps shared memory.
def test_bench_measures_all_settings_and_bounds() -> None:
    arguments = "--num-envs 4 --max-workers 2 --seconds 1 --json found.json"
    output = run_apart(f"bench CartPole-v1 {arguments}")
    table = json.loads(Path("found.json").read_text())
    assert [(result["name"], result["workers"]) for result in table["results"]] == [
        *(("gymnasium sync", 1), ("gymnasium async", 4)),
        *(("sync", 1), ("async, 1", 1), ("async, 2", 2)),
        *(("loops in step, 1", 1), ("loops in step, 2", 2)),
        *(("bare loops, 1", 1), ("bare loops, 2", 2)),
    ]
    for result in table["results"]:
        assert result["name"] in output
        if not result["skipped"]:
            assert result["steps_per_second"] > 0
    assert table["env"] == "CartPole-v1"
    if table["code"] is None:
        assert "cannot tell" in output
    else:
        scope: dict[str, Any] = {}
        exec(f"from vecspaces import make_vec\nenvs = {table['code']}", scope)
        with scope["envs"] as envs:
            assert envs.num_envs == 4
        assert table["code"] in output


def report(granted: float = 1.0, computing: float = 1.0, **speeds: Any) -> Report:
    """Return a report of settings, each with its speeds in some samples of a second."""
    contenders = []
    for name, samples in {**speeds, "bare loops, 1": [200], "bare loops, 2": [400]}.items():
        workers = 1 if name == "sync" else int(name[-1])
        options = {"backend": "sync"} if name == "sync" else {"num_workers": workers}
        contenders.append(Contender(name, workers, open_nothing, options))
        contenders[-1].samples = [(float(speed), 1.0) for speed in samples]
        if name.startswith("bare"):
            contenders[-1].options = None
    cost = Cost(0.0, 0.01, computing)
    return Report("Env-v0", 8, {"size": 3}, contenders, cost, [granted])


def open_nothing(stack: contextlib.ExitStack) -> Any:
    raise AssertionError


def test_report_recommends_the_simplest_of_the_fastest() -> None:
    made = report(sync=[100, 100], w1=[150, 150], w2=[202, 198], w4=[203, 203])
    assert made.code() == "make_vec(\"Env-v0\", num_envs=8, num_workers=2, env_kwargs={'size': 3})"
    assert [*made.hints()] == ["w2: 2.00 times the steps of sync (± 2%)"]
    assert made.busy(made.contenders[2]) == 0.5
    sync = report(sync=[100, 100], w1=[50, 50])
    assert sync.code() == 'make_vec("Env-v0", num_envs=8, backend="sync", env_kwargs={\'size\': 3})'


def test_report_says_what_makes_figures_doubtful() -> None:
    made = report(sync=[100, 100], w1=[80, 130])
    assert made.code() is None
    assert "cannot tell w1 / sync apart, as they spread by 48%" in next(made.hints())
    assert report(sync=[100], w1=[900]).code() is None, "one sample does not tell"
    busy = report(0.5, sync=[1, 1], w1=[9, 9])
    assert busy.code() is None and "the machine is busy" in [*busy.hints()][-1]
    waiting = report(computing=0.1, sync=[1, 1], w1=[9, 9])
    assert "more workers than cores" in [*waiting.hints()][-1]
    assert waiting.busy(waiting.contenders[1]) == 9 / 200


def test_contender_has_the_speed_of_all_samples_with_a_spread() -> None:
    contender = Contender("sync", 1, open_nothing, samples=[(100, 1.0), (100, 1.0), (100, 21.0)])
    assert contender.speed == 300 / 23, "a rare long step counts with its time"
    assert contender.spread > 1
    contender.samples = [(100, 1.0), (300, 3.0), (50, 0.5)]
    assert contender.speed == 100 and contender.spread == 0


def contenders(make: Any, num_envs: int, counts: list[int], *granted: float) -> Any:
    """Return the contenders by their names; loops note what they were granted."""
    known = find_contenders(make, num_envs, counts, [*granted], threads=True)
    return {contender.name: contender for contender in known}


def test_find_contenders_starts_no_thousand_processes() -> None:
    names = ["gymnasium sync", "sync", "threads, 256", "async, 1", "loops in step, 1"]
    assert [*contenders(envs.Rarely, 1000, [1])] == [*names, "bare loops, 1"]


def test_contenders_do_not_miss_rare_long_steps() -> None:
    """One step in a hundred takes a hundred times as long as the others together."""
    known = contenders(envs.Rarely, 4, [2])
    for name in ("sync", "threads, 4", "loops in step, 2", "bare loops, 2"):
        contender = known[name]
        contender.take_turn(0.2)
        expected = envs.Rarely.every / envs.Rarely.seconds * contender.workers
        assert 0 < contender.speed < 1.5 * expected, name


def test_measure_cost_tells_waiting_from_computing() -> None:
    granted: list[float] = []
    cost = measure_cost(envs.Waits, 2, 0.2, granted)
    assert cost.computing < 0.5 and 0.01 <= cost.step < 1 and 0 < granted[0] <= 1.01
    cost = measure_cost(partial(gymnasium.make, "CartPole-v1"), 1, 0.2, granted)
    assert cost.computing > 0.3 and cost.step < 0.01


def test_bench_skips_what_takes_much_longer_than_its_share() -> None:
    """A step of all takes 1.3 s in one process; each contender has 0.2 s."""
    table = as_json("bench tests.cli.envs:Waits --num-envs 64 --max-workers 2 --seconds 2")
    speeds = {result["name"]: result["steps_per_second"] for result in table["results"]}
    assert speeds["sync"] is None and speeds["async, 1"] is None and speeds["threads, 64"] > 64
    (sync,) = [result for result in table["results"] if result["name"] == "sync"]
    assert "64 environments take" in sync["skipped"] and "--seconds" in sync["skipped"]


def test_bench_has_the_environments_of_one_contender_open_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Gymnasium kills its workers, which then close nothing.
    monkeypatch.setattr(contenders_module.importlib.util, "find_spec", lambda name: None)
    result = run("bench tests.cli.envs:Counted --num-envs 3 --max-workers 2 --seconds 4")
    assert result.exit_code == 0, result.output
    counts = [int(line) for line in Path("open.txt").read_text().split()]
    assert max(counts) == 3


@pytest.mark.parametrize("env", ["Falling", "Dying"])
def test_an_environment_that_ends_a_loop_in_step_is_an_error(env: str) -> None:
    with pytest.raises(Exception, match=r"gravity|exited with code 3"):
        contenders(getattr(envs, env), 2, [2])["loops in step, 2"].take_turn(0.05)


def test_bench_leaves_out_what_gymnasium_cannot_step_and_refuses_vector_envs() -> None:
    result = run("bench tests.cli.envs:Plain --num-envs 2 --max-workers 1 --seconds 0.1")
    assert result.exit_code == 0, result.output
    assert "# gymnasium sync / gymnasium async: " in result.output
    result = run("bench tests.cli.envs:two_cart_poles --num-envs 2 --seconds 1")
    assert result.exit_code == 2
    message = "vecspaces: ENV: bench needs a factory of single environments, found one that makes"
    assert result.output.splitlines()[-1].startswith(message)
