"""save_state and load_state of vector wrappers: their state goes on with that of environments."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

from tests.compare import assert_identical
from tests.envs import Sampler
from tests.vector.test_saving import Run, without_times
from vecspaces import make_vec, spaces, wrappers
from vecspaces.vector import AutoresetMode, VectorRewardWrapper

WRAPPERS: dict[str, Any] = {
    "statistics": [wrappers.RecordEpisodeStatistics],
    "normalize": [wrappers.NormalizeObservation, wrappers.NormalizeReward],
    "several": [
        partial(wrappers.RescaleObservation, min_obs=0.0, max_obs=1.0),
        wrappers.NormalizeObservation,
        wrappers.RecordEpisodeStatistics,
        partial(wrappers.ClipReward, min_reward=0.1, max_reward=0.5),
    ],
}


def made(name: str, mode: AutoresetMode, **options: Any) -> Any:
    factory = partial(Sampler, spaces.Box(-1, 1, (3,)), spaces.Discrete(3), 3)
    envs = make_vec(factory, 3, autoreset_mode=mode, **options)
    for wrapper in WRAPPERS[name]:
        envs = wrapper(envs)
    return envs


class Watched(Run):
    """Notes the mode, which wrappers have in their metadata, and copies of views."""

    def steps(self, count: int) -> list[Any]:
        self.envs.autoreset_mode = self.envs.unwrapped.autoreset_mode
        return [pickle.loads(pickle.dumps(super(Watched, self).steps(1))) for _ in range(count)]


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", WRAPPERS)
def test_load_state_of_wrappers_goes_on_as_the_run_that_never_stopped(
    name: str, mode: AutoresetMode
) -> None:
    with made(name, mode, backend="sync") as envs:
        envs.reset(seed=3)
        expected = Watched(envs).steps(40)
    with made(name, mode, backend="sync") as envs:
        envs.reset(seed=3)
        run = Watched(envs)
        results = run.steps(15)
        state = pickle.loads(pickle.dumps(envs.save_state()))
        run.steps(2)
    with made(name, mode, backend="thread") as envs:
        last, _ = envs.load_state(state)
        assert_identical(last, results[-1][-1][0])
        results += Watched(envs, 15, run_ended(results[-1])).steps(25)
    assert_identical(without_times(results), without_times(expected))


def run_ended(shown: Any) -> Any:
    *_, (_, _, terminations, truncations, _) = shown
    return terminations | truncations


def test_load_state_of_some_environments_copies_rows_but_no_statistics() -> None:
    envs: Any = make_vec("CartPole-v1", 4, backend="sync")
    envs = wrappers.NormalizeReward(envs)
    with wrappers.RecordEpisodeStatistics(envs) as envs:
        envs.reset(seed=0)
        before = [envs.step([0, 1, 1, 0])[0] for _ in range(3)][-1]
        state = envs.save_state([2])
        envs.step([0, 0, 0, 0])
        count = envs.env.return_rms.count
        copies, _ = envs.load_state(state, [3, 0])
        assert_identical(copies, before[[2, 2]])
        assert envs.episode_lengths.tolist() == [3, 4, 4, 3]
        assert envs.env.return_rms.count == count
        after = envs.step([1, 0, 0, 1])[0]
        assert_identical(after[0], after[3])


class Unnamed(VectorRewardWrapper):
    def rewards(self, rewards: Any) -> Any:
        return rewards


def test_save_state_refuses_wrappers_that_do_not_name_their_state() -> None:
    envs: Any = make_vec("CartPole-v1", 2, backend="sync")
    with Unnamed(envs) as wrapped:
        wrapped.reset(seed=0)
        with pytest.raises(TypeError, match="save_state: Unnamed does not name"):
            wrapped.save_state()
        state = wrapped.env.save_state()
        with pytest.raises(TypeError, match="load_state: Unnamed does not name"):
            wrapped.load_state(state)


def test_load_state_refuses_the_state_of_other_wrappers() -> None:
    with wrappers.NormalizeReward(make_vec("CartPole-v1", 2, backend="sync")) as envs:
        envs.reset(seed=0)
        state = envs.save_state()
        with pytest.raises(ValueError, match="expected the state of no wrapper, found that of Nor"):
            envs.env.load_state(state)
        with pytest.raises(ValueError, match="of NormalizeReward, found that of no wrapper"):
            envs.load_state(envs.env.save_state())
        with pytest.raises(TypeError, match="expected a VectorState, found dict"):
            envs.load_state({})
        for call in (envs.save_state, partial(envs.load_state, state)):
            with pytest.raises(ValueError, match="env_ids must lie between 0 and 1, found 2"):
                call([2])
        other = wrappers.NormalizeReward(wrappers.DtypeObservation(envs.env, "f8"))
        with pytest.raises(ValueError, match="observation_space of NormalizeReward differs"):
            other.load_state(state)
        again = wrappers.ClipReward(wrappers.RecordEpisodeStatistics(envs), 0, 1)
        with pytest.raises(ValueError, match="RecordEpisodeStatistics, found that of Normalize"):
            again.load_state(state)
        wrappers.ClipReward(envs, 0, 1).load_state(state)
