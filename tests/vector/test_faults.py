"""The table of faults: the error of everything that may go wrong in an environment, at once."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.compare import assert_identical
from tests.crosses import FASTEST, ordinarily
from tests.envs import faulty as faulty_envs
from tests.envs.faulty import FaultyEnv, OddError, arm, built, disarmed, factories
from tests.vector.bounds import overrun, within
from vecspaces.errors import (
    AlreadyPendingCallError,
    InvalidInfoError,
    InvalidObservationError,
    InvalidRewardError,
    ResetNeededError,
    StepTimeoutError,
    WorkerDiedError,
    WorkerError,
)
from vecspaces.vector import AsyncVectorEnv, SyncVectorEnv
from vecspaces.vector.exchange.failures import Failure

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="faults are POSIX signals")

NUM_ENVS = 4
VICTIM = 2
ACTIONS = np.array([0, 1, 2, 1])
HANG_SECONDS = 0.3
# A bound that passes when only what hangs is awaited (`hurry`).
BOUND_SECONDS = 100.0

DEATHS = {
    "SIGKILL": (-9, "SIGKILL (often the kernel's out-of-memory killer)"),
    "segfault": (-11, "SIGSEGV (a crash in native code, often the simulator's)"),
    "os._exit": (3, None),
}
TEXTS = {
    "SystemExit": "SystemExit: 7",
    "unpicklable exception": "the gripper is locked",
    "unloadable exception": "the gripper is lost (41)",
}
OWN_TYPES: dict[str, type[Exception]] = {"exception": OddError, "out of memory": MemoryError}
HANGS = ("hang", "hang in native code")
HARMLESS = ("megabytes on stdout",)
PLACES = ("build", "reset", "step", "call", "close")
ANYWHERE = (*DEATHS, *TEXTS, *OWN_TYPES, *HANGS, *HARMLESS)
SPOILS: dict[str, type[Exception]] = {
    **dict.fromkeys(faulty_envs.INVALID_OBSERVATIONS, InvalidObservationError),
    **dict.fromkeys(faulty_envs.INVALID_REWARDS, InvalidRewardError),
    **dict.fromkeys(faulty_envs.INVALID_INFOS, InvalidInfoError),
}
# What the caller cannot unpickle it cannot attribute either: the worker's environments are named.
GARBLED = "info that cannot be unpickled"


class Case(NamedTuple):
    """One cell of the table: what happens, where, and how many processes share the environments."""

    deed: str
    where: str
    workers: int

    @property
    def worker(self) -> int:
        """The worker that holds the victim."""
        return VICTIM * self.workers // NUM_ENVS

    @property
    def slice(self) -> tuple[int, ...]:
        """The environments of that worker."""
        count = NUM_ENVS // self.workers
        return tuple(range(self.worker * count, (self.worker + 1) * count))

    @property
    def breaks(self) -> bool:
        """Whether the vector env needs a reset afterwards."""
        if self.deed in HARMLESS:
            return False
        return self.where != "call" or self.deed in DEATHS or self.deed in HANGS


CELLS = [(deed, where) for deed in ANYWHERE for where in PLACES]
CELLS += [(deed, where) for deed in faulty_envs.INVALID_OBSERVATIONS for where in ("reset", "step")]
CELLS += [(deed, "step") for deed in faulty_envs.INVALID_REWARDS]
CELLS += [(deed, where) for deed in faulty_envs.INVALID_INFOS for where in ("reset", "step")]
TABLE = [Case(deed, where, workers) for deed, where in CELLS for workers in (1, 2, 4)]


def name(case: Case) -> str:
    return f"{case.deed}-{case.where}-{case.workers}"


def is_ordinary(case: Case) -> bool:
    """Whether a case is in the ordinary run: every other place of each deed, 1 to 4 workers."""
    place = (*ANYWHERE, *SPOILS).index(case.deed) + PLACES.index(case.where)
    if case.deed in SPOILS and (case.where == "reset" or place % 3):  # as others of its kind
        return False
    return place % 2 == 0 and case.workers == (2, 1, 2, 4)[place // 2 % 4]


def make(case: Case, folder: Path, hurry: Callable[..., None]) -> AsyncVectorEnv[Any, Any]:
    env_fns = factories(NUM_ENVS, folder, case.deed, case.where, VICTIM)
    arguments: dict[str, Any] = {"num_workers": case.workers, "context": FASTEST}
    if case.deed in HANGS:
        arguments |= {"step_timeout": BOUND_SECONDS, "start_timeout": BOUND_SECONDS}
        if case.where == "build":
            hurry(partial(disarmed, folder), case.worker)
    return AsyncVectorEnv(env_fns, **arguments)


def suffer(
    case: Case, folder: Path, envs: AsyncVectorEnv[Any, Any], hurry: Callable[..., None]
) -> Exception | None:
    """Bring the fault about, after construction; give the error that came."""
    if case.where != "reset":
        envs.reset(seed=5)
        envs.step(ACTIONS)
    arm(folder)
    if case.deed in HANGS:
        hurry(partial(disarmed, folder), case.worker)
    deeds = {
        "reset": lambda: envs.reset(seed=6),
        "step": lambda: envs.step(ACTIONS),
        "call": lambda: envs.call("poke"),
        "close": lambda: envs.close(timeout=overrun(HANG_SECONDS) if case.deed in HANGS else None),
    }
    error = None
    with within(5.0):
        try:
            deeds[case.where]()
        except Exception as caught:
            error = caught
    assert disarmed(folder), "the fault did not strike"
    return error


def check_truth(error: Exception | None, case: Case) -> None:
    """The error names what happened, where, and to whom."""
    deed, where, _ = case
    if deed in HARMLESS:
        assert error is None
    elif deed in DEATHS:
        exitcode, signal = DEATHS[deed]
        assert type(error) is WorkerDiedError
        assert (error.exitcode, error.signal) == (exitcode, signal)
        assert (error.env_ids, error.worker, error.command) == (case.slice, case.worker, where)
        if where not in ("build", "close"):
            assert f"while environment {VICTIM} was running" in str(error)
    elif deed in HANGS:
        assert isinstance(error, StepTimeoutError)
        first = case.slice[0] if where == "build" else VICTIM
        assert error.env_ids == tuple(row for row in case.slice if row >= first)
    elif deed == GARBLED:
        assert type(error) is WorkerError
        assert (error.env_ids, error.worker, error.command) == (case.slice, case.worker, where)
        assert "could not be unpickled" in str(error)
    elif deed in TEXTS:
        assert type(error) is WorkerError
        assert (error.env_ids, error.worker, error.command) == ((VICTIM,), case.worker, where)
        assert TEXTS[deed] in str(error)
        assert "envs/faulty.py" in str(error), "no traceback of the worker"
    else:
        expected = OWN_TYPES.get(deed) or SPOILS[deed]
        assert type(error) is expected
        shown = "".join(traceback.format_exception(error))
        cause = error.__cause__
        assert isinstance(cause, Failure)
        assert f"environment {VICTIM} (worker {case.worker}) failed in {where}" in str(cause)
        assert str(cause).strip() in shown
        if deed in SPOILS:
            assert f"environment {VICTIM}" in str(error)
        else:
            assert "envs/faulty.py" in str(cause), "no traceback of the worker"


def check_close(case: Case, envs: AsyncVectorEnv[Any, Any]) -> None:
    """`close` ends within its bound, and a second one does nothing."""
    if case.deed in HANGS and case.where != "close":
        with within(5.0), pytest.warns(RuntimeWarning, match="did not close within"):
            envs.close(timeout=HANG_SECONDS)
    else:
        with within(5.0):
            envs.close()
    envs.close()
    assert envs.processes == []


def check_rollout(envs: Any, seed: int = 11) -> None:
    """A rollout gives what environments without faults give in this process."""
    healthy = SyncVectorEnv([lambda i=i: FaultyEnv(i) for i in range(NUM_ENVS)])
    with healthy:
        assert_identical(envs.reset(seed=seed), healthy.reset(seed=seed))
        for _ in range(3):
            assert_identical(envs.step(ACTIONS), healthy.step(ACTIONS))


def check_after(case: Case, folder: Path, envs: AsyncVectorEnv[Any, Any]) -> None:
    """A step says that a reset is needed, if it is, and a reset builds again what it must."""
    if case.breaks:
        expected = AlreadyPendingCallError if case.deed in HANGS else ResetNeededError
        with pytest.raises(expected, match="reset"):
            envs.step(ACTIONS)
    else:
        observations, *_ = envs.step(ACTIONS)
        steps = {"reset": 1, "step": 3, "call": 2}[case.where]
        assert observations["place"][:, 2].tolist() == [steps] * NUM_ENVS
    with within(5.0):
        check_rollout(envs)
    again: tuple[int, ...] = (VICTIM,) if case.breaks else ()
    if case.deed in (*DEATHS, *HANGS, GARBLED):
        again = case.slice
    assert sorted(built(folder)) == sorted([*range(NUM_ENVS), *again])
    with within(5.0):
        envs.close()


@pytest.mark.parametrize("case", ordinarily(is_ordinary, zip(TABLE, strict=True)), ids=name)
def test_the_error_the_state_after_it_and_the_end(case: Case, tmp_path: Path, hurry: Any) -> None:
    folder, envs = tmp_path, None
    try:
        with within(5.0):
            envs = make(case, folder, hurry)
    except Exception as caught:
        error: Exception | None = caught
    else:
        error = None
    if case.where == "build":
        assert disarmed(folder), "the fault did not strike"
        check_truth(error, case)
        if envs is not None:
            check_close(case, envs)
        return
    assert envs is not None, error
    if case.where == "close" and case.deed in HANGS:
        ids = ", ".join(map(str, case.slice)) if len(case.slice) < 4 else "0 to 3"
        with pytest.warns(RuntimeWarning, match=rf"environments? {ids} did not close within"):
            assert suffer(case, folder, envs, hurry) is None
        envs.close()
        return
    try:
        check_truth(suffer(case, folder, envs, hurry), case)
        # With four workers, `close` comes at once.
        if case.where != "close" and case.workers < 4:
            check_after(case, folder, envs)
            return
    finally:
        if not envs.closed:
            check_close(case, envs)
