"""Every example runs, briefly, as a program of its own, and fits on a page or three."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
BRIEFLY = {
    "cleanrl_style_ppo": ["--num-envs", "4", "--num-steps", "32", "--total-timesteps", "256"],
    "action_chunks": ["--num-envs", "4", "--plans", "4"],
    "async_rollout": ["--num-envs", "4", "--steps", "200"],
    "dict_observations": ["--num-envs", "3", "--steps", "10"],
    "evaluate": ["--episodes", "20", "--num-envs", "1", "64", "--repetitions", "2"],
    "long_run": ["--tasks", "2", "--steps", "20"],
    "masked_ppo": ["--num-envs", "4", "--timesteps", "256", "--compare"],
    "multi_agent": ["--num-envs", "4", "--updates", "2"],
    "overlapped_ppo": ["--num-envs", "4", "--steps", "64", "--updates", "2"],
    "ppo": ["--num-envs", "4", "--steps", "32", "--updates", "2"],
    "sb3_ppo": ["--num-envs", "4", "--timesteps", "256", "--compare"],
}
NEEDS = {
    "cleanrl_style_ppo": "torch",
    "masked_ppo": "sb3_contrib",
    "multi_agent": "torch",
    "overlapped_ppo": "torch",
    "ppo": "torch",
    "sb3_ppo": "stable_baselines3",
}
OUTPUTS = {
    "cleanrl_style_ppo": "steps     256",
    "action_chunks": "images per step",
    "async_rollout": "send/recv",
    "dict_observations": "obeyed 100% of the orders",
    "evaluate": "environments  first finished  seeded episodes",
    "long_run": "task 1: went down by",
    "masked_ppo": "MaskablePPO",
    "multi_agent": "learned: mean return",
    "overlapped_ppo": "update   2  steps     512",
    "ppo": "update   2  steps     256",
    "rollout": "observations (64, 4) float32",
    "sb3_ppo": "SubprocVecEnv",
}


# test_restart_after_crash.py runs the other one.
@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if path.stem != "restart_after_crash"],
    ids=lambda path: path.stem,
)
def test_it_runs(path: Path) -> None:
    needed = NEEDS.get(path.stem)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(path), *BRIEFLY.get(path.stem, [])],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert OUTPUTS.get(path.stem, "") in run.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_guards_its_main_part(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 150
    # Workers that are spawned import the program: without the guard they would run it again.
    assert 'if __name__ == "__main__":' in source


@pytest.mark.full
@pytest.mark.timeout(240)
def test_ppo_reaches_a_mean_return_of_475_in_three_minutes() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (path,) = [example for example in EXAMPLES if example.stem == "ppo"]
    run = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=180, check=True
    )
    assert float(run.stdout.split()[-1]) >= 475.0


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_shared_policy_of_many_agents_is_better_than_random_actions() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (path,) = [example for example in EXAMPLES if example.stem == "multi_agent"]
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(path), "--updates", "60"],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    learned, random = re.findall(r"learned: mean return (-[\d.]+), random (-[\d.]+)", run.stdout)[0]
    assert float(learned) > float(random) + 10
