"""`send_reset`: episodes that begin with a seed of their own, while other environments step."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.envs import Ledger, ledger_vector, ledgers
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv


@pytest.mark.parametrize(("is_member", "mode"), [(False, "NextStep"), (True, "SameStep")])
def test_autoresets_after_it_get_no_options(is_member: bool, mode: Any) -> None:
    env_fns = [partial(ledger_vector, 0, 2, AutoresetMode(mode))] if is_member else ledgers(2)
    with SyncVectorEnv(env_fns, autoreset_mode=mode) as envs:
        envs.reset(seed=0, options=[{"time": 0}] * 2)
        envs.send_reset(options={"time": 1})
        envs.recv(2)
        for _ in range(20):
            envs.step(np.zeros(2, np.int64))
        for env in envs.envs[0].envs if is_member else envs.envs:
            assert env.options[:2] == [{"time": 0}, {"time": 1}]
            assert len(env.options) > 3 and not any(env.options[2:])


# ---------------------------------------------------------------------- deaths


class Mortal(Ledger):
    """A ledger that dies in a reset with the seed 666."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == 666:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)


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
