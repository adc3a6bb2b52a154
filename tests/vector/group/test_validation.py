"""What environments return, checked: values of the wrong form are errors that name them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.envs import Ledger, rewarding
from vecspaces.errors import InvalidRewardError, ResetNeededError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class Returns(Ledger):
    """Returns from `step`, or from `reset`, what it was made with."""

    def __init__(self, number: int, step: Any = None, reset: Any = None) -> None:
        super().__init__(number)
        self._step, self._reset = step, reset

    def reset(self, **arguments: Any) -> Any:
        good = super().reset(**arguments)
        return good if self._reset is None else self._reset

    def step(self, action: Any) -> Any:
        good = super().step(action)
        return good if self._step is None else (good * 2)[: self._step]


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
@pytest.mark.parametrize("count", [4, 6])
def test_a_step_of_another_form_names_the_environment_and_the_form(make: Any, count: int) -> None:
    with make([partial(Returns, 0), partial(Returns, 1, step=count), partial(Returns, 2)]) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="values to unpack") as caught:
            envs.step([0, 0, 0])
        assert str(caught.value).startswith(
            "environment 1: step must return (observation, reward, terminated, truncated, info): "
        )
        with pytest.raises(ResetNeededError):
            envs.step([0, 0, 0])


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
def test_a_reset_of_another_form_names_the_environment_and_the_form(make: Any) -> None:
    said = r"^environment 1: reset must return \(observation, info\): too many"
    with (
        make([partial(Returns, 0), partial(Returns, 1, reset=(1, 2, 3))]) as envs,
        pytest.raises(ValueError, match=said),
    ):
        envs.reset(seed=0)


def test_an_error_of_the_environments_own_stays_as_it_is() -> None:
    class Wrong(Ledger):
        def step(self, action: Any) -> Any:
            one, two = (1, 2, 3)
            return one, two

    with SyncVectorEnv([partial(Wrong, 0)]) as envs:
        envs.reset()
        with pytest.raises(ValueError, match=r"^too many values to unpack"):
            envs.step([0])


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_a_reward_beyond_all_floats_names_its_environment(make: Any) -> None:
    env_fns = [partial(rewarding, reward) for reward in (1.0, 2, 10**400)]
    with make(env_fns) as envs:
        envs.reset()
        with pytest.raises(InvalidRewardError, match=r"^environment 2 returned 1000"):
            envs.step([0, 0, 0])
