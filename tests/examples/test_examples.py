"""Every example runs, briefly, as a program, and fits on a page or three."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT, here_or_apart, run_program, run_python

EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
BRIEFLY = {
    "cleanrl_style_ppo": ["--num-envs", "4", "--num-steps", "32", "--total-timesteps", "256"],
    "action_chunks": ["--num-envs", "4", "--plans", "4"],
    "async_rollout": ["--num-envs", "4", "--steps", "200"],
    "dict_observations": ["--num-envs", "3", "--steps", "10"],
    "evaluate": ["--episodes", "20", "--num-envs", "1", "64", "--repetitions", "2"],
    "lerobot_dataset": ["--episodes", "2"],
    "long_run": ["--tasks", "2", "--steps", "20"],
    "masked_ppo": ["--num-envs", "4", "--timesteps", "256", "--compare"],
    "minari_dataset": ["--episodes", "12"],
    "multi_agent": ["--num-envs", "4", "--updates", "2"],
    "overlapped_ppo": ["--num-envs", "4", "--steps", "64", "--updates", "2"],
    "ppo": ["--num-envs", "4", "--steps", "32", "--updates", "2"],
    "record": ["out.gif", "--num-envs", "4", "--frames", "5"],
    "sb3_ppo": ["--num-envs", "4", "--timesteps", "256", "--compare"],
}
NEEDS = {
    "cleanrl_style_ppo": "torch",
    "lerobot_dataset": "lerobot",
    "masked_ppo": "sb3_contrib",
    "minari_dataset": "minari",
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
    "lerobot_dataset": "pendulum: 2 episodes, 400 frames",
    "long_run": "task 1: went down by",
    "masked_ppo": "MaskablePPO",
    "minari_dataset": "cartpole/lean-v0: 12 episodes, 458 steps",
    "multi_agent": "learned: mean return",
    "overlapped_ppo": "update   2  steps     512",
    "ppo": "update   2  steps     256",
    "record": "4 environments, 5 frames",
    "sb3_ppo": "SubprocVecEnv",
}


# Their own tests run these; the README has `rollout`.
ELSEWHERE = (
    "conversations",
    "custom_space",
    "log_run",
    "restart_after_crash",
    "rollout",
    "sharded_learners",
)


@here_or_apart({name: name not in NEEDS for name in EXAMPLES if name not in ELSEWHERE})
def test_it_runs(name: str, apart: bool, tmp_path: Path) -> None:
    needed = NEEDS.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    variables: dict[str, Any] = {"HF_HUB_OFFLINE": "1", "MINARI_DATASETS_PATH": str(tmp_path)}
    given = {"apart": apart, "folder": tmp_path, **variables}
    assert OUTPUTS.get(name, "") in run_program(EXAMPLES[name], *BRIEFLY.get(name, []), **given)


def test_each_is_short_and_guards_its_main_part() -> None:
    for name, path in EXAMPLES.items():
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) < 150, name
        # Workers that are spawned import the program: without the guard they would run it again.
        assert 'if __name__ == "__main__":' in source, name


@pytest.mark.full
@pytest.mark.timeout(240)
def test_ppo_reaches_a_mean_return_of_475_in_three_minutes() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run = run_python(EXAMPLES["ppo"], timeout=180)
    assert float(run.stdout.split()[-1]) >= 475.0


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_shared_policy_of_many_agents_is_better_than_random_actions() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    program = EXAMPLES["multi_agent"]
    run = run_python("-W", "ignore", program, "--updates", "60", timeout=200)
    learned, random = re.findall(r"learned: mean return (-[\d.]+), random (-[\d.]+)", run.stdout)[0]
    assert float(learned) > float(random) + 10
