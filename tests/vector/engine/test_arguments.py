"""Arguments of the constructors and of `reset`: those that neither the contract tries, nor the
state machine, nor the golden messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.engine.arguments import plan_reset
from vecspaces.vector.engine.seeds import spread_seeds


@pytest.mark.parametrize(
    ("env_fns", "match"),
    [
        (Ledger, "env_fns must be a list of functions that make environments"),
        ([partial(Ledger, 0), Ledger(1)], r"env_fns\[1\] must be a function .*\(Ledger\)"),
    ],
    ids=["no list", "an environment"],
)
def test_what_is_no_list_of_factories_is_refused(env_fns: Any, match: str) -> None:
    for make in (SyncVectorEnv, AsyncVectorEnv):
        with pytest.raises(TypeError, match=match):
            make(env_fns)


def test_seeds_are_python_ints() -> None:
    for seed in (np.int32(3), np.array([3, 4]), [np.uint8(3), 4], np.random.SeedSequence(1)):
        assert {type(value) for value in spread_seeds(seed, 2)} == {int}


def test_options_are_none_beside_a_mask_alone_and_have_no_mask_of_their_own() -> None:
    mask = np.array([True, False])
    assert plan_reset(None, {"reset_mask": mask}, 2).options == [None] * 2
    with pytest.raises(ValueError, match=r"options\[1\].*reset_mask"):
        plan_reset(None, [{}, {"reset_mask": mask}], 2)
