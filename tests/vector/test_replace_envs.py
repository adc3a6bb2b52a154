"""Other environments in the same workers."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger
from vecspaces import spaces
from vecspaces.errors import ResetNeededError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv


class Wider(Ledger):
    observation_space = spaces.Box(-1, 1, (7,), np.float32)


def wider() -> Any:
    return Wider()


def fails() -> Any:
    raise OSError("no licence")


KINDS = [
    SyncVectorEnv,
    partial(AsyncVectorEnv, num_workers=2),
    partial(AsyncVectorEnv, num_workers=2, context="spawn", on_worker_death="restart"),
    partial(AsyncVectorEnv, num_workers=2, shared_memory=False),
]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_replaced_one_by_one_and_the_others_go_on(kind: Any) -> None:
    with kind([partial(Ledger, n) for n in range(4)]) as envs:
        envs.reset(seed=0)
        before = envs.step([1] * 4)[0]
        envs.replace_envs([2, 0], [partial(Ledger, 20), partial(Ledger, 10)])
        assert envs.spec is None
        for call in (envs.step, partial(envs.step, env_ids=[0, 1]), envs.send):
            with pytest.raises(ResetNeededError, match="were replaced by other environments"):
                call([1] * (2 if "env_ids" in getattr(call, "keywords", {}) else 4))
        assert envs.get_attr("number") == (10, 1, 20, 3)
        observations, infos = envs.reset(
            seed=5, options={"reset_mask": np.array([True, False, True, False])}
        )
        assert observations[:, 0].tolist() == [10, 1, 20, 3]
        np.testing.assert_array_equal(observations[[1, 3]], before[[1, 3]])
        assert infos["_episode"].tolist() == [True, False, True, False]
        after = envs.step([1] * 4)[0]
        assert (after[[1, 3], 2] == before[[1, 3], 2] + 1).all()
        if envs.num_workers is not None and "on_worker_death" in kind.keywords:
            envs.processes[0].kill()
            envs.step([1] * 4)
            assert envs.get_attr("number") == (10, 1, 20, 3)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(
    ("factory", "error", "text"),
    [(wider, RuntimeError, "another observation space"), (fails, OSError, "no licence")],
)
def test_a_row_that_fails_is_broken_until_a_reset_builds_the_former_factory(
    kind: Any, factory: Any, error: Any, text: str
) -> None:
    with kind([partial(Ledger, n) for n in range(3)]) as envs:
        envs.reset(seed=0)
        with pytest.raises(error, match=text):
            envs.replace_envs([1, 2], [factory, partial(Ledger, 22)])
        with pytest.raises(ResetNeededError):
            envs.step([0] * 3)
        observations, _ = envs.reset(options={"reset_mask": np.array([False, True, True])})
        assert observations[:, 0].tolist() == [0, 1, 22]
        envs.step([0] * 3)


def test_what_is_refused_closes_nothing() -> None:
    with AsyncVectorEnv([Ledger] * 2, num_workers=1) as envs:
        envs.reset(seed=0)
        stuck = threading.Lock()
        with pytest.raises(TypeError, match=r"env_fns\[1\] cannot be pickled"):
            envs.replace_envs([0, 1], [Ledger, lambda: stuck])
        with pytest.raises(ValueError, match="got 1 env_fns for 2 environments"):
            envs.replace_envs(None, [Ledger])
        envs.step([0, 0])


def pair(first: int) -> Any:
    return SyncVectorEnv([partial(Ledger, first), partial(Ledger, first + 1)])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_vector_env_among_the_environments_is_replaced_as_a_whole(kind: Any) -> None:
    with kind([partial(pair, 0), partial(Ledger, 2)]) as envs:
        with pytest.raises(ValueError, match="environments 0, 1 are of one env_fn"):
            envs.replace_envs([0], [Ledger])
        with pytest.raises(ValueError, match="got 2 env_fns for 1 environments"):
            envs.replace_envs([1, 0], [Ledger, Ledger])
        with pytest.raises(RuntimeError, match=r"another kind .* expected a vector env"):
            envs.replace_envs([1, 0, 2], [Ledger, partial(Ledger, 5)])
        envs.reset(seed=0)
        envs.replace_envs([1, 0, 2], [partial(pair, 10), partial(Ledger, 12)])
        with pytest.raises(ResetNeededError, match="environments 0, 1 are of one env_fn"):
            envs.reset(options={"reset_mask": np.array([True, False, True])})
        observations, _ = envs.reset(options={"reset_mask": np.array([True] * 3)})
        assert observations[:, 0].tolist() == [10, 11, 12]


def test_the_former_environment_is_collected_before_the_next_is_built() -> None:
    alive: list[Any] = []

    def make() -> Any:
        gc.collect()
        assert not any(one() for one in alive[1:])
        env = Ledger()
        alive.append(weakref.ref(env))
        return env

    with SyncVectorEnv([Ledger, make]) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            del alive[:]
            alive.append(lambda: None)
            alive.append(weakref.ref(envs.envs[1]))
            envs.replace_envs([1], [make])
            envs.reset(seed=0)


def test_streams_go_on_beside_a_replacement() -> None:
    with SyncVectorEnv([partial(Ledger, n) for n in range(3)]) as envs:
        envs.reset(seed=0)
        envs.send(np.array([1]), [0])
        envs.replace_envs([1], [partial(Ledger, 11)])
        with pytest.raises(ResetNeededError, match="environment 1"):
            envs.send(np.array([1]), [1])
        envs.send_reset([1], seed=4)
        received = envs.recv(3)
        assert received.observations[received.env_ids == 1][0, 0] == 11
