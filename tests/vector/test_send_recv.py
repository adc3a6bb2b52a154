"""`send`, `send_reset`, `recv`: what they promise, whatever the order in which environments finish.

That each environment gives its own sequence is the state machine's to check.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract import assert_same_infos
from tests.crosses import diagonal, ordinarily
from tests.envs import Failing, Gated, Ledger, Sampler, ledger_vector, ledgers, telling
from vecspaces import spaces
from vecspaces.errors import (
    InvalidActionError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
    NoAsyncCallError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
)
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv, infos_as_list
from vecspaces.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics


def test_recv_returns_copies() -> None:
    with AsyncVectorEnv(ledgers(2), num_workers=2, copy=False) as envs:
        envs.reset(seed=0)
        kept = envs.recv()
        copies = [array.copy() for array in kept[:4]]
        for _ in range(3):
            envs.send([1, 2])
            envs.recv()
        for array, copy in zip(kept[:4], copies, strict=True):
            assert_identical(array, copy)


def test_recv_does_not_wait_for_a_slow_neighbour(tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    env_fns = [partial(Gated, gate, number, length=10**6) for number in range(4)]
    with AsyncVectorEnv(env_fns, num_workers=1, batch_size=1) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            envs.recv()
        envs.send([1, 1, 4, 1])
        early = [int(envs.recv(timeout=10).env_ids[0]) for _ in range(2)]
        assert early == [0, 1]
        with pytest.raises(StepTimeoutError, match=r"environments 2, 3|environment 2"):
            envs.recv(timeout=0.05)
        gate.touch()
        assert [int(envs.recv(timeout=10).env_ids[0]) for _ in range(2)] == [2, 3]


def test_send_and_recv_of_wrong_arguments_reach_nobody() -> None:
    for batch_size in (0, 4, -1):
        with pytest.raises(ValueError, match="batch_size must"):
            AsyncVectorEnv(ledgers(3), num_workers=1, batch_size=batch_size)
    with AsyncVectorEnv(ledgers(3), num_workers=2, batch_size=2) as envs:
        envs.reset(seed=0)
        for actions, ids in (([1], None), ([1, 2], [0]), ([0.5], [1]), (["a"], [2])):
            with pytest.raises(InvalidActionError, match="actions"):
                envs.send(actions, ids)
        for ids in ([3], [-1], [0, 0]):
            with pytest.raises(ValueError, match="env_ids"):
                envs.send([0] * len(ids), ids)
        for count, at_least in ((2, 3), (None, 5), (1, -1)):
            with pytest.raises(ValueError, match="at_least"):
                envs.recv(count, at_least=at_least)
        with pytest.raises(TypeError, match="options must be a mapping"):
            envs.send_reset([0], options=3)  # type: ignore[arg-type]  # what is tried
        with pytest.raises(ValueError, match="expected 1 seeds"):
            envs.send_reset([0], seed=[1, 2])
        assert envs.get_attr("time") == (0, 0, 0)


# ---------------------------------------------------------------------- rows that fail

BACKENDS: dict[str, Any] = {
    "sync": SyncVectorEnv,
    "a worker": partial(AsyncVectorEnv, num_workers=1),
    "workers": partial(AsyncVectorEnv, num_workers=2),
    "pipes": partial(AsyncVectorEnv, num_workers=2, shared_memory=False),
}
in_all = pytest.mark.parametrize(
    "make",
    ordinarily(lambda make: make is not BACKENDS["a worker"], zip(BACKENDS.values(), strict=True)),
    ids=BACKENDS,
)


def times(transition: Any) -> dict[int, int]:
    """The time of each row that was received: how often its environment was stepped."""
    ids = transition.env_ids.tolist()
    return dict(zip(ids, transition.observations[:, 2].astype(int).tolist(), strict=True))


class Wrong(Ledger):
    """Returns at each action from 1 on something that is not what it must be."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(0)
        parts: list[Any] = [observation, reward, terminated, truncated, info]
        if action == 1:
            parts[0] = observation[:2]
        elif action == 2:
            parts[1] = "much"
        elif action == 3:
            parts[4] = ["no dict"]
        elif action == 4:
            parts[4] = {"lock": threading.Lock()}
        return tuple(parts)


@in_all
def test_send_of_a_row_that_fails_breaks_it_alone(make: Any) -> None:
    with make([partial(Failing, number, length=99) for number in range(5)], batch_size=2) as envs:
        envs.reset(seed=0)
        envs.recv(5)
        envs.send([1, 4, 1, 4, 1])
        seen: dict[int, int] = {}
        failed = set()
        while len(seen) + len(failed) < 5:
            try:
                seen.update(times(envs.recv(1)))
            except FloatingPointError as error:
                (env_id,) = error.__cause__.env_ids  # type: ignore[union-attr]
                assert str(error) == f"number {env_id} got a four"
                assert f"environment {env_id}" in str(error.__cause__)
                failed.add(env_id)
        assert (seen, failed) == ({0: 1, 2: 1, 4: 1}, {1, 3})
        # The failed rows take nothing but a reset, and keep the others from a step of all alone.
        for call in (
            partial(envs.send, [1], [3]),
            partial(envs.step, [1], env_ids=[3]),
            partial(envs.call, "number", env_ids=[0, 3]),
        ):
            with pytest.raises(ResetNeededError, match="environment 3 failed: send_reset or"):
                call()
        with pytest.raises(ResetNeededError, match=r"environments 1, 3 failed: .* builds them"):
            envs.step([1] * 5)
        assert envs.get_attr("time", env_ids=[0, 2, 4]) == (1, 1, 1)
        # They are built again while the others go on.
        envs.send([1, 1], [4, 0])
        envs.send_reset([3], seed=[7])
        seen = {**times(envs.recv(1)), **times(envs.recv(2))}
        assert seen == {4: 2, 0: 2, 3: 0}
        assert envs.call("number", env_ids=[3, 2]) == (3, 2)
        assert envs.get_attr("seeds", env_ids=[3]) == ([7],)
        mask = np.array([False, True, False, False, False])
        assert envs.reset(options={"reset_mask": mask})[0][1, 2] == 0
        assert envs.step([1] * 5)[0][:, 2].tolist() == [3, 1, 2, 1, 3]


@diagonal(make=BACKENDS, action=[1, 2, 3, 4])
def test_recv_raises_for_a_wrong_row_alone(make: Any, action: int) -> None:
    if make is SyncVectorEnv and action == 4:
        return  # nothing is pickled
    kinds = InvalidObservationError, InvalidRewardError, InvalidInfoError, InvalidInfoError
    with make([partial(Wrong, number, length=99) for number in range(4)]) as envs:
        envs.reset(seed=0)
        envs.recv(4)
        envs.send([0, action, 0, 0])
        with pytest.raises(kinds[action - 1], match="environment 1"):
            envs.recv(4)
        assert times(envs.recv(3)) == {0: 1, 2: 1, 3: 1}
        envs.send_reset([1])
        envs.send([0], [2])
        assert {**times(envs.recv(1)), **times(envs.recv(1))} == {1: 0, 2: 2}


def die_once(env: Any, sign: Path) -> Any:
    """End the process of environment 1, if a file is there."""
    if env.number == 1 and sign.exists():
        sign.unlink()
        os._exit(3)
    return env.number


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
@pytest.mark.parametrize("restarts", [True, False])
def test_call_in_which_a_worker_dies_concerns_its_rows(restarts: bool, tmp_path: Path) -> None:
    options = {"on_worker_death": "restart" if restarts else "raise"}
    sign = tmp_path / "die"
    with AsyncVectorEnv(ledgers(4), num_workers=2, **options) as envs:
        envs.reset(seed=0)
        envs.recv(4)
        envs.send([2, 2], [0, 2])
        sign.touch()
        if restarts:
            assert envs.call(die_once, sign, env_ids=[3, 1]) == (3, 1)
            assert sorted(envs.recv(2).env_ids) == [0, 2]
            lost = envs.step([1, 1], env_ids=[1, 3])
            assert lost[3].tolist() == lost[4]["worker_restarted"].tolist() == [True, False]
            return
        with pytest.raises(WorkerDiedError, match="exited with code 3 during call"):
            envs.call(die_once, sign, env_ids=[1])
        with pytest.raises(ResetNeededError):
            envs.recv(1)
        envs.reset(seed=0)
        assert envs.step([1] * 4)[0][:, 2].tolist() == [1] * 4


@pytest.mark.parametrize("wrapped", [False, True])
def test_recv_waits_for_at_least_so_many(wrapped: bool, tmp_path: Path) -> None:
    gate, moment = tmp_path / "gate", 0.1
    env_fns = [partial(Gated, gate, number, length=99) for number in range(4)]
    envs = AsyncVectorEnv(env_fns, num_workers=4)
    with RecordEpisodeStatistics(envs) if wrapped else envs as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send([1, 4, 1, 4])
        began = time.monotonic()
        assert sorted(times(envs.recv(4, moment, at_least=2))) == [0, 2]
        assert time.monotonic() - began >= moment
        with pytest.raises(StepTimeoutError, match="environments 1, 3 still busy"):
            envs.recv(2, 0.01, at_least=1)
        nothing = envs.recv(timeout=0, at_least=0)
        assert nothing.env_ids.dtype == np.int64 and nothing.observations.shape == (0, 5)
        assert [array.shape for array in nothing[1:4]] == [(0,)] * 3
        envs.send([1], [0])
        # It does not wait for what was never sent an action, nor longer than it has to.
        gate.touch()
        assert sorted(times(envs.recv(4, 20, at_least=1))) == [0, 1, 3]
        assert len(envs.recv(timeout=0, at_least=0).env_ids) == 0
        with pytest.raises(NoAsyncCallError, match="waits for 1 environments, but only 0"):
            envs.recv(4, at_least=1)


@diagonal(wrapper=[NormalizeObservation, NormalizeReward], mode=["NextStep", "SameStep"])
def test_recv_of_nothing_passes_wrappers(wrapper: Any, mode: str) -> None:
    """And goes on as if nothing had been received."""
    env_fns = [partial(Sampler, spaces.Box(-9, 9, (2,)), spaces.Box(-1, 1, (1,)))] * 3
    with (
        wrapper(SyncVectorEnv(env_fns, autoreset_mode=mode)) as envs,
        wrapper(SyncVectorEnv(env_fns, autoreset_mode=mode)) as reference,
    ):
        space = envs.single_observation_space
        for vector_env in (envs, reference):
            vector_env.action_space.seed(0)
            vector_env.reset(seed=0)
            vector_env.recv()
        for _ in range(8):
            empty = envs.recv(timeout=0, at_least=0)
            assert len(empty.env_ids) == 0
            assert empty.observations.shape == (0, *space.shape)
            assert empty.observations.dtype == space.dtype
            actions = envs.action_space.sample()
            for vector_env in (envs, reference):
                vector_env.send(actions)
            received = [envs.recv(at_least=0), reference.recv()]
            for transition in received:
                transition.infos.get("episode", {}).pop("t", None)  # how long it took
            assert_identical(*map(tuple, received))


def test_send_takes_a_vector_env_as_a_whole() -> None:
    with AsyncVectorEnv([*ledgers(2), partial(ledger_vector, 2, 3)], num_workers=2) as envs:
        envs.reset(seed=0)
        envs.recv()
        with pytest.raises(InvalidActionError, match=r"environments 2 to 4.*as a whole"):
            envs.send([1, 1], [2, 3])
        with pytest.raises(InvalidActionError, match="are one vector env, which"):
            envs.send_reset([2])


def test_send_of_a_vector_env_that_fails_breaks_all_of_its_rows() -> None:
    inner = partial(SyncVectorEnv, [partial(Failing, number) for number in (1, 2)])
    with AsyncVectorEnv([partial(Failing, 0, length=99), inner], num_workers=2) as envs:
        envs.reset(seed=0)
        envs.recv()
        envs.send([1, 1, 4])
        with pytest.raises(FloatingPointError, match="number 2 got a four"):
            envs.recv()
        assert times(envs.recv(1)) == {0: 1}
        with pytest.raises(ResetNeededError, match=r"environments 1, 2 failed: .* builds them"):
            envs.send([1, 1], [1, 2])
        envs.send_reset([1, 2])
        envs.send([1], [0])
        assert times(envs.recv(3)) == {0: 2, 1: 0, 2: 0}
        assert envs.step([1, 1, 1])[0][:, 2].tolist() == [3, 1, 1]


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_call_and_step_of_no_rows_do_nothing(kind: Any) -> None:
    with kind([partial(ledger_vector, 2, 3)] * 2) as envs:
        envs.reset(seed=0)
        envs.set_attr("mark", [], env_ids=[])
        assert envs.call("get_wrapper_attr", "spec", env_ids=[]) == ()
        assert envs.step(np.zeros(0, int), env_ids=[])[1].shape == (0,)
        assert envs.step(np.zeros(6, int))[1].shape == (6,)


@pytest.mark.parametrize("make", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=1)])
def test_recv_does_not_show_what_a_caller_did_to_infos(make: Any) -> None:
    info = {"x": 1, "y": np.arange(2), "z": {"w": 2.5}}
    with make(telling([info] * 2)) as envs:
        infos = envs.reset()[1]
        for _ in range(2):
            for array in (infos["x"], infos["y"], infos["z"]["w"]):
                array[...] = 7
            infos = envs.recv(2).infos
            assert_same_infos(infos_as_list(infos, 2)[1], info)
            envs.send(np.zeros(2, np.int64))
        infos = envs.recv(1).infos
        for array in (infos["x"], infos["y"], infos["z"]["w"]):
            array[...] = 7
        assert_same_infos(infos_as_list(envs.recv(1).infos, 1)[0], info)
    assert info["y"].tolist() == [0, 1]


# ---------------------------------------------------------------------- send_reset


class Mortal(Ledger):
    """A ledger that dies in a reset with the seed 666."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == 666:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_send_reset_in_which_a_worker_dies_is_reported_lost() -> None:
    env_fns = [partial(Mortal, number) for number in range(4)]
    with AsyncVectorEnv(
        env_fns, num_workers=2, on_worker_death="restart", autoreset_mode="Disabled"
    ) as envs:
        envs.reset(seed=0)
        envs.recv(4)
        envs.send_reset([3], seed=[666])
        received = envs.recv(1)
        assert received.infos["worker_restarted"].tolist() == [True]
        assert received.truncations.all()
        # Environment 2 was lost with it, and its next step would report that.
        envs.send_reset([2, 3], seed=[5, 6])
        again = envs.recv(2)
        assert "worker_restarted" not in again.infos
        assert not again.truncations.any()
        noise = dict(zip(again.env_ids.tolist(), again.observations[:, 4].tolist(), strict=True))
        assert noise == {
            row: env.reset(seed=seed)[0][4]
            for row, env, seed in ((2, Ledger(), 5), (3, Ledger(), 6))
        }


class Keyed(Ledger):
    """Environments report different keys."""

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return *result, {"all": 1, f"key {self.number}": 2, f"key {self.number // 2}": "text"}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("rows", [[3, 1, 2], [7, 0, 6, 1, 2, 5, 4, 3], [1, 2, 3]])
def test_step_some_sorts_the_keys_of_infos_by_rows(workers: int, rows: list[int]) -> None:
    env_fns = [partial(Keyed, number, length=9) for number in range(8)]
    with SyncVectorEnv(env_fns) as envs, AsyncVectorEnv(env_fns, num_workers=workers) as others:
        for vector in (envs, others):
            vector.reset(seed=0)
        actions = [1] * len(rows)
        infos, expected = others.step(actions, rows)[4], envs.step(actions, rows)[4]
        assert_same_infos(infos, expected)
        assert list(infos) == list(expected)
        assert list(infos)[0::2] == [*dict.fromkeys(key for row in rows for key in keys_of(row))]


def keys_of(number: int) -> list[str]:
    """Return the keys of a `Keyed`, in its order."""
    return ["all", f"key {number}", f"key {number // 2}"]
