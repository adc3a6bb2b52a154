"""Long runs on a cluster: actors that are replaced between episodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.vector.session.test_recycling import Errand, notes, play_alone
from vecspaces.vector import AutoresetMode, RayVectorEnv

ray = pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

if TYPE_CHECKING:
    from pathlib import Path

    from ray.cluster_utils import Cluster


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
