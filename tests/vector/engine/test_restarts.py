"""Restarts of workers: any death, any start method, the budget, late workers, two deaths.

What a restarted row shows is in `WorkersContract`, which test_contract.py runs.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.contract.workers import (
    ACTIONS,
    KEPT,
    LONG,
    LOSSES,
    LOST,
    assert_lost,
    assert_shows_last_known,
    respawned,
    stack,
    take,
)
from tests.crosses import FASTEST, diagonal, ordinarily
from tests.envs import Ledger
from tests.envs.faulty import (
    FAULTS,
    GATE,
    Factory,
    Fault,
    FaultyEnv,
    OddError,
    arm,
    disarmed,
    factories,
    open_gate,
)
from tests.vector.bounds import overrun, stretched, wait_until_idle, within
from vecspaces.errors import ResetNeededError, StepTimeoutError, WorkerDiedError
from vecspaces.spaces import Discrete, Sequence
from vecspaces.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from vecspaces.vector.engine import restarts as session_restarts
from vecspaces.vector.engine import waits
from vecspaces.vector.exchange import deadline
from vecspaces.vector.exchange.failures import Death, died, overdue

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="deaths are POSIX signals")

MODES = list(AutoresetMode)


def restarts(deed: str) -> dict[str, Any]:
    """The arguments with which a worker is restarted after this."""
    if "hang" in deed:
        return {"on_step_timeout": "restart", "step_timeout": 30.0}
    return {"on_worker_death": "restart"}


@pytest.fixture
def let_hang(hurry: Any) -> Callable[..., None]:
    """Let environments hang whose triggers are in some folders: the bound then passes at once."""

    def let_hang(*folders: Path, workers: tuple[int, ...] = (1,)) -> None:
        for folder in folders:
            arm(folder)
        hurry(lambda: all(map(disarmed, folders)), *workers)

    return let_hang


def make(env_fns: Any, deed: str = "SIGKILL", **arguments: Any) -> Any:
    arguments = {"num_workers": 2, "context": FASTEST, **restarts(deed), **arguments}
    return AsyncVectorEnv(env_fns, **arguments)


def start(folder: Path, deed: str = "SIGKILL", where: str = "step", **arguments: Any) -> Any:
    """Two workers of two environments, two steps into an episode; the second may be lost."""
    envs = make(factories(4, folder, deed, where, episode=LONG), deed, **arguments)
    envs.reset(seed=5)
    for _ in range(2):
        envs.step(ACTIONS)
    return envs


# ---------------------------------------------------------------------- the step that was lost


def kill(envs: Any, worker: int) -> None:
    """Kill a worker that is idle, and wait until it is gone."""
    process = envs.processes[worker]
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@pytest.mark.parametrize(
    "mode", ordinarily(lambda mode: mode is AutoresetMode.NEXT_STEP, zip(MODES, strict=True))
)
def test_deaths_between_two_steps_lose_the_next_step_and_stats_count_them(
    mode: AutoresetMode, tmp_path: Path
) -> None:
    with start(tmp_path, autoreset_mode=mode, stats=True) as envs:
        assert envs.stats().restarts.tolist() == [0, 0]
        for count in (1, 2):
            kill(envs, 1)
            if mode is AutoresetMode.NEXT_STEP:  # a call of other environments does not notice it
                assert envs.call("poke", env_ids=[0]) == (1,)
            assert_lost(envs.step(ACTIONS))
            stats = envs.stats()
            assert stats.restarts.tolist() == [0, count]
            assert stats.lost_episodes.tolist() == [0, 0, count, count]
            if mode is AutoresetMode.DISABLED:
                envs.reset(options={"reset_mask": np.isin(range(4), LOST)})
        kill(envs, 1)
        envs.reset()  # gives the episodes up: no step reports their loss
        stats = envs.stats()
        assert (stats.restarts.tolist(), stats.lost_episodes.tolist()) == ([0, 3], [0, 0, 2, 2])


# ---------------------------------------------------------------------- the budget


@pytest.mark.parametrize("deed", LOSSES)
def test_too_many_losses_raise_and_tell_the_history(
    deed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, let_hang: Any
) -> None:
    kind: Any = WorkerDiedError
    did, what = "died", "worker 1 (environments 2, 3) was ended by SIGKILL"
    window, within = math.inf, ""
    if deed == "hang":
        kind, window, within = StepTimeoutError, 60.0, " within 60 s"
        did, what = "overran step_timeout", "step did not end within"
    with start(tmp_path, deed, max_restarts=1, restart_window=window) as envs:
        lose = let_hang if deed == "hang" else arm
        lose(tmp_path)
        assert_lost(envs.step(ACTIONS))
        envs.step(ACTIONS)
        lose(tmp_path)
        with pytest.raises(kind) as caught:
            envs.step(ACTIONS)
        error = caught.value
        assert error.env_ids == (2, 3)
        if isinstance(error, WorkerDiedError):
            assert (error.worker, error.command, error.running) == (1, "step", 2)
            assert (error.exitcode, error.signal is not None) == (-9, True)
        else:
            assert error.running == (2,)
        assert f"workers {did} 2 times{within}, and max_restarts is 1" in str(error)
        assert "\nenvironment 2 (" in str(error)
        assert str(error).count(f"s ago: {what}") == 2
        (record,) = [record for record in caplog.records if record.name == "vecspaces"]
        line = record.getMessage()
        assert record.levelname == "WARNING" and "\n" not in line
        assert line.startswith(what) and "environment 2" in line
        assert line.endswith(f": restarted; restarts left{within}: 0 of 1")
        envs.reset(seed=1)
        envs.step(ACTIONS)


@pytest.mark.parametrize(
    ("where", "deed"),
    ordinarily(lambda where, deed: deed == "SIGKILL", product(["reset", "step", "call"], LOSSES)),
)
def test_max_restarts_ends_a_loop_of_losses(where: str, deed: str) -> None:
    arguments = {**restarts(deed), "max_restarts": 1}
    if deed == "hang":
        arguments["step_timeout"] = overrun(0.25)
    envs = make([*map(Factory, range(3)), Doomed(where, deed)], **arguments)
    kinds = (WorkerDiedError, StepTimeoutError)
    with pytest.raises(kinds, match=r"workers (died|overran step_timeout) 2 times"):
        envs.reset()
        for _ in range(2):
            envs.call("poke")
            envs.step(ACTIONS)
            envs.step(ACTIONS)
    envs.close(terminate=True)


class Doomed:
    """Makes environments that are lost in one place, every time."""

    def __init__(self, where: str, deed: str) -> None:
        self.where, self.deed = where, deed

    def __call__(self) -> FaultyEnv:
        env = FaultyEnv(3)
        if self.where == "call":
            env.poke = FAULTS[self.deed]  # type: ignore[method-assign]
        else:
            setattr(env, self.where, lambda *_, **__: FAULTS[self.deed]())
        return env


@pytest.mark.parametrize("deed", ["exception", "hang"])
def test_an_env_fn_that_fails_or_hangs_at_the_restart_is_an_error(
    deed: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, let_hang: Any
) -> None:
    last = Factory(3, Fault(deed, "build", tmp_path / "trigger"))
    env_fns = [*map(Factory, range(3)), last]
    with make(env_fns, start_timeout=60.0) as envs:
        envs.reset(seed=5)
        (let_hang if deed == "hang" else arm)(tmp_path)
        kill(envs, 1)
        with pytest.raises((OddError, StepTimeoutError)) as caught:
            envs.step(ACTIONS)
        if isinstance(caught.value, StepTimeoutError):
            assert "again did not end within start_timeout" in str(caught.value)
            assert caught.value.env_ids == (2, 3)
            text = "environments 2, 3: not built again within start_timeout"
            assert caplog.record_tuples[-1] == ("vecspaces", logging.WARNING, text)
        else:
            assert "environment 3 (worker 1) failed in build" in str(caught.value.__cause__)
        with pytest.raises(ResetNeededError):
            envs.step(ACTIONS)
        envs.reset(seed=5)
        envs.step(ACTIONS)


def test_recv_with_a_timeout_waits_for_no_worker_to_be_built(tmp_path: Path) -> None:
    last = Factory(3, Fault("hang", "build", tmp_path / "trigger"))
    with make([*map(Factory, range(3)), last], start_timeout=60.0) as envs:
        envs.reset(seed=5)
        arm(tmp_path)
        kill(envs, 1)
        envs.send(ACTIONS)
        ready: set[int] = set()
        while ready != {0, 1}:
            ready.update(envs.recv(1).env_ids.tolist())
        with within(10.0):
            assert envs.recv(2, timeout=0.2, at_least=0).env_ids.tolist() == []
            for seconds in (0.0, 0.2):
                with pytest.raises(StepTimeoutError) as late:
                    envs.recv(1, timeout=seconds)
        assert late.value.env_ids == (2, 3)


def test_reset_options_survive_a_restart() -> None:
    env_fns: list[Any] = [partial(Ledger, number, length=9) for number in range(3)]
    env_fns[2] = partial(SyncVectorEnv, env_fns[2:])
    with make(env_fns, num_workers=3) as envs:
        options = [{"time": 3}, {"time": 4}, {"time": 5}]
        envs.reset(seed=5, options=options)
        for worker in (1, 2):
            kill(envs, worker)
        envs.step([0] * 3)
        assert envs.step([0] * 3)[0][1:, 2].tolist() == [4, 5]
        assert envs.get_attr("options")[1:] == ([options[1]], [options[2]])


class Growing(FaultyEnv):
    """Observations of variable size, some too large for the arena."""

    observation_space = Sequence(Discrete(1000))  # type: ignore[assignment]

    def _observe(self, invalid: str | None) -> Any:
        return tuple(range(self._steps * 200 + self.index))


@diagonal(arguments=[{"variable_capacity": 64}, {"shared_memory": False}], mode=MODES)
def test_last_known_observations_of_variable_size_are_shown_too(
    arguments: dict[str, Any], mode: AutoresetMode
) -> None:
    env_fns = [partial(Growing, number, episode=LONG) for number in range(2)]
    with make(env_fns, autoreset_mode=mode, **arguments) as envs:
        envs.reset(seed=5)
        known, *_ = envs.step([0, 0])
        kill(envs, 1)
        observations, *_, infos = envs.step([0, 0])
        assert len(observations[0]) == 400
        if mode is AutoresetMode.SAME_STEP:
            assert observations[1] == (0,)
            assert infos["final_obs"][1] == known[1]
        else:
            assert observations[1] == known[1]


def test_restart_window_forgets_older_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(session_restarts.time, "monotonic", lambda: now)
    budget = session_restarts.RestartBudget(max_restarts=1, window=10.0)
    death = died(0, [0], "step", Death(-9), -1, "so it goes")
    budget.spend(death, Death(-9))
    now = 110.5
    loss = Death(-9)
    budget.spend(death, loss)
    budget.spend(death, loss)  # an interrupt may repeat what was counted
    now = 111.0
    late = overdue("step", 2.0, [1], [1], "hurry")
    expected = r"died or overran step_timeout 2 times.*0\.5 s ago: worker 0.*; 0\.0 s ago: step did"
    with pytest.raises(StepTimeoutError, match=expected):
        budget.spend(late, late)


@pytest.mark.parametrize("deed", LOSSES)
def test_max_restarts_zero_raises_at_once_also_when_the_window_is_over(
    deed: str, tmp_path: Path, let_hang: Any
) -> None:
    with start(tmp_path, deed, max_restarts=0, restart_window=0.01) as envs:
        for _ in range(2):
            envs.reset(seed=5)
            time.sleep(0.02)
            (let_hang if deed == "hang" else arm)(tmp_path)
            with pytest.raises((WorkerDiedError, StepTimeoutError), match=r"(died|timeout) once"):
                envs.step(ACTIONS)
        with within(3):  # what hangs is gone already
            envs.close()


def test_on_worker_death_may_decide_about_each_death(tmp_path: Path) -> None:
    deaths: list[WorkerDiedError] = []

    def judge(error: WorkerDiedError) -> None:
        deaths.append(error)
        if len(deaths) == 2:
            raise ArithmeticError("enough")

    with start(tmp_path, on_worker_death=judge) as envs:
        arm(tmp_path)
        assert_lost(envs.step(ACTIONS))
        envs.step(ACTIONS)
        arm(tmp_path)
        with pytest.raises(ArithmeticError, match="enough"):
            envs.step(ACTIONS)
        with pytest.raises(ResetNeededError):
            envs.step_wait()
        # A later death is another one, though it is again the first restart of its worker.
        envs.reset(seed=0)
        arm(tmp_path)
        assert_lost(envs.step(ACTIONS))
        assert [death.running for death in deaths] == [2] * 3


# ---------------------------------------------------------------------- what is late


def hanging(folder: Path, *rows: int) -> list[Factory]:
    """Four environments, of which these hang in a step while they are armed."""
    fns = [Factory(row, episode=LONG) for row in range(4)]
    for row in rows:
        (folder / str(row)).mkdir()
        fns[row] = Factory(row, Fault("hang", "step", folder / str(row) / "trigger"), None, LONG)
    return fns


def test_on_step_timeout_counts_workers_late_together_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, let_hang: Any
) -> None:
    errors: list[StepTimeoutError] = []
    options: dict[str, Any] = {"on_step_timeout": errors.append, "max_restarts": 1}
    with make(hanging(tmp_path, 1, 3), "hang", **options) as envs:
        envs.reset(seed=5)
        for stream in (False, True):
            envs.step(ACTIONS)
            let_hang(tmp_path / "1", tmp_path / "3", workers=(0, 1))
            if stream:  # the second one is too many
                envs.send(ACTIONS[LOST], LOST)
                envs.send(ACTIONS[KEPT], KEPT)
                with pytest.raises(StepTimeoutError, match="overran step_timeout 2 times"):
                    envs.recv(4)
            else:
                *_, truncations, infos = envs.step(ACTIONS)
                assert truncations.all() and infos["worker_restarted"].all()
                assert len(caplog.records) == 1
        assert [sorted(error.env_ids) for error in errors] == [[0, 1, 2, 3]] * 2
        envs.close(terminate=True)


def test_recv_notices_a_hung_row_while_others_go_on(tmp_path: Path) -> None:
    options = {"num_workers": 4, "step_timeout": overrun(0.25)}
    with make(hanging(tmp_path, 3), "hang", **options) as envs:
        envs.reset(seed=5)
        arm(tmp_path / "3")
        envs.send(ACTIONS)
        began, received, lost = time.monotonic(), 0, False
        while not lost:
            assert time.monotonic() - began < stretched(10)
            got = envs.recv(1)
            lost = bool(got.truncations[0])
            assert got.env_ids[0] == 3 if lost else got.env_ids[0] != 3
            envs.send(ACTIONS[got.env_ids], got.env_ids)
            received += 1
            time.sleep(0.01)  # one in many is enough, and leaves the cores to others
        assert received > 4
        assert got.infos["worker_restarted"].tolist() == [True]
        assert time.monotonic() - began > 0.25


class Wordy(FaultyEnv):
    """Has infos that no pipe holds."""

    def _inform(self, invalid: str | None) -> Any:
        return {"words": "x" * 5_000_000}


def test_recv_finds_no_row_late_that_answered_unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    # The rest of an answer may take its worker longer, on a busy machine.
    monkeypatch.setattr(waits, "_LATE_GRACE", 10.0)
    ahead = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead)
    monkeypatch.setattr(deadline, "time", clock)
    kinds = (Wordy, Wordy, FaultyEnv)
    env_fns = [partial(kind, number, episode=LONG) for number, kind in enumerate(kinds)]
    with make(env_fns, "hang", num_workers=3) as envs:
        envs.reset()
        envs.send(ACTIONS[:3])
        for _ in kinds:  # a long answer is received in part when the caller stops listening
            for process in envs.processes:
                wait_until_idle(process.pid)
            ahead += 1000.0
            assert not envs.recv(1).truncations.any()


def test_step_wait_with_a_timeout_restarts_nothing(tmp_path: Path, hurry: Any) -> None:
    with start(tmp_path, "hang") as envs:
        pids = [process.pid for process in envs.processes]
        arm(tmp_path)
        envs.step_async(ACTIONS)
        for _ in range(2):
            hurry(partial(disarmed, tmp_path), 1)
            with pytest.raises(StepTimeoutError, match=r"wait again, call reset\(\)") as late:
                envs.step_wait(timeout=30.0)
            assert (late.value.env_ids, late.value.running) == ((2, 3), (2,))
        assert [process.pid for process in envs.processes] == pids
        hurry(partial(disarmed, tmp_path), 1)
        assert_lost(envs.step_wait())


def test_deaths_and_timeouts_are_decided_one_by_one(tmp_path: Path, let_hang: Any) -> None:
    errors: list[Exception] = []
    with start(tmp_path, "hang") as envs:  # whose on_worker_death is "raise"
        kill(envs, 1)
        with pytest.raises(WorkerDiedError, match='on_worker_death="restart" goes on by itself'):
            envs.step(ACTIONS)
    both = {**restarts("hang"), "on_step_timeout": errors.append, "on_worker_death": errors.append}
    with start(tmp_path, "hang", max_restarts=1, **both) as envs:
        let_hang(tmp_path)
        assert_lost(envs.step(ACTIONS))
        kill(envs, 1)
        expected = "workers died or overran step_timeout 2 times"
        with pytest.raises(WorkerDiedError, match=expected):
            envs.step(ACTIONS)
    assert [type(error) for error in errors] == [StepTimeoutError, WorkerDiedError]


# ---------------------------------------------------------------------- two deaths


@diagonal(memory=[{"buffers": 3}, {}, {"shared_memory": False}], mode=MODES)
def test_the_last_known_observation_is_shown_after_both_deaths(
    memory: dict[str, Any], mode: AutoresetMode, tmp_path: Path
) -> None:
    """The second worker dies after it has answered, in the same step."""
    gate = tmp_path / "gate"
    gate.mkdir()
    env_fns = factories(4, tmp_path, "SIGKILL", "step", episode=LONG)
    env_fns[0] = Factory(0, Fault(GATE, "step", gate / "trigger"), None, LONG)
    os.mkfifo(gate / "gate")
    with make(env_fns, autoreset_mode=mode, **memory) as envs:
        envs.reset(seed=5)
        known = [envs.step(ACTIONS)[0] for _ in range(2)][1]
        arm(tmp_path)
        arm(gate)
        envs.step_async(ACTIONS)
        pid = envs.processes[1].pid
        while envs.processes[1].pid == pid:
            with pytest.raises(StepTimeoutError):
                envs.step_wait(timeout=0.05)
        wait_until_idle(envs.processes[1].pid)
        with pytest.raises(StepTimeoutError):
            envs.step_wait(timeout=0.05)
        kill(envs, 1)
        open_gate(gate)
        result = envs.step_wait()
        for count in (1, 2):
            assert_lost(result)
            assert_shows_last_known(result, known, mode)
            if mode is AutoresetMode.SAME_STEP:
                known = result[0]
                firsts = stack([respawned(row, count)[1] for row in LOST])
                assert_identical(take(known, LOST), firsts)
            if mode is AutoresetMode.DISABLED:  # a reset ends the loss of the second life too
                envs.reset(options={"reset_mask": np.isin(range(4), LOST)})
                assert not envs.step(ACTIONS)[3].any()
                break
            if count == 1:
                result = envs.step(ACTIONS)
