"""`vecspaces rollout`: its table, its JSON, its pictures, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import as_json, run
from tests.programs import environ
from tests.vector.bounds import assert_gone, within


def test_the_table_and_the_json_have_fixed_names() -> None:
    options = "--num-envs 4 --steps 1000 --num-workers 2 --seed 7"
    output = run(f"rollout CartPole-v1 {options} --json found.json").output
    for label in ("steps", "seconds", "steps/s", "episodes", "workers"):
        assert label in output
    for statistic in ("mean", "min", "max"):
        assert f"{statistic} return" in output and f"{statistic} length" in output
    result = json.loads(Path("found.json").read_text())
    assert list(result) == [
        "env", "backend", "num_envs", "num_workers", "seed", "steps", "seconds", "steps_per_second",
        "episodes", "mean_return", "min_return", "max_return", "mean_length", "min_length",
        "max_length",
    ]  # fmt: skip
    assert list(result.values())[:5] == ["CartPole-v1", "async", 4, 2, 7]
    assert 1000 <= result["steps"] < 1004
    assert result["steps_per_second"] == pytest.approx(result["steps"] / result["seconds"])
    assert result["min_return"] <= result["mean_return"] <= result["max_return"]
    assert result["mean_length"] == result["mean_return"]  # CartPole gives 1 a step


@pytest.mark.parametrize("backend", ["async", "sync"])
def test_steps_and_episodes_are_those_of_counting_by_hand(backend: str) -> None:
    result = as_json(f"rollout tests.cli.envs:Scripted --num-envs 2 --steps 26 --backend {backend}")
    # Two environments of 13 steps: episodes of 1, 2, 3, 4, 1 and 2 steps, and the resets between.
    returns = [1, 3, 6, 10, 1, 3]
    assert result["steps"] == 26
    assert result["episodes"] == 12
    assert result["mean_return"] == pytest.approx(sum(returns) / 6)
    assert (result["min_return"], result["max_return"]) == (1, 10)
    assert result["mean_length"] == pytest.approx(13 / 6)


def test_json_can_be_printed_and_has_nulls_without_an_episode() -> None:
    result = run("rollout tests.cli.envs:Busy --num-envs 2 --steps 10 --backend sync --json -")
    document = json.loads(result.stdout)
    assert "steps/s" in result.stderr
    assert (document["steps"], document["episodes"], document["num_workers"]) == (10, 0, 0)
    assert document["mean_return"] is None and document["seed"] is None


def test_a_factory_of_vector_envs_counts_their_environments() -> None:
    result = as_json(
        "rollout tests.cli.envs:two_cart_poles --num-envs 3 --steps 3000 --backend sync"
    )
    assert result["num_envs"] == 6
    assert 15 < result["mean_return"] < 30


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent in another way")
@pytest.mark.parametrize(
    ("backend", "env", "whole_group"),
    [
        ("async", "tests.cli.envs:Stuck", True),
        pytest.param("sync", "tests.cli.envs:Busy", False, marks=pytest.mark.full),
    ],
)
def test_ctrl_c_leaves_nothing(here: Path, env: str, backend: str, whole_group: bool) -> None:
    command = [sys.executable, "-m", "vecspaces", "rollout", env, "--steps", "1000000000"]
    with subprocess.Popen(
        [*command, "--num-envs", "4", "--backend", backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environ(),
    ) as process:
        try:
            give_up = time.monotonic() + 60
            while not list(here.glob("stepped/*")):
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < give_up, "no environment was stepped"
                time.sleep(0.01)
            with within(2.0):
                (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
                output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130 and output == ""
    assert errors.startswith("vecspaces: interrupted")
    assert_gone(int(name) for name in os.listdir(here / "stepped"))


CARTPOLES = "rollout CartPole-v1 --steps 40 --backend sync --record out.gif"


def test_record_makes_a_picture_of_the_first_environments() -> None:
    import imageio.v3 as iio

    result = run(f"{CARTPOLES} --num-envs 2 --seed 1")
    assert result.exit_code == 0, result.output
    frames = iio.imread("out.gif")
    assert "21 frames in" in result.output and len(frames) > 15  # GIFs join frames that are equal
    assert frames.shape[1:] == (400, 1204, 3)
    assert frames.max() == 255


def test_a_recording_that_fails_leaves_no_empty_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from vecspaces.wrappers import record_video

    monkeypatch.setattr(record_video, "tile", lambda frames, ratio: "no picture")
    assert run(f"{CARTPOLES} --num-envs 2").exit_code != 0
    assert not Path("out.gif").exists()
