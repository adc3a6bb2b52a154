"""Environments whose spaces somebody derived from Gymnasium's run as they do there."""

from __future__ import annotations

import copy
import json
import pickle
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.compare import assert_identical
from tests.crosses import diagonal
from vecspaces import vector
from vecspaces.adapters import gymnasium as adapter
from vecspaces.adapters.gymnasium import to_gymnasium
from vecspaces.adapters.gymnasium.carried import CarriedSpace
from vecspaces.interop import native_space
from vecspaces.spaces import Box
from vecspaces.spaces.utils import is_space_dtype_shape_equiv


class Mission(spaces.Space[str]):
    """Sentences, as grid worlds give them; `sample` takes no probability."""

    def __init__(self, places: int = 9) -> None:
        super().__init__(dtype=str)
        self.places = places

    def sample(self, mask: Any = None) -> str:
        return f"go to {self.np_random.integers(self.places)}"

    def contains(self, x: Any) -> bool:
        return bool(x.startswith("go to "))  # raises for what is no str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mission) and other.places == self.places


class Angle(spaces.Box):
    """A subclass of one of the ten."""


class Grid(gymnasium.Env[Any, Any]):
    """Tells its mission beside an angle."""

    observation_space = spaces.Dict(angle=Angle(-9, 9, (2,)), mission=Mission())

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe("nothing"), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._observe(action), 1.0, self.steps == 3, False, {}

    def _observe(self, action: Any) -> dict[str, Any]:
        angle = self.np_random.uniform(-9, 9, 2).astype(np.float32)
        return {"angle": angle, "mission": f"go to {self.steps} after {action}"}


def trace(envs: Any) -> list[Any]:
    """Roll out seven steps; the samples of both batched spaces are part of the result."""
    with_seed = envs.reset(seed=3)
    envs.action_space.seed(4)
    envs.observation_space.seed(5)
    results: list[Any] = [with_seed]
    for _ in range(7):
        results.append(envs.step(envs.action_space.sample())[:4])
        results.append(envs.observation_space.sample())
    envs.close()
    return results


MAKERS: dict[str, tuple[Any, str]] = {
    "sync": (vector.SyncVectorEnv, "SameStep"),
    "async": (partial(vector.AsyncVectorEnv, num_workers=2), "NextStep"),
    "adapter": (adapter.SyncVectorEnv, "NextStep"),
    "spawn": (partial(adapter.AsyncVectorEnv, num_workers=1, context="spawn"), "SameStep"),
}


@diagonal(maker=MAKERS, action_space={"Discrete": spaces.Discrete(2), "Mission": Mission()})
def test_custom_spaces_run_as_in_gymnasium(maker: Any, action_space: Any) -> None:
    make, mode = maker
    env_fns = [partial(Grid, action_space)] * 3
    theirs = gymnasium.vector.SyncVectorEnv(
        env_fns, autoreset_mode=gymnasium.vector.AutoresetMode(mode)
    )
    assert_identical(trace(make(env_fns, autoreset_mode=mode)), trace(theirs))


def test_a_carried_space_answers_as_the_space_within() -> None:
    space = CarriedSpace(Mission())
    assert "go to 3" in space
    assert 3 not in space
    assert space.explain("go to 3") is None
    assert "expected a value of" in str(space.explain(3, "action"))
    assert space == CarriedSpace(Mission())
    assert space != CarriedSpace(Mission(2))
    assert space != Mission()
    assert is_space_dtype_shape_equiv(space, CarriedSpace(Mission()))
    assert repr(space) == repr(space.space)
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(["go to 1"])))) == [
        "go to 1"
    ]


def test_the_adapter_gives_the_space_itself_back() -> None:
    with adapter.SyncVectorEnv([partial(Grid, Mission(5))] * 2) as envs:
        assert envs.single_action_space == Mission(5)
        assert isinstance(envs.single_action_space, Mission)
        assert isinstance(envs.action_space, spaces.Tuple)
    assert type(native_space(Angle(-1, 1, (2,)))) is Box  # a subclass of one of the ten


def test_the_generator_of_a_carried_space_travels() -> None:
    original = Mission()
    original.seed(3)
    carried: Any = native_space(spaces.Dict(mission=original))["mission"]  # type: ignore[index]
    twins = [carried, copy.deepcopy(carried), pickle.loads(pickle.dumps(carried))]
    twins.append(to_gymnasium(copy.deepcopy(carried)))
    expected = [original.sample() for _ in range(5)]
    assert [[twin.sample() for _ in range(5)] for twin in twins] == [expected] * 4
