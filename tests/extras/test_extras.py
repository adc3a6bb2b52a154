"""What each extra is for, briefly: run by `.ci/extras` with the oldest and newest versions allowed.

Nothing here depends on what a version of another library does; parity is tested elsewhere.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Ledger
from tests.programs import run_python
from vecspaces import make_vec, spaces

NUM_ENVS = 3

pytestmark = pytest.mark.full  # other tests hold all of this for the versions installed here


def need(*libraries: str) -> None:
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


def run(*arguments: str) -> str:
    return run_python("-W", "ignore", *arguments).stdout


def test_gymnasium() -> None:
    need("gymnasium")
    import gymnasium

    from vecspaces.adapters.gymnasium import from_gymnasium, make_vec, to_gymnasium

    for space in (spaces.Discrete(3), spaces.Box(0, 1, (2,)), spaces.Dict(a=spaces.MultiBinary(2))):
        assert from_gymnasium(to_gymnasium(space)) == space
    results = []
    for mode in ("sync", "async"):
        with make_vec("CartPole-v1", NUM_ENVS, mode) as envs:
            assert isinstance(envs, gymnasium.vector.VectorEnv)
            wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
            wrapped.action_space.seed(0)
            seen = [wrapped.reset(seed=0)[0]]
            for _ in range(60):
                seen.append(wrapped.step(wrapped.action_space.sample())[0])
            results.append(seen)
            assert len(wrapped.return_queue) > 0
    assert_identical(results[1], results[0])
    env = gymnasium.make("CartPole-v1")
    assert_identical(results[0][0][0], env.reset(seed=0)[0])


def test_sb3() -> None:
    need("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from vecspaces.adapters.stable_baselines3 import DummyVecEnv, SubprocVecEnv

    weights = []
    for kind in (DummyVecEnv, SubprocVecEnv):
        envs = make_vec_env("CartPole-v1", NUM_ENVS, seed=1, vec_env_cls=kind)
        model = PPO("MlpPolicy", envs, n_steps=16, batch_size=24, seed=1, device="cpu").learn(96)
        weights.append([tensor.detach().numpy().copy() for tensor in model.policy.parameters()])
        envs.close()
    assert_identical(weights[1], weights[0])


def test_tianshou() -> None:
    need("tianshou")
    import gymnasium
    from tianshou.env import DummyVectorEnv

    from vecspaces.adapters.tianshou import VectorEnv

    results = []
    for kind in (DummyVectorEnv, VectorEnv):
        envs = kind([partial(gymnasium.make, "CartPole-v1")] * NUM_ENVS)
        envs.seed(3)
        seen = [envs.reset(seed=3)[0], envs.step(np.array([0, 1, 0]))[0]]
        seen += [envs.step(np.array([1]), id=[2])[0], envs.reset([0, 1], seed=4)[0]]
        results.append(seen)
        envs.close()
    assert_identical(results[1], results[0])


def test_cli() -> None:
    need("rich", "typer", "gymnasium")
    assert "steps/s" in run("-m", "vecspaces", "rollout", "CartPole-v1", "--steps", "50")


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_video(name: str, tmp_path: Path) -> None:
    need("imageio")
    from vecspaces.wrappers import RecordVideo

    path = tmp_path / name
    factory = partial(Ledger, render_mode="rgb_array")
    with RecordVideo.to_file(make_vec(factory, 2, backend="sync"), path) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(np.zeros(2, np.int64))
    assert path.stat().st_size > 50


# A program of its own: Ray leaves descriptors open in the process that starts it.
_WITH_RAY = """
import numpy as np
from tests.compare import assert_identical
from tests.envs import Ledger
from vecspaces import make_vec

seen = []
for arguments in ({"backend": "sync"}, {"backend": "ray", "num_workers": 1}):
    with make_vec(Ledger, 2, **arguments) as envs:
        seen.append([envs.reset(seed=1)[0], envs.step(np.array([1, 2]))[0]])
assert_identical(seen[1], seen[0])
print(len(seen), "alike")
"""


def test_ray() -> None:
    need("ray")
    assert "2 alike" in run("-c", _WITH_RAY)
