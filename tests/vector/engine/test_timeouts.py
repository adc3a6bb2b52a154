"""Every wait is bounded, and what comes too late is never taken for something else."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.crosses import FASTEST
from tests.envs.faulty import (
    GATE,
    Factory,
    Fault,
    FaultyEnv,
    OddError,
    arm,
    built,
    factories,
    open_gate,
)
from vecspaces.errors import AlreadyPendingCallError, StepTimeoutError
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the gate is a FIFO")

ACTIONS = np.array([0, 1, 2, 1])
SHORT = 0.05


@pytest.fixture
def healthy() -> Iterator[SyncVectorEnv[Any, Any]]:
    """What the environments give when nothing is late, at the same point of the same rollout."""
    with SyncVectorEnv([lambda i=i: FaultyEnv(i) for i in range(4)]) as envs:
        envs.reset(seed=5)
        envs.step(ACTIONS)
        yield envs


def started(folder: Path, where: str, deed: str = GATE, **arguments: Any) -> AsyncVectorEnv:
    """Two workers, of which the second will be late."""
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        factories(4, folder, deed, where), num_workers=2, context=FASTEST, **arguments
    )
    envs.reset(seed=5)
    envs.step(ACTIONS)
    arm(folder)
    return envs


BEGIN: dict[str, Callable[[Any], Any]] = {
    "reset": lambda envs: envs.reset_async(seed=8),
    "step": lambda envs: envs.step_async(ACTIONS),
    "call": lambda envs: envs.call_async("poke", 3),
}


def wait_in_vain(wait: Callable[..., Any]) -> StepTimeoutError:
    """Return what a wait raises; on a busy machine it is repeated until environment 2 is late."""
    give_up = time.monotonic() + 20
    while True:
        with pytest.raises(StepTimeoutError) as caught:
            wait(timeout=SHORT)
        error = caught.value
        if (error.env_ids == (2, 3) and error.running) or time.monotonic() > give_up:
            return error


def test_recv_without_time_makes_nothing_late(tmp_path: Path) -> None:
    with started(tmp_path, "step") as envs:
        pids = [process.pid for process in envs.processes]
        envs.send(ACTIONS)
        for _ in range(2):
            with pytest.raises(StepTimeoutError):
                envs.recv(4, timeout=0)
        open_gate(tmp_path)
        envs.reset(seed=5)
        assert [process.pid for process in envs.processes] == pids


@pytest.mark.parametrize("what", BEGIN)
def test_waits_after_a_timeout_get_the_right_answer(
    what: str, tmp_path: Path, healthy: Any
) -> None:
    BEGIN[what](healthy)
    expected = getattr(healthy, f"{what}_wait")()
    with started(tmp_path, what) as envs:
        BEGIN[what](envs)
        wait = getattr(envs, f"{what}_wait")
        for _ in range(2):
            assert wait_in_vain(wait).env_ids == (2, 3)
        open_gate(tmp_path)
        assert_identical(wait(), expected)
        assert_identical(envs.step(ACTIONS), healthy.step(ACTIONS))


def test_step_wait_names_who_is_running_and_reset_replaces_it(tmp_path: Path) -> None:
    with started(tmp_path, "step", step_timeout=5.0) as envs:
        envs.step_async(ACTIONS)
        assert re.match(
            r"step did not end within \S+ s: environments 2, 3 still busy "
            r"\(environment 2 running now\): wait again, call reset\(\).*, or close\(\)",
            str(wait_in_vain(envs.step_wait)),
        )
        with pytest.raises(AlreadyPendingCallError, match="that timed out is still pending"):
            envs.step(ACTIONS)
        before = [process.pid for process in envs.processes]
        envs.reset(seed=8)
        after = [process.pid for process in envs.processes]
        assert before[0] == after[0]
        assert before[1] != after[1]
        assert built(tmp_path)[4:] == [2, 3]


def _failed_and_late_envs(folder: Path, where: str, then: str) -> AsyncVectorEnv[Any, Any]:
    """Environment 0 raises while 2, in another worker, is at a gate; then 3 comes to a gate too."""
    late = factories(4, folder, GATE, where)
    for name in ("fails", "later"):
        (folder / name).mkdir()
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(
        [
            Factory(0, Fault("exception", where, folder / "fails" / "trigger")),
            *late[1:3],
            factories(4, folder / "later", GATE, then, row=3)[3],
        ],
        num_workers=2,
        context=FASTEST,
    )
    envs.reset(seed=5)
    envs.step(ACTIONS)
    for place in (folder, folder / "fails", folder / "later"):
        arm(place)
    return envs


@pytest.mark.parametrize(("late", "then"), [("step", "reset"), ("get", "call")])
def test_waits_take_no_late_answer_for_the_next(
    late: str, then: str, tmp_path: Path, healthy: Any
) -> None:
    with _failed_and_late_envs(tmp_path, late, then) as envs:
        with pytest.raises(OddError):
            envs.step(ACTIONS) if late == "step" else envs.get_attr("strength")
        for vector_env in (envs, healthy):
            BEGIN[then](vector_env)
        open_gate(tmp_path)
        with pytest.raises(StepTimeoutError):
            getattr(envs, f"{then}_wait")(timeout=SHORT)  # what was late is done, the next is not
        open_gate(tmp_path / "later")
        assert_identical(getattr(envs, f"{then}_wait")(), getattr(healthy, f"{then}_wait")())
        assert_identical(envs.step(ACTIONS), healthy.step(ACTIONS))


def test_reset_leaves_a_worker_that_was_late_and_answered(tmp_path: Path, healthy: Any) -> None:
    """Else a reset of other rows would build its environments again, and reset none of them."""
    with _failed_and_late_envs(tmp_path, "get", "call") as envs:
        envs.call_async("poke", 5)
        with pytest.raises(StepTimeoutError):
            envs.call_wait(timeout=SHORT)
        open_gate(tmp_path / "later")
        assert envs.call_wait() == (5, 6, 7, 8)
        with pytest.raises(OddError):
            envs.get_attr("strength")  # environment 2 is at its gate, but nobody waited in vain
        before = [process.pid for process in envs.processes]
        options = {"reset_mask": np.arange(4) < 2}
        assert_identical(
            envs.reset(seed=8, options=options), healthy.reset(seed=8, options=options)
        )
        assert [process.pid for process in envs.processes] == before
        open_gate(tmp_path)
        assert_identical(envs.step(ACTIONS), healthy.step(ACTIONS))


def test_recv_that_timed_out_has_lost_nothing_and_a_reset_goes_on(
    tmp_path: Path, healthy: Any
) -> None:
    with started(tmp_path, "step", batch_size=4, step_timeout=5.0) as envs:
        envs.send(ACTIONS)
        assert wait_in_vain(envs.recv).env_ids == (2, 3)
        open_gate(tmp_path)
        transition = envs.recv()
        assert sorted(transition.env_ids.tolist()) == [0, 1, 2, 3]
        assert transition.observations["place"][:, 2].tolist() == [2] * 4
        assert transition.rewards.tolist() == ACTIONS[transition.env_ids].tolist()
        arm(tmp_path)
        envs.send(ACTIONS)
        wait_in_vain(envs.recv)
        assert_identical(envs.reset(seed=8), healthy.reset(seed=8))
        assert built(tmp_path)[4:] == [2, 3]


def test_step_reports_a_death_at_once_beside_a_busy_worker(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    env_fns = factories(4, tmp_path, "hang", "step", row=0)
    env_fns[2] = factories(4, tmp_path / "other", "SIGKILL", "step")[2]
    envs: AsyncVectorEnv[Any, Any] = AsyncVectorEnv(env_fns, num_workers=2, context=FASTEST)
    envs.reset()
    arm(tmp_path)
    arm(tmp_path / "other")
    with pytest.raises(Exception, match=r"worker 1 .*SIGKILL"):
        envs.step(ACTIONS)
    envs.close(terminate=True)


@pytest.mark.parametrize("what", BEGIN)
def test_waits_name_the_lowest_of_several_failed_environments(what: str, tmp_path: Path) -> None:
    env_fns = [Factory(index) for index in range(4)]
    for index, deed in ((1, "exception"), (3, "SystemExit")):
        (tmp_path / str(index)).mkdir()
        env_fns[index] = Factory(index, Fault(deed, what, tmp_path / str(index) / "trigger"))
    with AsyncVectorEnv(env_fns, num_workers=2, context=FASTEST) as envs:
        envs.reset(seed=5)
        for index in (1, 3):
            arm(tmp_path / str(index))
        BEGIN[what](envs)
        with pytest.raises(OddError) as caught:
            getattr(envs, f"{what}_wait")()
        assert "environment 1" in str(caught.value.__cause__)
