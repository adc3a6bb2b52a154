"""PettingZoo's environments: the error for an env_fn that returns one, and the wrapper for them."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

EXAMPLE = "pettingzoo_env"
# Parallel environments of PettingZoo itself; in the first, agents leave early.
MODULES = [
    "pettingzoo.butterfly.knights_archers_zombies_v11",
    "pettingzoo.butterfly.pistonball_v6",
]


@pytest.mark.parametrize("kind", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_an_unwrapped_one_is_an_error_with_advice(kind: Any, example: ModuleType) -> None:
    message = (
        r"^env_fns\[0\] must return .* Tag, a PettingZoo environment of 3 agents.*pettingzoo_env"
    )
    with pytest.raises(TypeError, match=message):
        kind([example.Tag] * 2)


def follow(wrapped: Any, direct: Any, steps: int) -> tuple[int, int]:
    """Step both with the same actions, and compare; return the episodes, and the departures."""
    agents = list(direct.possible_agents)
    episodes = left = 0
    wrapped.action_space.seed(5)
    observation, info = wrapped.reset(seed=3)
    seen, _ = direct.reset(seed=3)
    for _ in range(steps):
        for agent in agents:
            if agent in seen:
                assert_identical(observation[agent], seen[agent])
            else:
                assert not np.any(observation[agent])
        assert info["living"].tolist() == [agent in direct.agents for agent in agents]
        action = wrapped.action_space.sample()
        living = {agent: action[agent] for agent in direct.agents}
        observation, reward, terminated, truncated, info = wrapped.step(action)
        seen, rewards, terminations, _, _ = direct.step(living)
        assert reward == sum(rewards.values())
        assert info["rewards"].tolist() == [rewards.get(agent, 0.0) for agent in agents]
        left += len(living) - len(direct.agents)
        assert (terminated or truncated) == (not direct.agents)
        if not direct.agents:
            assert terminated or not all(terminations.values())
            episodes += 1
            observation, info = wrapped.reset()
            seen, _ = direct.reset()
    return episodes, left


def test_the_wrapper_changes_nothing_of_what_agents_see(example: ModuleType) -> None:
    episodes, left = follow(example.PettingZooEnv(example.Tag()), example.Tag(), 200)
    assert episodes > 5 and left > episodes


@pytest.mark.full
@pytest.mark.parametrize("module", MODULES)
def test_the_wrapper_changes_nothing_of_pettingzoo(example: ModuleType, module: str) -> None:
    # What brings PettingZoo need not bring what its environments are made with.
    found = pytest.importorskip(module, reason="no pettingzoo[butterfly]", exc_type=ImportError)
    make = found.parallel_env
    follow(example.PettingZooEnv(make()), make(), 300)


def test_in_workers_it_is_what_it_is_here(example: ModuleType) -> None:
    results = []
    for kind in (SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2, context="fork")):
        with kind([partial(example.make, None)] * 4) as envs:
            envs.action_space.seed(1)
            results.append([envs.reset(seed=2)])
            results[-1] += [envs.step(envs.action_space.sample()) for _ in range(30)]
    assert_identical(results[1], results[0])
