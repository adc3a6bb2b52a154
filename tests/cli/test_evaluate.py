"""`vecspaces evaluate`: its table, its JSON, and its refusals."""

from __future__ import annotations

import json
import pickle
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from typer.testing import Result

from tests.cli import running
from vecspaces import evaluate, make_vec

MODULES = {
    "walks": """
import numpy as np
from vecspaces import Env, spaces

def lean(observations):
    return (observations[:, 2] > 0).astype(int)

class Still:
    def __call__(self, observations):
        return np.zeros(len(observations), int)

class Walk(Env):
    observation_space = spaces.Box(-99, 99, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.random(1).astype(np.float32), 0
        return self.place, {}

    def step(self, action):
        self.time += 1
        self.place = self.place + np.float32(2 * int(action) - 1)
        won = bool(abs(self.place[0]) > 2)
        return self.place, 1.0, won, False, {"is_success": won}
"""
}


def run(command: str, *more: str) -> Result:
    return running.run(f"evaluate {command}", *more)


def as_json(command: str, *more: str) -> Any:
    return running.as_json(f"evaluate {command}", *more)


def test_the_json_holds_every_episode_and_the_statistics() -> None:
    document = as_json("CartPole-v1 --policy walks:lean --episodes 20 --seed 5 --num-workers 2")
    import walks  # type: ignore[import-not-found]  # of the folder

    expected = evaluate(walks.lean, "CartPole-v1", episodes=20, seed=5, backend="sync")
    assert list(document) == [
        "env", "policy", "seed", "mean_return", "std_return",
        "confidence_interval_low", "confidence_interval_high", "success_rate", "mean_length",
        "steps", "seconds", "episodes",
    ]  # fmt: skip
    assert document["episodes"] == expected.as_json()["episodes"]
    assert document["mean_return"] == expected.mean_return
    assert (document["policy"], document["seed"]) == ("walks:lean", 5)


def test_the_table_names_the_statistics() -> None:
    result = run("walks:Walk --policy walks:Still --episodes 5 --backend sync")
    assert result.exit_code == 0
    for label in ("mean return", "interval low", "steps"):
        assert label in result.output
    assert "success rate" in result.output
    assert "1.00" in result.output


def test_an_evaluation_continues_from_its_journal() -> None:
    arguments = "walks:Walk --policy random --seed 1 --journal runs.jsonl"
    first = as_json(f"{arguments} --episodes 5 --backend sync")
    lines = Path("runs.jsonl").read_text().splitlines(keepends=True)
    Path("runs.jsonl").write_text("".join(lines[:3]))
    again = as_json(f"{arguments} --episodes 5 --num-workers 1")
    assert again["episodes"] == first["episodes"]
    refused = run(f"{arguments} --episodes 6")
    assert refused.exit_code == 2
    assert "of episodes 5, and this call has 6" in refused.output


def test_options_of_each_episode_reach_its_reset(here: Path) -> None:
    words = "tests.cli.envs:Told --policy random --episodes 3 --backend sync --options told.json"
    Path("told.json").write_text(json.dumps([{"length": length} for length in (2, 5, 3)]))
    document = as_json(words)
    assert [episode["length"] for episode in document["episodes"]] == [2, 5, 3]
    for text, message in [
        ('[{"length": 2}]', "--options: expected 3 mappings, one per episode, found 1"),
        ("[2,", "--options: expected a file of JSON, found told.json: "),
    ]:
        Path("told.json").write_text(text)
        result = run(words)
        assert result.exit_code == 2 and result.stderr.startswith(f"vecspaces: {message}")


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN", "SAC", "TD3", "DDPG"])
def test_a_model_of_stable_baselines3_is_loaded_by_its_path(name: str) -> None:
    library = pytest.importorskip("stable_baselines3", reason="SB3 is not installed")
    from vecspaces.cli.sb3 import as_policy, load_model

    env = "CartPole-v1" if name in ("PPO", "A2C", "DQN") else "Pendulum-v1"
    getattr(library, name)("MlpPolicy", env, seed=0, device="cpu").save("model.zip")
    result = run(f"{env} --sb3 model.zip --episodes 2 --seed 0 --max-episode-steps 20 --json -")
    document = json.loads(result.stdout)
    loaded = as_policy(load_model(Path("model.zip")))
    options = {"episodes": 2, "seed": 0, "max_episode_steps": 20}
    again = evaluate(loaded, env, backend="sync", batch_size=16, **options)
    assert [episode["return"] for episode in document["episodes"]] == again.returns.tolist()


@pytest.mark.parametrize("env", ["Always", "Unequal"])
def test_a_model_of_maskable_ppo_sees_the_masks_of_infos(env: str) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    from tests.envs import masked
    from vecspaces.adapters.stable_baselines3 import as_vec_env

    vec_env = as_vec_env(make_vec(getattr(masked, env), 1, backend="sync"))
    model = contrib.MaskablePPO("MlpPolicy", vec_env, n_steps=8, batch_size=8, device="cpu", seed=0)
    vec_env.close()
    model.save("model.zip")
    arguments = "--sb3 model.zip --episodes 20 --seed 0 --num-workers 2"
    # Each action that the mask excludes is an error.
    assert len(as_json(f"tests.envs.masked:{env} {arguments}")["episodes"]) == 20
    result = run(f"tests.envs.masked:Never {arguments}")
    if env == "Always":
        assert result.exit_code != 0
        assert "MaskablePPO needs 'action_mask' in each info" in result.output


def test_what_is_no_model_is_refused() -> None:
    pytest.importorskip("stable_baselines3", reason="SB3 is not installed")
    result = run("CartPole-v1 --sb3 gone.zip")
    assert result.exit_code == 2
    assert "expected a file that a model was saved to, found gone.zip" in result.output
    with zipfile.ZipFile("odd.zip", "w") as file:
        file.writestr("data", "{}")
    assert "is of none of DQN" in run("CartPole-v1 --sb3 odd.zip").output
    saved = {
        "policy_class": {"__module__": "sb3_contrib.qrdqn.policies"},
        "exploration_fraction": 0.1,
    }
    with zipfile.ZipFile("contrib.zip", "w") as file:
        file.writestr("data", json.dumps(saved))
    pytest.importorskip("sb3_contrib")
    assert "is of none of MaskablePPO" in run("CartPole-v1 --sb3 contrib.zip").output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that learnt under VecNormalize what it cannot tell from raw observations."""
    library = pytest.importorskip("stable_baselines3", reason="SB3 is not installed")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    folder = tmp_path_factory.mktemp("trained")
    env = VecNormalize(make_vec_env(Signal, 4, seed=0))
    model = library.PPO("MlpPolicy", env, seed=0, n_steps=64, batch_size=64, device="cpu")
    model.learn(2048).save(folder / "model.zip")
    env.save(str(folder / "statistics.pkl"))
    return folder


class Signal(gymnasium.Env[Any, Any]):
    """Shows which action is right, by a small difference of large numbers."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        reward = float(action == self.right)
        return self._show(), reward, self.time == 20, False, {}

    def _show(self) -> Any:
        self.right = int(self.np_random.integers(2))
        return np.array([5000 + self.right], np.float32)


SIGNAL = "tests.cli.test_evaluate:Signal"


def play(episodes: int, model: Path, *more: str) -> Result:
    words = f"{SIGNAL} --episodes {episodes} --seed 0 --backend sync"
    return run(words, "--sb3", str(model), *more)


def test_a_model_trained_under_vecnormalize_sees_what_it_was_trained_with(trained: Path) -> None:
    model, statistics = trained / "model.zip", str(trained / "statistics.pkl")
    journalled = partial(play, 30, model, "--json", "-", "--journal", "runs")
    result = journalled("--vecnormalize", statistics)
    assert json.loads(result.stdout)["mean_return"] > 18
    assert "holds episodes of another evaluation" in journalled().stderr
    result = play(30, model, "--json", "-")
    assert json.loads(result.stdout)["mean_return"] < 15


def test_what_holds_no_statistics_for_the_model_is_refused(trained: Path) -> None:
    Path("text.pkl").write_text("text")
    Path("list.pkl").write_bytes(pickle.dumps([1]))
    for name in ("gone.pkl", "text.pkl", "list.pkl"):
        result = play(3, trained / "model.zip", "--vecnormalize", name)
        assert result.exit_code == 2
        expected = f"of Box(-inf, inf, (1,), float32), found {name}"
        assert expected in " ".join(result.stderr.split())


def test_a_model_of_other_spaces_is_refused_with_its_own() -> None:
    library = pytest.importorskip("stable_baselines3", reason="SB3 is not installed")
    library.PPO("MlpPolicy", "Pendulum-v1", device="cpu").save("model.zip")
    result = run("CartPole-v1 --episodes 2 --backend sync --sb3 model.zip")
    assert result.exit_code == 2
    assert " ".join(result.stderr.split()).startswith(
        "vecspaces: --sb3: the model was trained with observations of Box([-1. -1. -8.]"
    )
