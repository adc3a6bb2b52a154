"""Environments of other packages: what Gymnasium's SyncVectorEnv gives, in this process and others.

`.ci/packages` installs the packages; elsewhere each test skips whose package is missing.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import gymnasium
import pytest

from tests.adapters.side_by_side import run
from tests.compare import assert_identical
from vecspaces import make_vec
from vecspaces.adapters.gymnasium import as_gymnasium

# Package -> ids, each as `make_vec` takes it, with the arguments of `gymnasium.make`.
PACKAGES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "mujoco": [("Hopper-v5", {}), ("Humanoid-v5", {}), ("Reacher-v5", {})],
    "Box2D": [("LunarLander-v3", {}), ("BipedalWalker-v3", {})],
    "ale_py": [("ale_py:ALE/Breakout-v5", {}), ("ale_py:ALE/Pong-v5", {"obs_type": "ram"})],
    "minigrid": [("minigrid:MiniGrid-DoorKey-5x5-v0", {}), ("minigrid:BabyAI-GoToLocal-v0", {})],
    "highway_env": [("highway_env:highway-fast-v0", {}), ("highway_env:parking-v0", {})],
}
CASES = [
    pytest.param(package, env_id, kwargs, id=env_id.rpartition(":")[2])
    for package, ids in PACKAGES.items()
    for env_id, kwargs in ids
]


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("package, env_id, kwargs", CASES)
def test_it_gives_what_gymnasium_gives(
    package: str, env_id: str, kwargs: dict[str, Any], backend: str
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    more = {"num_workers": 2} if backend == "async" else {}
    steps = 15 if package == "highway_env" else 60
    ours = run(
        as_gymnasium(make_vec(env_id, 3, backend=backend, env_kwargs=kwargs, **more)), steps=steps
    )
    factories = [partial(gymnasium.make, env_id, **kwargs)] * 3
    theirs = run(gymnasium.vector.SyncVectorEnv(factories), steps=steps)
    for *_, infos in [*ours, *theirs]:
        if package == "highway_env":  # resets report an action that nothing seeds
            del infos["action"]
    assert_identical(ours, theirs)
