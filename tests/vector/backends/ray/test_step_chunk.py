"""Chunks of actions in actors equal those in this process."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason='needs Ray: pip install "vecspaces[ray]"')

from tests.compare import assert_identical
from tests.vector.test_step_chunk import ACTION_SPACES, OBSERVATION_SPACES, Walk
from vecspaces.vector import AutoresetMode, RayVectorEnv, SyncVectorEnv
from vecspaces.vector.utils import batch_space, concatenate


@pytest.mark.usefixtures("two_actors", "lent_actors")
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_chunks_in_actors_equal_those_in_this_process(mode: AutoresetMode) -> None:
    space = ACTION_SPACES[-1]
    fns = [partial(Walk, length, space, OBSERVATION_SPACES[1]) for length in (3, 5, 9)]
    space.seed(1)
    results: list[Any] = []
    with (
        RayVectorEnv(fns, num_workers=2, autoreset_mode=mode) as actors,
        SyncVectorEnv(fns, autoreset_mode=mode) as here,
    ):
        for envs in (actors, here):
            envs.reset(seed=3)
        for ids, infos in ((None, "all"), ([2, 0], "last"), (None, "last")):
            count = 3 if ids is None else len(ids)
            chunks = [batch_space(space, 3).sample() for _ in range(count)]
            actions = concatenate(batch_space(space, 3), chunks, None)
            results = [envs.step_chunk(actions, infos, env_ids=ids) for envs in (actors, here)]
            assert_identical(results[0], results[1])
            ended = results[0].terminations | results[0].truncations
            if mode is AutoresetMode.DISABLED and ended.any():
                mask = np.zeros(3, bool)
                mask[np.arange(3) if ids is None else ids] = ended
                for envs in (actors, here):
                    envs.reset(options={"reset_mask": mask})
