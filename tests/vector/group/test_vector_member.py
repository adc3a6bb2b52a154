"""An env_fn that returns a vector env: ours or Gymnasium's, alone or among single environments.

That seeds, masks, calls and attributes reach its rows is the state machine's to check.
"""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from tests.compare import assert_identical
from tests.contract import ALL_SPACES, assert_same_run
from tests.crosses import diagonal
from tests.envs import Drift, Sampler, Unlike, ledger_vector, ledgers
from vecspaces import spaces
from vecspaces.adapters.gymnasium import to_gymnasium
from vecspaces.errors import ResetNeededError, WorkerDiedError
from vecspaces.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorEnv,
    VectorObservationWrapper,
)

MODES = list(AutoresetMode)
KINDS = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)]


def gymnasium_vector(env_fns: list[Any], mode: AutoresetMode) -> gymnasium.vector.VectorEnv:
    """Gymnasium's vector env."""
    return gymnasium.vector.SyncVectorEnv(env_fns, autoreset_mode=mode.value)


def foreign_sampler(space: Any) -> Sampler:
    """A sampler in Gymnasium's spaces, as Gymnasium's vector envs want them."""
    return Sampler(to_gymnasium(space), to_gymnasium(space))


@diagonal(kind=KINDS, mode=MODES)
def test_gymnasiums_vector_env_is_rows_among_others(kind: Any, mode: AutoresetMode) -> None:
    single = partial(foreign_sampler, ALL_SPACES["Dict"])
    mixed = [single, partial(gymnasium_vector, [single] * 3, mode), single]
    with (
        kind(mixed, autoreset_mode=mode) as envs,
        SyncVectorEnv([single] * 5, autoreset_mode=mode) as flat,
    ):
        assert envs.num_envs == 5
        assert_same_run(envs, flat, steps=20)


def test_an_async_vector_env_in_a_worker() -> None:
    inner = partial(AsyncVectorEnv, ledgers(4), num_workers=2)
    with AsyncVectorEnv([inner], daemon=False) as envs, SyncVectorEnv(ledgers(4)) as flat:
        assert_same_run(envs, flat)


def test_a_vector_env_without_a_mode_resets_in_the_next_step() -> None:
    class Silent(Drift):
        def __init__(self) -> None:
            super().__init__(2)
            self.metadata = {}

    with SyncVectorEnv([Silent]) as envs:
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(ValueError, match="NEXT_STEP"):
        SyncVectorEnv([Silent], autoreset_mode="Disabled")


def test_different_bounds_are_batched_row_by_row() -> None:
    """A vector env inside shows the space of each of its environments."""
    boxes = [spaces.Box(0, high, (5,), np.int64) for high in (7, 8, 9)]
    env_fns = [partial(Unlike, box, number) for number, box in enumerate(boxes)]
    inner = partial(SyncVectorEnv, env_fns[1:], observation_mode="different")
    with SyncVectorEnv([env_fns[0], inner], observation_mode="different") as envs:
        assert envs.observation_space.high.tolist() == [[7] * 5, [8] * 5, [9] * 5]


def test_a_simulator_with_one_generator_gets_one_seed_of_all() -> None:
    with SyncVectorEnv([partial(Drift, 3)]) as envs:
        again: list[Any] = []
        for seed in ([3, 4, 9], [3, 4, 9], [3, 4, 8], np.random.SeedSequence(1)):
            again.append(envs.reset(seed=seed)[0])
        assert_identical(again[0], again[1])
        assert not np.array_equal(again[1], again[2])
        assert not np.array_equal(again[2], again[3])
        assert_identical(envs.reset(seed=[3, 4, 5])[0], envs.reset(seed=3)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("simulator", [partial(CartPoleVectorEnv, num_envs=3), partial(Drift, 3)])
def test_a_vector_env_that_ignores_the_mask_is_caught(kind: Any, simulator: Any) -> None:
    with kind([simulator] * 2) as envs:
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        with pytest.raises(ValueError, match="does not know options"):
            envs.reset(options={"reset_mask": np.array([True, False, False] * 2)})
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        envs.reset(options={"reset_mask": np.array([True] * 3 + [False] * 3)})
        envs.step(envs.action_space.sample())


class Counted(VectorObservationWrapper[Any, Any, Any, Any]):
    """Adds how many batches were changed so far, as wrappers that keep statistics do."""

    batches = 0

    def observations(self, observations: Any) -> Any:
        self.batches += 1
        return observations + self.batches


def test_a_wrapper_may_change_the_rows_that_a_mask_leaves_out() -> None:
    with SyncVectorEnv([lambda: Counted(ledger_vector(0, 2))]) as envs:
        envs.reset(seed=1)
        envs.step([0, 0])
        mask = np.array([True, False])
        observations, _ = envs.reset(options={"reset_mask": mask})
        assert observations[:, 2].tolist() == [3, 1 + 3]


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_raise_and_frames_are_of_the_rows(kind: Any) -> None:
    env_fns = [*ledgers(1), partial(ledger_vector, 1, 3, render_mode="rgb_array")]
    with kind(env_fns) as envs:
        with pytest.raises(KeyError, match="number 2"):
            envs.call("fail", (2,))
        assert envs.call("fail", (2,), env_ids=[1, 3]) == ("fine", "fine")
        envs.reset(seed=0)
        frames = envs.render()
        assert [int(frame[0, 0, 0]) for frame in frames] == [0, 1, 2, 3]
        assert int(envs.render(env_ids=[2])[0][0, 0, 0]) == 2


def test_calls_of_gymnasiums_vector_env_concern_all_of_its_rows() -> None:
    cart_poles = partial(gymnasium.make_vec, "CartPole-v1", 2, vectorization_mode="sync")
    with SyncVectorEnv([cart_poles] * 2) as envs:
        assert envs.get_attr("gravity") == (9.8,) * 4
        envs.set_attr("gravity", [1.0, 2.0, 3.0, 4.0])
        assert envs.get_attr("gravity") == (1.0, 2.0, 3.0, 4.0)
        envs.set_attr("gravity", [6.0, 5.0], env_ids=[3, 2])
        assert envs.get_attr("gravity", env_ids=[3, 2]) == (6.0, 5.0)
        for use in (partial(envs.get_attr, "gravity"), partial(envs.set_attr, "gravity", 1.0)):
            with pytest.raises(ValueError, match="environments 2, 3 together"):
                use(env_ids=[3])


@pytest.mark.parametrize("kind", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_values_that_are_equal_are_one_attribute_and_one_mapping_of_options(kind: Any) -> None:
    array = np.array([1.0, np.nan])
    with kind([partial(Drift, 2)]) as envs:
        assert envs.get_attr("length") == (4, 4)
        # Neither a float nor a large int is one object again when a message is read.
        for value in (2.5, 10**9, float("nan"), [1.5, 2.5], array, {"a": array, "b": 0.5}):
            envs.set_attr("note", [value, copy.deepcopy(value)])
            assert_identical(envs.get_attr("note"), (value, value))
        for values in ([1, True], [1.0, 2.0], [array, array[:1]], [{"a": 1}, {"b": 1}]):
            with pytest.raises(ValueError, match="different values"):
                envs.set_attr("note", values)
        envs.reset(options=[{"array": array.copy(), "x": 0.5} for _ in range(2)])
        with pytest.raises(ValueError, match="different ones"):
            envs.reset(options=[{"array": array}, {"array": -array}])


def test_a_vector_env_without_final_observations_is_told_so() -> None:
    inner = partial(Drift, 2, length=1, mode="SameStep")
    with SyncVectorEnv([inner], autoreset_mode="SameStep") as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="final_obs"):
            envs.step(envs.action_space.sample())


def test_an_inner_worker_that_dies_names_the_rows() -> None:
    inner = partial(AsyncVectorEnv, ledgers(4), num_workers=2)
    with SyncVectorEnv([*ledgers(2), inner]) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDiedError, match="environments 4, 5") as died:
            envs.call(leave, env_ids=[5])
        assert died.value.env_ids == (4, 5)
        with pytest.raises(ResetNeededError):
            envs.step([0] * 6)
        assert envs.reset(seed=0)[0][:, 1].tolist() == [2, 2, 1, 1, 1, 1]


def leave(env: Any) -> None:
    os._exit(3)


def test_vector_envs_are_closed_once() -> None:
    envs = SyncVectorEnv([partial(Drift, 2)] * 2)
    inner: list[VectorEnv[Any, Any, Any]] = envs.envs
    envs.close()
    assert [drift.closes for drift in inner] == [1, 1]
