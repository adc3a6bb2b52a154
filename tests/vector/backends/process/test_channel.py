"""What cannot go through a pipe: arguments that cannot be pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

ASKED: list[Callable[[Any, Any], Any]] = [
    lambda envs, thing: envs.call("number", thing),
    lambda envs, thing: envs.set_attr("gain", thing),
    lambda envs, thing: envs.set_attr("gain", [1, 2, thing]),
    lambda envs, thing: envs.reset(options={"thing": thing}),
    lambda envs, thing: envs.reset(
        options={"reset_mask": np.array([True, False, True]), "thing": thing}
    ),
]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_an_argument_that_cannot_be_pickled_reaches_nobody_and_breaks_nothing(
    shared_memory: bool,
) -> None:
    with (
        AsyncVectorEnv(ledgers(3), num_workers=2, shared_memory=shared_memory) as envs,
        SyncVectorEnv(ledgers(3)) as twin,
    ):
        envs.reset(seed=3)
        twin.reset(seed=3)
        for ask in ASKED:
            with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
                ask(envs, (number for number in ()))
            assert envs.call("number") == twin.call("number")
            for _ in range(5):
                assert_identical(envs.step([1, 0, 1])[:4], twin.step([1, 0, 1])[:4])


def test_what_is_not_sent_changes_no_rollout() -> None:
    thing = {"thing": (number for number in ())}
    with AsyncVectorEnv(ledgers(2), num_workers=2, buffers=3) as envs:
        envs.reset(seed=3)
        for _ in range(2):
            envs.step([1, 0])
        with pytest.raises(TypeError, match="cannot pickle"):
            envs.send_reset([0], options=thing)
        envs.rollout_view()
        with pytest.raises(TypeError, match="cannot pickle"):
            envs.reset(options=thing)
        for _ in range(2):
            envs.step([1, 0])
        envs.rollout_view()  # the reset that was not sent began nothing
        envs.step([1, 0])
        envs.step([1], env_ids=[0])
        with pytest.raises(TypeError, match="cannot pickle"):
            envs.reset(options=thing)
        envs.step([1, 0])
        with pytest.raises(ValueError, match="stepped alone"):
            envs.rollout_view()
