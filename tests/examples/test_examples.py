"""Every example runs, briefly, as a program, fits on a page or three, and does what it says."""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.programs import ROOT, here_or_apart, load_example, run_program, run_python

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


@pytest.mark.parametrize("episodes", [40, pytest.param(200, marks=pytest.mark.full)])
def test_no_lost_episode_of_conversations_counts_as_reward_0(episodes: int) -> None:
    arguments = ["--episodes", episodes, "--num-envs", "8", "--step-timeout", "3"]
    run = run_python("-W", "error", EXAMPLES["conversations"], *arguments)
    match = re.search(r"(\d+) complete, mean return 3\.00\n(\d+) lost: (.*)", run.stdout)
    assert match is not None, run.stdout
    assert int(match[1]) + int(match[2]) == episodes
    # The workers live on, so an environment that hangs costs no other conversation its episode.
    assert "StepTimeoutError" in match[3] and "ToolError" in match[3]
    assert "WorkerDiedError" not in match[3]


@pytest.mark.parametrize("steps", [400, pytest.param(2_000, marks=pytest.mark.full)])
def test_steps_lost_in_crashes_are_counted_and_a_seed_repeats_them(
    steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load_example("restart_after_crash")
    for _ in range(2):
        example.main(steps)
    first, again = capsys.readouterr().out.splitlines()
    learnt, lost = map(int, re.findall(r"\d+", first))
    assert learnt + lost == 8 * steps
    assert lost > 0
    assert again == first


def test_one_import_of_cleanrl_style_ppo_changes_no_weight(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    example = load_example("cleanrl_style_ppo")
    briefly = ["--num-envs", "4", "--num-steps", "64", "--total-timesteps", "1024"]
    modes = [["--vectorization-mode", mode] for mode in ("sync", "async")]
    ours = [example.train(example.parse(briefly + mode)) for mode in modes]
    assert capsys.readouterr().out.count("mean return") == 8
    monkeypatch.setattr(example, "make_vec", gymnasium.make_vec)
    mean, agent = example.train(example.parse(briefly))
    assert mean > 0
    for our_mean, our_agent in ours:
        assert our_mean == mean
        for name, weights in agent.state_dict().items():
            assert torch.equal(our_agent.state_dict()[name], weights), name


@pytest.mark.parametrize("halves", [1, 2])
def test_a_seed_repeats_overlapped_ppo(halves: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    train = partial(load_example("overlapped_ppo").train, halves=halves, num_envs=8, steps=64)
    runs = [train(updates=2, seed=seed) for seed in (1, 1, 2)]
    for name, weights in runs[0][1].items():
        assert torch.equal(runs[1][1][name], weights), name
    assert not all(torch.equal(runs[2][1][name], runs[0][1][name]) for name in runs[0][1])


@pytest.mark.full
def test_overlapped_ppo_learns() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    train = load_example("overlapped_ppo").train
    mean, _ = train(halves=2, num_envs=64, steps=64, updates=30, seed=1)
    assert mean > -130  # a random policy: -500
