"""Wrappers around vector envs: what passes through, and what would go around an override.

That a wrapper changes the same through every way is the state machine's to check.
"""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger, failing, ledgers
from tests.vector.wrapped import Halved, Halves, Shifted, Whole
from vecspaces import spaces
from vecspaces.errors import StepTimeoutError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, VectorObservationWrapper, VectorWrapper
from vecspaces.wrappers import RecordEpisodeStatistics

COUNT = 4
make = partial(AsyncVectorEnv, num_workers=2)


def test_vector_wrapper_passes_everything_on() -> None:
    with VectorWrapper(AsyncVectorEnv(ledgers(3), num_workers=2, stats=True)) as envs:
        inner = envs.env
        assert envs.unwrapped is inner
        assert (envs.num_envs, envs.spec, envs.render_mode) == (3, None, None)
        for name in ("observation_space", "action_space", "metadata"):
            assert getattr(envs, name) is getattr(inner, name)
        assert envs.single_observation_space is inner.single_observation_space
        assert envs.single_action_space is inner.single_action_space
        observations, _ = envs.reset(seed=1, options={"time": 1})
        assert observations[:, 2].tolist() == [1, 1, 1]
        assert envs.np_random_seed == inner.np_random_seed == (1, 2, 3)
        assert envs.call("multiply", 2, env_ids=[2]) == (4,)
        assert envs.get_attr("number") == (0, 1, 2)
        envs.set_attr("length", 9, env_ids=[0])
        envs.step([0, 0, 0])
        assert [int(frame[0, 0, 0]) for frame in envs.render(env_ids=[1, 2])] == [1, 2]
        assert envs.stats().steps.tolist() == [1, 1, 1] and envs.stats().bottleneck
        envs.step_async([1, 2, 3])
        assert envs.step_wait()[0].shape == (3, 5)
        assert repr(envs) == f"<VectorWrapper, {inner!r}>"
        assert not envs.closed
    assert envs.closed and inner.closed


def test_vector_wrapper_passes_on_errors_results_and_restarts() -> None:
    """Its rows have none of those that failed; it changes only the arrays."""
    with Halved(RecordEpisodeStatistics(SyncVectorEnv(failing(3)))) as envs:
        envs.reset(seed=1)
        assert envs.recv(1).begins.tolist() == [True]
        envs.send([4, 1, 1])
        received = envs.recv(3, return_errors=True)
        assert {row: type(error) for row, error in received.errors.items()} == {
            0: FloatingPointError
        }
        assert received.env_ids.tolist() == [1, 2] and not received.begins.any()
        assert received.observations[:, 2].tolist() == [0.5, 0.5]  # half of the time
        envs.send_call([2], "multiply", 2)
        assert envs.recv(1).results == {2: 4}
        envs.send_reset(envs.restart([0, 1]))
        received = envs.recv(2)
        assert received.begins.tolist() == [True, True] and len(received.row_infos) == 2
        assert envs.episode_lengths.tolist() == [0, 0, 1]
        with pytest.raises(io.UnsupportedOperation, match="descriptor"):
            envs.fileno()


def test_vector_wrapper_may_set_spaces_and_metadata() -> None:
    with VectorWrapper(SyncVectorEnv(ledgers(2))) as envs:
        box = spaces.Box(0, 1, (2,))
        for name in (
            "observation_space",
            "action_space",
            "single_observation_space",
            "single_action_space",
        ):
            setattr(envs, name, box)
            assert getattr(envs, name) is box
            assert getattr(envs.env, name) is not box
        envs.metadata = {"fps": 1}
        assert envs.metadata == {"fps": 1} != envs.env.metadata


class Sized(VectorObservationWrapper[Any, Any, Any, Any]):
    """Notes how many rows each batch of observations has."""

    saved_state = ((), ())

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.sizes: list[int] = []

    def observations(self, observations: Any) -> Any:
        self.sizes.append(len(observations))
        return observations


def test_observations_gets_all_rows_or_those_that_a_call_returns() -> None:
    inner = SyncVectorEnv(
        [partial(Ledger, length=2 + i) for i in range(4)], autoreset_mode="SameStep"
    )
    with Sized(inner) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(4, np.int64))
        envs.step([0, 0], env_ids=[2, 0])  # the second one ends its episode
        envs.send([0], [3])
        envs.recv(1)
        envs.reset(options={"reset_mask": np.array([True, False, True, False])})
        envs.load_state(envs.save_state([1]), [3, 0, 1])
        assert envs.sizes == [4, 4, 1, 2, 1, 4, 3]


@pytest.mark.parametrize("kind", [Whole, Halves])
def test_send_and_recv_around_an_override_are_refused(kind: Any) -> None:
    with kind(make(ledgers(COUNT))) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match=rf"go around {kind.__name__}\.\w+: override send and"):
            envs.send(np.zeros(COUNT, np.int64))
        with pytest.raises(TypeError, match=f"go around {kind.__name__}"):
            envs.recv()
        with pytest.raises(TypeError):  # Whole.step has no such argument
            envs.step(np.zeros(1, np.int64), env_ids=[0])
        with pytest.raises(TypeError, match=f"rollout_view would go around {kind.__name__}"):
            envs.rollout_view()


def test_send_is_not_passed_around_an_override_further_out() -> None:
    class Counting(RecordEpisodeStatistics[Any, Any]):
        def step(self, actions: Any) -> Any:
            return super().step((actions + 1) % 5)

    with Counting(make(ledgers(COUNT))) as envs:
        envs.reset(seed=0)
        envs.step_async(np.zeros(COUNT, np.int64))
        assert envs.step_wait()[0][:, 3].tolist() == [1] * COUNT
        assert envs.episode_lengths.tolist() == [1] * COUNT
        with pytest.raises(TypeError, match=r"go around Counting\.step"):
            envs.send(np.zeros(COUNT, np.int64))


@pytest.mark.parametrize("kind", [VectorWrapper, Shifted, RecordEpisodeStatistics])
def test_rollout_view_passes_a_wrapper_that_changes_nothing(kind: Any) -> None:
    with kind(SyncVectorEnv(ledgers(2), buffers=2)) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
        with pytest.raises(ValueError, match="that Halved has not changed"):
            Halved(envs).rollout_view()
        assert envs.rollout_view().rewards.shape == (1, 2)


class Slow(VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector env whose reset is late once, and is then ended by `reset_wait`."""

    late = True

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.env.reset_async(seed=seed, options=options)  # type: ignore[attr-defined]  # not all
        if self.late:
            self.late = False
            raise StepTimeoutError("late")
        return self.reset_wait()

    def reset_wait(self, timeout: float | None = None) -> Any:
        return self.env.reset_wait(timeout)  # type: ignore[attr-defined]  # not all have it


def test_reset_by_mask_that_is_late_begins_the_chosen_episodes_alone() -> None:
    with RecordEpisodeStatistics(Slow(SyncVectorEnv(ledgers(2, talks=False)))) as envs:
        envs.env.late = False  # type: ignore[attr-defined]  # of Slow
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
        envs.env.late = True  # type: ignore[attr-defined]  # of Slow
        with pytest.raises(StepTimeoutError):
            envs.reset(options={"reset_mask": np.array([True, False])})
        envs.reset_wait()
        assert envs.episode_lengths.tolist() == [0, 1]
