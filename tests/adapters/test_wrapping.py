"""Questions about wrappers, asked where the environments live: through `call`, with a function."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import pytest

from tests.envs import Ledger, Passing, ledger_vector, wrapped_ledger
from vecspaces.adapters.wrapping import has_attribute, has_wrapper
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

BACKENDS = [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)]


def cart_pole() -> Any:
    return gymnasium.wrappers.ClipReward(gymnasium.make("CartPole-v1"), 0.0, 1.0)


@pytest.mark.parametrize("constructor", BACKENDS, ids=["sync", "async"])
def test_wrappers_of_any_library_and_their_attributes_are_found(constructor: Any) -> None:
    env_fns = [partial(wrapped_ledger, 0), partial(Ledger, 1), cart_pole]
    with constructor(env_fns[:2]) as envs:
        assert envs.call(has_wrapper, Passing) == (True, False)
        assert envs.call(has_wrapper, Ledger, env_ids=[1, 0]) == (False, False)  # as SB3 counts
        assert envs.call(has_attribute, "number") == (True, True)
        assert envs.call(has_attribute, "layers") == (True, False)
    kinds = (gymnasium.wrappers.ClipReward, gymnasium.wrappers.TimeLimit, Passing)
    with constructor(env_fns[2:] * 2) as envs:
        assert [envs.call(has_wrapper, kind)[0] for kind in kinds] == [True, True, False]


def test_a_function_reaches_environments_inside_and_gymnasiums_vector_env_itself() -> None:
    with SyncVectorEnv([partial(ledger_vector, 0, 2), partial(Ledger, 2)]) as envs:
        assert envs.call(isinstance, Ledger) == (True, True, True)
    with SyncVectorEnv([partial(gymnasium.make_vec, "CartPole-v1", 2)]) as envs:
        assert envs.call(isinstance, gymnasium.vector.VectorEnv) == (True, True)
