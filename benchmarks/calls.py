"""Python calls per step, on the caller's side and in a worker: `python -m benchmarks.calls [-v]`.

Counted with `sys.setprofile` for environments that do nothing, with a Box as observation; calls
into C are not counted. In a worker, what is counted lies between two steps of its environment,
whose own `step` is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import vecspaces
from vecspaces import Env, spaces
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

PACKAGE = str(Path(vecspaces.__file__).parent)
Calls = list[tuple[str, str]]


class Nothing(Env[Any, Any]):
    """Does nothing, and can count the calls between its steps."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.observation = np.zeros(4, np.float32)
        self.calls: Calls = []
        self.last: Calls = []
        self.counts = False

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.counts:
            sys.setprofile(None)
            self.last, self.calls = self.calls, []
            sys.setprofile(partial(count, self.calls))
        return self.observation, 1.0, False, False, {}


def count(calls: Calls, frame: FrameType, event: str, argument: Any) -> None:
    """Note a call."""
    if event == "call":
        code = frame.f_code
        calls.append((code.co_filename.removeprefix(PACKAGE), code.co_name))


def measure(make: Callable[[], VectorEnv[Any, Any, Any]], in_worker: bool) -> Calls:
    """Return the calls of one step, after some steps of warm-up."""
    with make() as envs:
        envs.reset(seed=0)
        actions = envs.action_space.sample()
        calls: Calls = []
        for _ in range(50):
            envs.step(actions)
        if in_worker:
            single: Any = envs
            single.set_attr("counts", True, env_ids=[0])
            for _ in range(3):
                envs.step(actions)
            return list(single.call(take, env_ids=[0])[0])
        sys.setprofile(partial(count, calls))
        envs.step(actions)
        sys.setprofile(None)
    return [call for call in calls if call[1] != "__exit__"]


def take(env: Any) -> Calls:
    """Stop counting; runs in the worker."""
    sys.setprofile(None)
    calls: Calls = env.unwrapped.last
    return calls


CASES: dict[str, tuple[Callable[[], VectorEnv[Any, Any, Any]], bool]] = {
    "SyncVectorEnv, 1 environment": (partial(SyncVectorEnv, [Nothing]), False),
    "SyncVectorEnv, 8 environments": (partial(SyncVectorEnv, [Nothing] * 8), False),
    "AsyncVectorEnv, 1 worker, caller": (
        partial(AsyncVectorEnv, [Nothing], num_workers=1),
        False,
    ),
    "AsyncVectorEnv, 2 workers, caller": (
        partial(AsyncVectorEnv, [Nothing] * 2, num_workers=2),
        False,
    ),
    "AsyncVectorEnv, worker": (partial(AsyncVectorEnv, [Nothing], num_workers=1), True),
}


def main() -> None:
    for name, (make, in_worker) in CASES.items():
        calls = measure(make, in_worker)
        files = {file for file, _ in calls}
        print(f"{name}: {len(calls)} calls in {len(files)} files")
        if "-v" in sys.argv:
            for file, function in calls:
                print(f"    {file} {function}")


if __name__ == "__main__":
    main()
