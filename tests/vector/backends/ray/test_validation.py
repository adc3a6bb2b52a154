"""`validate=True` in the actors of a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.vector.group.test_validation import BOX, FIRST, INSIDE, among_right_ones
from vecspaces.errors import (
    InvalidActionError,
    InvalidFlagError,
    InvalidObservationError,
    InvalidRewardError,
)
from vecspaces.vector import RayVectorEnv

pytest.importorskip("ray", reason="Ray is not installed")

pytestmark = pytest.mark.usefixtures("lent_actors")
LAPSES: list[tuple[int, Any, type[Exception]]] = [
    (0, np.array([5, 0], np.float32), InvalidObservationError),
    (0, np.array([0, np.nan], np.float32), InvalidObservationError),
    (1, float("nan"), InvalidRewardError),
    (2, 1, InvalidFlagError),
]


@pytest.mark.parametrize(("part", "wrong", "error"), LAPSES)
@pytest.mark.parametrize("processes", [1, 2])
def test_what_an_environment_must_not_return_is_named(
    part: int, wrong: Any, error: type[Exception], processes: int
) -> None:
    env_fns = among_right_ones(BOX, INSIDE, wrong, part)
    make = partial(RayVectorEnv, num_workers=2, processes_per_actor=processes)
    with make(env_fns, validate=True) as envs:
        envs.reset(seed=0)
        for _ in range(FIRST - 1):
            envs.step([0] * 4)
        with pytest.raises(error, match=f"environment 2 returned .* in step {FIRST} of its"):
            envs.step([0] * 4)
        envs.reset(seed=0)
        envs.step([0] * 4)


def test_an_action_outside_of_its_space_reaches_no_environment() -> None:
    env_fns = among_right_ones(BOX, INSIDE, INSIDE)
    with RayVectorEnv(env_fns, num_workers=2, validate=True) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match="for environment 1: no environment was"):
            envs.step([0, 7, 1, 0])
        envs.step([0, 1, 1, 0])
