"""One environment that several factories return, and environments that allow one per process."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from tests.envs import Ledger, ledgers
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

_BUILT: list[Any] = []


class Alone(Ledger):
    """Allows one instance per process."""

    def __init__(self, number: int = 0) -> None:
        if _BUILT:
            raise RuntimeError("only one emulator per process")
        super().__init__(number)
        _BUILT.append(self)

    def close(self) -> None:
        _BUILT.clear()


@pytest.mark.parametrize("make", [SyncVectorEnv, lambda fns: AsyncVectorEnv(fns, num_workers=2)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_one_instance_in_a_process_is_an_error_that_names_the_factories(
    make: Any, wrapped: bool
) -> None:
    env: Any = gymnasium.make("CartPole-v1") if wrapped else Ledger(0)
    other = gymnasium.wrappers.TimeLimit(env, 5) if wrapped else env
    same = [lambda: env, lambda: other]
    # A worker numbers factories as the whole vector env does.
    for fns, pair in (
        (same * 2, r"\[[02]\] and env_fns\[[13]\]"),
        (ledgers(2) + same, r"\[2\].*\[3\]"),
    ):
        with pytest.raises(ValueError, match=rf"env_fns{pair} returned"):
            make(fns)


@pytest.mark.parametrize("inner", [SyncVectorEnv, gymnasium.vector.SyncVectorEnv])
def test_one_instance_in_two_vector_envs_of_a_process_is_an_error_too(inner: Any) -> None:
    env = gymnasium.make("CartPole-v1")
    fns = [lambda: inner([lambda: gymnasium.make("CartPole-v1"), lambda: env])] * 2
    with pytest.raises(ValueError, match=r"env_fns\[0\] and env_fns\[1\] returned"):
        SyncVectorEnv(fns)


def test_in_processes_of_their_own_copies_of_one_instance_are_as_before() -> None:
    env = Ledger(0)
    with AsyncVectorEnv([lambda: env] * 3, num_workers=3) as envs:
        envs.reset(seed=0)
        assert envs.step([1, 2, 3])[0][:, 3].tolist() == [1, 2, 3]


@pytest.mark.parametrize("make", [SyncVectorEnv, lambda fns: AsyncVectorEnv(fns, num_workers=1)])
def test_a_build_that_fails_after_a_sibling_hints_at_one_process_each(make: Any) -> None:
    with pytest.raises(RuntimeError, match="only one emulator") as caught:
        make([Alone, Alone])
    # Below the simulator's own message, which ends the traceback.
    (note,) = caught.value.__notes__
    assert "num_workers=len(env_fns)" in note
    with AsyncVectorEnv([Alone, Alone], num_workers=2) as envs:
        envs.reset(seed=0)


def test_a_first_build_that_fails_hints_at_nothing() -> None:
    def fail() -> Any:
        raise RuntimeError("no licence")

    with pytest.raises(RuntimeError, match="no licence") as caught:
        SyncVectorEnv([fail])
    assert not hasattr(caught.value, "__notes__")
    assert "num_workers" not in str(caught.value.__cause__)
