"""`vecspaces evaluate`: its table, its JSON, its pictures, and its refusals."""

from __future__ import annotations

import importlib
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
import threading

import numpy as np
from vecspaces import Env, spaces

def lean(observations):
    return (observations[:, 2] > 0).astype(int)

class Alternating:  # a policy with a state
    def __init__(self):
        self.turn = None

    def reset(self, rows):
        if self.turn is None:
            self.turn = np.zeros(len(rows), int)
        self.turn[rows] = 0

    def __call__(self, observations):
        self.turn = 1 - self.turn
        return self.turn

class Locked(Alternating):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

class Walk(Env):
    observation_space = spaces.Box(-99, 99, (1,))
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    endless = False

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = self.np_random.random(1).astype(np.float32), 0
        return self.at, {}

    def step(self, action):
        self.time += 1
        self.at = self.at + np.float32(2 * int(action) - 1)
        won = bool(abs(self.at[0]) > 2)
        return self.at, 1.0, won and not self.endless, False, {"is_success": won}

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)

class Endless(Walk):
    endless = True

class Careless(Walk):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, np.random.default_rng().random(), *rest

class Once(Walk):
    seen = []

    def step(self, action):
        observation, reward, *_ = super().step(action)
        self.seen.append(self.time)
        return observation, reward, self.time >= 3 and self.seen.count(3) <= 2, False, {}
"""
}


def run(command: str, *more: str) -> Result:
    return running.run(f"evaluate {command}", *more)


def as_json(command: str, *more: str) -> Any:
    return running.as_json(f"evaluate {command}", *more)


def warnings_of(result: Result) -> str:
    return " ".join(result.stderr.split())


def test_the_json_holds_every_episode_and_the_statistics() -> None:
    found = as_json("CartPole-v1 --policy walks:lean --episodes 20 --seed 5 --num-workers 2")
    import walks  # type: ignore[import-not-found]  # of the folder

    expected = evaluate(walks.lean, "CartPole-v1", episodes=20, seed=5, backend="sync")
    assert list(found) == [
        "env", "policy", "seed", "mean_return", "std_return", "median_return", "interquartile_mean",
        "confidence_interval_low", "confidence_interval_high", "success_rate", "mean_length",
        "steps", "seconds", "episodes",
    ]  # fmt: skip
    assert found["episodes"] == expected.as_json()["episodes"]
    assert found["mean_return"] == expected.mean_return
    assert (found["policy"], found["seed"]) == ("walks:lean", 5)


def test_the_table_names_the_statistics() -> None:
    result = run("walks:Walk --policy random --episodes 5 --backend sync")
    assert result.exit_code == 0
    for label in ("mean return", "interval low", "median", "interquartile mean", "steps"):
        assert label in result.output
    assert "success rate" in result.output
    assert "1.00" in result.output


def test_a_policy_that_cannot_be_copied_plays_without_a_recording() -> None:
    given = "walks:Endless --policy walks:Locked --episodes 2 --max-episode-steps 9 --backend sync"
    assert run(given).exit_code == 0


@pytest.mark.parametrize(
    "policy",
    ["random", "walks:Alternating", pytest.param("walks:lean", marks=pytest.mark.full)],
)
def test_a_picture_is_that_of_the_counted_episode(policy: str) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="imageio is not installed")
    env = "CartPole-v1" if policy == "walks:lean" else "walks:Endless"
    given = f"{env} --policy {policy} --episodes 6 --seed 2 --max-episode-steps 12 --record out.gif"
    given += " --env-arg render_mode=ansi"  # a recording has a mode of its own
    found = as_json(f"{given} --episode 4 --num-workers 2")
    length = found["episodes"][4]["length"]
    assert len(imageio.mimread("out.gif")) <= length + 1  # GIFs join frames that are equal
    result = run(f"{given} --backend sync")
    assert f"{found['episodes'][0]['length'] + 1} frames in out.gif" in result.output


@pytest.mark.parametrize("env", ["walks:Careless", "walks:Once"])
def test_an_episode_that_goes_otherwise_when_played_again_is_an_error(env: str) -> None:
    pytest.importorskip("imageio", reason="imageio is not installed")
    Path("out.gif").write_text("an older one")
    result = run(f"{env} --policy random --episodes 2 --record out.gif --backend sync")
    assert result.exit_code == 2
    assert "depend on more than the seed" in result.output
    assert Path("out.gif").read_text() == "an older one"
    assert not list(Path().glob(".*"))


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
    given = "tests.cli.envs:Told --policy random --episodes 3 --backend sync --options told.json"
    Path("told.json").write_text(json.dumps([{"length": length} for length in (2, 5, 3)]))
    found = as_json(f"{given} --record out.gif --episode 1")
    assert [episode["length"] for episode in found["episodes"]] == [2, 5, 3]
    for text, message in [
        ('[{"length": 2}]', "--options: expected 3 mappings, one per episode, found 1"),
        ("[2,", "--options: expected a file of JSON, found told.json: "),
    ]:
        Path("told.json").write_text(text)
        result = run(given)
        assert result.exit_code == 2 and result.stderr.startswith(f"vecspaces: {message}")


# ---------------------------------------------------------------------- Stable-Baselines3


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN", "SAC", "TD3", "DDPG"])
def test_a_model_of_stable_baselines3_is_loaded_by_its_path(name: str) -> None:
    library = pytest.importorskip("stable_baselines3", reason="SB3 is not installed")
    from vecspaces.cli.sb3 import as_policy, load_model

    env = "CartPole-v1" if name in ("PPO", "A2C", "DQN") else "Pendulum-v1"
    getattr(library, name)("MlpPolicy", env, seed=0, device="cpu").save("model.zip")
    result = run(f"{env} --sb3 model.zip --episodes 2 --seed 0 --max-episode-steps 20 --json -")
    found = json.loads(result.stdout)
    loaded = as_policy(load_model(Path("model.zip")), None)
    given = {"episodes": 2, "seed": 0, "max_episode_steps": 20}
    again = evaluate(loaded, env, backend="sync", batch_size=16, **given)
    assert [episode["return"] for episode in found["episodes"]] == again.returns.tolist()


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


class Keyed(Signal):
    """The same in a Dict with one key."""

    def __init__(self, key: str) -> None:
        self.observation_space = gymnasium.spaces.Dict({key: Signal.observation_space})


SIGNAL = "tests.cli.test_evaluate:Signal"


def play(episodes: int, model: Path, *more: str) -> Result:
    given = f"{SIGNAL} --episodes {episodes} --seed 0 --backend sync"
    return run(given, "--sb3", str(model), *more)


def test_a_model_trained_under_vecnormalize_sees_what_it_was_trained_with(trained: Path) -> None:
    model, statistics = trained / "model.zip", str(trained / "statistics.pkl")
    journalled = partial(play, 30, model, "--json", "-", "--journal", "runs")
    result = journalled("--vecnormalize", statistics)
    assert json.loads(result.stdout)["mean_return"] > 18
    assert "holds episodes of another evaluation" in journalled().stderr
    result = play(30, model, "--json", "-")
    assert json.loads(result.stdout)["mean_return"] < 15


def test_what_holds_no_statistics_for_the_model_is_refused(trained: Path) -> None:
    (Path("text.pkl")).write_text("text")
    Path("list.pkl").write_bytes(pickle.dumps([1]))
    for name in ("gone.pkl", "text.pkl", "list.pkl"):
        result = play(3, trained / "model.zip", "--vecnormalize", name)
        assert result.exit_code == 2
        assert f"of Box(-inf, inf, (1,), float32), found {name}" in warnings_of(result)
    library = importlib.import_module("stable_baselines3")
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    for key in ("a", "b"):
        env = vec_env.VecNormalize(vec_env.DummyVecEnv([lambda key=key: Keyed(key)]))
        env.save(f"{key}.pkl")
    library.PPO("MultiInputPolicy", env, device="cpu").save("keyed.zip")
    assert "VecNormalize.save wrote for observations of Dict('b'" in warnings_of(
        play(3, Path("keyed.zip"), "--vecnormalize", "a.pkl")
    )


def test_a_model_of_other_spaces_is_refused_with_its_own(trained: Path) -> None:
    result = run("CartPole-v1 --episodes 2 --backend sync", "--sb3", str(trained / "model.zip"))
    assert result.exit_code == 2
    assert warnings_of(result).startswith(
        "vecspaces: --sb3: the model was trained with observations of Box(-inf, inf, (1,), float32)"
    )
    library = importlib.import_module("stable_baselines3")
    library.PPO("MultiInputPolicy", Keyed("a"), device="cpu").save("keyed.zip")
    assert "observations of Dict('a'" in warnings_of(play(2, Path("keyed.zip")))
