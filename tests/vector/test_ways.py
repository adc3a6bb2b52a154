"""Ways in and out that would go around what a wrapper overrides, and resets that come late.

That a wrapper changes the same through every way is the state machine's to check.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Drift, ledgers
from tests.vector.test_vector_wrapper import Halved, Negative, Shifted
from tests.vector.wrapped import Halves, Whole
from vecspaces.errors import AlreadyPendingCallError, NoAsyncCallError, StepTimeoutError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper
from vecspaces.wrappers import RecordEpisodeStatistics

COUNT = 4
make = partial(AsyncVectorEnv, num_workers=2)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("kind", [Whole, Halves])
def test_streaming_around_an_override_is_refused(kind: Any) -> None:
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


def test_an_override_further_out_is_not_gone_around_either() -> None:
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


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Halved, True),
        (Negative, True),
        (VectorWrapper, False),
        (Shifted, False),
        (RecordEpisodeStatistics, False),
    ],
)
def test_a_rollout_is_passed_on_where_a_wrapper_has_nothing_to_change(
    kind: Any, changes: bool
) -> None:
    with kind(VectorWrapper(SyncVectorEnv(ledgers(2), buffers=3))) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(np.zeros(2, np.int64))
        if changes:
            with pytest.raises(ValueError, match=f"that {kind.__name__} has not changed"):
                envs.rollout_view()
        rollout = (envs.env if changes else envs).rollout_view()
        assert rollout.rewards.shape == (2, 2)


def test_calls_out_of_order_are_refused_where_step_is_deferred() -> None:
    zeros = np.zeros(COUNT, np.int64)
    with Whole(make(ledgers(COUNT))) as envs:
        with pytest.raises(NoAsyncCallError, match="reset_wait was called, but no reset is"):
            envs.reset_wait()
        envs.reset_async(seed=1)
        with pytest.raises(AlreadyPendingCallError, match="while a reset is still pending"):
            envs.step_async(zeros)
        with pytest.raises(AlreadyPendingCallError, match="reset_wait first"):
            envs.reset()
        with pytest.raises(ValueError, match="takes no timeout: make the vector env with"):
            envs.reset_wait(timeout=5)
        assert envs.reset_wait()[0].shape == (COUNT, 5)
        with pytest.raises(NoAsyncCallError, match="no step is pending"):
            envs.step_wait()


def test_a_vector_env_without_halves_says_so() -> None:
    with (
        VectorWrapper(Drift(2)) as envs,
        pytest.raises(AttributeError, match="step_async"),
    ):
        envs.step_async(np.zeros((2, 2)))


# ---------------------------------------------------------------------- resets


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


def test_a_late_reset_by_mask_begins_the_chosen_episodes_alone() -> None:
    with RecordEpisodeStatistics(Slow(SyncVectorEnv(ledgers(2, talks=False)))) as envs:
        envs.env.late = False  # type: ignore[attr-defined]  # of Slow
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
        envs.env.late = True  # type: ignore[attr-defined]  # of Slow
        with pytest.raises(StepTimeoutError):
            envs.reset(options={"reset_mask": np.array([True, False])})
        envs.reset_wait()
        assert envs.episode_lengths.tolist() == [0, 1]
