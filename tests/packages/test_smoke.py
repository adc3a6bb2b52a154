"""Environments of other packages: what Gymnasium's SyncVectorEnv gives, in this process and others.

`.ci/packages` installs the packages; elsewhere, tests of missing packages are skipped.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import gymnasium
import pytest

from tests.adapters.side_by_side import run
from tests.compare import assert_identical
from tests.programs import run_python
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


RENDERING = """
import os, sys
os.environ["MUJOCO_GL"] = "egl"
import gymnasium
from vecspaces import make_vec

def make():
    return gymnasium.make("Hopper-v5", render_mode="rgb_array")

class Rendering(gymnasium.Wrapper):
    def reset(self, **arguments):
        result = self.env.reset(**arguments)
        self.env.render()
        return result

if __name__ == "__main__":
    env = make()
    env.reset()
    try:
        env.render()
    except Exception as error:
        sys.exit(f"no EGL: {error}")
    envs = make_vec(make, 2, wrappers=[Rendering], context=sys.argv[1], start_timeout=15)
    try:
        envs.reset()
    finally:
        envs.close(terminate=True)
"""


def test_a_renderer_under_fork_is_warned_of_and_works_under_the_advice() -> None:
    pytest.importorskip("mujoco", reason="mujoco is not installed")
    shown = {}
    for context in ("fork", "forkserver"):
        run = run_python("-c", RENDERING, context, code=None)
        if "no EGL" in run.stderr:
            pytest.skip(run.stderr.strip().splitlines()[-1])
        shown[context] = run.stderr
    assert "RuntimeWarning: workers were forked" in shown["fork"]
    assert 'context="forkserver"' in shown["fork"]
    # A renderer may work after the fork; if it hangs, the error comes in time.
    assert "Error" not in shown["fork"] or "did not end within 15 s" in shown["fork"]
    assert shown["forkserver"] == ""
