"""Every example runs, briefly, as a program, and fits on a page or three."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT, here_or_apart, run_program, run_python

EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
# The library that each one needs, the arguments with which it is brief, and words that it prints.
CASES = {
    "cleanrl_style_ppo": (
        "torch", "--num-envs 4 --num-steps 32 --total-timesteps 256", "steps     256"
    ),
    "action_chunks": ("", "--num-envs 4 --plans 4", "images per step"),
    "async_rollout": ("", "--num-envs 4 --steps 200", "send/recv"),
    "dict_observations": ("", "--num-envs 3 --steps 10", "obeyed 100% of the orders"),
    "evaluate": (
        "",
        "--episodes 8 --num-envs 1 4 --repetitions 2",
        "environments  first finished  seeded episodes",
    ),
    "lerobot_dataset": ("lerobot", "--episodes 2", "pendulum: 2 episodes, 400 frames"),
    "long_run": ("", "--tasks 2 --steps 20 --restart-after 1", "leaked at most 8 MB"),
    "masked_ppo": ("sb3_contrib", "--num-envs 4 --timesteps 256 --compare", "MaskablePPO"),
    "minari_dataset": ("minari", "--episodes 12", "cartpole/lean-v0: 12 episodes, 458 steps"),
    "multi_agent": ("torch", "--num-envs 4 --updates 2", "learned: mean return"),
    "overlapped_ppo": (
        "torch", "--num-envs 4 --steps 64 --updates 2", "update   2  steps     512"
    ),
    "ppo": ("torch", "--num-envs 4 --steps 32 --updates 2", "update   2  steps     256"),
    "record": ("", "out.gif --env CartPole-v1 --num-envs 4 --frames 5", "4 environments, 5 frames"),
    "sb3_ppo": ("stable_baselines3", "--num-envs 4 --timesteps 256 --compare", "SubprocVecEnv"),
}  # fmt: skip
# Their own tests run these; the README has `rollout`.
ELSEWHERE = {
    "conversations",
    "custom_space",
    "log_run",
    "restart_after_crash",
    "rollout",
    "sharded_learners",
}


@here_or_apart({name: not library for name, (library, *_) in CASES.items()})
def test_it_runs(name: str, apart: bool, tmp_path: Path) -> None:
    library, arguments, words = CASES[name]
    if library and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    variables: dict[str, Any] = {"HF_HUB_OFFLINE": "1", "MINARI_DATASETS_PATH": str(tmp_path)}
    options = {"apart": apart, "folder": tmp_path, **variables}
    assert words in run_program(EXAMPLES[name], *arguments.split(), **options)


def test_each_is_run_and_short_and_guards_its_main_part() -> None:
    assert EXAMPLES.keys() == CASES.keys() | ELSEWHERE
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
