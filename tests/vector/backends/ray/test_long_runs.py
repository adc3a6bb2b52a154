"""Long runs on a cluster: data in the object store, and other environments in the same actors."""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.envs import Ledger
from tests.vector.session.test_recycling import Errand, notes, play_alone
from vecspaces import SharedArray
from vecspaces.vector import AutoresetMode, RayVectorEnv
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
    del envs, others, table
    gc.collect()
    assert len(Connection._stored) == known


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
