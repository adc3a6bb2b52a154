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
def test_wrappers_of_any_library_are_found(constructor: Any) -> None:
    with constructor([partial(wrapped_ledger, 0), partial(Ledger, 1)]) as envs:
        assert envs.call(has_wrapper, Passing) == (True, False)
        assert envs.call(has_wrapper, Ledger, env_ids=[1, 0]) == (True, True)
    with constructor([cart_pole, cart_pole]) as envs:
        found = [
            envs.call(has_wrapper, wrapper)[0]
            for wrapper in (gymnasium.wrappers.ClipReward, gymnasium.wrappers.TimeLimit, Passing)
        ]
        assert found == [True, True, False]


@pytest.mark.parametrize("constructor", BACKENDS, ids=["sync", "async"])
def test_attributes_are_looked_for_through_wrappers(constructor: Any) -> None:
    with constructor([partial(wrapped_ledger, 0), partial(Ledger, 1)]) as envs:
        assert envs.call(has_attribute, "number") == (True, True)
        assert envs.call(has_attribute, "layers") == (True, False)


def test_a_function_reaches_the_environments_of_a_vector_env_of_ours_inside() -> None:
    with SyncVectorEnv([partial(ledger_vector, 0, 2), partial(Ledger, 2)]) as envs:
        assert envs.call(has_wrapper, Ledger) == (True, True, True)


def test_a_function_gets_gymnasiums_vector_env_itself() -> None:
    with SyncVectorEnv([partial(gymnasium.make_vec, "CartPole-v1", 2)]) as envs:
        assert envs.call(has_wrapper, gymnasium.vector.VectorEnv) == (True, True)
