"""A wrapper changes the same through every way in and out, whatever is below it and around it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.envs import Drift, ledgers
from tests.vector.test_wrappers import Halved, Negative, Shifted
from tests.vector.ways import WAYS, assert_same_rows, reset_by, run_by, step_by
from vecspaces.adapters.gymnasium import as_gymnasium
from vecspaces.errors import AlreadyPendingCallError, NoAsyncCallError, StepTimeoutError
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from vecspaces.wrappers import (
    ClipReward,
    DtypeObservation,
    FlattenObservation,
    FrameStackObservation,
    RecordEpisodeStatistics,
    TimeAwareObservation,
    TransformAction,
)

COUNT = 4
BACKENDS: dict[str, Any] = {
    "sync": SyncVectorEnv,
    "async": partial(AsyncVectorEnv, num_workers=2),
    "batches of 2": partial(AsyncVectorEnv, num_workers=2, batch_size=2),
}


class Whole(VectorWrapper[Any, Any, Any, Any, Any]):
    """Overrides `step` and `reset` alone, as wrappers written for Gymnasium do."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed=seed, options=options)
        return observations * 2, infos

    def step(self, actions: Any) -> Any:
        observations, *rest = self.env.step((actions + 1) % 5)
        return observations * 2, *rest


class Halves(VectorWrapper[Any, Any, Any, Any, Any]):
    """Overrides what `step` and `reset` consist of."""

    def reset_wait(self, timeout: float | None = None) -> Any:
        observations, infos = super().reset_wait(timeout)
        return observations * 2, infos

    def step_async(self, actions: Any) -> None:
        super().step_async((actions + 1) % 5)

    def step_wait(self, timeout: float | None = None) -> Any:
        observations, *rest = super().step_wait(timeout)
        return observations * 2, *rest


class Everything(Halves):
    """Overrides every way."""

    def send(self, actions: Any, env_ids: Any = None) -> None:
        self.env.send((actions + 1) % 5, env_ids)  # type: ignore[attr-defined]  # not all have it

    def recv(self, count: int | None = None, timeout: float | None = None) -> Any:
        received = self.env.recv(count, timeout)  # type: ignore[attr-defined]  # not all have it
        return received._replace(observations=received.observations * 2)


def stacked(envs: VectorEnv[Any, Any, Any]) -> Any:
    return RecordEpisodeStatistics(Halved(Negative(Shifted(envs))))


def timed(envs: VectorEnv[Any, Any, Any]) -> Any:
    envs.spec = SimpleNamespace(max_episode_steps=9)
    return TimeAwareObservation(envs, flatten=False)


def flattened(envs: VectorEnv[Any, Any, Any]) -> Any:
    envs = DtypeObservation(FlattenObservation(envs), np.float64)
    return ClipReward(TransformAction(envs, lambda actions: (actions + 1) % 5), 0.3, 2.2)


WRAPPERS: dict[str, Any] = {
    "none": lambda envs: envs,
    "plain": VectorWrapper,
    "observations": Halved,
    "actions": Shifted,
    "rewards": Negative,
    "statistics": RecordEpisodeStatistics,
    "four": stacked,
    "step": Whole,
    "step around statistics": lambda envs: Whole(RecordEpisodeStatistics(envs)),
    "statistics around step": lambda envs: RecordEpisodeStatistics(Whole(envs)),
    "step_wait": Halves,
    "all": Everything,
    "frames": lambda envs: FrameStackObservation(envs, 3),
    "time": lambda envs: FlattenObservation(timed(envs)),
    "without a state": flattened,
    "gymnasium": lambda envs: as_gymnasium(stacked(envs)),
    "gymnasium around step": lambda envs: as_gymnasium(Whole(envs)),
}
# Those that override some of the ways, but not these.
MISSING = {"stream": {name for name in WRAPPERS if "step" in name}}
MISSING["some"] = {*MISSING["stream"], "all"}


def made(name: str, backend: str, mode: AutoresetMode) -> Any:
    env_fns = ledgers(COUNT, talks=False)
    return WRAPPERS[name](BACKENDS[backend](env_fns, autoreset_mode=mode))


@pytest.fixture(
    scope="module",
    params=[(backend, mode) for backend in BACKENDS for mode in AutoresetMode],
    ids=lambda pair: f"{pair[0]}-{pair[1].value}",
)
def bare(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A vector env that several tests wrap, one after the other."""
    with made("none", *request.param) as envs:
        yield envs


@pytest.mark.parametrize("name", WRAPPERS)
def test_every_way_shows_what_step_shows(name: str, bare: Any) -> None:
    ways = [way for way in WAYS if name not in MISSING.get(way, ())]
    with made(name, "sync", bare.autoreset_mode) as envs:
        expected = run_by(envs, "step")
    envs = WRAPPERS[name](bare)
    for way in ways:
        envs.set_attr("episode", 0)  # a ledger goes on counting over resets
        assert_same_rows(run_by(envs, way), expected)


# ---------------------------------------------------------------------- by hand


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("way", WAYS)
def test_observations_are_changed_at_resets_steps_and_ends(way: str, mode: AutoresetMode) -> None:
    with Halved(made("none", "async", mode)) as envs, made("none", "sync", mode) as bare:
        changed, plain = run_by(envs, way), run_by(bare, "step")
    for found, expected in zip(changed, plain, strict=True):
        assert len(found) == len(expected)
        for other in expected:
            other[0] = other[0] / 2
            if "final_obs" in other[-1]:
                other[-1]["final_obs"] = other[-1]["final_obs"] / 2
    assert_same_rows(changed, plain)
    ends = [row[-1].get("final_obs") is not None for rows in plain for row in rows]
    assert any(ends) == (mode is AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("way", WAYS)
def test_actions_and_rewards_are_changed(way: str) -> None:
    with Negative(Shifted(made("none", "async", AutoresetMode.NEXT_STEP))) as envs:
        reset_by(envs, way, seed=0)
        rows = step_by(envs, way, np.array([0, 1, 2, 4]))
    assert [int(row[0][3]) for row in rows] == [1, 2, 3, 0]
    assert [row[1] for row in rows] == [-0.125, -1.125, -2.125, -3.125]


@pytest.mark.parametrize("way", ["step", "async"])
def test_an_overridden_step_is_called_by_step_wait(way: str) -> None:
    with Whole(made("none", "async", AutoresetMode.NEXT_STEP)) as envs:
        reset = reset_by(envs, way, seed=0)
        rows = step_by(envs, way, np.array([0, 1, 2, 4]))
    assert [int(row[0][0]) for row in reset] == [0, 2, 4, 6]
    assert [int(row[0][3]) for row in rows] == [2, 4, 6, 0]


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("kind", [Whole, Halves])
def test_streaming_around_an_override_is_refused(kind: Any) -> None:
    with kind(made("none", "async", AutoresetMode.NEXT_STEP)) as envs:
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

    with Counting(made("none", "async", AutoresetMode.NEXT_STEP)) as envs:
        reset_by(envs, "async", seed=0)
        rows = step_by(envs, "async", np.zeros(COUNT, np.int64))
        assert [int(row[0][3]) for row in rows] == [1] * COUNT
        assert envs.episode_lengths.tolist() == [1] * COUNT
        with pytest.raises(TypeError, match=r"go around Counting\.step"):
            envs.send(np.zeros(COUNT, np.int64))


@pytest.mark.parametrize("kind", [Halved, Negative])
def test_a_rollout_that_is_unchanged_is_refused(kind: Any) -> None:
    inner = SyncVectorEnv(ledgers(2), buffers=3)
    with kind(VectorWrapper(inner)) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(np.zeros(2, np.int64))
        with pytest.raises(ValueError, match=f"that {kind.__name__} has not changed"):
            envs.rollout_view()
        assert envs.env.rollout_view().rewards.shape == (2, 2)


@pytest.mark.parametrize("kind", [VectorWrapper, Shifted, RecordEpisodeStatistics])
def test_a_rollout_with_nothing_to_change_is_passed_on(kind: Any) -> None:
    with kind(SyncVectorEnv(ledgers(2), buffers=3)) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(np.zeros(2, np.int64))
        assert envs.rollout_view().rewards.shape == (2, 2)


def test_calls_out_of_order_are_refused_where_step_is_deferred() -> None:
    zeros = np.zeros(COUNT, np.int64)
    with Whole(made("none", "async", AutoresetMode.NEXT_STEP)) as envs:
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


@pytest.mark.parametrize("way", ["step", "async"])
def test_the_callers_mask_may_be_used_again_at_once(way: str) -> None:
    with RecordEpisodeStatistics(SyncVectorEnv(ledgers(2, talks=False))) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
        mask = np.array([True, False])
        if way == "async":
            envs.reset_async(options={"reset_mask": mask})
            mask[:] = True
            envs.reset_wait()
        else:
            envs.reset(options={"reset_mask": mask})
        assert envs.episode_lengths.tolist() == [0, 1]
