"""What cannot go through a pipe: arguments that cannot be pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.crosses import diagonal
from tests.envs import ledgers
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "call": lambda envs, thing: envs.call("number", thing),
    "set_attr, a value for all": lambda envs, thing: envs.set_attr("gain", thing),
    "set_attr, one value of many": lambda envs, thing: envs.set_attr("gain", [1, 2, thing]),
    "reset": lambda envs, thing: envs.reset(options={"thing": thing}),
    "reset of some": lambda envs, thing: envs.reset(
        options={"reset_mask": np.array([True, False, True]), "thing": thing}
    ),
}


@diagonal(ask=ASKED, shared_memory=[True, False])
def test_an_argument_that_cannot_be_pickled_reaches_nobody_and_breaks_nothing(
    ask: Callable[[Any, Any], Any], shared_memory: bool
) -> None:
    with (
        AsyncVectorEnv(ledgers(3), num_workers=2, shared_memory=shared_memory) as envs,
        SyncVectorEnv(ledgers(3)) as twin,
    ):
        envs.reset(seed=3)
        twin.reset(seed=3)
        with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
            ask(envs, (number for number in ()))
        assert envs.call("number") == twin.call("number")
        for _ in range(5):
            found, expected = envs.step([1, 0, 1]), twin.step([1, 0, 1])
            for part, wanted in zip(found[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(part, wanted)
