"""`vecspaces rollout`: its table, its JSON, its refusals, and Ctrl-C."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.crosses import ordinarily
from tests.vector.bounds import assert_gone, within
from vecspaces.cli.app import app

ROOT = Path(__file__).parents[2]

# An environment that says which processes step it, and one whose step lasts a minute.
MODULES = {
    "busy": """
import os, time
from pathlib import Path
from vecspaces import Env, spaces

class Busy(Env):
    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(2)
    seconds = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        (Path(os.environ["STEPPED"]) / str(os.getpid())).touch()
        time.sleep(self.seconds)
        return self.observation_space.low, 1.0, False, False, {}

class Scripted(Busy):  # episodes of one to four steps, whose rewards count down to one
    episode = 0

    def reset(self, *, seed=None, options=None):
        self.left = self.length = 1 + self.episode % 4
        self.episode += 1
        return super().reset(seed=seed)

    def step(self, action):
        self.left -= 1
        ended = self.left == 0
        return self.observation_space.low, 1.0 + self.left, ended, ended and self.length == 3, {}

class Stuck(Busy):
    seconds = 60.0

class Broken(Busy):
    def step(self, action):
        raise KeyError("gravity")

class Unbuildable(Busy):
    def __init__(self):
        raise OSError("no\\nlicence")

def pair():
    from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
    return CartPoleVectorEnv(num_envs=2)

not_a_factory = 3
"""
}


@pytest.fixture(autouse=True)
def stepped(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which environments note that they were stepped."""
    folder = here / "stepped"
    folder.mkdir()
    monkeypatch.setenv("STEPPED", str(folder))
    return folder


def rollout(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["rollout", *arguments])


def as_json(*arguments: str) -> dict[str, Any]:
    result = rollout(*arguments, "--json", "result.json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(Path("result.json").read_text())
    return parsed


def test_the_table_names_what_was_asked_for() -> None:
    output = rollout("CartPole-v1", "--num-envs", "3", "--steps", "300", "--backend", "sync").output
    for label in ("steps", "seconds", "steps/s", "episodes", "workers"):
        assert label in output
    for statistic in ("mean", "min", "max"):
        assert f"{statistic} return" in output
        assert f"{statistic} length" in output


def test_the_json_is_one_flat_object_of_fixed_keys() -> None:
    result = as_json(
        "CartPole-v1", "--num-envs", "4", "--steps", "1000", "--num-workers", "2", "--seed", "7"
    )
    assert list(result) == [
        "env", "backend", "num_envs", "num_workers", "seed", "steps", "seconds", "steps_per_second",
        "episodes", "mean_return", "min_return", "max_return", "mean_length", "interrupted",
    ]  # fmt: skip
    expected = {
        "env": "CartPole-v1",
        "backend": "async",
        "num_envs": 4,
        "num_workers": 2,
        "seed": 7,
    }
    assert {key: result[key] for key in expected} == expected
    assert 1000 <= result["steps"] < 1004
    assert result["steps_per_second"] == pytest.approx(result["steps"] / result["seconds"])
    assert result["min_return"] <= result["mean_return"] <= result["max_return"]
    assert result["mean_length"] == result["mean_return"]  # CartPole gives 1 a step


@pytest.mark.parametrize("backend", ["async", "sync"])
def test_steps_and_episodes_are_those_of_counting_by_hand(backend: str) -> None:
    result = as_json("busy:Scripted", "--num-envs", "2", "--steps", "26", "--backend", backend)
    # Two environments of 13 steps: episodes of 1, 2, 3, 4, 1 and 2 steps, and the resets between.
    returns = [1, 3, 6, 10, 1, 3]
    assert result["steps"] == 26
    assert result["episodes"] == 12
    assert result["mean_return"] == pytest.approx(sum(returns) / 6)
    assert (result["min_return"], result["max_return"]) == (1, 10)
    assert result["mean_length"] == pytest.approx(13 / 6)


def test_json_can_be_printed() -> None:
    result = rollout("busy:Busy", "--num-envs", "2", "--steps", "10", "--json", "-")
    assert json.loads(result.stdout)["steps"] == 10
    assert "steps/s" in result.stderr


def test_without_an_episode_the_json_has_nulls() -> None:
    result = as_json("CartPole-v1", "--num-envs", "1", "--steps", "2", "--backend", "sync")
    assert result["episodes"] == 0
    assert result["mean_return"] is None
    assert result["seed"] is None
    assert result["num_workers"] == 0


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_one_seed_is_one_result_wherever_it_runs(context: str) -> None:
    arguments = ("CartPole-v1", "--num-envs", "5", "--steps", "2000", "--seed", "3")
    arguments += ("--num-workers", "2", "--context", context)  # without effect with "sync"
    in_workers = as_json(*arguments)
    in_process = as_json(*arguments, "--backend", "sync")
    assert (in_workers["num_workers"], in_process["num_workers"]) == (2, 0)
    for key in ("steps", "episodes", "mean_return", "min_return", "max_return", "mean_length"):
        assert in_workers[key] == in_process[key]


def test_a_module_of_this_folder_is_found() -> None:
    assert as_json("busy:Busy", "--num-envs", "2", "--steps", "10")["steps"] == 10


def test_a_factory_of_vector_envs_counts_their_environments() -> None:
    result = as_json("busy:pair", "--num-envs", "3", "--steps", "3000", "--backend", "sync")
    assert result["num_envs"] == 6
    assert 15 < result["mean_return"] < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPol-v1"], "CartPole"),
        (["CartPole-v99"], "v99"),
        (["no_such_module:Env"], "no_such_module"),
        (["busy:Bussy"], "did you mean 'Busy'"),
        (["busy:not_a_factory"], "expected a factory"),
        (["CartPole-v1", "--num-envs", "0"], "--num-envs: "),
        (["CartPole-v1", "--num-envs", "-3"], "--num-envs: "),
        (["CartPole-v1", "--num-envs", "2", "--num-workers", "3"], "--num-workers=3"),
        (["CartPole-v1", "--num-workers", "0"], "--num-workers"),
        (["CartPole-v1", "--backend", "threads"], "async, sync"),
        (["CartPole-v1", "--backend", "ray", "--context", "spawn"], "--backend async"),
        (["CartPole-v1", "--context", "teleport"], "teleport"),
        (["CartPole-v1", "--steps", "0"], "--steps"),
        (["CartPole-v1", "--seed", "-1"], "--seed"),
        (["CartPole-v1", "--json", "no/such/folder.json"], "--json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_clear_line(arguments: list[str], message: str) -> None:
    result = rollout(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("vecspaces: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_traceback_shows_where_an_error_comes_from() -> None:
    assert isinstance(rollout("busy:Unbuildable", "--traceback").exception, OSError)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent in another way")
@pytest.mark.parametrize(
    ("backend", "env", "whole_group"),
    ordinarily(
        lambda backend, env, whole_group: (
            env == "busy:Stuck" if backend == "async" else env == "busy:Busy" and whole_group
        ),
        itertools.product(["async", "sync"], ["busy:Busy", "busy:Stuck"], [True, False]),
    ),
)
def test_ctrl_c_shows_the_table_and_leaves_nothing(
    here: Path, env: str, backend: str, whole_group: bool
) -> None:
    command = [sys.executable, "-m", "vecspaces", "rollout", env, "--steps", "1000000000"]
    with subprocess.Popen(
        [*command, "--num-envs", "4", "--backend", backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            give_up = time.monotonic() + 60
            while not os.listdir(here / "stepped"):
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < give_up, "no environment was stepped"
                time.sleep(0.01)
            with within(2.0):
                (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
                output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors == ""
    assert "steps/s" in output
    assert_gone(int(name) for name in os.listdir(here / "stepped"))


def test_record_makes_a_picture_of_chosen_environments(tmp_path: Path) -> None:
    import imageio.v3 as iio

    path = tmp_path / "out.gif"
    arguments = [
        "CartPole-v1",
        "--num-envs",
        "3",
        "--steps",
        "30",
        "--backend",
        "sync",
        "--seed",
        "1",
    ]
    result = rollout(*arguments, "--record", str(path), "--envs", "0,2")
    assert result.exit_code == 0, result.output
    frames = iio.imread(path)
    assert f"{len(frames)} frames in" in result.output
    assert frames.shape[1:] == (200, 602, 3)
    assert frames.max() == 255


def test_rendering_is_no_part_of_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    from vecspaces.wrappers import record_video

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    def rendered_slowly(*arguments: Any) -> Any:
        clock.now += 100.0
        return rendered(*arguments)

    clock, rendered = Clock(), record_video._render
    monkeypatch.setattr(record_video, "_render", rendered_slowly)
    monkeypatch.setattr(sys.modules["vecspaces.cli.rollout"], "time", clock)
    arguments = ["CartPole-v1", "--num-envs", "2", "--steps", "40", "--backend", "sync"]
    assert as_json(*arguments, "--record", "out.gif")["seconds"] == 0.0
    assert clock.now > 2000.0


def test_a_recording_that_fails_leaves_no_empty_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from vecspaces.wrappers import record_video

    monkeypatch.setattr(record_video, "shrink", lambda grid, size: "no picture")
    arguments = ["CartPole-v1", "--num-envs", "2", "--steps", "40", "--backend", "sync"]
    assert rollout(*arguments, "--record", "out.gif").exit_code != 0
    assert not Path("out.gif").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--envs", "0"], "--record FILE with it"),
        (["--record", "out.gif", "--envs", "a"], "numbers with commas"),
        (
            ["--record", "out.gif", "--envs", "8"],
            "--envs: expected numbers with commas, from 0 to 1",
        ),
        (["--record", "out.png"], ".gif or .mp4"),
    ],
    ids=str,
)
def test_a_recording_that_cannot_be_is_refused(arguments: list[str], message: str) -> None:
    result = rollout("CartPole-v1", "--num-envs", "2", "--backend", "sync", *arguments)
    assert result.exit_code == 2
    assert message in result.output
