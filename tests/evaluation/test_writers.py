"""Whole episodes as data sets of other libraries: what is loaded equals what was collected."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.envs import Errand, errand_policy
from tests.programs import load_example
from vecspaces import collect, spaces


class Declared(Errand):
    """An errand that declares one of its infos."""

    info_space = spaces.Dict(distance=spaces.Box(0, np.inf, (), np.float32))


@pytest.mark.skipif(sys.platform == "win32", reason="Minari's storage is tested on POSIX")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_data_set_of_minari_holds_the_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="Minari is not installed")
    pytest.importorskip("h5py", reason="h5py is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    example = load_example("minari_dataset")
    options: Any = {"episodes": 10, "seed": 3}
    for name, policy, env in (
        ("cartpole/lean-v0", example.lean, "CartPole-v1"),
        ("errand/walk-v0", errand_policy, Declared),
    ):
        example.make_dataset(name, policy, env, chunk_size=4, **options)
        dataset = minari.load_dataset(name)
        expected = list(collect(policy, env, ordered=True, backend="sync", **options))
        episodes = list(dataset.iterate_episodes())
        assert len(episodes) == dataset.total_episodes == 10
        for mine, other in zip(episodes, expected, strict=True):
            assert mine.id == other.number
            for field in ("rewards", "terminations", "truncations"):
                assert_equal(getattr(mine, field), getattr(other, field))
            assert_equal(mine.observations, other.observations)
            assert_equal(mine.actions, other.actions)
            if env is Declared:
                assert_equal(mine.infos["distance"], other.infos["distance"])
        assert dataset.storage.get_episode_metadata([7])  # there for each
        seeds = [int(data["seed"]) for data in dataset.storage.get_episode_metadata(range(10))]
        assert seeds == [episode.seed for episode in expected]


class Filmed(Errand):
    """An errand that observes a state and an image."""

    observation_space: Any = spaces.Dict(
        state=spaces.Box(-np.inf, np.inf, (2,), np.float32),
        camera=spaces.Box(0, 255, (8, 6, 3), np.uint8),
    )

    def _observe(self) -> Any:
        camera = np.random.default_rng(self.time).integers(256, size=(8, 6, 3)).astype(np.uint8)
        return {"state": self.place.astype(np.float32), "camera": camera}


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_of_lerobot_holds_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset", reason="LeRobot is missing")
    # Its thread stays.
    monkeypatch.setattr(importlib.import_module("tqdm").tqdm, "monitor_interval", 0)
    example = load_example("lerobot_dataset")
    options: Any = {"episodes": 3, "seed": 3}
    example.make_dataset(str(tmp_path / "made"), "random", Filmed, task="go", fps=10, **options)
    dataset = library.LeRobotDataset("local/collected", root=tmp_path / "made")
    expected = list(collect("random", Filmed, ordered=True, backend="sync", **options))
    assert dataset.num_episodes == 3
    assert dataset.num_frames == sum(len(episode.rewards) for episode in expected)
    rows = iter(range(dataset.num_frames))
    for episode in expected:
        for step, row in zip(range(len(episode.rewards)), rows, strict=False):
            frame = dataset[row]
            assert int(frame["episode_index"]) == episode.number
            camera = np.round(frame["observation.camera"].numpy() * 255).transpose(1, 2, 0)
            assert camera.tolist() == episode.observations["camera"][step].tolist()
            state = frame["observation.state"].numpy()
            assert state.tolist() == episode.observations["state"][step].tolist()
            assert int(frame["action"]) == episode.actions[step]
            assert float(frame["next.reward"]) == np.float32(episode.rewards[step])
            assert bool(frame["next.done"]) == (step == len(episode.rewards) - 1)
            assert frame["task"] == "go"


def assert_equal(value: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert value.keys() == expected.keys()
        for key in expected:
            assert_equal(value[key], expected[key])
    elif isinstance(expected, tuple):
        assert list(value) == list(expected)
    else:
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)
