"""Programs of pages train the same networks as without vecspaces; PufferLib steps the same.

`.ci/clients` installs the libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.adapters.pages import code_of, run_program
from vecspaces import make_vec

pytestmark = pytest.mark.timeout(600)

OURS = "from vecspaces.adapters.stable_baselines3 import SubprocVecEnv"
THEIRS = "from stable_baselines3.common.vec_env import DummyVecEnv as SubprocVecEnv"


def trained(code: str, weights: str, folder: Path, *arguments: str) -> list[Any]:
    """Run a program whose last lines are below its guard; return what `weights` is at its end."""
    folder.mkdir()
    ending = f"\n    import numpy\n    numpy.savez('weights', *({weights}))\n"
    run_program(code + ending, folder, *arguments)
    with np.load(folder / "weights.npz") as file:
        return [file[name] for name in file]


def assert_trained_alike(
    code: str,
    replacements: Mapping[str, Mapping[str, str]],
    weights: str,
    folder: Path,
    *arguments: str,
) -> None:
    """Compare a program with others, in which some text is replaced."""
    ours = trained(code, weights, folder / "ours", *arguments)
    assert sum(array.size for array in ours) > 1000
    for name, replaced in replacements.items():
        other = code
        for line, text in replaced.items():
            assert line in other, line
            other = other.replace(line, text)
        for mine, two in zip(ours, trained(other, weights, folder / name, *arguments), strict=True):
            np.testing.assert_array_equal(mine, two)


def test_skrl(tmp_path: Path) -> None:
    pytest.importorskip("skrl", reason="skrl is not installed")
    code = code_of("training_libraries", "skrl", {"10_000": "96"})
    gymnasium = {
        "from vecspaces.adapters.gymnasium import": "from gymnasium import",
        "async": "sync",
    }
    weights = "w.detach() for model in models.values() for w in model.parameters()"
    others = {"gymnasium": gymnasium, "sync": {"async": "sync"}}
    assert_trained_alike(code, others, weights, tmp_path)


def test_sbx(tmp_path: Path) -> None:
    pytest.importorskip("sbx", reason="SBX is not installed")
    code = code_of(
        "training_libraries", "SBX", {"100_000": "128", "seed=1)\n": "seed=1, n_steps=8)\n"}
    )
    weights = "__import__('jax').tree.leaves(model.policy.actor_state.params)"
    assert_trained_alike(code, {"sb3": {OURS: THEIRS}}, weights, tmp_path)


def test_rl_zoo(tmp_path: Path) -> None:
    pytest.importorskip("rl_zoo3", reason="RL Zoo is not installed")
    code = code_of("training_libraries", "RL Zoo")
    code += """
    from stable_baselines3 import PPO
    model = PPO.load("logs/ppo/CartPole-v1_1/CartPole-v1.zip")
"""
    weights = "w.detach() for w in model.policy.parameters()"
    arguments = ["--env", "CartPole-v1", "-n", "512", "--eval-freq", "-1", "--seed", "3"]
    assert_trained_alike(code, {"sb3": {OURS: THEIRS}}, weights, tmp_path, *arguments)


def test_imitation(tmp_path: Path) -> None:
    pytest.importorskip("imitation", reason="imitation is not installed")
    short = {
        "100_000": "128",
        "50)": "5)",
        "seed=1)\n": "seed=1, n_steps=8)\n",
        "n_epochs=5": "n_epochs=1",
    }
    code = code_of("training_libraries", "imitation", short)
    weights = "w.detach() for w in learner.policy.parameters()"
    assert_trained_alike(code, {"sb3": {OURS: THEIRS}}, weights, tmp_path)


SEEDS = """    import torch
    torch.manual_seed(3)
    numpy.random.seed(3)
    env.reset(seed=3)
    reset = env.reset
    env.reset = lambda **arguments: reset(seed=4)
    agent ="""


def test_agilerl(tmp_path: Path) -> None:
    pytest.importorskip("agilerl", reason="AgileRL is not installed")
    short = {"2_048": "32", "100_000": "128", "10_000": "128", "    agent =": SEEDS}
    code = "import numpy\n" + code_of("training_libraries", "AgileRL", short)
    theirs = {
        "from vecspaces.adapters.gymnasium import make_vec ": "from gymnasium import make_vec ",
        "num_envs=16)": "num_envs=16, vectorization_mode='sync')",
    }
    weights = "w.detach() for w in agent.actor.parameters()"
    assert_trained_alike(code, {"gymnasium": theirs}, weights, tmp_path)


def test_pufferlib_steps_the_same() -> None:
    vector = pytest.importorskip("pufferlib.vector", reason="PufferLib is not installed")
    emulation = pytest.importorskip("pufferlib.emulation", reason="PufferLib is not installed")

    def create(buf: Any = None, seed: int = 0) -> Any:
        env = gymnasium.make("CartPole-v1")
        return emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)

    theirs = vector.make(create, backend=vector.Serial, num_envs=4)
    rng = np.random.default_rng(0)
    ends = 0
    with make_vec("CartPole-v1", 4, num_workers=2) as ours:
        np.testing.assert_array_equal(ours.reset(seed=7)[0], theirs.reset(seed=7)[0])
        for _ in range(80):
            actions = rng.integers(2, size=4)
            result, expected = ours.step(actions), theirs.step(actions)
            for mine, other in zip(result[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(mine, other)
            ends += result[2].sum()
    assert ends > 4
    theirs.close()
