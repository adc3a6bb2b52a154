"""Tests: what the parts of the contract share: `make`, spaces, and comparing two vector envs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.compare import assert_identical
from vecspaces import spaces
from vecspaces.vector import AutoresetMode, VectorEnv

MODES = list(AutoresetMode)
ALL_SPACES = {
    "Box": spaces.Box(-1, 1, (2, 3), np.float32),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "Discrete": spaces.Discrete(5, start=-2),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "Text": spaces.Text(6, charset="abcé漢"),
    "Dict": spaces.Dict({"b": spaces.Box(0, 1, (2,)), "a": spaces.Dict(n=spaces.Discrete(3))}),
    "Tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (), np.float64))),
    "Sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
    "stacked": spaces.Sequence(spaces.Discrete(7), stack=True),
    "Graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "OneOf": spaces.OneOf((spaces.Discrete(2), spaces.Box(0, 1, (3,)), spaces.Text(3))),
    "all": spaces.Dict(
        rest=spaces.Tuple(
            (spaces.Sequence(spaces.Discrete(4)), spaces.OneOf((spaces.Discrete(2),) * 2))
        ),
        text=spaces.Text(4),
    ),
}


class Part:
    """Tests of a vector env that `make` makes.

    Attributes:
        built_again_with_1_of_3: Which of three environments a reset builds again after number 1
            broke: more than itself where its worker runs it as one vector env with others.
    """

    built_again_with_1_of_3: tuple[int, ...] = (1,)

    def make(self, env_fns: Any, **arguments: Any) -> Any:
        """Make the vector env under test."""
        raise NotImplementedError

    def begun(self, env_fns: Any, **arguments: Any) -> Any:
        """Make the vector env, and begin its first episodes."""
        envs = self.make(env_fns, **arguments)
        envs.reset(seed=0)
        return envs


def samples(envs: VectorEnv[Any, Any, Any], seed: int, count: int) -> list[Any]:
    """Batches of actions that depend on the seed alone."""
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(count)]


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Infos are equal; the order of keys means nothing."""
    assert_identical(_sorted(ours), _sorted(theirs), "infos")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_sorted(item) for item in value.ravel()], value.shape
    return value


def assert_same_step(ours: Any, theirs: Any) -> None:
    """Everything that reset or step returned is equal to the last bit."""
    for number, (array, other) in enumerate(zip(ours[:-1], theirs[:-1], strict=True)):
        assert_identical(array, other, f"result {number}")
    assert_same_infos(ours[-1], theirs[-1])


def assert_same_run(
    envs: VectorEnv[Any, Any, Any],
    reference: VectorEnv[Any, Any, Any],
    steps: int = 12,
    seed: int = 5,
) -> None:
    """Both give the same for the same seeds and actions."""
    disabled = envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert_same_step(envs.reset(seed=seed), reference.reset(seed=seed))
    for actions in samples(reference, seed, steps):
        result = envs.step(actions)
        assert_same_step(result, reference.step(actions))
        ended = result[2] | result[3]
        if disabled and ended.any():
            options = {"reset_mask": ended}
            assert_same_step(
                envs.reset(seed=seed, options=options),
                reference.reset(seed=seed, options=dict(options)),
            )


def infos_of(envs: VectorEnv[Any, Any, Any]) -> dict[str, Any]:
    """Return the infos of a step."""
    return envs.step(np.zeros(envs.num_envs, np.int64))[4]
