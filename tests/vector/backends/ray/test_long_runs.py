"""Long runs on a cluster: data in the object store, and other environments in the same actors."""

from __future__ import annotations

import gc
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.envs import Ledger
from tests.vector.backends.ray.clusters import actor_of
from tests.vector.session.test_recycling import Errand, notes, play_alone
from vecspaces import SharedArray, spaces
from vecspaces.errors import ResetNeededError
from vecspaces.vector import AutoresetMode, RayVectorEnv, SyncVectorEnv
from vecspaces.vector.backends.ray.cluster import Connection

ray = pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

if TYPE_CHECKING:
    from pathlib import Path

    from ray.cluster_utils import Cluster


class Reader(Ledger):
    """Has a table."""

    def __init__(self, table: SharedArray, number: int = 0) -> None:
        super().__init__(number)
        self.table = table

    def total(self) -> float:
        return float(self.table.array.sum())

    def strike(self) -> None:
        self.table.array[:] = 0

    def pid(self) -> int:
        return os.getpid()


class Wider(Ledger):
    observation_space = spaces.Box(-1, 1, (7,), np.float32)


def test_the_store_holds_a_shared_array_once_for_all_vector_envs(cluster: Cluster) -> None:
    """And the processes of an actor share a copy."""
    table = SharedArray(np.ones((1000, 1000)))  # 8 MB
    known = len(Connection._stored)
    with (
        RayVectorEnv([partial(Reader, table)] * 4, num_workers=2) as envs,
        RayVectorEnv([partial(Reader, table)] * 2, num_workers=1, processes_per_actor=2) as others,
    ):
        assert len(set(others.call("pid"))) == 2
        assert envs.call("total") + others.call("total") == (1e6,) * 6
        assert len(Connection._stored) == known + 1
        with pytest.raises(ValueError, match="read-only"):
            envs.call("strike")
        late = SharedArray(np.arange(3))
        envs.reset(seed=0)
        envs.replace_envs([2], [partial(Reader, late)])
        assert envs.call("total") == (1e6, 1e6, 3.0, 1e6)
    del envs, others, table, late
    gc.collect()
    assert len(Connection._stored) == known


def test_environments_are_replaced_in_their_actors(cluster: Cluster) -> None:
    factories = [partial(Ledger, number) for number in range(4)]
    with RayVectorEnv(factories, num_workers=2, on_worker_death="restart") as envs:
        envs.reset(seed=0)
        before = envs.step([1] * 4)[0]
        actors = envs.call(actor_of)
        envs.replace_envs([3, 0], [partial(Ledger, 13), partial(Ledger, 10)])
        assert envs.call(actor_of) == actors
        with pytest.raises(ResetNeededError, match="built environments 0, 3 anew"):
            envs.step([1] * 4)
        mask = np.array([True, False, False, True])
        observations, _ = envs.reset(options={"reset_mask": mask})
        assert observations[:, 0].tolist() == [10, 1, 2, 13]
        np.testing.assert_array_equal(observations[[1, 2]], before[[1, 2]])
        with pytest.raises(RuntimeError, match="another observation space"):
            envs.replace_envs([1], [Wider])
        envs.reset(options={"reset_mask": ~mask})
        envs.step([1] * 4)
        (pid,) = envs.call(process_of, env_ids=[0])
        os.kill(pid, signal.SIGKILL)
        *_, truncations, infos = envs.step([1] * 4)
        assert (
            truncations.tolist() == infos["worker_restarted"].tolist() == [True, True] + [False] * 2
        )
        assert envs.get_attr("number") == (10, 1, 2, 13)


def process_of(env: Any) -> int:
    return os.getpid()


@pytest.mark.full
def test_the_environments_of_an_actor_with_processes_are_replaced_together(
    cluster: Cluster,
) -> None:
    with RayVectorEnv([Ledger] * 2, num_workers=1, processes_per_actor=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="name environment 1 too"):
            envs.replace_envs([0], [Ledger])
        pair = partial(SyncVectorEnv, [partial(Ledger, 5), partial(Ledger, 6)])
        envs.replace_envs(None, [pair])
        assert envs.reset(seed=0)[0][:, 0].tolist() == [5, 6]


@pytest.mark.parametrize("mode", ["SameStep", pytest.param("NextStep", marks=pytest.mark.full)])
def test_actors_are_replaced_between_episodes(mode: str, cluster: Cluster, tmp_path: Path) -> None:
    expected = [play_alone(number, AutoresetMode.of(mode))[0] for number in range(2)]
    with RayVectorEnv(
        [partial(Errand, number, tmp_path) for number in range(2)],
        num_workers=2,
        autoreset_mode=mode,
        recycle_after=2,
        stats=True,
    ) as envs:
        envs.reset(seed=7, options=[{"x": 5}] * 2)
        for time in range(1, 9):
            actions = np.full(2, (time - 1) % 3)
            if time % 3:
                observations, rewards, *_ = envs.step(actions)
            else:
                envs.send(actions)
                got = envs.recv()
                order = np.argsort(got.env_ids)
                observations, rewards = got.observations[order], got.rewards[order]
            for row, one in enumerate(expected):
                np.testing.assert_array_equal(observations[row], one[time][0])
                assert rewards[row] == one[time][1]
        replaced = envs.stats().recycled_after.tolist()
        assert replaced == ([2, 1] if mode == "SameStep" else [1, 1])
        assert len(notes(tmp_path, "closed")) == sum(replaced)
