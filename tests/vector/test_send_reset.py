"""`send_reset`: episodes that begin with a seed of their own, while other environments step."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crosses import diagonal
from tests.envs import Gated, Ledger, ledger_vector, ledgers
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidActionError,
    ResetNeededError,
    WorkerDiedError,
)
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics, RecordVideo


def alone(number: int, seed: int) -> Any:
    """The first observation and info of a ledger that was reset twice, with this seed."""
    env = ledgers(number + 1)[number]()
    for _ in range(2):
        result = env.reset(seed=seed)
    return result


def test_it_waits_for_none_that_is_busy(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env_fns = [partial(Gated, gate, 0), partial(Ledger, 1)]
    with AsyncVectorEnv(env_fns, num_workers=2) as envs:
        envs.reset(seed=0)
        envs.send(np.array([4]), [0])
        envs.send_reset([1], seed=[9])
        assert envs.recv(1).env_ids.tolist() == [1]
        with pytest.raises(AlreadyPendingCallError, match="environment 0 is not there yet"):
            envs.send_reset([0])
        gate.touch()
        assert envs.recv(1).env_ids.tolist() == [0]


@pytest.mark.parametrize("backend", [SyncVectorEnv, partial(AsyncVectorEnv, num_workers=2)])
def test_a_vector_env_among_the_environments_begins_as_a_whole(backend: Any) -> None:
    with backend([partial(ledger_vector, 0, 2), partial(ledger_vector, 2, 2)]) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match="one vector env, or the agents"):
            envs.send_reset([0])
        envs.send_reset([0, 1], seed=[7, 8])
        envs.send(np.zeros(2, np.int64), [2, 3])
        received = envs.recv(4)
        rows = dict(zip(received.env_ids.tolist(), received.observations.tolist(), strict=True))
        assert [rows[row][2] for row in range(4)] == [0, 0, 1, 1]
        assert [rows[row][4] for row in (0, 1)] == [alone(0, 7)[0][4], alone(1, 8)[0][4]]


@diagonal(
    options=[None, {"time": 1}],
    is_member=[False, True],
    mode=[AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP],
)
def test_autoresets_after_it_get_no_options(mode: Any, is_member: bool, options: Any) -> None:
    env_fns = [partial(ledger_vector, 0, 2, mode)] if is_member else ledgers(2)
    with SyncVectorEnv(env_fns, autoreset_mode=mode) as envs:
        envs.reset(seed=0, options=[{"time": 0}] * 2)
        envs.send_reset(options=options)
        envs.recv(2)
        for _ in range(20):
            envs.step(np.zeros(2, np.int64))
        for env in envs.envs[0].envs if is_member else envs.envs:
            assert env.options[:2] == [{"time": 0}, options]
            assert len(env.options) > 3 and not any(env.options[2:])


def test_options_and_fresh_entropy() -> None:
    with SyncVectorEnv(ledgers(2)) as envs:
        envs.reset(seed=0)
        envs.send_reset(seed=3, options={"time": 1})
        assert envs.recv().observations[:, 2].tolist() == [1, 1]
        assert [env.seeds[-1] for env in envs.envs] == [3, 4]
        envs.send_reset([1])
        envs.recv(1)
        assert envs.envs[1].seeds[-1] is None
        with pytest.raises(TypeError, match="options must be a mapping"):
            envs.send_reset([0], options=3)  # type: ignore[arg-type]  # what is tried
        with pytest.raises(ValueError, match="expected 1 seeds"):
            envs.send_reset([0], seed=[1, 2])


def test_the_first_reset_is_one_of_all() -> None:
    with SyncVectorEnv(ledgers(2)) as envs, pytest.raises(ResetNeededError, match="call reset"):
        envs.send_reset([0])


def test_record_episode_statistics_counts_from_there() -> None:
    with RecordEpisodeStatistics(SyncVectorEnv(ledgers(2), autoreset_mode="Disabled")) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
        envs.send_reset([1], seed=[4])
        envs.recv(1)
        assert envs.episode_lengths.tolist() == [1, 0]
        for _ in range(3):
            envs.send(np.zeros(1, np.int64), [1])
            received = envs.recv(1)
        assert received.infos["episode"]["l"].tolist() == [3]


def test_record_video_refuses_it(tmp_path: Path) -> None:
    envs = SyncVectorEnv([partial(Ledger, render_mode="rgb_array")])
    with (
        RecordVideo(envs, tmp_path / "out.gif") as recorded,
        pytest.raises(ValueError, match="use step"),
    ):
        recorded.send_reset([0])


# ---------------------------------------------------------------------- deaths


class Mortal(Ledger):
    """A ledger that dies at the action 4, and in a reset with the seed 666."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == 666:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if action == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_an_episode_that_dies_as_it_begins_is_reported_lost() -> None:
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


@pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")
def test_a_function_decides_about_each_death() -> None:
    deaths: list[WorkerDiedError] = []

    def judge(error: WorkerDiedError) -> None:
        deaths.append(error)
        if len(deaths) == 2:
            raise error

    env_fns = [partial(Mortal, number) for number in range(4)]
    with AsyncVectorEnv(env_fns, num_workers=2, on_worker_death=judge) as envs:
        envs.reset(seed=0)
        *_, infos = envs.step(np.array([0, 0, 0, 4]))
        assert infos["worker_restarted"].tolist() == [False, False, True, True]
        envs.step(np.zeros(4, np.int64))
        with pytest.raises(WorkerDiedError, match="while environment 0 was running") as caught:
            envs.step(np.array([4, 0, 0, 0]))
        assert caught.value is deaths[1]
        assert [death.running for death in deaths] == [3, 0]
        # A later death is another one, though it is again the first restart of its worker.
        envs.reset(seed=1)
        envs.step(np.array([4, 0, 0, 0]))
        assert [death.running for death in deaths] == [3, 0, 0]


def test_a_failed_row_is_built_again_once_though_a_reset_comes_before_its_reply() -> None:
    built = []

    def make() -> Ledger:
        built.append(Ledger())
        return built[-1]

    def fail(env: Ledger) -> None:
        env.step = lambda action: 1 / 0  # type: ignore[method-assign]

    with SyncVectorEnv([make, Ledger]) as envs:
        envs.reset(seed=0)
        envs.call(fail, env_ids=[0])
        envs.send(np.array([1]), [0])
        with pytest.raises(ZeroDivisionError):
            envs.recv(2)
        envs.send_reset([0], seed=7)
        envs.reset(seed=1)
        assert len(built) == 2
        assert built[1].seeds == [7, 1]
