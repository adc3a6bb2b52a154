"""restart: workers that are ended on request, in every state, and what their rows need then."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.envs import Gated, Ledger, ledgers
from tests.vector.bounds import within
from vecspaces.errors import ClosedEnvironmentError, ResetNeededError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.wrappers import RecordEpisodeStatistics

WAYS: dict[str, Any] = {
    "sync": SyncVectorEnv,
    "one each": partial(AsyncVectorEnv, num_workers=4),
    "two each": partial(AsyncVectorEnv, num_workers=2),
    "pipes": partial(AsyncVectorEnv, num_workers=2, shared_memory=False),
}
in_all = pytest.mark.parametrize("way", WAYS)
WITH_1 = {"sync": [1], "one each": [1], "two each": [0, 1], "pipes": [0, 1]}


def pid_of(env: Any) -> int:
    """The process of an environment: to be sent into it with `call`."""
    return os.getpid()


@in_all
def test_restart_needs_a_reset_of_its_rows_alone(way: str) -> None:
    with WAYS[way](ledgers(4)) as envs, SyncVectorEnv(ledgers(4)) as alone:
        envs.reset(seed=0)
        envs.step([0, 1, 2, 3])
        before = envs.call(pid_of)
        rows = envs.restart([1])
        assert rows.dtype == np.int64 and rows.tolist() == WITH_1[way]
        with pytest.raises(ResetNeededError, match="must be reset first, by reset or send_reset"):
            envs.step([0] * 4)
        mask = np.isin(np.arange(4), rows)
        observations, _ = envs.reset(seed=[10, 11, 12, 13], options={"reset_mask": mask})
        expected, _ = alone.reset(seed=[10, 11, 12, 13])
        assert_identical(observations[mask], expected[mask])
        assert envs.get_attr("episode") == (1,) * 4
        assert envs.get_attr("time") == tuple(np.where(mask, 0, 1))
        replaced = [new != old for new, old in zip(envs.call(pid_of), before, strict=True)]
        assert replaced == ([False] * 4 if way == "sync" else mask.tolist())
        assert envs.restart().tolist() == [0, 1, 2, 3]
        envs.reset(seed=5)
        assert envs.get_attr("seeds") == ([5], [6], [7], [8])


@in_all
def test_restart_drops_what_rows_of_a_stream_have_not_read(way: str) -> None:
    with WAYS[way](ledgers(4)) as envs:
        envs.reset(seed=0)
        assert len(envs.recv(1).env_ids) == 1
        rows = envs.restart([1])  # its first observation was not received
        rest = [row for row in range(4) if row not in rows]
        left = [row for row in rest if row != 0]
        assert sorted(envs.recv(len(left)).env_ids.tolist()) == left
        envs.send([1] * len(rest), rest)
        envs.send_reset(rows, seed=[7] * len(rows))
        received = envs.recv(4)
        times = dict(zip(received.env_ids.tolist(), received.observations[:, 2], strict=True))
        assert times == {row: int(row in rest) for row in range(4)}


def test_restart_lets_a_pending_step_raise(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    env_fns = [partial(Gated, gate, number) for number in range(4)]
    with AsyncVectorEnv(env_fns, num_workers=4) as envs, within(20):
        envs.reset(seed=0)
        envs.step_async([0, 4, 0, 0])
        assert envs.restart([1], terminate=True).tolist() == [1]
        with pytest.raises(ResetNeededError, match="step: restart built environment 1 again: "):
            envs.step_wait()
        with pytest.raises(ResetNeededError):
            envs.step([0] * 4)
        envs.reset(seed=0)
        assert envs.get_attr("episode") == (2, 1, 2, 2)


def test_restart_with_terminate_ends_a_hang_alone(tmp_path: Path) -> None:
    env_fns = [partial(Gated, tmp_path / "gate", number) for number in range(2)]
    with AsyncVectorEnv(env_fns, num_workers=2) as envs, within(20):
        envs.reset(seed=0)
        envs.recv()
        envs.send([0, 4])
        assert envs.recv(1).env_ids.tolist() == [0]
        envs.send_reset(envs.restart([1], terminate=True), seed=3)
        received = envs.recv(1)
        assert received.env_ids.tolist() == [1] and envs.get_attr("seeds")[1] == [3]


class Fragile(Ledger):
    """Cannot be built a second time, and not closed, while files of these names exist."""

    def __init__(self, folder: Path) -> None:
        if (folder / "build").exists():
            raise FloatingPointError("no license")
        super().__init__()
        self._folder = folder

    def close(self) -> None:
        if (self._folder / "close").exists():
            raise OSError("no context")


@in_all
def test_restart_lets_the_reset_raise_what_the_factory_raises(way: str, tmp_path: Path) -> None:
    with WAYS[way]([partial(Fragile, tmp_path)] * 4) as envs:
        envs.reset(seed=0)
        envs.recv()
        (tmp_path / "build").touch()
        rows = envs.restart([3])
        envs.send_reset(rows)
        with pytest.raises(FloatingPointError, match="no license"):
            envs.recv(len(rows))
        (tmp_path / "build").unlink()
        envs.reset(seed=0)
        assert envs.get_attr("episode")[3] == 1


def test_restart_logs_a_worker_that_does_not_close_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with AsyncVectorEnv([partial(Fragile, tmp_path)] * 2, num_workers=2) as envs:
        envs.reset(seed=0)
        (tmp_path / "close").touch()
        envs.restart([1], terminate=True)
        assert caplog.messages == []
        envs.restart([0])
        (text,) = caplog.messages
        assert text.startswith("worker 0 (environment 0) raised while it closed: OSError: no con")
        assert text.endswith("; it is replaced")
        (tmp_path / "close").unlink()
        envs.reset(seed=0)


def test_restart_does_not_count_as_a_restart_after_a_death() -> None:
    options: Any = {"on_worker_death": "restart", "max_restarts": 0, "stats": True}
    with AsyncVectorEnv(ledgers(2), num_workers=2, **options) as envs:
        for seed in range(3):
            envs.reset(seed=seed)
            envs.step([0, 0])
            envs.restart()
        envs.reset(seed=0)
        assert envs.stats().restarts.tolist() == [0, 0]


def test_restart_passes_wrappers_and_episodes_begin_anew() -> None:
    env_fns = [partial(Ledger, talks=False)] * 2
    with RecordEpisodeStatistics(SyncVectorEnv(env_fns)) as envs:
        envs.reset(seed=0)
        envs.step([0, 0])
        assert envs.restart([1]).tolist() == [1]
        envs.reset(options={"reset_mask": np.array([False, True])})
        for _ in range(2):
            *_, infos = envs.step([0, 0])
        assert infos["_episode"].tolist() == [True, False] and infos["episode"]["l"][0] == 3


def test_restart_after_close_is_refused() -> None:
    envs = SyncVectorEnv(ledgers(1))
    envs.close()
    with pytest.raises(ClosedEnvironmentError, match="restart was called after close"):
        envs.restart()
