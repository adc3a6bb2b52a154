"""Env: its seeding and small parts behave as Gymnasium's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vecspaces import Env
from vecspaces.errors import VecspacesError
from vecspaces.spaces import Box, Discrete


class Walk(Env[Any, Any]):
    observation_space = Box(-np.inf, np.inf, ())
    action_space = Discrete(2)

    def __init__(self) -> None:
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.float32(self.np_random.normal()), {}

    def close(self) -> None:
        self.closed += 1


class ForeignWalk(gymnasium.Env[Any, Any]):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.float32(self.np_random.normal()), {}


@given(seed=st.integers(0, 2**70))
def test_a_seed_gives_the_same_episodes_as_in_gymnasium(seed: int) -> None:
    ours, theirs = Walk(), ForeignWalk()
    assert ours.reset(seed=seed) == theirs.reset(seed=seed)
    assert ours.reset() == theirs.reset()
    assert ours.np_random_seed == theirs.np_random_seed == seed


@pytest.mark.parametrize("seed", [-1, 1.5, "1"])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(VecspacesError, match="seed: expected"):
        Walk().reset(seed=seed)


@pytest.mark.parametrize("first", ["np_random", "np_random_seed"])
def test_without_a_reset_np_random_seed_repeats_the_stream(first: str) -> None:
    walk, again = Walk(), Walk()
    getattr(walk, first)
    again.reset(seed=walk.np_random_seed)
    drawn = [float(walk.np_random.normal()) for _ in range(4)]
    assert [float(again.np_random.normal()) for _ in range(3)] == drawn[1:]


def test_a_generator_that_was_set_has_the_seed_minus_one() -> None:
    walk = Walk()
    generator = np.random.default_rng(3)
    walk.np_random = generator
    assert walk.np_random is generator
    assert walk.np_random_seed == -1


def test_a_with_block_lets_exceptions_through_and_closes() -> None:
    walk = Walk()
    with pytest.raises(KeyError), walk:
        raise KeyError
    assert walk.closed == 1


def test_attributes_are_read_and_set_as_on_a_wrapper() -> None:
    walk = Walk()
    assert walk.get_wrapper_attr("closed") == 0
    assert walk.set_wrapper_attr("closed", 7)
    assert walk.closed == 7
    assert not walk.has_wrapper_attr("gravity")
    assert not walk.set_wrapper_attr("gravity", 9.8, force=False)
    assert walk.set_wrapper_attr("gravity", 9.8)
    assert walk.get_wrapper_attr("gravity") == 9.8
    with pytest.raises(AttributeError, match="mass"):
        walk.get_wrapper_attr("mass")


def test_members_and_defaults_are_those_of_gymnasium() -> None:
    theirs = {name for name in dir(gymnasium.Env) if not name.startswith("_")}
    assert theirs - set(dir(Env)) == set()
    for name in ("metadata", "render_mode", "spec"):
        assert getattr(Env, name) == getattr(gymnasium.Env, name)
    walk = Walk()
    assert walk.unwrapped is walk
    assert walk.np_random is not Walk().np_random
    assert str(walk) == "<Walk instance>"
    walk.spec = gymnasium.spec("CartPole-v1")
    assert str(walk) == "<Walk<CartPole-v1>>"
